//! gpt-oss: sinks in the softmax of attention, every other layer with a window, biases everywhere.

use super::{
    Activation, AttentionTraits, Family, Gating, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence,
    RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static GPT_OSS: Family = Family {
    architecture: "gpt-oss",
    activation: Activation::SwigluOai,
    attention: AttentionTraits { output_bias: Presence::Always, sinks: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::SoftmaxOfPicked,
        normalise: Normalise::Never,
        bias: Presence::Always,
        expert_bias: Presence::Always,
        ..PLAIN_ROUTER
    },
    feed_forward_norm: Some("post_attention_norm"),
    details,
    ..PLAIN
};

/// Windows alternate with layers that see everything.
const WINDOW_PERIOD: usize = 2;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let base = keys.sliding_base(config.ropes[0].base)?;
    let pattern = SlidingPattern::ButLast(WINDOW_PERIOD);
    keys.slide(config, window, pattern, |full| Rope { base, ..full.clone() })?;
    // The gate is what it is; the key is written for all families.
    config.experts.iter_mut().for_each(|experts| experts.gating = Gating::SoftmaxOfPicked);
    Ok(())
}
