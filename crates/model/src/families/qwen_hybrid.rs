//! Qwen3-Next and Qwen3.5: gated delta nets, with gated attention in every fourth layer.

use adit_kernels::KeySharing;

use super::qwen::shared_as_wide_as_dense;
use super::{AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;
use crate::recurrent::{DeltaNetConfig, RecurrentConfig};

const HYBRID: Family = Family {
    attention: AttentionTraits { qk_norm: Presence::Always, gate_in_query: true, ..PLAIN_ATTENTION },
    feed_forward_scales: true,
    // The file names the norm before the feed-forward block after the attention that it follows.
    feed_forward_norm: Some("post_attention_norm"),
    ..PLAIN
};

/// A shared expert with a gate of its own.
const ROUTER: RouterTraits = RouterTraits { shared: true, shared_gate: Presence::Always, ..PLAIN_ROUTER };

pub static QWEN3NEXT: Family = Family {
    architecture: "qwen3next",
    experts: Presence::Always,
    router: ROUTER,
    // Queries, keys, values and gate in one, as early files had them; later ones may have both.
    left_out: &["ssm_in.weight", "ssm_in.scale", "ssm_in.input_scale"],
    details: neighbours_share_keys,
    ..HYBRID
};

pub static QWEN35: Family =
    Family { architecture: "qwen35", recurrent_scales: true, details: heads_take_turns, ..HYBRID };

pub static QWEN35MOE: Family = Family {
    architecture: "qwen35moe",
    experts: Presence::Always,
    router: ROUTER,
    recurrent_scales: true,
    details: heads_take_turns,
    ..HYBRID
};

fn neighbours_share_keys(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    details(keys, config, KeySharing::Neighbours)
}

/// The converter has put the heads of values into this order. The sections of the rotation are for pictures:
/// all parts of a text's position are the same.
fn heads_take_turns(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    details(keys, config, KeySharing::Turns)
}

fn details(keys: &Keys<'_>, config: &mut Config, sharing: KeySharing) -> Result<(), ModelError> {
    let is_recurrent = keys.recurrent_layers(config.layers.len())?;
    let delta = RecurrentConfig::DeltaNet(DeltaNetConfig::read(keys, sharing)?);
    config.set_recurrent(&delta, |layer, _| is_recurrent[layer]);
    // A gate has as many values as its query, and is a factor on as many.
    if let Some(attention) = config.attentions().find(|attention| attention.value_dim != attention.head_dim) {
        let expected = format!("{}, as attention.key_length", attention.head_dim);
        return Err(keys.bad("attention.value_length", attention.value_dim, &expected));
    }
    shared_as_wide_as_dense(keys, config)
}
