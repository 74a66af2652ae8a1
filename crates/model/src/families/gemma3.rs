//! Gemma 3 (text): sliding windows with a rotation of their own, norms after each block, scaled embeddings.

use adit_format::{Array, Value};

use super::{Activation, Family, Presence, RopeStyle};
use crate::config::{Config, Keys, Rope};
use crate::error::ModelError;

pub static GEMMA3: Family = Family {
    architecture: "gemma3",
    rope_style: RopeStyle::Neox,
    activation: Activation::GeluTanh,
    experts: Presence::Never,
    qkv_bias: Presence::Optional,
    other_biases: Presence::Never,
    qk_norm: Presence::Always,
    post_norms: Presence::Always,
    details,
};

/// Every sixth layer sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 6;
/// Frequency base of sliding-window layers (Gemma 3 report, section 2).
const SLIDING_BASE: f32 = 10000.0;
/// The 27B model alone scales queries by its width per head instead of the head's own size.
const LAYERS_OF_27B: usize = 62;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.embedding_scale = (config.width as f32).sqrt();
    if config.layers == LAYERS_OF_27B {
        config.attention_scale = 1.0 / ((config.width / config.heads) as f32).sqrt();
    }
    config.logit_soft_cap = keys.optional_float("final_logit_softcapping")?.filter(|&cap| cap != 0.0);
    let window = keys.optional_size("attention.sliding_window", u32::MAX)?.filter(|&window| window > 0);
    let Some(window) = window else { return Ok(()) };
    let base = keys.optional_float("rope.freq_base_swa")?.unwrap_or(SLIDING_BASE);
    config.rope_sliding = Some(Rope { base, scale: 1.0, ..config.rope.clone() });
    for (layer, slides) in sliding_layers(keys, config.layers)?.into_iter().enumerate() {
        config.windows[layer] = slides.then_some(window);
    }
    Ok(())
}

/// `attention.sliding_window_pattern` is a period or a flag per layer.
fn sliding_layers(keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
    const KEY: &str = "attention.sliding_window_pattern";
    let name = keys.name(KEY);
    let flags = match keys.metadata.get(&name) {
        Some(Value::Array(Array::Bool(_))) => keys.metadata.bools(&name)?,
        Some(Value::Array(_)) => {
            keys.metadata.u32s(&name)?.map(|flags| flags.iter().map(|&flag| flag != 0).collect())
        }
        _ => None,
    };
    if let Some(flags) = flags {
        if flags.len() < layers {
            return Err(keys.bad(
                KEY,
                format!("{} flags", flags.len()),
                &format!("one for each of {layers} layers"),
            ));
        }
        return Ok(flags);
    }
    let period = keys.metadata.u32(&name)?.map_or(WINDOW_PERIOD, |period| period as usize);
    // As llama.cpp: a period of 0 means that every layer slides, of 1 that none does.
    Ok((0..layers).map(|layer| period == 0 || layer % period < period - 1).collect())
}
