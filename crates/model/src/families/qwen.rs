//! Qwen2 and 2.5 (biases on q, k, v), Qwen3 (norms on q and k instead), and both with experts.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};
use crate::config::{Config, FeedForwardConfig};
use crate::error::ModelError;
use crate::keys::Keys;

const NORMED: AttentionTraits = AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION };

/// The first Qwen: gate and up are half as wide as the file says.
pub static QWEN: Family = Family { architecture: "qwen", details: half_as_wide, ..PLAIN };

pub static QWEN2: Family = Family { architecture: "qwen2", ..PLAIN };

/// Qwen1.5-MoE and Qwen2-MoE: a shared expert with a gate of its own.
pub static QWEN2MOE: Family = Family {
    architecture: "qwen2moe",
    experts: Presence::Always,
    router: RouterTraits {
        normalise: Normalise::Never,
        shared: true,
        shared_gate: Presence::Always,
        ..PLAIN_ROUTER
    },
    details: shared_as_wide_as_dense,
    ..PLAIN
};

pub static QWEN3: Family = Family {
    architecture: "qwen3",
    attention: NORMED,
    feed_forward_scales: true,
    // The head of rerankers.
    left_out: &["cls.output.weight", "cls.output.bias"],
    ..PLAIN
};

pub static QWEN3MOE: Family = Family {
    architecture: "qwen3moe",
    attention: NORMED,
    experts: Presence::Always,
    feed_forward_scales: true,
    ..PLAIN
};

/// The shared expert is as wide as a dense block would be, unless the file says otherwise; an expert is as
/// wide as its share of that.
pub(super) fn shared_as_wide_as_dense(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let dense = keys.optional_size("feed_forward_length", u32::MAX)?.unwrap_or(0);
    let named = keys.optional_size("expert_feed_forward_length", u32::MAX)?.unwrap_or(0);
    if let Some(experts) = &mut config.experts {
        if experts.shared == 0 {
            experts.shared = dense;
        }
        if named == 0 {
            experts.feed_forward = dense / experts.used;
        }
    }
    Ok(())
}

fn half_as_wide(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    for layer in &mut config.layers {
        if let FeedForwardConfig::Dense { inner } = &mut layer.feed_forward {
            *inner /= 2;
        }
    }
    Ok(())
}
