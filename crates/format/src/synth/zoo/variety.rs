//! More mixtures over attention: with windows, gates, caps, clamps and dense blocks beside the experts.

use super::attention::{BODY, Body};
use super::parts::{Attention, Builder, Experts, Gating, Norms, VOCABULARY, WIDTH};
use crate::synth::tensors::Content;
use crate::{Array, Value};

const HEAD_NORMS: Attention = Attention { norms: Norms::Head, ..Attention::PLAIN };
const SHARED: Experts = Experts { shared: 128, ..Experts::PLAIN };
const CORRECTED: Experts = Experts { correction: true, ..SHARED };

/// Windows, gated attention, norms behind both blocks.
pub(super) fn afmoe(builder: &mut Builder) {
    builder.start("afmoe", 3);
    builder.number("feed_forward_length", 256);
    builder.windows(2);
    builder.number("expert_shared_count", 1);
    builder.gating(Gating::Sigmoid, true, 2.5);
    let more = |builder: &mut Builder, _| {
        builder.norm("post_attention_norm.weight", WIDTH);
        builder.norm("post_ffw_norm.weight", WIDTH);
        builder.matrix("attn_gate.weight", &[WIDTH, 256], 1.0);
    };
    Body { layers: 3, dense: 1, attention: &HEAD_NORMS, experts: &CORRECTED, more, ..BODY }.build(builder);
}

/// Windows that rotate and whole layers that do not.
pub(super) fn exaone_moe(builder: &mut Builder) {
    builder.start("exaone-moe", 3);
    builder.number("feed_forward_length", 256);
    builder.windows(2);
    builder.number("expert_shared_count", 1);
    builder.gating(Gating::Sigmoid, true, 2.5);
    Body { layers: 3, dense: 1, attention: &HEAD_NORMS, experts: &CORRECTED, ..BODY }.build(builder);
}

/// Attention and feed-forward block side by side behind one norm.
pub(super) fn cohere2moe(builder: &mut Builder) {
    builder.start("cohere2moe", 3);
    builder.layer_norms();
    builder.number("feed_forward_length", 256);
    builder.windows(2);
    builder.float("logit_scale", 0.5);
    builder.number("expert_shared_count", 1);
    builder.gating(Gating::Sigmoid, true, 1.5);
    Body { layers: 3, dense: 1, experts: &SHARED, second_norm: "", tied: true, ..BODY }.build(builder);
}

pub(super) fn mellum(builder: &mut Builder) {
    builder.start("mellum", 3);
    builder.number("feed_forward_length", 256);
    builder.windows(2);
    builder.float("rope.freq_base_swa", 5e3);
    Body { layers: 3, attention: &HEAD_NORMS, ..BODY }.build(builder);
}

/// Values narrower than keys, and sinks and other heads in windowed layers only.
pub(super) fn mimo2(builder: &mut Builder) {
    const LAYERS: u32 = 3;
    let slides = |layer| layer % 2 == 1;
    let of = |layer| Attention {
        kv_heads: if slides(layer) { 4 } else { 2 },
        value_dim: 32,
        sinks: slides(layer),
        ..Attention::PLAIN
    };
    let experts = Experts { shared: 0, ..CORRECTED };
    builder.start("mimo2", LAYERS);
    builder.number("feed_forward_length", 256);
    builder.number("rope.dimension_count", 32);
    builder.number("attention.sliding_window", 16);
    builder.float("rope.freq_base_swa", 5e3);
    builder.float("attention.value_scale", 0.7);
    builder.number("attention.head_count", 4);
    builder.numbers("attention.head_count_kv", &[2, 4, 2]);
    let pattern = Array::Bool((0..LAYERS).map(slides).collect());
    builder.set("attention.sliding_window_pattern", Value::Array(pattern));
    builder.head_keys(&of(0));
    builder.expert_keys(&experts);
    for layer in 0..LAYERS {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        builder.attention(&of(layer));
        builder.norm("ffn_norm.weight", WIDTH);
        if layer == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(&experts);
        }
    }
    builder.ends("output_norm.weight", false);
}

/// The router sees what attention sees; ReLU; every other layer does not rotate.
pub(super) fn smallthinker(builder: &mut Builder) {
    builder.start("smallthinker", 3);
    builder.number("feed_forward_length", 256);
    builder.windows(2);
    // What all have, and no other window is known.
    builder.number("attention.sliding_window", 4096);
    builder.number("expert_gating_func", Gating::Sigmoid as u32);
    Body { layers: 3, ..BODY }.build(builder);
}

/// A gate for each head, whose number differs by layer; YaRN in whole layers only.
pub(super) fn laguna(builder: &mut Builder) {
    let heads = [4, 8, 8];
    builder.start("laguna", 3);
    builder.number("feed_forward_length", 256);
    builder.number("leading_dense_block_count", 1);
    builder.windows(2);
    builder.number("rope.dimension_count", 32);
    builder.number("rope.dimension_count_swa", 64);
    builder.float("rope.freq_base_swa", 5e3);
    builder.yarn(8.0);
    builder.numbers("attention.head_count", &heads);
    builder.number("attention.head_count_kv", 2);
    builder.head_keys(&HEAD_NORMS);
    builder.expert_keys(&CORRECTED);
    builder.number("expert_shared_feed_forward_length", 128);
    builder.gating(Gating::Sigmoid, true, 2.5);
    for (layer, heads) in (0..).zip(heads.map(u64::from)) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        builder.attention(&Attention { heads, ..HEAD_NORMS });
        builder.matrix("attn_gate.weight", &[WIDTH, heads], 1.0);
        builder.norm("ffn_norm.weight", WIDTH);
        if layer == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(&CORRECTED);
        }
    }
    builder.ends("output_norm.weight", false);
}

/// A dense block before the experts, which see the state from before it.
pub(super) fn arctic(builder: &mut Builder) {
    builder.start("arctic", 2);
    builder.number("feed_forward_length", 128);
    let more = |builder: &mut Builder, _| {
        builder.norm("ffn_norm_exps.weight", WIDTH);
        builder.feed_forward(WIDTH);
    };
    Body { more, ..BODY }.build(builder);
}

/// Queries, keys and values clamped; norms that take the mean away.
pub(super) fn dbrx(builder: &mut Builder) {
    builder.start("dbrx", 2);
    builder.layer_norms();
    builder.number("feed_forward_length", 128);
    builder.float("attention.clamp_kqv", 1.0);
    let attention = &Attention { fused: true, ..Attention::PLAIN };
    Body { attention, second_norm: "attn_output_norm.weight", ..BODY }.build(builder);
}

/// Shares that do not sum to 1; two shared experts.
pub(super) fn deepseek(builder: &mut Builder) {
    builder.start("deepseek", 3);
    builder.number("feed_forward_length", 256);
    builder.number("expert_shared_count", 2);
    builder.float("expert_weights_scale", 1.0);
    Body { layers: 3, dense: 1, experts: &Experts { shared: 256, ..SHARED }, ..BODY }.build(builder);
}

pub(super) fn bailingmoe(builder: &mut Builder) {
    builder.start("bailingmoe", 2);
    builder.number("feed_forward_length", 256);
    builder.number("rope.dimension_count", 64);
    builder.number("expert_shared_count", 2);
    builder.float("expert_weights_scale", 1.0);
    builder.flag("expert_weights_norm", true);
    Body { experts: &Experts { shared: 256, ..SHARED }, ..BODY }.build(builder);
}

/// Caps on attention, router and logits; a dense block beside the experts; norms behind both blocks.
pub(super) fn grok(builder: &mut Builder) {
    builder.start("grok", 2);
    builder.number("feed_forward_length", 128);
    builder.float("embedding_scale", 4.0);
    builder.float("logit_scale", 0.5);
    builder.float("attention.output_scale", 0.125);
    builder.float("attn_logit_softcapping", 5.0);
    builder.float("router_logit_softcapping", 3.0);
    builder.float("final_logit_softcapping", 5.0);
    let more = |builder: &mut Builder, _| {
        builder.norm("attn_output_norm.weight", WIDTH);
        builder.norm("post_ffw_norm.weight", WIDTH);
        builder.feed_forward(128);
    };
    Body { more, ..BODY }.build(builder);
}

/// Small experts that groups of experts share.
pub(super) fn grovemoe(builder: &mut Builder) {
    builder.start("grovemoe", 2);
    builder.number("feed_forward_length", 256);
    builder.number("expert_chunk_feed_forward_length", 64);
    builder.number("experts_per_group", 2);
    builder.float("expert_group_scale", 0.5);
    let more = |builder: &mut Builder, _| {
        builder.matrix("ffn_gate_chexps.weight", &[WIDTH, 64, 4], 1.0);
        builder.matrix("ffn_up_chexps.weight", &[WIDTH, 64, 4], 1.0);
        builder.matrix("ffn_down_chexps.weight", &[64, WIDTH, 4], 2.0);
    };
    Body { attention: &HEAD_NORMS, more, ..BODY }.build(builder);
}

/// The correction's name lacks the ending that others have.
pub(super) fn hy_v3(builder: &mut Builder) {
    builder.start("hy_v3", 3);
    builder.number("feed_forward_length", 256);
    builder.number("expert_shared_feed_forward_length", 128);
    builder.gating(Gating::Sigmoid, true, 2.5);
    let more = |builder: &mut Builder, layer| {
        if layer > 0 {
            builder.plain("exp_probs_b", &[8], Content::Weights(0.2));
        }
    };
    Body { layers: 3, dense: 1, attention: &HEAD_NORMS, experts: &SHARED, more, ..BODY }.build(builder);
}

/// Factors on embedding, residual sums and logits.
pub(super) fn minicpm(builder: &mut Builder) {
    builder.start("minicpm", 2);
    builder.number("feed_forward_length", 128);
    builder.float("embedding_scale", 4.0);
    builder.float("residual_scale", 0.5);
    builder.float("logit_scale", 0.5);
    BODY.build(builder);
}

/// Norms with biases that take the mean away, and biases on all of attention and on the logits.
pub(super) fn phimoe(builder: &mut Builder) {
    builder.start("phimoe", 2);
    builder.number("feed_forward_length", 128);
    let attention = &Attention { biases: true, output_bias: true, ..Attention::PLAIN };
    let more = |builder: &mut Builder, _| {
        builder.bias("attn_norm.bias", WIDTH);
        builder.bias("ffn_norm.bias", WIDTH);
    };
    Body { attention, more, ..BODY }.build(builder);
    builder.bias("output_norm.bias", WIDTH);
    builder.bias("output.bias", VOCABULARY as u64);
}

/// Sections of the rotation, which are one in text.
pub(super) fn qwen3vlmoe(builder: &mut Builder) {
    builder.start("qwen3vlmoe", 2);
    builder.number("feed_forward_length", 256);
    builder.number("n_deepstack_layers", 0);
    builder.set("rope.dimension_sections", Value::Array(Array::I32(vec![11, 11, 10, 0])));
    Body { attention: &HEAD_NORMS, ..BODY }.build(builder);
}

/// Experts in every other layer; three of four layers look back within runs of positions.
pub(super) fn llama4(builder: &mut Builder) {
    builder.start("llama4", 4);
    builder.number("feed_forward_length", 256);
    builder.number("interleave_moe_layer_step", 2);
    let experts = &Experts { used: 1, ..SHARED };
    builder.attention_keys(&Attention::PLAIN);
    builder.expert_keys(experts);
    for layer in 0..4 {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        builder.attention(&Attention::PLAIN);
        builder.norm("ffn_norm.weight", WIDTH);
        if layer % 2 == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(experts);
        }
    }
    builder.ends("output_norm.weight", false);
}
