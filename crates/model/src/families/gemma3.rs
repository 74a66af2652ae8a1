//! Gemma 1 to 3 (text): scaled embeddings; from 2 on windows and norms after each block, in 2 soft caps, in 3
//! windows with a rotation of their own.

use super::{Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, Presence};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static GEMMA: Family =
    Family { architecture: "gemma", activation: Activation::GeluTanh, details: scaled_embedding, ..PLAIN };

pub static GEMMA2: Family = Family {
    architecture: "gemma2",
    activation: Activation::GeluTanh,
    post_norms: Presence::Always,
    details: soft_caps,
    ..PLAIN
};

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

fn scaled_embedding(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.embedding_scale = (config.width as f32).sqrt();
    Ok(())
}

/// Numbers of Gemma 2 that a file need not name (Gemma 2 report, table 1 and section 2).
const GEMMA2_WINDOW: usize = 4096;
const GEMMA2_PERIOD: usize = 2;
const GEMMA2_ATTENTION_CAP: f32 = 50.0;
const GEMMA2_LOGIT_CAP: f32 = 30.0;
/// The 27B model alone scales queries by its width per head instead of the head's own size.
const LAYERS_OF_GEMMA2_27B: usize = 46;

fn soft_caps(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    scaled_embedding(keys, config)?;
    let cap = |key, default| match keys.optional_float(key)?.unwrap_or(default) {
        0.0 => Err(keys.bad(key, 0, "a limit, or absent")),
        cap => Ok(Some(cap)),
    };
    config.logit_soft_cap = cap("final_logit_softcapping", GEMMA2_LOGIT_CAP)?;
    let soft_cap = cap("attn_logit_softcapping", GEMMA2_ATTENTION_CAP)?;
    let (is_27b, width) = (config.layers.len() == LAYERS_OF_GEMMA2_27B, config.width);
    for attention in config.attentions() {
        attention.soft_cap = soft_cap;
        if is_27b {
            attention.scale = 1.0 / ((width / attention.heads) as f32).sqrt();
        }
    }
    let window = keys.window()?.unwrap_or(GEMMA2_WINDOW);
    let base = keys.sliding_base(config.ropes[0].base)?;
    let pattern = SlidingPattern::ButLast(GEMMA2_PERIOD);
    keys.slide(config, window, pattern, |full| Rope { base, ..full.clone() })?;
    Ok(())
}
