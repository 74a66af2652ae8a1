//! Multi-head latent attention: DeepSeek V2 and V3 and what is built like them.

use super::parts::{Builder, Experts, Gating, WIDTH};

const HEADS: u64 = 4;

/// Sizes of one latent attention.
#[derive(Clone, Copy)]
pub(super) struct Latent {
    /// Width of the latent of the queries; 0 where they come straight from the hidden state.
    pub query_rank: u64,
    /// Width of the latent of keys and values.
    pub rank: u64,
    /// Values of a query and key head that do not rotate, and that do.
    pub plain: u64,
    pub rotary: u64,
    pub value: u64,
    /// Matrices for keys and values apart, as files for absorption have them, or one as in older files.
    pub split: bool,
}

impl Latent {
    pub const PLAIN: Latent =
        Latent { query_rank: 128, rank: 512, plain: 96, rotary: 32, value: 64, split: true };

    pub fn head(&self) -> u64 {
        self.plain + self.rotary
    }
}

impl Builder {
    /// All but the count of heads, which some write by layer.
    pub(super) fn latent_keys(&mut self, latent: &Latent) {
        let (head, value) = (latent.head() as u32, latent.value as u32);
        self.number("attention.q_lora_rank", latent.query_rank as u32);
        self.number("attention.kv_lora_rank", latent.rank as u32);
        self.number("rope.dimension_count", latent.rotary as u32);
        if latent.split {
            self.number("attention.key_length", (latent.rank + latent.rotary) as u32);
            self.number("attention.value_length", latent.rank as u32);
            self.number("attention.key_length_mla", head);
            self.number("attention.value_length_mla", value);
        } else {
            self.number("attention.key_length", head);
            self.number("attention.value_length", value);
        }
    }

    pub(super) fn latent(&mut self, latent: &Latent) {
        let Latent { query_rank, rank, plain, rotary, value, .. } = *latent;
        let queries = HEADS * latent.head();
        if query_rank > 0 {
            self.matrix("attn_q_a.weight", &[WIDTH, query_rank], 1.0);
            self.norm("attn_q_a_norm.weight", query_rank);
            self.matrix("attn_q_b.weight", &[query_rank, queries], 1.5);
        } else {
            self.matrix("attn_q.weight", &[WIDTH, queries], 1.5);
        }
        self.matrix("attn_kv_a_mqa.weight", &[WIDTH, rank + rotary], 1.0);
        self.norm("attn_kv_a_norm.weight", rank);
        if latent.split {
            // Stored as it is absorbed: rows run over a head's values.
            self.matrix("attn_k_b.weight", &[plain, rank, HEADS], (plain as f32 / rank as f32).sqrt() * 1.5);
            self.matrix("attn_v_b.weight", &[rank, value, HEADS], 1.0);
        } else {
            self.matrix("attn_kv_b.weight", &[rank, HEADS * (plain + value)], 1.5);
        }
        self.matrix("attn_output.weight", &[HEADS * value, WIDTH], 1.0);
    }
}

/// Three layers, the first of them dense.
fn deepseek(builder: &mut Builder, architecture: &'static str, latent: &Latent, experts: &Experts) {
    builder.start(architecture, 3);
    builder.number("attention.head_count", HEADS as u32);
    builder.number("attention.head_count_kv", if latent.split { 1 } else { HEADS as u32 });
    builder.latent_keys(latent);
    builder.number("feed_forward_length", 256);
    builder.number("leading_dense_block_count", 1);
    builder.expert_keys(experts);
    builder.number("expert_shared_count", (experts.shared / experts.inner) as u32);
    for layer in 0..3 {
        builder.layer(layer);
        builder.norm("attn_norm.weight", WIDTH);
        builder.latent(latent);
        builder.norm("ffn_norm.weight", WIDTH);
        if layer == 0 {
            builder.feed_forward(256);
        } else {
            builder.experts(experts);
        }
    }
    builder.ends("output_norm.weight", false);
}

fn yarn(builder: &mut Builder, log_multiplier: f32) {
    builder.yarn(8.0);
    builder.float("rope.scaling.yarn_log_multiplier", log_multiplier);
}

/// V3: sigmoid gates, 2 of 4 groups, correction bias.
pub(super) fn deepseek2(builder: &mut Builder) {
    let experts = Experts { count: 16, used: 3, correction: true, shared: 128, ..Experts::PLAIN };
    deepseek(builder, "deepseek2", &Latent::PLAIN, &experts);
    builder.gating(Gating::Sigmoid, true, 2.5);
    builder.number("expert_group_count", 4);
    builder.number("expert_group_used_count", 2);
    yarn(builder, 0.1);
}

/// V2 Lite: softmax gates that do not sum to 1, two shared experts, queries without a latent.
pub(super) fn deepseek2_lite(builder: &mut Builder) {
    let experts = Experts { shared: 256, ..Experts::PLAIN };
    deepseek(builder, "deepseek2", &Latent { query_rank: 0, rank: 256, ..Latent::PLAIN }, &experts);
    builder.gating(Gating::Softmax, false, 1.0);
    yarn(builder, 0.0707);
}

/// V2 as older converters wrote it: keys and values in one matrix, shares scaled by 16.
pub(super) fn deepseek2_unsplit(builder: &mut Builder) {
    let experts = Experts { shared: 256, ..Experts::PLAIN };
    deepseek(builder, "deepseek2", &Latent { rank: 256, split: false, ..Latent::PLAIN }, &experts);
    builder.float("expert_weights_scale", 4.0);
    yarn(builder, 0.0707);
}

pub(super) fn deepseek2_unsplit_lite(builder: &mut Builder) {
    let experts = Experts { shared: 256, ..Experts::PLAIN };
    deepseek(
        builder,
        "deepseek2",
        &Latent { query_rank: 0, rank: 256, split: false, ..Latent::PLAIN },
        &experts,
    );
    builder.float("expert_weights_scale", 1.0);
}

/// Queries grow with their position.
pub(super) fn mistral4(builder: &mut Builder) {
    deepseek(builder, "mistral4", &Latent::PLAIN, &Experts { shared: 128, ..Experts::PLAIN });
    builder.gating(Gating::Softmax, true, 1.0);
    builder.float("attention.temperature_scale", 0.1);
    builder.number("attention.temperature_length", 16);
    yarn(builder, 0.1);
}
