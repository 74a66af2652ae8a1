//! Families that are plain but for a norm or two: Xverse, Orion, Maincoder, Pangu.

use super::{AttentionTraits, Family, NormKind, PLAIN, PLAIN_ATTENTION, Presence, RopeStyle};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static XVERSE: Family = Family { architecture: "xverse", rope_style: RopeStyle::Normal, ..PLAIN };

/// Norms that take the mean away.
pub static ORION: Family =
    Family { architecture: "orion", norm: &[NormKind::Layer], norm_bias: Presence::Always, ..PLAIN };

pub static MAINCODER: Family = Family {
    architecture: "maincoder",
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits { qk_norm: Presence::Always, norm_after_rope: true, ..PLAIN_ATTENTION },
    ..PLAIN
};

pub static PANGU_EMBEDDED: Family = Family {
    architecture: "pangu-embedded",
    attention: AttentionTraits { output_bias: Presence::Always, ..PLAIN_ATTENTION },
    feed_forward_bias: Presence::Optional,
    details: without_factors,
    ..PLAIN
};

/// llama.cpp reads frequency factors and does not use them.
fn without_factors(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.ropes[0].factors = false;
    Ok(())
}
