//! ERNIE 4.5 with experts: every so many layers are routed, behind a dense start.

use super::{Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits};
use crate::config::{Config, FeedForwardConfig};
use crate::error::ModelError;
use crate::keys::{Keys, LAYERS_MAX, WIDTH_MAX};

pub static ERNIE4_5: Family = Family {
    architecture: "ernie4_5",
    rope_style: RopeStyle::Normal,
    left_out: &["attn_output.bias"],
    ..PLAIN
};

pub static ERNIE4_5_MOE: Family = Family {
    architecture: "ernie4_5-moe",
    rope_style: RopeStyle::Normal,
    attention: PLAIN_ATTENTION,
    experts: Presence::Always,
    router: RouterTraits { correction: Presence::Optional, shared: true, ..PLAIN_ROUTER },
    leading_dense: true,
    // Zero in published models; llama.cpp reads it and does not add it.
    left_out: &["attn_output.bias"],
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let step = keys.size("interleave_moe_layer_step", LAYERS_MAX)?;
    let inner = keys.size_or("feed_forward_length", WIDTH_MAX, 0)?;
    // The number of shared experts is told as well; the width is that of all of them.
    let shared = keys.optional_size("expert_shared_feed_forward_length", WIDTH_MAX)?;
    config.experts.iter_mut().for_each(|experts| experts.shared = shared.unwrap_or(0));
    for (layer, config) in config.layers.iter_mut().enumerate() {
        if (layer + 1) % step != 0 {
            config.feed_forward = FeedForwardConfig::Dense { inner };
        }
    }
    Ok(())
}
