//! gpt-oss: sinks in the softmax of attention, every other layer with a window, biases everywhere.

use super::{
    Activation, AttentionTraits, Family, Gating, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence,
    RouterTraits,
};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::Keys;

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
    feed_forward_norm: "post_attention_norm",
    details,
    ..PLAIN
};

/// Windows alternate with layers that see everything.
const WINDOW_PERIOD: usize = 2;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let slides = keys.sliding_layers(config.layers.len(), WINDOW_PERIOD)?;
    let full = &config.ropes[0];
    let base = keys.optional_float("rope.freq_base_swa")?.unwrap_or(full.base);
    let sliding = config.add_rope(Rope { base, ..full.clone() });
    for (attention, slides) in config.attentions().zip(slides) {
        if slides {
            attention.window = Some(window);
            attention.rope = Some(sliding);
        }
    }
    // The gate is what it is; the key is written for all families.
    config.experts.iter_mut().for_each(|experts| experts.gating = Gating::SoftmaxOfPicked);
    Ok(())
}
