//! MiniMax-M2: norms over all query heads and all key heads together, sigmoid routing with a correction. M3:
//! norms of each head, shared experts, and an indexer of blocks, which matters in long contexts only.

use super::{
    Activation, AttentionTraits, DEEPSEEK_ROUTER, Family, Gating, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER,
    Presence, RouterTraits,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static MINIMAX_M2: Family = Family {
    architecture: "minimax-m2",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..PLAIN_ROUTER },
    ..PLAIN
};

pub static MINIMAX_M3: Family = Family {
    architecture: "minimax-m3",
    activation: Activation::SwigluOai,
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..DEEPSEEK_ROUTER },
    leading_dense: true,
    left_out: &[
        "indexer.q_proj.weight",
        "indexer.q_proj.scale",
        "indexer.q_proj.input_scale",
        "indexer.k_proj.weight",
        "indexer.k_proj.scale",
        "indexer.k_proj.input_scale",
        "indexer.q_norm.weight",
        "indexer.k_norm.weight",
    ],
    details: within_indexed_span,
    ..PLAIN
};

/// A context of no more blocks than the indexer would pick is attended whole.
fn within_indexed_span(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let blocks = keys.size("attention.indexer.top_k", u32::MAX)?;
    config.context_exact = Some(blocks.saturating_mul(keys.size("attention.indexer.block_size", u32::MAX)?));
    Ok(())
}
