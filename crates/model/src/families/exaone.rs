//! EXAONE 3 (a plain family), EXAONE 4 (norms behind blocks instead of before) and K-EXAONE with experts.
//! Where there are windows, layers that see everything have no positions.

use super::{AttentionTraits, DEEPSEEK_ROUTER, Family, PLAIN, PLAIN_ATTENTION, Presence};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static EXAONE: Family = Family { architecture: "exaone", ..PLAIN };

pub static EXAONE4: Family = Family {
    architecture: "exaone4",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    mixer_norm: None,
    feed_forward_norm: None,
    post_norms: Presence::Always,
    details: windows_of_32b,
    ..PLAIN
};

pub static EXAONE_MOE: Family = Family {
    architecture: "exaone-moe",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    details,
    ..PLAIN
};

/// Every fourth layer sees the whole context.
const WINDOW_PERIOD: usize = 4;

/// The 32B model alone has windows, and this size where its file names none.
const LAYERS_OF_32B: usize = 64;
const WINDOW_OF_32B: usize = 4096;

fn windows_of_32b(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    if config.layers.len() != LAYERS_OF_32B {
        return Ok(());
    }
    turn_in_windows(keys, config, keys.window()?.unwrap_or(WINDOW_OF_32B))
}

/// Windows, in which alone positions turn.
fn turn_in_windows(keys: &Keys<'_>, config: &mut Config, window: usize) -> Result<(), ModelError> {
    let slides = keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), Clone::clone)?;
    for (attention, slides) in config.attentions().zip(slides) {
        attention.rope = attention.rope.filter(|_| slides);
    }
    Ok(())
}

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    turn_in_windows(keys, config, window)?;
    if let Some(experts) = &mut config.experts {
        let named = keys.optional_size("expert_shared_feed_forward_length", u32::MAX)?;
        experts.shared = named.filter(|&width| width > 0).unwrap_or(experts.feed_forward);
    }
    Ok(())
}
