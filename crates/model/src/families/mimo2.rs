//! MiMo-V2: windows with sinks, values of another size than keys, layers dense where they have no router.

use super::{AttentionTraits, Family, Gating, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::{Config, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SLIDING_BASE, SlidingPattern};

pub static MIMO2: Family = Family {
    architecture: "mimo2",
    attention: AttentionTraits {
        qkv_bias: Presence::Never,
        qkv_scales: false,
        sinks: Presence::Optional,
        ..PLAIN_ATTENTION
    },
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::Sigmoid,
        gating_varies: false,
        correction: Presence::Optional,
        ..PLAIN_ROUTER
    },
    routed_by_tensors: true,
    // llama.cpp reads them and does not add them.
    left_out: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let base = keys.sliding_base(SLIDING_BASE)?;
    keys.no_yarn(config)?;
    let scale = keys.factor("attention.value_scale")?.unwrap_or(1.0);
    for attention in config.attentions() {
        attention.output_scale = scale;
    }
    keys.slide(config, window, SlidingPattern::Flagged, |full| Rope { base, ..full.unscaled() })?;
    Ok(())
}
