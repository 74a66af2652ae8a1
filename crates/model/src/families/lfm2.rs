//! LFM2 of Liquid: short convolutions in most layers, attention in the others, with experts or without.

use super::{AttentionTraits, Family, Gating, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;
use crate::recurrent::{RecurrentConfig, ShortConvConfig};

const LFM2_LIKE: Family = Family {
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    // Converters gave it this name.
    output_norm: "token_embd_norm",
    details,
    ..PLAIN
};

pub static LFM2: Family = Family { architecture: "lfm2", ..LFM2_LIKE };

pub static LFM2MOE: Family = Family {
    architecture: "lfm2moe",
    experts: Presence::Always,
    leading_dense: true,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..PLAIN_ROUTER },
    ..LFM2_LIKE
};

/// A layer without heads of keys is a convolution.
fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let taps = keys.taps("shortconv.l_cache")?;
    let window = keys.optional_size("attention.sliding_window", u32::MAX)?.filter(|&window| window > 0);
    config.attentions().for_each(|attention| attention.window = window);
    let conv = RecurrentConfig::ShortConv(ShortConvConfig { channels: config.width, taps });
    config.set_recurrent(&conv, |_, attention| attention.kv_heads == 0);
    Ok(())
}
