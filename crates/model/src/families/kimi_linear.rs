//! Kimi Linear: Kimi delta attention, with latent attention without positions in every fourth layer.

use super::deepseek2;
use super::{Family, Gating, PLAIN, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::{Config, MixerConfig};
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};
use crate::recurrent::{KimiDeltaConfig, RecurrentConfig};

pub static KIMI_LINEAR: Family = Family {
    architecture: "kimi-linear",
    experts: Presence::Always,
    leading_dense: true,
    router: RouterTraits {
        gating: Gating::Sigmoid,
        correction: Presence::Always,
        shared: true,
        ..PLAIN_ROUTER
    },
    latent_query_scales: false,
    // No product of this family has a bias.
    left_out: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    details,
    ..PLAIN
};

/// A layer without heads of keys carries a state; the number of heads is the other layers'.
fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let heads = config.attentions().map(|attention| attention.heads).max().unwrap_or(0);
    let (head_dim, taps) = (keys.size("kda.head_dim", WIDTH_MAX)?, keys.taps("ssm.conv_kernel")?);
    let delta = RecurrentConfig::KimiDelta(KimiDeltaConfig {
        heads,
        head_dim,
        taps,
        whole_gates: false,
        lowest_decay: None,
        negative_factors: true,
        norm_epsilon: config.norm_epsilon,
    });
    config.set_recurrent(&delta, |_, attention| attention.kv_heads == 0);
    deepseek2::latent_attention(keys, config)?;
    for layer in &mut config.layers {
        if let MixerConfig::Latent(latent) = &mut layer.mixer {
            latent.attention.rope = None;
        }
    }
    Ok(())
}
