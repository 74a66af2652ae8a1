//! K-EXAONE (exaone-moe): layers with a window turn, those that see everything have no positions.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static EXAONE_MOE: Family = Family {
    architecture: "exaone-moe",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits {
        normalise: Normalise::AsFileSays,
        correction: Presence::Optional,
        shared: true,
        ..PLAIN_ROUTER
    },
    leading_dense: true,
    details,
    ..PLAIN
};

/// Every fourth layer sees the whole context.
const WINDOW_PERIOD: usize = 4;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let slides = keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), Clone::clone)?;
    for (attention, slides) in config.attentions().zip(slides) {
        attention.rope = attention.rope.filter(|_| slides);
    }
    if let Some(experts) = &mut config.experts {
        let named = keys.optional_size("expert_shared_feed_forward_length", u32::MAX)?;
        experts.shared = named.filter(|&width| width > 0).unwrap_or(experts.feed_forward);
    }
    Ok(())
}
