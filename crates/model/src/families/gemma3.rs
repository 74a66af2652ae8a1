//! Gemma 3 (text): sliding windows with a rotation of their own, norms after each block, scaled embeddings.

use super::{Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, Presence};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::Keys;

pub static GEMMA3: Family = Family {
    architecture: "gemma3",
    activation: Activation::GeluTanh,
    attention: AttentionTraits { qkv_bias: Presence::Optional, qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    post_norms: Presence::Always,
    details,
    ..PLAIN
};

/// Every sixth layer sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 6;
/// Frequency base of sliding-window layers (Gemma 3 report, section 2).
const SLIDING_BASE: f32 = 10000.0;
/// The 27B model alone scales queries by its width per head instead of the head's own size.
const LAYERS_OF_27B: usize = 62;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.embedding_scale = (config.width as f32).sqrt();
    let (layers, width) = (config.layers.len(), config.width);
    if layers == LAYERS_OF_27B {
        for attention in config.attentions() {
            attention.scale = 1.0 / ((width / attention.heads) as f32).sqrt();
        }
    }
    config.logit_soft_cap = keys.optional_float("final_logit_softcapping")?.filter(|&cap| cap != 0.0);
    let window = keys.optional_size("attention.sliding_window", u32::MAX)?.filter(|&window| window > 0);
    let Some(window) = window else { return Ok(()) };
    let base = keys.optional_float("rope.freq_base_swa")?.unwrap_or(SLIDING_BASE);
    let sliding = Rope { base, scale: 1.0, factors: false, ..config.ropes[0].clone() };
    let sliding = config.add_rope(sliding);
    let slides = keys.sliding_layers(layers, WINDOW_PERIOD)?;
    for (attention, slides) in config.attentions().zip(slides) {
        if slides {
            attention.window = Some(window);
            attention.rope = Some(sliding);
        }
    }
    Ok(())
}
