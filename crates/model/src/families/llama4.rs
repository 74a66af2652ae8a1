//! Llama 4: attention within chunks, every fourth layer over everything and without positions, weights that
//! are factors on what experts see.

use super::{Family, Gating, Normalise, PLAIN, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits};
use crate::config::{Config, FeedForwardConfig, Rope, Temperature};
use crate::error::ModelError;
use crate::keys::{Keys, LAYERS_MAX, SlidingPattern, WIDTH_MAX};

pub static LLAMA4: Family = Family {
    architecture: "llama4",
    rope_style: RopeStyle::Normal,
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::Sigmoid,
        gating_varies: false,
        normalise: Normalise::Never,
        weighs_input: true,
        shared: true,
        ..PLAIN_ROUTER
    },
    details,
    ..PLAIN
};

/// Positions of a chunk, whatever the file says; also the length over which the temperature grows.
const CHUNK: usize = 8192;
/// Growth of the temperature (llama.cpp's `llama4`).
const TEMPERATURE: Temperature = Temperature { scale: 0.1, length: CHUNK, offset: 1 };
/// The last of so many layers has no positions; without other word it is also the one without chunks.
const PERIOD: usize = 4;
/// The model of so many experts has no norm of queries and keys.
const EXPERTS_OF_MAVERICK: usize = 128;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    const WINDOW: &str = "attention.sliding_window";
    keys.must_be_absent(&["expert_weights_scale"])?;
    if let Some(found) = keys.optional_size(WINDOW, u32::MAX)?.filter(|&window| window != CHUNK) {
        return Err(keys.bad(WINDOW, found, &format!("{CHUNK} or absent")));
    }
    let step = keys.size("interleave_moe_layer_step", LAYERS_MAX)?;
    let inner = keys.size_or("feed_forward_length", WIDTH_MAX, 0)?;
    for (layer, config) in config.layers.iter_mut().enumerate() {
        if (layer + 1) % step != 0 {
            config.feed_forward = FeedForwardConfig::Dense { inner };
        }
    }
    let experts = config.experts.as_mut().expect("this family has experts");
    experts.gating = Gating::SigmoidOfPicked;
    experts.shared = experts.feed_forward;
    let normed = experts.count != EXPERTS_OF_MAVERICK;
    let base = keys.sliding_base(config.ropes[0].base)?;
    let pattern = SlidingPattern::ButLast(PERIOD);
    keys.slide(config, CHUNK, pattern, |full| Rope { base, ..full.clone() })?;
    for (layer, attention) in config.attentions().enumerate() {
        // What slides elsewhere begins anew in each chunk here.
        attention.chunk = attention.window.take();
        let turns = (layer + 1) % PERIOD != 0;
        attention.rope = attention.rope.filter(|_| turns);
        attention.rms_after_rope = turns && normed;
        attention.temperature = (!turns).then_some(TEMPERATURE);
    }
    Ok(())
}
