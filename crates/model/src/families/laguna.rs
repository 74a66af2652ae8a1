//! Laguna: a gate on what was attended, windows whose layers turn without scaling, sigmoid routing.

use super::{
    AttentionTraits, DEEPSEEK_ROUTER, Family, GateFunction, Gating, PLAIN, PLAIN_ATTENTION, Presence,
    RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static LAGUNA: Family = Family {
    architecture: "laguna",
    attention: AttentionTraits {
        qk_norm: Presence::Always,
        gate: Presence::Always,
        gate_function: GateFunction::Softplus,
        ..PLAIN_ATTENTION
    },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..DEEPSEEK_ROUTER },
    leading_dense: true,
    details,
    ..PLAIN
};

/// The first of so many layers sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 4;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    if let Some(experts) = config.experts.as_mut().filter(|experts| experts.shared == 0) {
        experts.shared = experts.feed_forward;
    }
    let Some(window) = keys.window()? else { return Ok(()) };
    let base = keys.sliding_base(config.ropes[0].base)?;
    let dimensions = keys.sliding_dimensions(config)?;
    let pattern = SlidingPattern::ButFirst(WINDOW_PERIOD);
    keys.slide(config, window, pattern, |full| Rope { base, dimensions, ..full.unscaled() })?;
    Ok(())
}
