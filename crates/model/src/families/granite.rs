//! Granite 3 and 4 without recurrent layers: factors on embeddings, attention, residual sums and logits.

use super::{
    AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};
use crate::recurrent::{Mamba2Config, RecurrentConfig};

pub(super) const GRANITE_LIKE: Family = Family {
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Optional,
    router: RouterTraits { shared: true, ..PLAIN_ROUTER },
    feed_forward_bias: Presence::Optional,
    details,
    ..PLAIN
};

pub static GRANITE: Family =
    Family { architecture: "granite", details: maybe_without_positions, ..GRANITE_LIKE };

/// Windows, and sinks in every layer.
pub static GRANITE_SWA: Family = Family {
    architecture: "granite_swa",
    attention: AttentionTraits {
        output_bias: Presence::Optional,
        sinks: Presence::Always,
        ..PLAIN_ATTENTION
    },
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    details: windows,
    ..GRANITE_LIKE
};

/// Granite 4: Mamba-2 in most layers, attention without positions in the others.
pub static GRANITEHYBRID: Family =
    Family { architecture: "granitehybrid", recurrent_scales: true, details: with_states, ..GRANITE_LIKE };

pub static GRANITEMOE: Family = Family { architecture: "granitemoe", ..GRANITE_LIKE };

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let factor = |key| Ok::<_, ModelError>(keys.optional_float(key)?.filter(|&factor| factor != 0.0));
    let Some(logits) = factor("logit_scale")? else {
        return Err(keys.bad("logit_scale", "missing or 0", "the divisor of the logits"));
    };
    config.logit_scale = 1.0 / logits;
    config.residual_scale = factor("residual_scale")?.unwrap_or(1.0);
    config.embedding_scale = factor("embedding_scale")?.unwrap_or(1.0);
    let scale = factor("attention.scale")?;
    for attention in config.attentions() {
        attention.scale = scale.unwrap_or(attention.scale);
    }
    Ok(())
}

/// A layer without heads of keys carries a state.
fn with_states(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    maybe_without_positions(keys, config)?;
    let mamba = RecurrentConfig::Mamba2(Mamba2Config::read(keys)?);
    config.set_recurrent(&mamba, |_, attention| attention.kv_heads == 0);
    Ok(())
}

/// The converter tells with this key whether positions turn queries and keys.
fn maybe_without_positions(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    details(keys, config)?;
    let turns = keys.metadata.bool(&keys.name("rope.scaling.finetuned"))?.unwrap_or(true);
    for attention in config.attentions() {
        attention.rope = attention.rope.filter(|_| turns);
    }
    Ok(())
}

fn windows(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    details(keys, config)?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    keys.slide(config, window, SlidingPattern::Flagged, Clone::clone)?;
    let turns = keys.per_layer("attention.rope_pattern", u32::MAX, config.layers.len())?;
    for (layer, attention) in config.attentions().enumerate() {
        attention.rope = attention.rope.filter(|_| turns.as_ref().is_none_or(|turns| turns[layer] != 0));
    }
    Ok(())
}
