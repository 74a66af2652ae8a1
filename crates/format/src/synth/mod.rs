//! Tiny models of random weights, made from a seed: the files that tests everywhere run on. They are valid
//! models of their family, with the keys and names that llama.cpp's converter writes, so llama.cpp opens
//! them too. Knows the families' files, not their arithmetic.

mod tensors;
mod vocabulary;
mod weights;
pub mod zoo;

use std::path::{Path, PathBuf};

pub use vocabulary::Vocabulary;
pub use weights::random_weights;

use crate::rng::Rng;
use crate::writer::{Existing, Layout, TensorSpec, Writer};
use crate::{Array, FormatError, Metadata, TensorType, Value};

/// Positions that a convolution sees.
const CONVOLUTION_TAPS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Llama,
    /// `llama` with experts, as Mixtral is.
    LlamaMoe,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma3,
    /// Short convolutions, with attention in every other layer.
    Lfm2,
}

impl Family {
    pub const ALL: [Family; 7] = [
        Family::Llama,
        Family::LlamaMoe,
        Family::Qwen2,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Gemma3,
        Family::Lfm2,
    ];

    /// `general.architecture`.
    pub fn architecture(self) -> &'static str {
        match self {
            Family::Llama | Family::LlamaMoe => "llama",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3moe",
            Family::Gemma3 => "gemma3",
            Family::Lfm2 => "lfm2",
        }
    }

    pub fn has_experts(self) -> bool {
        matches!(self, Family::LlamaMoe | Family::Qwen3Moe)
    }

    /// Whether a layer is a convolution.
    fn is_convolution(self, layer: u32) -> bool {
        self == Family::Lfm2 && layer.is_multiple_of(2)
    }
}

/// How positions beyond the trained context are squeezed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    Linear(f32),
    Yarn {
        factor: f32,
        original_context: u32,
    },
    /// Factors per frequency in the tensor `rope_freqs.weight`, as Llama 3.1 has them.
    Factors,
}

/// Types of the weight matrices. Norms, biases and routers are F32, as converters write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightTypes {
    pub embedding: TensorType,
    pub output: TensorType,
    /// Queries, keys and the output of attention.
    pub attention: TensorType,
    pub value: TensorType,
    pub gate_up: TensorType,
    pub down: TensorType,
}

impl WeightTypes {
    pub fn all(kind: TensorType) -> WeightTypes {
        WeightTypes { embedding: kind, output: kind, attention: kind, value: kind, gate_up: kind, down: kind }
    }

    /// As the quantiser's Q4_K_M mixes them.
    pub fn mixed() -> WeightTypes {
        WeightTypes {
            embedding: TensorType::Q6K,
            output: TensorType::Q6K,
            value: TensorType::Q6K,
            down: TensorType::Q6K,
            ..WeightTypes::all(TensorType::Q4K)
        }
    }
}

/// A model to be made: take [`Synth::new`] and change what the test is about.
#[derive(Clone, Debug)]
pub struct Synth {
    pub family: Family,
    pub seed: u64,
    pub layers: u32,
    /// Width of the hidden state. K types need it, `heads * head_dim` and `feed_forward` to be multiples
    /// of 256.
    pub embedding: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    /// Width inside the feed-forward block, of each expert where there are experts.
    pub feed_forward: u32,
    pub experts: u32,
    pub experts_used: u32,
    pub context: u32,
    pub types: WeightTypes,
    /// Whether the embedding is the output matrix too.
    pub tied: bool,
    pub rope_scaling: RopeScaling,
    /// Positions that a windowed layer looks back (gemma3 only).
    pub window: u32,
    pub final_soft_cap: Option<f32>,
    pub vocabulary: Vocabulary,
    /// More than 1 writes a split model.
    pub parts: u32,
}

impl Synth {
    /// A model of some hundred kilobytes to two megabytes, in Q8_0.
    pub fn new(family: Family) -> Synth {
        let gemma = family == Family::Gemma3;
        Synth {
            family,
            seed: 1,
            // The sixth layer of gemma3 is the first without a window.
            layers: if gemma { 6 } else { 2 },
            embedding: 256,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            feed_forward: if family.has_experts() { 256 } else { 512 },
            experts: if family.has_experts() { 8 } else { 0 },
            experts_used: if family.has_experts() { 2 } else { 0 },
            context: 2048,
            types: WeightTypes::all(TensorType::Q8_0),
            tied: gemma,
            rope_scaling: RopeScaling::None,
            window: 32,
            final_soft_cap: None,
            vocabulary: match family {
                Family::Llama | Family::LlamaMoe => Vocabulary::Bpe("smollm"),
                Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::Lfm2 => Vocabulary::Bpe("qwen2"),
                Family::Gemma3 => Vocabulary::Spm,
            },
            parts: 1,
        }
    }

    /// The same with all matrices of one type.
    pub fn of_type(self, kind: TensorType) -> Synth {
        Synth { types: WeightTypes::all(kind), ..self }
    }

    /// Writes the model and returns the path to open: `path`, or for a split model the first of
    /// `name-00001-of-0000N.gguf` beside it.
    pub fn write(&self, path: &Path) -> Result<PathBuf, FormatError> {
        let (metadata, vocabulary_size) = self.metadata();
        let tensors = tensors::list(self, vocabulary_size);
        if let Some(tensor) = tensors.iter().find(|tensor| !weights::is_weight_type(tensor.spec.kind)) {
            let problem = format!("tensor {}: {} is no weight type", tensor.spec.name, tensor.spec.kind);
            return Err(FormatError::Unwritable { problem });
        }
        if self.parts <= 1 {
            write_file(path, self.seed, &metadata, &tensors)?;
            return Ok(path.to_path_buf());
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
        let part_path =
            |part: u32| path.with_file_name(format!("{stem}-{:05}-of-{:05}.gguf", part + 1, self.parts));
        // Even shares by number; where there are more parts than tensors, some parts are empty.
        let start = |part: u32| tensors.len() * part as usize / self.parts as usize;
        for part in 0..self.parts {
            let mut part_metadata = if part == 0 { metadata.clone() } else { Metadata::new() };
            part_metadata.set("split.no", Value::U16(part as u16));
            part_metadata.set("split.count", Value::U16(self.parts as u16));
            part_metadata.set("split.tensors.count", Value::I32(tensors.len() as i32));
            let tensors = &tensors[start(part)..start(part + 1)];
            write_file(&part_path(part), self.seed, &part_metadata, tensors)?;
        }
        Ok(part_path(0))
    }

    /// All keys, and the size of the vocabulary.
    fn metadata(&self) -> (Metadata, u32) {
        let architecture = self.family.architecture();
        let gemma = self.family == Family::Gemma3;
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", Value::string(architecture));
        metadata.set("general.type", Value::string("model"));
        metadata.set("general.name", Value::string(&format!("Synthetic {:?}", self.family)));
        metadata.set("general.quantization_version", Value::U32(2));
        let mut set = |key: &str, value| metadata.set(&format!("{architecture}.{key}"), value);
        set("block_count", Value::U32(self.layers));
        set("context_length", Value::U32(self.context));
        set("embedding_length", Value::U32(self.embedding));
        // Mixtures in qwen3moe have a key of their own; the dense width is written and unused.
        set("feed_forward_length", Value::U32(self.feed_forward));
        set("attention.head_count", Value::U32(self.heads));
        match self.family {
            Family::Lfm2 => {
                let heads = |layer| if self.family.is_convolution(layer) { 0 } else { self.kv_heads };
                let heads = (0..self.layers).map(heads).collect();
                set("attention.head_count_kv", Value::Array(Array::U32(heads)));
                set("shortconv.l_cache", Value::U32(CONVOLUTION_TAPS));
            }
            _ => set("attention.head_count_kv", Value::U32(self.kv_heads)),
        }
        set("attention.key_length", Value::U32(self.head_dim));
        set("attention.value_length", Value::U32(self.head_dim));
        set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        set("rope.freq_base", Value::F32(if gemma { 1e6 } else { 1e4 }));
        if self.family.architecture() == "llama" {
            set("rope.dimension_count", Value::U32(self.head_dim));
        }
        if self.family.has_experts() {
            set("expert_count", Value::U32(self.experts));
            set("expert_used_count", Value::U32(self.experts_used));
        }
        if self.family == Family::Qwen3Moe {
            set("expert_feed_forward_length", Value::U32(self.feed_forward));
        }
        if gemma {
            set("attention.sliding_window", Value::U32(self.window));
        }
        if let Some(cap) = self.final_soft_cap {
            set("final_logit_softcapping", Value::F32(cap));
        }
        match self.rope_scaling {
            RopeScaling::None | RopeScaling::Factors => {}
            RopeScaling::Linear(factor) => {
                set("rope.scaling.type", Value::string("linear"));
                set("rope.scaling.factor", Value::F32(factor));
            }
            RopeScaling::Yarn { factor, original_context } => {
                set("rope.scaling.type", Value::string("yarn"));
                set("rope.scaling.factor", Value::F32(factor));
                set("rope.scaling.original_context_length", Value::U32(original_context));
            }
        }
        let size = vocabulary::describe(&self.vocabulary, gemma, &mut metadata);
        metadata.set(&format!("{architecture}.vocab_size"), Value::U32(size));
        (metadata, size)
    }
}

/// Each tensor's values come from the seed and its own name.
fn write_file(
    path: &Path,
    seed: u64,
    metadata: &Metadata,
    tensors: &[tensors::Tensor],
) -> Result<(), FormatError> {
    let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let mut writer = Writer::create(path, Layout::new(metadata, &specs)?, Existing::Refuse)?;
    let mut buffer = Vec::new();
    for tensor in tensors {
        let mut rng = Rng::named(seed, &tensor.spec.name);
        let elements: u64 = tensor.spec.dims.iter().product();
        for index in 0..elements / tensor.spec.kind.block_len() as u64 {
            tensor.push_block(&mut buffer, index, &mut rng);
            if buffer.len() >= 1 << 16 {
                writer.write(&buffer)?;
                buffer.clear();
            }
        }
        writer.write(&buffer)?;
        buffer.clear();
    }
    writer.finish()
}
