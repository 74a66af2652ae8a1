//! What models are put together from: keys, matrices, attention, experts. Knows no family.

pub use super::VOCABULARY;
use crate::synth::tensors::{Content, LOGIT_SPREAD, Tensor};
use crate::writer::TensorSpec;
use crate::{Array, Metadata, TensorType, Value};

/// Width of the hidden state.
pub const WIDTH: u64 = 256;
const CONTEXT: u32 = 512;

/// A model in the making.
pub(crate) struct Builder {
    pub metadata: Metadata,
    pub tensors: Vec<Tensor>,
    /// Of the matrices.
    kind: TensorType,
    architecture: &'static str,
    /// Before the names of tensors: `blk.2.` or nothing.
    prefix: String,
}

impl Builder {
    pub fn new(kind: TensorType) -> Builder {
        let (metadata, tensors) = (Metadata::new(), Vec::new());
        Builder { metadata, tensors, kind, architecture: "", prefix: String::new() }
    }

    /// The keys that every model has.
    pub fn start(&mut self, architecture: &'static str, layers: u32) {
        self.architecture = architecture;
        self.metadata.set("general.architecture", Value::string(architecture));
        self.metadata.set("general.name", Value::string(&format!("Tiny {architecture}")));
        self.metadata.set("tokenizer.ggml.model", Value::string("none"));
        self.number("vocab_size", VOCABULARY as u32);
        self.number("context_length", CONTEXT);
        self.number("embedding_length", WIDTH as u32);
        self.number("block_count", layers);
        self.float("attention.layer_norm_rms_epsilon", 1e-6);
        self.float("rope.freq_base", 1e4);
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
    }

    pub fn number(&mut self, key: &str, value: u32) {
        self.set(key, Value::U32(value));
    }

    pub fn numbers(&mut self, key: &str, values: &[u32]) {
        self.set(key, Value::Array(Array::U32(values.to_vec())));
    }

    pub fn float(&mut self, key: &str, value: f32) {
        self.set(key, Value::F32(value));
    }

    pub fn flag(&mut self, key: &str, value: bool) {
        self.set(key, Value::Bool(value));
    }

    /// YaRN, with a context so short that prompts go past it.
    pub fn yarn(&mut self, factor: f32) {
        self.set("rope.scaling.type", Value::string("yarn"));
        self.float("rope.scaling.factor", factor);
        self.number("rope.scaling.original_context_length", 64);
    }

    /// Norms that take the mean away: another key for their epsilon.
    pub fn layer_norms(&mut self) {
        self.metadata.remove(&format!("{}.attention.layer_norm_rms_epsilon", self.architecture));
        self.float("attention.layer_norm_epsilon", 1e-5);
    }

    /// A window of 16 in all but every `period`th layer.
    pub fn windows(&mut self, period: u32) {
        self.number("attention.sliding_window", 16);
        self.number("attention.sliding_window_pattern", period);
    }

    /// What follows belongs to this layer.
    pub fn layer(&mut self, layer: u32) {
        self.prefix = format!("blk.{layer}.");
    }

    /// Embedding, last norm and, where the embedding is not that too, output matrix.
    pub fn ends(&mut self, norm: &str, tied: bool) {
        self.prefix.clear();
        let logits = LOGIT_SPREAD / (WIDTH as f32).sqrt();
        let spread = if tied { logits } else { 1.0 };
        self.weights("token_embd.weight", &[WIDTH, VOCABULARY as u64], Content::Weights(spread));
        self.norm(norm, WIDTH);
        if !tied {
            self.weights("output.weight", &[WIDTH, VOCABULARY as u64], Content::Weights(logits));
        }
    }

    /// A matrix (or one an expert) that keeps the size of what it multiplies, times `gain`.
    pub fn matrix(&mut self, name: &str, dims: &[u64], gain: f32) {
        self.weights(name, dims, Content::Weights(gain / (dims[0] as f32).sqrt()));
    }

    fn weights(&mut self, name: &str, dims: &[u64], content: Content) {
        let fits = |kind: TensorType| dims[0].is_multiple_of(kind.block_len() as u64);
        let kinds = [self.kind, TensorType::Q8_0, TensorType::F32];
        let kind = kinds.into_iter().find(|&kind| fits(kind)).expect("rows of F32 have any length");
        self.add(name, kind, dims, content);
    }

    /// What is F32 in every file.
    pub fn plain(&mut self, name: &str, dims: &[u64], content: Content) {
        self.add(name, TensorType::F32, dims, content);
    }

    fn add(&mut self, name: &str, kind: TensorType, dims: &[u64], content: Content) {
        let name = format!("{}{name}", self.prefix);
        self.tensors.push(Tensor { spec: TensorSpec { name, kind, dims: dims.to_vec() }, content });
    }

    pub fn norm(&mut self, name: &str, width: u64) {
        self.plain(name, &[width], Content::Norm(1.0));
    }

    pub fn bias(&mut self, name: &str, width: u64) {
        self.plain(name, &[width], Content::Weights(0.3));
    }

    pub fn feed_forward(&mut self, inner: u64) {
        self.matrix("ffn_gate.weight", &[WIDTH, inner], 1.0);
        self.matrix("ffn_up.weight", &[WIDTH, inner], 1.0);
        self.matrix("ffn_down.weight", &[inner, WIDTH], 2.0);
    }
}

/// What the norms of queries and keys span.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Norms {
    None,
    Head,
    AllHeads,
}

#[derive(Clone, Copy)]
pub(crate) struct Attention {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Values in a value head.
    pub value_dim: u64,
    /// One matrix for queries, keys and values.
    pub fused: bool,
    /// Biases on queries, keys and values.
    pub biases: bool,
    pub output_bias: bool,
    pub norms: Norms,
    pub sinks: bool,
    /// Behind each query head as many values that gate the output.
    pub gated: bool,
    /// Keys are the values too.
    pub no_values: bool,
}

impl Attention {
    pub const PLAIN: Attention = Attention {
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        value_dim: 64,
        fused: false,
        biases: false,
        output_bias: false,
        norms: Norms::None,
        sinks: false,
        gated: false,
        no_values: false,
    };
}

impl Builder {
    pub fn attention_keys(&mut self, attention: &Attention) {
        self.number("attention.head_count", attention.heads as u32);
        self.number("attention.head_count_kv", attention.kv_heads as u32);
        self.head_keys(attention);
    }

    pub fn head_keys(&mut self, attention: &Attention) {
        self.number("attention.key_length", attention.head_dim as u32);
        self.number("attention.value_length", attention.value_dim as u32);
    }

    /// Gains above 1, so that attention picks some positions over others.
    pub fn attention(&mut self, attention: &Attention) {
        let Attention { heads, kv_heads, head_dim, .. } = *attention;
        let queries = heads * head_dim;
        let keys = kv_heads * head_dim;
        let projections = [
            ("q", if attention.gated { 2 * queries } else { queries }, 1.5),
            ("k", keys, 1.5),
            ("v", if attention.no_values { 0 } else { kv_heads * attention.value_dim }, 1.0),
        ];
        if attention.fused {
            let all = projections.iter().map(|(_, size, _)| size).sum();
            self.matrix("attn_qkv.weight", &[WIDTH, all], 1.5);
        }
        for (name, size, gain) in projections.into_iter().filter(|&(_, size, _)| size > 0) {
            if !attention.fused {
                self.matrix(&format!("attn_{name}.weight"), &[WIDTH, size], gain);
            }
            if attention.biases {
                self.bias(&format!("attn_{name}.bias"), size);
            }
        }
        self.matrix("attn_output.weight", &[heads * attention.value_dim, WIDTH], 1.0);
        if attention.output_bias {
            self.bias("attn_output.bias", WIDTH);
        }
        let (query_norm, key_norm) = match attention.norms {
            Norms::None => (0, 0),
            Norms::Head => (head_dim, head_dim),
            Norms::AllHeads => (queries, keys),
        };
        if query_norm > 0 {
            self.norm("attn_q_norm.weight", query_norm);
            self.norm("attn_k_norm.weight", key_norm);
        }
        if attention.sinks {
            self.plain("attn_sinks.weight", &[heads], Content::Weights(1.0));
        }
    }
}

/// How a router's scores become shares: `enum llama_expert_gating_func_type`.
#[derive(Clone, Copy)]
pub(crate) enum Gating {
    Softmax = 1,
    Sigmoid = 2,
}

#[derive(Clone, Copy)]
pub(crate) struct Experts {
    pub count: u64,
    pub used: u32,
    /// Width inside one.
    pub inner: u64,
    /// Gate and up in one tensor.
    pub fused: bool,
    /// Without a gate: up and down only.
    pub ungated: bool,
    /// On the router and on each matrix.
    pub biases: bool,
    /// A bias that counts when experts are picked, and not when they are weighed.
    pub correction: bool,
    /// Width inside the shared expert; 0 for none.
    pub shared: u64,
    /// Whether the shared expert has a gate of its own.
    pub shared_gate: bool,
}

impl Experts {
    pub const PLAIN: Experts = Experts {
        count: 8,
        used: 3,
        inner: 128,
        fused: false,
        ungated: false,
        biases: false,
        correction: false,
        shared: 0,
        shared_gate: false,
    };
}

impl Builder {
    pub fn expert_keys(&mut self, experts: &Experts) {
        self.number("expert_count", experts.count as u32);
        self.number("expert_used_count", experts.used);
        self.number("expert_feed_forward_length", experts.inner as u32);
    }

    pub fn gating(&mut self, gating: Gating, normed: bool, scale: f32) {
        self.number("expert_gating_func", gating as u32);
        self.flag("expert_weights_norm", normed);
        self.float("expert_weights_scale", scale);
    }

    pub fn experts(&mut self, experts: &Experts) {
        let Experts { count, inner, .. } = *experts;
        self.plain("ffn_gate_inp.weight", &[WIDTH, count], Content::Weights(1.5 / (WIDTH as f32).sqrt()));
        let mut ups = vec![("up", inner)];
        match (experts.fused, experts.ungated) {
            (true, _) => ups = vec![("gate_up", 2 * inner)],
            (_, false) => ups.push(("gate", inner)),
            _ => {}
        }
        for (name, size) in ups {
            self.matrix(&format!("ffn_{name}_exps.weight"), &[WIDTH, size, count], 1.0);
            if experts.biases {
                self.plain(&format!("ffn_{name}_exps.bias"), &[size, count], Content::Weights(0.3));
            }
        }
        self.matrix("ffn_down_exps.weight", &[inner, WIDTH, count], 2.0);
        if experts.biases {
            self.plain("ffn_down_exps.bias", &[WIDTH, count], Content::Weights(0.3));
            self.bias("ffn_gate_inp.bias", count);
        }
        if experts.correction {
            self.plain("exp_probs_b.bias", &[count], Content::Weights(0.2));
        }
        if experts.shared > 0 {
            self.shared_expert(experts);
        }
    }

    fn shared_expert(&mut self, experts: &Experts) {
        let inner = experts.shared;
        if !experts.ungated {
            self.matrix("ffn_gate_shexp.weight", &[WIDTH, inner], 1.0);
        }
        self.matrix("ffn_up_shexp.weight", &[WIDTH, inner], 1.0);
        self.matrix("ffn_down_shexp.weight", &[inner, WIDTH], 2.0);
        if experts.shared_gate {
            let spread = 1.0 / (WIDTH as f32).sqrt();
            self.plain("ffn_gate_inp_shexp.weight", &[WIDTH], Content::Weights(spread));
        }
    }
}
