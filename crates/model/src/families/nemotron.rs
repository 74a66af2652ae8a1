//! Nemotron: a squared rectifier and no gate, norms that take the mean away.

use super::{
    Activation, AttentionTraits, DEEPSEEK_ROUTER, Family, GatePlace, Gating, NormKind, PLAIN,
    PLAIN_ATTENTION, Presence, RouterTraits,
};
use crate::config::{Config, FeedForwardConfig, MixerConfig};
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};
use crate::recurrent::{Mamba2Config, RecurrentConfig};

pub static NEMOTRON: Family = Family {
    architecture: "nemotron",
    norm: &[NormKind::Layer],
    norm_bias: Presence::Always,
    activation: Activation::ReluSquared,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    gate_place: GatePlace::Nowhere,
    feed_forward_bias: Presence::Optional,
    ..PLAIN
};

/// Nemotron-H and Nemotron 3: a layer is Mamba-2, or attention without positions, or a feed-forward block.
const HYBRID: Family = Family {
    // The norm is an RMS norm whatever the key of its epsilon is called.
    norm: &[NormKind::Rms, NormKind::Layer],
    activation: Activation::ReluSquared,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Optional,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..DEEPSEEK_ROUTER },
    gate_place: GatePlace::Nowhere,
    feed_forward_bias: Presence::Optional,
    feed_forward_scales: true,
    recurrent_scales: true,
    feed_forward_norm: Some("attn_norm"),
    details: one_part_a_layer,
    ..PLAIN
};

pub static NEMOTRON_H: Family = Family { architecture: "nemotron_h", ..HYBRID };

pub static NEMOTRON_H_MOE: Family = Family { architecture: "nemotron_h_moe", ..HYBRID };

/// Layers without heads of keys and without a width of a feed-forward block carry a state.
fn one_part_a_layer(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.norm = NormKind::Rms;
    let mamba = RecurrentConfig::Mamba2(Mamba2Config::read(keys)?);
    let inner = keys.per_layer("feed_forward_length", WIDTH_MAX, config.layers.len())?;
    let inner = inner.unwrap_or(vec![0; config.layers.len()]);
    let scale = keys.factor("attention.scale")?;
    for (layer, inner) in config.layers.iter_mut().zip(inner) {
        if inner > 0 {
            layer.mixer = MixerConfig::Absent;
            continue;
        }
        layer.feed_forward = FeedForwardConfig::Absent;
        let MixerConfig::Attention(attention) = &mut layer.mixer else { continue };
        attention.rope = None;
        attention.scale = scale.unwrap_or(attention.scale);
        if attention.kv_heads == 0 {
            layer.mixer = MixerConfig::Recurrent(mamba.clone());
        }
    }
    Ok(())
}
