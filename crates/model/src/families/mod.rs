//! Model families. A family is data plus the few lines in which it differs, in one file of its own.
//!
//! The forward pass reads this data and never asks for a family's name.

mod gemma3;
mod llama;
mod qwen;

use crate::config::{Config, Keys};
use crate::error::ModelError;

/// Which values of a head a rotation pairs up.
pub use adit_kernels::RopeStyle;

/// The non-linearity between a feed-forward block's gate and its product with `up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

/// Whether a family's layers have an optional kind of tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Never,
    /// Used where the file has it.
    Optional,
    Always,
}

/// What distinguishes one family from another.
#[derive(Debug)]
pub struct Family {
    /// `general.architecture` in the file, and the prefix of its keys.
    pub architecture: &'static str,
    pub rope_style: RopeStyle,
    pub activation: Activation,
    /// Whether `expert_count` > 0 is allowed (or demanded).
    pub experts: Presence,
    /// Biases on the query, key and value projections.
    pub qkv_bias: Presence,
    /// Biases on the attention output and the dense feed-forward block.
    pub other_biases: Presence,
    /// Per-head RMS norms of queries and keys, before the rotation.
    pub qk_norm: Presence,
    /// RMS norms after attention and after the feed-forward block, before each residual sum.
    pub post_norms: Presence,
    /// Reads what only this family has.
    pub details: fn(&Keys<'_>, &mut Config) -> Result<(), ModelError>,
}

const FAMILIES: [&Family; 5] = [&llama::LLAMA, &qwen::QWEN2, &qwen::QWEN3, &qwen::QWEN3MOE, &gemma3::GEMMA3];

impl Family {
    pub(crate) fn find(file: &str, architecture: &str) -> Result<&'static Family, ModelError> {
        let found = FAMILIES.into_iter().find(|family| family.architecture == architecture);
        found.ok_or_else(|| ModelError::UnknownArchitecture {
            file: file.to_string(),
            found: architecture.chars().take(64).collect(),
            known: FAMILIES.map(|family| family.architecture).join(", "),
        })
    }
}

/// For families that have nothing of their own to read.
fn no_details(_: &Keys<'_>, _: &mut Config) -> Result<(), ModelError> {
    Ok(())
}
