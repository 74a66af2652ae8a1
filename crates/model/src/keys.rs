//! Metadata of one model, read with range checks. Knows keys shared by all families (`{architecture}.key`, as
//! llama.cpp's converter writes them); what only one family has is read in that family's file.

use adit_format::{Array, Metadata, Value};
use adit_kernels::CONV_TAPS_MAX;

use crate::config::{Config, MixerConfig, Rope, Yarn};
use crate::error::ModelError;
use crate::families::NormKind;

/// Limits that no published model comes near; a file beyond them is damaged or hostile, and the
/// limits keep every later product of sizes inside 64 bits.
pub(crate) const WIDTH_MAX: u32 = 1 << 20;
pub(crate) const LAYERS_MAX: u32 = 4096;
pub(crate) const HEADS_MAX: u32 = 4096;
pub(crate) const EXPERTS_MAX: u32 = 4096;

/// Frequency base of layers with a window where neither the file nor the family names one (llama.cpp's
/// `rope_freq_base_train_swa`).
pub(crate) const SLIDING_BASE: f32 = 10000.0;

/// Metadata seen through one architecture's prefix, with range checks.
pub struct Keys<'a> {
    pub file: &'a str,
    pub architecture: &'static str,
    pub metadata: &'a Metadata,
    /// Whether the file has a tensor of this name.
    pub has_tensor: &'a dyn Fn(&str) -> bool,
}

/// Which layers attend to a window where the file does not flag them: all but one in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlidingPattern {
    /// But the first.
    ButFirst(usize),
    /// But the last.
    ButLast(usize),
    /// The file must flag them.
    Flagged,
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

    /// Which layers carry a state: `attention.recurrent_layers` is a flag per layer, or one for all; without
    /// it all do but the last of every `full_attention_interval` (4 where the file has none).
    pub fn recurrent_layers(&self, layers: usize) -> Result<Vec<bool>, ModelError> {
        const KEY: &str = "attention.recurrent_layers";
        if let Some(Value::Array(Array::Bool(flags))) = self.metadata.get(&self.name(KEY)) {
            if flags.len() < layers {
                let found = format!("{} flags", flags.len());
                return Err(self.bad(KEY, found, &format!("one for each of {layers} layers")));
            }
            return Ok(flags[..layers].to_vec());
        }
        if let Some(flags) = self.per_layer(KEY, 1, layers)? {
            return Ok(flags.into_iter().map(|flag| flag != 0).collect());
        }
        let interval = self.size_or("full_attention_interval", LAYERS_MAX, 4)?;
        Ok((1..=layers).map(|layer| layer % interval != 0).collect())
    }

    /// Which layers attend to a window: `attention.sliding_window_pattern` is a flag per layer, or a period
    /// instead of that of `default`.
    pub fn sliding_layers(&self, layers: usize, default: SlidingPattern) -> Result<Vec<bool>, ModelError> {
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
        let (period, exempt_last) = match default {
            SlidingPattern::ButFirst(period) => (period, false),
            SlidingPattern::ButLast(period) => (period, true),
            SlidingPattern::Flagged => {
                return Err(self.bad(KEY, "no list", &format!("a flag for each of {layers} layers")));
            }
        };
        let period = self.metadata.u32(&name)?.map_or(period, |period| period as usize);
        // As llama.cpp: a period of 0 means that every layer slides, of 1 that none does.
        let exempt = if exempt_last { period.saturating_sub(1) } else { 0 };
        Ok((0..layers).map(|layer| period == 0 || layer % period != exempt).collect())
    }

    /// Makes some layers attend to the latest `window` positions, and turn by `rope` of the rotation of all
    /// others. Tells which.
    pub fn slide(
        &self,
        config: &mut Config,
        window: usize,
        pattern: SlidingPattern,
        rope: impl FnOnce(&Rope) -> Rope,
    ) -> Result<Vec<bool>, ModelError> {
        let slides = self.sliding_layers(config.layers.len(), pattern)?;
        let rope = rope(&config.ropes[0]);
        let dimensions = self.size_or("rope.dimension_count_swa", WIDTH_MAX, rope.dimensions)?;
        if dimensions != rope.dimensions {
            let expected = format!("{}, what layers without a window have", rope.dimensions);
            return Err(self.bad("rope.dimension_count_swa", dimensions, &expected));
        }
        let number = config.add_rope(rope);
        for (layer, _) in config.layers.iter_mut().zip(&slides).filter(|(_, slides)| **slides) {
            let MixerConfig::Attention(attention) = &mut layer.mixer else { continue };
            for (key, size) in [
                ("attention.key_length_swa", attention.head_dim),
                ("attention.value_length_swa", attention.value_dim),
            ] {
                let found = self.size_or(key, WIDTH_MAX, size)?;
                if found != size {
                    let expected = format!("{size}, what layers without a window have");
                    return Err(self.bad(key, found, &expected));
                }
            }
            attention.window = Some(window);
            attention.rope = Some(number);
        }
        Ok(slides)
    }

    /// The window's size, if there is a window.
    pub fn window(&self) -> Result<Option<usize>, ModelError> {
        let window = self.optional_size("attention.sliding_window", u32::MAX)?;
        Ok(window.filter(|&window| window > 0))
    }

    /// The frequency base of layers with a window.
    pub fn sliding_base(&self, default: f32) -> Result<f32, ModelError> {
        match self.optional_float("rope.freq_base_swa")?.unwrap_or(default) {
            base if base <= 0.0 => Err(self.bad("rope.freq_base_swa", base, "a positive number")),
            base => Ok(base),
        }
    }

    /// Which of these norms the file has, and the number added under its root.
    pub fn norm(&self, kinds: &[NormKind]) -> Result<(NormKind, f32), ModelError> {
        for &kind in kinds {
            if let Some(epsilon) = self.factor(kind.epsilon_key())? {
                return Ok((kind, epsilon));
            }
        }
        let first = kinds[0];
        Ok((first, self.float(first.epsilon_key())?))
    }

    /// How many values of a head turn in layers with a window, where their number is their own.
    pub fn sliding_dimensions(&self, config: &Config) -> Result<usize, ModelError> {
        const KEY: &str = "rope.dimension_count_swa";
        let dimensions = self.size_or(KEY, WIDTH_MAX, config.ropes[0].dimensions)?;
        let attentions = config.layers.iter().filter_map(|layer| layer.mixer.attention());
        let head_dim = attentions.map(|attention| attention.head_dim).min().unwrap_or(0);
        match dimensions > head_dim || dimensions % 2 != 0 {
            true => Err(self.bad(KEY, dimensions, &format!("even and at most {head_dim}"))),
            false => Ok(dimensions),
        }
    }

    /// Refuses YaRN, where nobody has said what it does to layers with a window.
    pub fn no_yarn(&self, config: &Config) -> Result<(), ModelError> {
        match config.ropes[0].yarn {
            Some(_) => Err(self.bad("rope.scaling.type", "yarn", "none or linear with this family")),
            None => Ok(()),
        }
    }

    /// Refuses numbers that this family does not use; 0 and 1 change nothing.
    pub fn must_be_absent(&self, keys: &[&str]) -> Result<(), ModelError> {
        for key in keys {
            if let Some(value) = self.factor(key)?.filter(|&value| value != 1.0) {
                return Err(self.bad(key, value, "absent: adit does not know it for this family"));
            }
        }
        Ok(())
    }

    /// A limit for each layer, written once or as a list; as llama.cpp, next to nothing is none.
    pub fn limits(&self, key: &str, layers: usize) -> Result<Vec<Option<f32>>, ModelError> {
        const LEAST: f32 = 1e-6;
        let name = self.name(key);
        let limits = match self.metadata.get(&name) {
            Some(Value::Array(_)) => self.metadata.f32s(&name)?.unwrap_or_default(),
            _ => vec![self.optional_float(key)?.unwrap_or(0.0); layers],
        };
        if limits.len() < layers {
            let found = format!("{} numbers", limits.len());
            return Err(self.bad(key, found, &format!("one for each of {layers} layers")));
        }
        Ok(limits[..layers].iter().map(|&limit| Some(limit).filter(|&limit| limit > LEAST)).collect())
    }

    /// A number that is absent where it is 0.
    pub fn factor(&self, key: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.optional_float(key)?.filter(|&factor| factor != 0.0))
    }

    /// The bound of decays, if there is one: minus infinity is none.
    pub fn lowest_decay(&self) -> Result<Option<f32>, ModelError> {
        const BOUND: &str = "kda.gate_lower_bound";
        match self.metadata.f32(&self.name(BOUND))? {
            Some(f32::NEG_INFINITY) | None => Ok(None),
            Some(bound) if bound.is_finite() && bound < 0.0 => Ok(Some(bound)),
            Some(bound) => Err(self.bad(BOUND, bound, "a negative number")),
        }
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
