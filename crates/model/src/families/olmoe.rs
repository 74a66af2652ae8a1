//! OLMo 2 and 3 (norms behind blocks instead of before, windows in 3) and OLMoE: norms over all query heads
//! and all key heads together.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static OLMO2: Family = Family {
    architecture: "olmo2",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    mixer_norm: None,
    feed_forward_norm: None,
    post_norms: Presence::Always,
    details: windows,
    ..PLAIN
};

/// Gate weights are as the softmax gives them.
pub static OLMOE: Family = Family {
    architecture: "olmoe",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { normalise: Normalise::Never, ..PLAIN_ROUTER },
    ..PLAIN
};

/// The last of so many layers sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 4;

fn windows(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let Some(window) = keys.window()? else { return Ok(()) };
    keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), Rope::unscaled)?;
    Ok(())
}
