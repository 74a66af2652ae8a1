//! Gemma 3 (text): sliding windows with a rotation of their own, norms after each block, scaled embeddings.

use super::{Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, Presence};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

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
    config.logit_soft_cap = keys.factor("final_logit_softcapping")?;
    let Some(window) = keys.window()? else { return Ok(()) };
    let base = keys.sliding_base(SLIDING_BASE)?;
    keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), |full| Rope {
        base,
        scale: 1.0,
        factors: false,
        ..full.clone()
    })?;
    Ok(())
}
