//! Models most of whose layers remember in a state of fixed size: short convolutions, gated delta rules,
//! Mamba-2.

use super::attention::granite_factors;
use super::latent::Latent;
use super::parts::{Attention, Builder, Experts, Gating, Norms, WIDTH};
use crate::synth::tensors::Content;
use crate::{Array, Value};

/// Taps of the convolutions over time.
const TAPS: u64 = 4;

impl Builder {
    fn convolution(&mut self, name: &str, dims: &[u64]) {
        self.plain(name, dims, Content::Weights(0.6));
    }

    /// Bias of the time steps, and the rate of decay of each head, which must be negative.
    fn decay(&mut self, steps: u64, rates: &[u64]) {
        self.plain("ssm_dt.bias", &[steps], Content::Between(-3.0, 0.0));
        self.plain("ssm_a", rates, Content::Between(-2.0, -0.1));
    }

    /// `attention.head_count_kv` of each layer, 0 where a layer has no attention.
    fn kv_heads(&mut self, heads: &[u32]) {
        let heads = heads.iter().map(|&heads| heads as i32).collect();
        self.set("attention.head_count_kv", Value::Array(Array::I32(heads)));
    }

    fn state_keys(&mut self, inner: u64, state: u64, heads: u64, groups: u64) {
        self.number("ssm.conv_kernel", TAPS as u32);
        self.number("ssm.inner_size", inner as u32);
        self.number("ssm.state_size", state as u32);
        self.number("ssm.time_step_rank", heads as u32);
        self.number("ssm.group_count", groups as u32);
    }
}

/// Short convolutions with gates before and behind.
pub(super) fn lfm2moe(builder: &mut Builder) {
    const TAPS: u64 = 3;
    let attention = Attention { norms: Norms::Head, ..Attention::PLAIN };
    let experts = Experts { correction: true, ..Experts::PLAIN };
    let kv_heads = [0, 2, 0, 0];
    builder.start("lfm2moe", 4);
    builder.number("attention.head_count", 4);
    builder.kv_heads(&kv_heads);
    builder.number("shortconv.l_cache", TAPS as u32);
    builder.number("feed_forward_length", 256);
    builder.number("leading_dense_block_count", 1);
    builder.expert_keys(&experts);
    builder.number("expert_gating_func", Gating::Sigmoid as u32);
    for (layer, kv_heads) in (0..).zip(kv_heads) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        if kv_heads > 0 {
            builder.attention(&attention);
        } else {
            builder.convolution("shortconv.conv.weight", &[TAPS, WIDTH]);
            builder.matrix("shortconv.in_proj.weight", &[WIDTH, 3 * WIDTH], 1.0);
            builder.matrix("shortconv.out_proj.weight", &[WIDTH, WIDTH], 1.0);
        }
        builder.norm("ffn_norm.weight", WIDTH);
        if layer == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(&experts);
        }
    }
    builder.ends("token_embd_norm.weight", true);
}

/// Heads of the gated delta rule: two values' heads for each of keys.
const KEY_HEADS: u64 = 2;
const VALUE_HEADS: u64 = 4;
const STATE: u64 = 64;

/// How the two gates of the delta rule are stored.
#[derive(Clone, Copy)]
enum Gates {
    Together,
    Apart,
}

/// Gated DeltaNet with gated attention in every `interval`th layer.
fn delta(
    builder: &mut Builder,
    architecture: &'static str,
    interval: u32,
    gates: Gates,
    experts: Option<&Experts>,
) {
    const LAYERS: u32 = 4;
    let attention = Attention { gated: true, norms: Norms::Head, ..Attention::PLAIN };
    let (keys, values) = (KEY_HEADS * STATE, VALUE_HEADS * STATE);
    builder.start(architecture, LAYERS);
    builder.attention_keys(&attention);
    builder.number("rope.dimension_count", 16);
    builder.number("full_attention_interval", interval);
    builder.state_keys(values, STATE, VALUE_HEADS, KEY_HEADS);
    builder.number("feed_forward_length", 256);
    if let Some(experts) = experts {
        builder.expert_keys(experts);
        builder.number("expert_shared_feed_forward_length", experts.shared as u32);
    }
    for layer in 0..LAYERS {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        if (layer + 1).is_multiple_of(interval) {
            builder.attention(&attention);
        } else {
            builder.matrix("attn_qkv.weight", &[WIDTH, 2 * keys + values], 1.0);
            builder.matrix("attn_gate.weight", &[WIDTH, values], 1.0);
            builder.convolution("ssm_conv1d.weight", &[TAPS, 2 * keys + values]);
            builder.decay(VALUE_HEADS, &[VALUE_HEADS]);
            match gates {
                Gates::Together => builder.matrix("ssm_ba.weight", &[WIDTH, 2 * VALUE_HEADS], 1.0),
                Gates::Apart => {
                    builder.matrix("ssm_beta.weight", &[WIDTH, VALUE_HEADS], 1.0);
                    builder.matrix("ssm_alpha.weight", &[WIDTH, VALUE_HEADS], 1.0);
                }
            }
            builder.norm("ssm_norm.weight", STATE);
            builder.matrix("ssm_out.weight", &[values, WIDTH], 1.0);
        }
        builder.norm("post_attention_norm.weight", WIDTH);
        match experts {
            Some(experts) => builder.experts(experts),
            None => builder.feed_forward(256),
        }
    }
    builder.ends("output_norm.weight", false);
}

/// Rotations of positions in time, height and width, which are one in text.
fn sections(builder: &mut Builder) {
    builder.set("rope.dimension_sections", Value::Array(Array::I32(vec![3, 3, 2, 0])));
}

const SHARED: Experts = Experts { shared: 192, shared_gate: true, ..Experts::PLAIN };

pub(super) fn qwen3next(builder: &mut Builder) {
    delta(builder, "qwen3next", 4, Gates::Together, Some(&SHARED));
}

pub(super) fn qwen35moe(builder: &mut Builder) {
    delta(builder, "qwen35moe", 4, Gates::Apart, Some(&Experts { fused: true, ..SHARED }));
    sections(builder);
}

pub(super) fn qwen35(builder: &mut Builder) {
    delta(builder, "qwen35", 2, Gates::Apart, None);
    sections(builder);
}

/// Kimi delta attention, whose gates differ by channel, with latent attention that does not rotate.
pub(super) fn kimi_linear(builder: &mut Builder) {
    const HEADS: u64 = 4;
    const HEAD: u64 = 64;
    let latent = Latent { query_rank: 0, rank: 256, ..Latent::PLAIN };
    let experts = Experts { correction: true, shared: 128, ..Experts::PLAIN };
    let kv_heads = [0, 0, 1, 0];
    builder.start("kimi-linear", 4);
    builder.number("attention.head_count", HEADS as u32);
    builder.kv_heads(&kv_heads);
    builder.latent_keys(&latent);
    builder.number("kda.head_dim", HEAD as u32);
    builder.number("ssm.conv_kernel", TAPS as u32);
    builder.number("feed_forward_length", 256);
    builder.number("leading_dense_block_count", 1);
    builder.expert_keys(&experts);
    builder.number("expert_shared_count", 1);
    builder.gating(Gating::Sigmoid, true, 2.446);
    for (layer, kv_heads) in (0..).zip(kv_heads) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        if kv_heads > 0 {
            builder.latent(&latent);
        } else {
            let all = HEADS * HEAD;
            for part in ["q", "k", "v"] {
                builder.matrix(&format!("attn_{part}.weight"), &[WIDTH, all], 1.0);
                builder.convolution(&format!("ssm_conv1d_{part}.weight"), &[TAPS, 1, all]);
            }
            for gate in ["f", "g"] {
                builder.matrix(&format!("ssm_{gate}_a.weight"), &[WIDTH, HEAD], 1.0);
                builder.matrix(&format!("ssm_{gate}_b.weight"), &[HEAD, all], 1.0);
            }
            builder.matrix("ssm_beta.weight", &[WIDTH, HEADS], 1.0);
            builder.decay(all, &[1, HEADS]);
            builder.norm("ssm_norm.weight", HEAD);
            builder.matrix("attn_output.weight", &[all, WIDTH], 1.0);
        }
        builder.norm("ffn_norm.weight", WIDTH);
        if layer == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(&experts);
        }
    }
    builder.ends("output_norm.weight", false);
}

/// Sizes of a Mamba-2 layer.
const INNER: u64 = 2 * WIDTH;
const GROUPS: u64 = 2;
const SSM_HEADS: u64 = 8;

impl Builder {
    fn mamba2(&mut self) {
        let mixed = INNER + 2 * GROUPS * STATE;
        self.matrix("ssm_in.weight", &[WIDTH, INNER + mixed + SSM_HEADS], 1.0);
        self.convolution("ssm_conv1d.weight", &[TAPS, mixed]);
        self.bias("ssm_conv1d.bias", mixed);
        self.decay(SSM_HEADS, &[1, SSM_HEADS]);
        self.plain("ssm_d", &[1, SSM_HEADS], Content::Norm(1.0));
        self.plain("ssm_norm.weight", &[INNER / GROUPS, GROUPS], Content::Norm(1.0));
        self.matrix("ssm_out.weight", &[INNER, WIDTH], 1.0);
    }
}

/// Mamba-2 with attention that does not rotate.
pub(super) fn granitehybrid(builder: &mut Builder) {
    let experts = Experts { shared: 192, ..Experts::PLAIN };
    let kv_heads = [0, 2, 0];
    builder.start("granitehybrid", 3);
    builder.number("attention.head_count", 4);
    builder.kv_heads(&kv_heads);
    builder.flag("rope.scaling.finetuned", false);
    builder.state_keys(INNER, STATE, SSM_HEADS, GROUPS);
    builder.number("feed_forward_length", 128);
    builder.expert_keys(&experts);
    builder.number("expert_shared_feed_forward_length", 192);
    granite_factors(builder);
    for (layer, kv_heads) in (0..).zip(kv_heads) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        if kv_heads > 0 {
            builder.attention(&Attention::PLAIN);
        } else {
            builder.mamba2();
        }
        builder.norm("ffn_norm.weight", WIDTH);
        builder.experts(&experts);
    }
    builder.ends("output_norm.weight", true);
}

/// Layers that are one thing each: Mamba-2, attention or experts without gates.
pub(super) fn nemotron_h_moe(builder: &mut Builder) {
    let experts = Experts { ungated: true, correction: true, shared: 192, ..Experts::PLAIN };
    let (kv_heads, inner) = ([0, 0, 2, 0], [0, 128, 0, 128]);
    builder.start("nemotron_h_moe", 4);
    builder.number("attention.head_count", 4);
    builder.kv_heads(&kv_heads);
    builder.head_keys(&Attention::PLAIN);
    builder.float("attention.layer_norm_epsilon", 1e-6);
    builder.state_keys(INNER, STATE, SSM_HEADS, GROUPS);
    builder.numbers("feed_forward_length", &inner);
    builder.expert_keys(&experts);
    builder.number("expert_shared_count", 1);
    builder.number("expert_shared_feed_forward_length", 192);
    builder.gating(Gating::Sigmoid, true, 2.5);
    for (layer, (kv_heads, inner)) in (0..).zip(kv_heads.into_iter().zip(inner)) {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        match (kv_heads, inner) {
            (0, 0) => builder.mamba2(),
            (0, _) => builder.experts(&experts),
            _ => builder.attention(&Attention::PLAIN),
        }
    }
    builder.ends("output_norm.weight", false);
}
