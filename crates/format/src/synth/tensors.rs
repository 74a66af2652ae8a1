//! Which tensors a model of each family has, in what shape, and what their values are like.

use super::{CONVOLUTION_TAPS, Family, RopeScaling, Synth};
use crate::TensorType;
use crate::rng::Rng;
use crate::synth::weights;
use crate::writer::TensorSpec;

pub(crate) struct Tensor {
    pub spec: TensorSpec,
    pub content: Content,
}

#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// Around 0 with this deviation.
    Weights(f32),
    /// Around this, as the weights of a norm are.
    Norm(f32),
    /// Evenly spread from the first to the second.
    Between(f32, f32),
    /// Llama 3.1's divisors of the rotary frequencies, for heads of this width.
    RopeFactors(u32),
    /// Gemma 4's divisors of the rotary frequencies: 1 for so many, then so large that the rest stand still.
    RopeStops(u64),
}

impl Tensor {
    /// Appends block number `index`.
    pub fn push_block(&self, out: &mut Vec<u8>, index: u64, rng: &mut Rng) {
        match self.content {
            Content::Weights(spread) => weights::push_block(out, self.spec.kind, spread, rng),
            Content::Norm(mean) => out.extend((mean * (1.0 + 0.1 * rng.normal())).to_le_bytes()),
            Content::Between(low, high) => out.extend((low + (high - low) * rng.unit()).to_le_bytes()),
            Content::RopeStops(moving) => {
                out.extend((if index < moving { 1.0f32 } else { 1e30 }).to_le_bytes());
            }
            Content::RopeFactors(head_dim) => out.extend(rope_factor(index, head_dim).to_le_bytes()),
        }
    }
}

/// Spread of logits: wide enough that the best token is rarely nearly tied with the second.
pub(super) const LOGIT_SPREAD: f32 = 3.0;

/// Gemma scales its embedding up and ties it to the output, so that a random model would only ever repeat
/// its input: its blocks must add more, and its embedding be less.
const GEMMA_LOGIT_SPREAD: f32 = 2.0;
const GEMMA_POST_NORM: f32 = 3.0;

/// All tensors, in the order in which converters write them.
pub(super) fn list(model: &Synth, vocabulary_size: u32) -> Vec<Tensor> {
    let types = &model.types;
    let (width, tokens) = (u64::from(model.embedding), u64::from(vocabulary_size));
    let gemma = model.family == Family::Gemma3;
    let logits = if gemma { GEMMA_LOGIT_SPREAD } else { LOGIT_SPREAD } / (width as f32).sqrt();
    let mut list = List { tensors: Vec::new() };
    if model.rope_scaling == RopeScaling::Factors {
        let content = Content::RopeFactors(model.head_dim);
        list.add("rope_freqs.weight".into(), TensorType::F32, &[u64::from(model.head_dim) / 2], content);
    }
    let spread = if model.tied { logits } else { 1.0 };
    list.add("token_embd.weight".into(), types.embedding, &[width, tokens], Content::Weights(spread));
    for layer in 0..model.layers {
        match model.family.is_convolution(layer) {
            true => add_convolution(&mut list, model, layer),
            false => add_attention(&mut list, model, layer),
        }
        add_feed_forward(&mut list, model, layer);
    }
    let norm = if model.family == Family::Lfm2 { "token_embd_norm" } else { "output_norm" };
    list.norm(format!("{norm}.weight"), width);
    if !model.tied {
        list.add("output.weight".into(), types.output, &[width, tokens], Content::Weights(logits));
    }
    list.tensors
}

struct List {
    tensors: Vec<Tensor>,
}

impl List {
    fn add(&mut self, name: String, kind: TensorType, dims: &[u64], content: Content) {
        self.tensors.push(Tensor { spec: TensorSpec { name, kind, dims: dims.to_vec() }, content });
    }

    /// A matrix (or one an expert) that keeps the size of what it multiplies, times `gain`.
    fn matrix(&mut self, name: String, kind: TensorType, dims: &[u64], gain: f32) {
        self.add(name, kind, dims, Content::Weights(gain / (dims[0] as f32).sqrt()));
    }

    fn norm(&mut self, name: String, width: u64) {
        self.add(name, TensorType::F32, &[width], Content::Norm(1.0));
    }
}

fn add_attention(list: &mut List, model: &Synth, layer: u32) {
    let name = |what: &str| format!("blk.{layer}.{what}");
    let types = &model.types;
    let width = u64::from(model.embedding);
    let head = u64::from(model.head_dim);
    let (queries, keys) = (head * u64::from(model.heads), head * u64::from(model.kv_heads));
    list.norm(name("attn_norm.weight"), width);
    // Gains above 1, so that attention picks some positions over others.
    list.matrix(name("attn_q.weight"), types.attention, &[width, queries], 1.5);
    list.matrix(name("attn_k.weight"), types.attention, &[width, keys], 1.5);
    list.matrix(name("attn_v.weight"), types.value, &[width, keys], 1.0);
    list.matrix(name("attn_output.weight"), types.attention, &[queries, width], 1.0);
    match model.family {
        Family::Llama | Family::LlamaMoe => {}
        Family::Qwen2 => {
            for (what, size) in [("attn_q.bias", queries), ("attn_k.bias", keys), ("attn_v.bias", keys)] {
                list.add(name(what), TensorType::F32, &[size], Content::Weights(0.3));
            }
        }
        Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3 | Family::Lfm2 => {
            list.norm(name("attn_q_norm.weight"), head);
            list.norm(name("attn_k_norm.weight"), head);
        }
    }
    if model.family == Family::Gemma3 {
        list.add(
            name("post_attention_norm.weight"),
            TensorType::F32,
            &[width],
            Content::Norm(GEMMA_POST_NORM),
        );
    }
}

fn add_convolution(list: &mut List, model: &Synth, layer: u32) {
    let name = |what: &str| format!("blk.{layer}.{what}");
    let (types, width) = (&model.types, u64::from(model.embedding));
    list.norm(name("attn_norm.weight"), width);
    let taps = u64::from(CONVOLUTION_TAPS);
    list.matrix(name("shortconv.conv.weight"), TensorType::F32, &[taps, width], 1.5);
    list.matrix(name("shortconv.in_proj.weight"), types.attention, &[width, 3 * width], 1.0);
    list.matrix(name("shortconv.out_proj.weight"), types.attention, &[width, width], 1.0);
}

fn add_feed_forward(list: &mut List, model: &Synth, layer: u32) {
    let name = |what: &str| format!("blk.{layer}.{what}");
    let types = &model.types;
    let (width, inner) = (u64::from(model.embedding), u64::from(model.feed_forward));
    list.norm(name("ffn_norm.weight"), width);
    if model.family.has_experts() {
        let experts = u64::from(model.experts);
        list.matrix(name("ffn_gate_inp.weight"), TensorType::F32, &[width, experts], 1.5);
        list.matrix(name("ffn_gate_exps.weight"), types.gate_up, &[width, inner, experts], 1.0);
        list.matrix(name("ffn_up_exps.weight"), types.gate_up, &[width, inner, experts], 1.0);
        list.matrix(name("ffn_down_exps.weight"), types.down, &[inner, width, experts], 2.0);
    } else {
        list.matrix(name("ffn_gate.weight"), types.gate_up, &[width, inner], 1.0);
        list.matrix(name("ffn_up.weight"), types.gate_up, &[width, inner], 1.0);
        list.matrix(name("ffn_down.weight"), types.down, &[inner, width], 2.0);
    }
    if model.family == Family::Gemma3 {
        list.add(name("post_ffw_norm.weight"), TensorType::F32, &[width], Content::Norm(GEMMA_POST_NORM));
    }
}

/// What Llama 3.1's converter writes for frequency number `index`: 1 for short waves, 8 for long ones, a
/// smooth passage between (factor 8, low 1, high 4, trained on 8192 positions, base 10000 here).
fn rope_factor(index: u64, head_dim: u32) -> f32 {
    const FACTOR: f64 = 8.0;
    const ORIGINAL_CONTEXT: f64 = 8192.0;
    let frequency = 1e4_f64.powf(-2.0 * index as f64 / f64::from(head_dim));
    let waves = ORIGINAL_CONTEXT * frequency / std::f64::consts::TAU;
    let smooth = ((waves - 1.0) / (4.0 - 1.0)).clamp(0.0, 1.0);
    (1.0 / ((1.0 - smooth) / FACTOR + smooth)) as f32
}
