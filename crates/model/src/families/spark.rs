//! Spark 2.5: a gate for each head, windows, GELU.

use super::{Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, Presence};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static SPARK2_5: Family = Family {
    architecture: "spark2_5",
    activation: Activation::GeluTanh,
    attention: AttentionTraits { gate: Presence::Always, ..PLAIN_ATTENTION },
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let base = keys.sliding_base(config.ropes[0].base)?;
    let dimensions = keys.sliding_dimensions(config)?;
    let rope = |full: &Rope| Rope { base, dimensions, ..full.clone() };
    keys.slide(config, window, SlidingPattern::Flagged, rope)?;
    Ok(())
}
