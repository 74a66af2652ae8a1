//! SmallThinker: the router sees the residual stream before attention, experts are rectified.

use super::{Activation, Family, PLAIN, PLAIN_ROUTER, Presence, RouterInput, RouterTraits};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static SMALLTHINKER: Family = Family {
    architecture: "smallthinker",
    activation: Activation::Relu,
    experts: Presence::Always,
    router: RouterTraits { input: RouterInput::Layer, ..PLAIN_ROUTER },
    details,
    ..PLAIN
};

/// The only size of windows that llama.cpp knows, whatever the file says.
const WINDOW: usize = 4096;
/// With windows, the first of so many layers sees everything and has no positions.
const PERIOD: usize = 4;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let Some(window) = keys.window()? else { return Ok(()) };
    if window != WINDOW {
        return Err(keys.bad("attention.sliding_window", window, &format!("{WINDOW}, 0 or absent")));
    }
    let base = keys.sliding_base(config.ropes[0].base)?;
    let pattern = SlidingPattern::ButFirst(PERIOD);
    keys.slide(config, window, pattern, |full| Rope { base, ..full.clone() })?;
    for (layer, attention) in config.attentions().enumerate() {
        attention.rope = attention.rope.filter(|_| layer % PERIOD != 0);
    }
    Ok(())
}
