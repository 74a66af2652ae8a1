//! Maple: as Qwen3, with a limit inside experts, layers with windows that turn, and others without positions.

use super::{
    Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static MAPLE: Family = Family {
    architecture: "maple",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    keys.must_be_absent(&["expert_weights_scale"])?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let base = keys.sliding_base(config.ropes[0].base)?;
    let dimensions = keys.sliding_dimensions(config)?;
    let rope = |full: &Rope| Rope { base, dimensions, ..full.clone() };
    let slides = keys.slide(config, window, SlidingPattern::Flagged, rope)?;
    for (attention, slides) in config.attentions().zip(slides) {
        attention.rope = attention.rope.filter(|_| slides);
    }
    let limits = keys.limits("swiglu_clamp_exp", config.layers.len())?;
    for (layer, limit) in config.layers.iter_mut().zip(limits) {
        layer.expert_activation = limit.map_or(Activation::Silu, Activation::SwigluClamp);
    }
    Ok(())
}
