//! Mixtures of experts over attention with keys and values of its own.

use super::parts::{Attention, Builder, Experts, Gating, Norms, WIDTH};
use crate::synth::tensors::Content;
use crate::{Array, Value};

/// What most have: all layers alike but for the first few, which are dense.
pub(super) struct Body<'a> {
    pub layers: u32,
    pub dense: u32,
    pub attention: &'a Attention,
    pub experts: &'a Experts,
    /// The norm before the feed-forward block; empty for none.
    pub second_norm: &'a str,
    pub tied: bool,
    /// What else a layer has.
    pub more: fn(&mut Builder, u32),
}

impl Body<'_> {
    pub fn build(&self, builder: &mut Builder) {
        builder.attention_keys(self.attention);
        builder.expert_keys(self.experts);
        if self.dense > 0 {
            builder.number("leading_dense_block_count", self.dense);
        }
        for layer in 0..self.layers {
            self.layer(builder, layer);
        }
        builder.ends("output_norm.weight", self.tied);
    }

    fn layer(&self, builder: &mut Builder, layer: u32) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        builder.attention(self.attention);
        if !self.second_norm.is_empty() {
            builder.norm(self.second_norm, WIDTH);
        }
        (self.more)(builder, layer);
        if layer < self.dense {
            builder.feed_forward(256);
        } else {
            builder.experts(self.experts);
        }
    }
}

pub(super) const BODY: Body = Body {
    layers: 2,
    dense: 0,
    attention: &Attention::PLAIN,
    experts: &Experts::PLAIN,
    second_norm: "ffn_norm.weight",
    tied: false,
    more: |_, _| {},
};

/// Mixtral.
pub(super) fn llama(builder: &mut Builder) {
    builder.start("llama", 2);
    builder.number("feed_forward_length", 128);
    BODY.build(builder);
}

pub(super) fn qwen3moe(builder: &mut Builder) {
    builder.start("qwen3moe", 2);
    builder.number("feed_forward_length", 256);
    Body { attention: &Attention { norms: Norms::Head, ..Attention::PLAIN }, ..BODY }.build(builder);
}

/// Biases, and a shared expert with a gate.
pub(super) fn qwen2moe(builder: &mut Builder) {
    builder.start("qwen2moe", 2);
    builder.number("feed_forward_length", 512);
    builder.number("expert_shared_feed_forward_length", 192);
    let experts = &Experts { shared: 192, shared_gate: true, ..Experts::PLAIN };
    Body { attention: &Attention { biases: true, ..Attention::PLAIN }, experts, ..BODY }.build(builder);
}

/// Norms over all heads of queries and keys.
pub(super) fn olmoe(builder: &mut Builder) {
    builder.start("olmoe", 2);
    builder.number("feed_forward_length", 128);
    let attention = &Attention { kv_heads: 4, norms: Norms::AllHeads, ..Attention::PLAIN };
    Body { attention, ..BODY }.build(builder);
}

/// GLM 4.5: half of each head rotates; the last layer is there to guess tokens and no part of the model.
pub(super) fn glm4moe(builder: &mut Builder) {
    builder.start("glm4moe", 4);
    builder.number("nextn_predict_layers", 1);
    builder.number("feed_forward_length", 256);
    builder.number("rope.dimension_count", 32);
    builder.number("expert_shared_count", 1);
    builder.gating(Gating::Sigmoid, true, 2.5);
    let experts = &Experts { correction: true, shared: 128, ..Experts::PLAIN };
    let attention = &Attention { biases: true, norms: Norms::Head, ..Attention::PLAIN };
    let second_norm = "post_attention_norm.weight";
    let body = Body { layers: 4, dense: 1, attention, experts, second_norm, ..BODY };
    body.build(builder);
    builder.layer(3);
    builder.matrix("nextn.eh_proj.weight", &[2 * WIDTH, WIDTH], 1.0);
    for norm in ["nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"] {
        builder.norm(norm, WIDTH);
    }
}

/// Sinks, a window in every other layer, biases everywhere, YaRN.
pub(super) fn gpt_oss(builder: &mut Builder) {
    builder.start("gpt-oss", 3);
    builder.number("feed_forward_length", 128);
    builder.number("attention.sliding_window", 16);
    builder.yarn(8.0);
    let attention = &Attention { biases: true, output_bias: true, sinks: true, ..Attention::PLAIN };
    let experts = &Experts { biases: true, ..Experts::PLAIN };
    Body { layers: 3, attention, experts, second_norm: "post_attention_norm.weight", ..BODY }.build(builder);
}

/// Factors on embedding, attention, residual sums and logits; tied.
pub(super) fn granitemoe(builder: &mut Builder) {
    builder.start("granitemoe", 2);
    builder.number("feed_forward_length", 128);
    builder.number("expert_shared_feed_forward_length", 192);
    granite_factors(builder);
    Body { experts: &Experts { shared: 192, ..Experts::PLAIN }, tied: true, ..BODY }.build(builder);
}

pub(super) fn granite_factors(builder: &mut Builder) {
    builder.float("embedding_scale", 4.0);
    builder.float("attention.scale", 0.1);
    builder.float("residual_scale", 0.5);
    builder.float("logit_scale", 0.5);
}

/// Norms over all heads with fewer of them for keys; half of each head rotates.
pub(super) fn minimax_m2(builder: &mut Builder) {
    builder.start("minimax-m2", 2);
    builder.number("feed_forward_length", 128);
    builder.number("rope.dimension_count", 32);
    builder.number("expert_gating_func", Gating::Sigmoid as u32);
    let attention = &Attention { norms: Norms::AllHeads, ..Attention::PLAIN };
    Body { attention, experts: &Experts { correction: true, ..Experts::PLAIN }, ..BODY }.build(builder);
}

/// One matrix for queries, keys and values; groups of experts.
pub(super) fn bailingmoe2(builder: &mut Builder) {
    builder.start("bailingmoe2", 3);
    builder.number("feed_forward_length", 256);
    builder.number("rope.dimension_count", 32);
    builder.number("expert_shared_count", 1);
    builder.number("expert_shared_feed_forward_length", 192);
    builder.number("expert_group_count", 4);
    builder.number("expert_group_used_count", 2);
    builder.gating(Gating::Sigmoid, true, 2.5);
    let attention = &Attention { fused: true, norms: Norms::Head, ..Attention::PLAIN };
    let experts = &Experts { count: 16, correction: true, shared: 192, ..Experts::PLAIN };
    Body { layers: 3, dense: 1, attention, experts, ..BODY }.build(builder);
}

pub(super) fn ernie4_5_moe(builder: &mut Builder) {
    builder.start("ernie4_5-moe", 3);
    builder.number("feed_forward_length", 256);
    builder.number("interleave_moe_layer_step", 1);
    builder.number("expert_shared_count", 1);
    builder.number("expert_shared_feed_forward_length", 192);
    let experts = &Experts { correction: true, shared: 192, ..Experts::PLAIN };
    Body { layers: 3, dense: 1, experts, tied: true, ..BODY }.build(builder);
}

pub(super) fn dots1(builder: &mut Builder) {
    builder.start("dots1", 3);
    builder.number("feed_forward_length", 256);
    builder.number("expert_shared_count", 2);
    builder.gating(Gating::Sigmoid, true, 2.5);
    let attention = &Attention { kv_heads: 4, norms: Norms::Head, ..Attention::PLAIN };
    let experts = &Experts { correction: true, shared: 256, ..Experts::PLAIN };
    Body { layers: 3, dense: 1, attention, experts, ..BODY }.build(builder);
}

/// Norms of queries and keys behind the rotation.
pub(super) fn hunyuan_moe(builder: &mut Builder) {
    builder.start("hunyuan-moe", 2);
    builder.number("feed_forward_length", 128);
    builder.number("expert_shared_feed_forward_length", 192);
    let attention = &Attention { norms: Norms::Head, ..Attention::PLAIN };
    let experts = &Experts { shared: 192, ..Experts::PLAIN };
    Body { attention, experts, tied: true, ..BODY }.build(builder);
}

/// Gemma 4 with experts: windows with heads and a rotation of their own, layers without a window whose keys
/// are their values, a dense block beside the experts, a factor on each layer's output.
pub(super) fn gemma4(builder: &mut Builder) {
    const LAYERS: u32 = 3;
    let slides = |layer: u32| layer != 1;
    builder.start("gemma4", LAYERS);
    let windowed = Attention { kv_heads: 2, head_dim: 64, norms: Norms::Head, ..Attention::PLAIN };
    let whole = Attention { kv_heads: 1, head_dim: 128, value_dim: 128, no_values: true, ..windowed };
    let of = |layer: u32| if slides(layer) { windowed } else { whole };
    let experts = Experts { fused: true, ..Experts::PLAIN };
    builder.number("attention.head_count", 4);
    let kv_heads: Vec<u32> = (0..LAYERS).map(|layer| of(layer).kv_heads as u32).collect();
    builder.numbers("attention.head_count_kv", &kv_heads);
    builder.head_keys(&whole);
    builder.number("attention.key_length_swa", windowed.head_dim as u32);
    builder.number("attention.value_length_swa", windowed.head_dim as u32);
    builder.number("rope.dimension_count", whole.head_dim as u32);
    builder.number("rope.dimension_count_swa", windowed.head_dim as u32);
    builder.float("rope.freq_base", 1e6);
    builder.float("rope.freq_base_swa", 1e4);
    builder.number("attention.sliding_window", 16);
    let pattern = Array::Bool((0..LAYERS).map(slides).collect());
    builder.set("attention.sliding_window_pattern", Value::Array(pattern));
    builder.number("attention.shared_kv_layers", 0);
    builder.number("embedding_length_per_layer_input", 0);
    builder.number("feed_forward_length", 192);
    builder.float("final_logit_softcapping", 5.0);
    builder.expert_keys(&experts);
    for layer in 0..LAYERS {
        builder.layer(layer);
        let norms = ["attn_norm", "post_attention_norm", "ffn_norm", "pre_ffw_norm_2"];
        norms.iter().for_each(|norm| builder.norm(&format!("{norm}.weight"), WIDTH));
        // A tied embedding repeats its input unless the blocks add much.
        for norm in ["post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2"] {
            builder.plain(&format!("{norm}.weight"), &[WIDTH], Content::Norm(3.0));
        }
        builder.attention(&of(layer));
        builder.plain("layer_output_scale.weight", &[1], Content::Between(0.5, 1.0));
        builder.plain("ffn_gate_inp.scale", &[WIDTH], Content::Norm(16.0));
        builder.feed_forward(192);
        builder.experts(&experts);
    }
    builder.ends("output_norm.weight", true);
    builder.plain("rope_freqs.weight", &[whole.head_dim / 2], Content::RopeStops(whole.head_dim / 8));
}
