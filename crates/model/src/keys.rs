//! Metadata of one model, read with range checks. Knows keys shared by all families (`{architecture}.key`, as
//! llama.cpp's converter writes them); what only one family has is read in that family's file.

use adit_format::{Array, Metadata, Value};
use adit_kernels::CONV_TAPS_MAX;

use crate::config::{Rope, Yarn};
use crate::error::ModelError;

/// Limits that no published model comes near; a file beyond them is damaged or hostile, and the
/// limits keep every later product of sizes inside 64 bits.
pub(crate) const WIDTH_MAX: u32 = 1 << 20;
pub(crate) const LAYERS_MAX: u32 = 4096;
pub(crate) const HEADS_MAX: u32 = 4096;
pub(crate) const EXPERTS_MAX: u32 = 4096;

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

    pub fn missing(&self, key: &str, max: u32) -> ModelError {
        self.bad(key, "missing or 0", &format!("a whole number from 1 to {max}"))
    }

    /// A required size in `1..=max`.
    pub fn size(&self, key: &str, max: u32) -> Result<usize, ModelError> {
        match self.optional_size(key, max)? {
            Some(0) | None => Err(self.missing(key, max)),
            Some(value) => Ok(value),
        }
    }

    pub fn size_or(&self, key: &str, max: u32, default: usize) -> Result<usize, ModelError> {
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

    /// A size for each of `layers` layers: written once for all, or as a list of that many or more.
    pub fn per_layer(&self, key: &str, max: u32, layers: usize) -> Result<Option<Vec<usize>>, ModelError> {
        let name = self.name(key);
        let Some(Value::Array(_)) = self.metadata.get(&name) else {
            return Ok(self.optional_size(key, max)?.map(|size| vec![size; layers]));
        };
        let sizes = self.metadata.u32s(&name)?.unwrap_or_default();
        if sizes.len() < layers {
            let found = format!("{} numbers", sizes.len());
            return Err(self.bad(key, found, &format!("one for each of {layers} layers")));
        }
        if let Some(&size) = sizes[..layers].iter().find(|&&size| size > max) {
            return Err(self.bad(key, size, &format!("at most {max}")));
        }
        Ok(Some(sizes[..layers].iter().map(|&size| size as usize).collect()))
    }

    /// The taps of a short convolution.
    pub fn taps(&self, key: &str) -> Result<usize, ModelError> {
        match self.optional_size(key, u32::MAX)? {
            Some(taps) if (2..=CONV_TAPS_MAX).contains(&taps) => Ok(taps),
            found => {
                let found = found.map_or("missing".into(), |taps| taps.to_string());
                Err(self.bad(key, found, &format!("2 to {CONV_TAPS_MAX} taps")))
            }
        }
    }

    /// Which layers attend to a window: `attention.sliding_window_pattern` is a flag per layer, or a period
    /// whose last layer sees everything (`default_period` where the file has none).
    pub fn sliding_layers(&self, layers: usize, default_period: usize) -> Result<Vec<bool>, ModelError> {
        const KEY: &str = "attention.sliding_window_pattern";
        let name = self.name(KEY);
        let flags = match self.metadata.get(&name) {
            Some(Value::Array(Array::Bool(_))) => self.metadata.bools(&name)?,
            Some(Value::Array(_)) => {
                self.metadata.u32s(&name)?.map(|flags| flags.iter().map(|&flag| flag != 0).collect())
            }
            _ => None,
        };
        if let Some(flags) = flags {
            if flags.len() < layers {
                let found = format!("{} flags", flags.len());
                return Err(self.bad(KEY, found, &format!("one for each of {layers} layers")));
            }
            return Ok(flags);
        }
        let period = self.metadata.u32(&name)?.map_or(default_period, |period| period as usize);
        // As llama.cpp: a period of 0 means that every layer slides, of 1 that none does.
        Ok((0..layers).map(|layer| period == 0 || layer % period < period - 1).collect())
    }

    pub fn float(&self, key: &str) -> Result<f32, ModelError> {
        self.optional_float(key)?.ok_or_else(|| self.bad(key, "missing", "a number"))
    }

    pub fn optional_float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata.f32(&self.name(key))? {
            Some(value) if !value.is_finite() => Err(self.bad(key, value, "a finite number")),
            value => Ok(value),
        }
    }

    /// Keys as in llama.cpp's `llama_model_base::load_hparams`. YaRN's log multiplier is refused where the
    /// family does not know what to do with it.
    pub fn rope(&self, head_dim: usize, knows_multiplier: bool) -> Result<Rope, ModelError> {
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
        let multiplier = ["rope.scaling.yarn_log_multiplier"];
        let unknown = multiplier.into_iter().filter(|_| !knows_multiplier).chain(["rope.scaling.alpha"]);
        for unknown in unknown {
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
        Ok(Rope { base, scale, dimensions, yarn, magnitude, original_context, factors: true })
    }
}
