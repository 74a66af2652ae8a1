//! Command R, R7B and A, and A with experts: attention and feed-forward block side by side; where there are
//! windows, only layers with one have positions.

use super::{
    BlockInput, Family, Gating, NormKind, Normalise, PLAIN, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::{Keys, LAYERS_MAX, SlidingPattern};

pub static COMMAND_R: Family = Family {
    architecture: "command-r",
    rope_style: RopeStyle::Normal,
    norm: &[NormKind::Layer],
    feed_forward_input: BlockInput::Layer,
    feed_forward_norm: Some("attn_norm"),
    details: scale_of_logits,
    ..PLAIN
};

pub static COHERE2: Family = Family {
    architecture: "cohere2",
    rope_style: RopeStyle::Normal,
    norm: &[NormKind::Layer],
    feed_forward_input: BlockInput::Layer,
    feed_forward_norm: Some("attn_norm"),
    feed_forward_scales: true,
    details: windows,
    ..PLAIN
};

pub static COHERE2MOE: Family = Family {
    architecture: "cohere2moe",
    rope_style: RopeStyle::Normal,
    norm: &[NormKind::Rms, NormKind::Layer],
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::Sigmoid,
        normalise: Normalise::AsFileSays,
        shared: true,
        ..PLAIN_ROUTER
    },
    leading_dense: true,
    feed_forward_input: BlockInput::Layer,
    feed_forward_norm: Some("attn_norm"),
    feed_forward_scales: true,
    details,
    ..PLAIN
};

/// The last of so many layers, with experts the first, sees the whole context unless the file says otherwise.
const WINDOW_PERIOD: usize = 4;

fn scale_of_logits(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.logit_scale = keys.factor("logit_scale")?.unwrap_or(1.0);
    Ok(())
}

fn windows(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    scale_of_logits(keys, config)?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let slides = keys.slide(config, window, SlidingPattern::ButLast(WINDOW_PERIOD), Clone::clone)?;
    for (attention, slides) in config.attentions().zip(slides) {
        attention.rope = attention.rope.filter(|_| slides);
    }
    Ok(())
}

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    scale_of_logits(keys, config)?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let slides = keys.slide(config, window, SlidingPattern::ButFirst(WINDOW_PERIOD), Clone::clone)?;
    let dense = keys.optional_size("leading_dense_block_count", LAYERS_MAX)?.unwrap_or(0);
    for (layer, (attention, slides)) in config.attentions().zip(slides).enumerate() {
        attention.rope = attention.rope.filter(|_| slides || layer < dense);
    }
    let shared = keys.optional_size("expert_shared_count", LAYERS_MAX)?.unwrap_or(0);
    if let Some(experts) = &mut config.experts {
        match shared {
            0 => experts.shared = 0,
            // The mean of what the routed experts give and what the shared ones give.
            _ => experts.sum_scale = 0.5,
        }
    }
    Ok(())
}
