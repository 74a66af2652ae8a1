//! Mellum with experts: as Qwen3, with windows whose layers turn without scaling.

use super::{AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static MELLUM: Family = Family {
    architecture: "mellum",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    feed_forward_scales: true,
    details,
    ..PLAIN
};

/// Every fourth layer sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 4;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let Some(window) = keys.window()? else { return Ok(()) };
    keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), Rope::unscaled)?;
    Ok(())
}
