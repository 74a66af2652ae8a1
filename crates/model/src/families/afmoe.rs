//! AFMoE (Arcee Trinity): a gate on what was attended, norms after each block, windows, every fourth layer
//! without positions.

use super::{
    AttentionTraits, DEEPSEEK_ROUTER, Family, Gating, PLAIN, PLAIN_ATTENTION, Presence, RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static AFMOE: Family = Family {
    architecture: "afmoe",
    attention: AttentionTraits { qk_norm: Presence::Always, gate: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..DEEPSEEK_ROUTER },
    leading_dense: true,
    post_norms: Presence::Always,
    details,
    ..PLAIN
};

/// The last of so many layers has no positions; without other word it is also the one that sees everything.
const PERIOD: usize = 4;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.embedding_scale = (config.width as f32).sqrt();
    if let Some(window) = keys.window()? {
        let base = keys.sliding_base(config.ropes[0].base)?;
        let pattern = SlidingPattern::ButLast(PERIOD);
        keys.slide(config, window, pattern, |full| Rope { base, ..full.clone() })?;
    }
    for (layer, attention) in config.attentions().enumerate() {
        attention.rope = attention.rope.filter(|_| (layer + 1) % PERIOD != 0);
    }
    Ok(())
}
