//! Hyperparameters: the numbers of a model, read once from the metadata and checked.
//!
//! Knows metadata keys shared by all families (`{architecture}.key`, as llama.cpp's converter
//! writes them); what only one family has is read in that family's file. Knows nothing of tensors.

use adit_format::{Metadata, Value};
use adit_kernels::{AttentionShape, Values};

use crate::error::ModelError;
use crate::families::Family;

/// Limits that no published model comes near; a file beyond them is damaged or hostile, and the
/// limits keep every later product of sizes inside 64 bits.
const WIDTH_MAX: u32 = 1 << 20;
const LAYERS_MAX: u32 = 4096;
const HEADS_MAX: u32 = 4096;
const EXPERTS_MAX: u32 = 4096;

/// How one kind of layer rotates its queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of frequencies.
    pub base: f32,
    /// Position multiplier: 1 / scaling factor (linear and YaRN).
    pub scale: f32,
    /// Leading values of a head that rotate.
    pub dimensions: usize,
    pub yarn: Option<Yarn>,
    /// Extra factor on the rotated values (`rope.scaling.attn_factor`).
    pub magnitude: f32,
    /// Context length the model was first trained at; YaRN and long-rope compare against it.
    pub original_context: u32,
}

/// YaRN interpolation (arXiv:2309.00071), present when `rope.scaling.type` is `yarn`.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    pub beta_fast: f32,
    pub beta_slow: f32,
}

/// The routed feed-forward part of a mixture-of-experts model.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    pub count: usize,
    /// Experts a token uses in one layer (top-k).
    pub used: usize,
    /// Inner width of one expert.
    pub feed_forward: usize,
    /// Factor on the normalised gate weights; 1 where the file names none.
    pub weights_scale: f32,
}

/// Everything about a model's shape that is not in its tensors.
#[derive(Debug, Clone)]
pub struct Config {
    pub family: &'static Family,
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Values in one query or key head.
    pub head_dim: usize,
    /// Values in one value head.
    pub value_dim: usize,
    /// Inner width of a dense feed-forward block.
    pub feed_forward: usize,
    pub vocabulary: usize,
    /// Context length the model was trained for.
    pub context_trained: usize,
    pub norm_epsilon: f32,
    /// Factor on the query-key products.
    pub attention_scale: f32,
    /// Factor on token embeddings.
    pub embedding_scale: f32,
    /// `cap * tanh(logit / cap)` on the final logits.
    pub logit_soft_cap: Option<f32>,
    pub rope: Rope,
    /// The rotation of sliding-window layers where it differs.
    pub rope_sliding: Option<Rope>,
    /// Per layer: attend to this many latest positions only.
    pub windows: Vec<Option<usize>>,
    pub experts: Option<Experts>,
}

impl Config {
    /// Reads the metadata of a model whose tensors include a vocabulary of `vocabulary` rows.
    pub fn read(
        file: &str,
        family: &'static Family,
        metadata: &Metadata,
        vocabulary: usize,
    ) -> Result<Config, ModelError> {
        let keys = Keys { file, architecture: family.architecture, metadata };

        let width = keys.size("embedding_length", WIDTH_MAX)?;
        let layers = keys.size("block_count", LAYERS_MAX)?;
        let heads = keys.size("attention.head_count", HEADS_MAX)?;
        let kv_heads = keys.size_or("attention.head_count_kv", HEADS_MAX, heads)?;
        let head_dim = keys.size_or("attention.key_length", WIDTH_MAX, width / heads)?;
        let value_dim = keys.size_or("attention.value_length", WIDTH_MAX, width / heads)?;
        if head_dim == 0 || heads % kv_heads != 0 {
            return Err(keys.bad(
                "attention.head_count",
                heads,
                &format!("a multiple of {kv_heads} kv heads"),
            ));
        }
        let rope = keys.rope(head_dim)?;
        let mut config = Config {
            family,
            layers,
            width,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            feed_forward: keys.size_or("feed_forward_length", WIDTH_MAX, 0)?,
            vocabulary,
            context_trained: keys.size("context_length", u32::MAX)?,
            norm_epsilon: keys.float("attention.layer_norm_rms_epsilon")?,
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            embedding_scale: 1.0,
            logit_soft_cap: None,
            rope,
            rope_sliding: None,
            windows: vec![None; layers],
            experts: keys.experts()?,
        };
        (family.details)(&keys, &mut config)?;
        Ok(config)
    }

    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    pub fn value_width(&self) -> usize {
        self.kv_heads * self.value_dim
    }

    /// What the attention kernel needs to know of layer `layer`.
    pub fn attention_shape(&self, layer: usize) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            values: Values::Own,
            scale: self.attention_scale,
            window: self.windows[layer],
            soft_cap: None,
        }
    }
}

/// Metadata seen through one architecture's prefix, with range checks.
pub struct Keys<'a> {
    pub file: &'a str,
    pub architecture: &'static str,
    pub metadata: &'a Metadata,
}

impl Keys<'_> {
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub fn bad(&self, key: &str, found: impl ToString, expected: &str) -> ModelError {
        ModelError::BadMetadata {
            file: self.file.to_string(),
            key: self.name(key),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    /// A required size in `1..=max`.
    fn size(&self, key: &str, max: u32) -> Result<usize, ModelError> {
        match self.optional_size(key, max)? {
            Some(0) | None => Err(self.bad(key, "missing or 0", &format!("a whole number from 1 to {max}"))),
            Some(value) => Ok(value),
        }
    }

    fn size_or(&self, key: &str, max: u32, default: usize) -> Result<usize, ModelError> {
        Ok(self.optional_size(key, max)?.filter(|&value| value > 0).unwrap_or(default))
    }

    /// Some converters write one number per layer; adit needs them to be the same in all layers.
    pub fn optional_size(&self, key: &str, max: u32) -> Result<Option<usize>, ModelError> {
        let name = self.name(key);
        let value = match self.metadata.get(&name) {
            Some(Value::Array(_)) => {
                let values = self.metadata.u32s(&name)?.unwrap_or_default();
                let first = values.first().copied();
                if values.iter().any(|&value| Some(value) != first) {
                    return Err(self.bad(
                        key,
                        "a list that differs by layer",
                        "the same value in every layer",
                    ));
                }
                first
            }
            _ => self.metadata.u32(&name)?,
        };
        match value {
            Some(value) if value > max => Err(self.bad(key, value, &format!("at most {max}"))),
            value => Ok(value.map(|value| value as usize)),
        }
    }

    fn float(&self, key: &str) -> Result<f32, ModelError> {
        self.optional_float(key)?.ok_or_else(|| self.bad(key, "missing", "a number"))
    }

    pub fn optional_float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata.f32(&self.name(key))? {
            Some(value) if !value.is_finite() => Err(self.bad(key, value, "a finite number")),
            value => Ok(value),
        }
    }

    /// Keys as in llama.cpp's `llama_model_base::load_hparams`.
    fn rope(&self, head_dim: usize) -> Result<Rope, ModelError> {
        let dimensions = self.size_or("rope.dimension_count", WIDTH_MAX, head_dim)?;
        if dimensions > head_dim || dimensions % 2 != 0 {
            return Err(self.bad(
                "rope.dimension_count",
                dimensions,
                &format!("even and at most {head_dim}"),
            ));
        }
        let base = self.optional_float("rope.freq_base")?.unwrap_or(10000.0);
        if base <= 0.0 {
            return Err(self.bad("rope.freq_base", base, "a positive number"));
        }
        let factor = match self.optional_float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.optional_float("rope.scale_linear")?,
        };
        let kind_name = self.name("rope.scaling.type");
        let kind = self.metadata.str(&kind_name)?.unwrap_or("linear");
        let scale = match (kind, factor) {
            (_, Some(factor)) if factor < 0.0 => {
                return Err(self.bad("rope.scaling.factor", factor, "a positive number"));
            }
            ("none", _) | (_, None) => 1.0,
            (_, Some(0.0)) => 1.0,
            (_, Some(factor)) => 1.0 / factor,
        };
        let yarn = match kind {
            "none" | "linear" | "longrope" => None,
            "yarn" => Some(Yarn {
                beta_fast: self.optional_float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.optional_float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            }),
            other => return Err(self.bad("rope.scaling.type", other, "none, linear, yarn or longrope")),
        };
        for unknown in ["rope.scaling.yarn_log_multiplier", "rope.scaling.alpha"] {
            if let Some(value) = self.optional_float(unknown)?.filter(|&value| value != 0.0) {
                return Err(self.bad(
                    unknown,
                    value,
                    "absent: adit does not know this scaling for this family",
                ));
            }
        }
        let original = self.metadata.u32(&self.name("rope.scaling.original_context_length"))?;
        let trained = self.metadata.u32(&self.name("context_length"))?;
        let magnitude = self.optional_float("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let original_context = original.or(trained).unwrap_or(0);
        Ok(Rope { base, scale, dimensions, yarn, magnitude, original_context })
    }

    fn experts(&self) -> Result<Option<Experts>, ModelError> {
        let count = self.size_or("expert_count", EXPERTS_MAX, 0)?;
        if count == 0 {
            return Ok(None);
        }
        let used = self.size("expert_used_count", EXPERTS_MAX)?;
        if used > count {
            return Err(self.bad("expert_used_count", used, &format!("at most expert_count, {count}")));
        }
        for unknown in ["expert_shared_count", "expert_shared_feed_forward_length", "expert_group_count"] {
            if let Some(value) = self.optional_size(unknown, u32::MAX)?.filter(|&value| value > 0) {
                return Err(self.bad(unknown, value, "absent: this family has no such part"));
            }
        }
        let dense = self.size_or("feed_forward_length", WIDTH_MAX, 0)?;
        let feed_forward = self.size_or("expert_feed_forward_length", WIDTH_MAX, dense)?;
        let weights_scale = match self.optional_float("expert_weights_scale")? {
            Some(scale) if scale != 0.0 => scale,
            _ => 1.0,
        };
        Ok(Some(Experts { count, used, feed_forward, weights_scale }))
    }
}
