//! Model families. A family is data plus the few lines in which it differs, in one file of its own.
//!
//! The forward pass reads this data and never asks for a family's name.

mod bailing;
mod deepseek2;
mod dots1;
mod ernie;
mod gemma3;
mod glm4moe;
mod gpt_oss;
mod granite;
mod hunyuan;
mod lfm2;
mod llama;
mod minimax;
mod olmoe;
mod qwen;

use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

/// Which values of a head a rotation pairs up.
pub use adit_kernels::RopeStyle;

/// The non-linearity between a feed-forward block's gate and its product with `up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// gpt-oss: `g / (1 + exp(-1.702 g)) * (u + 1)`, both limited to 7.
    SwigluOai,
}

/// How hidden states are normalised before blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// `x / rms(x) * weight`
    Rms,
}

impl NormKind {
    /// The key of the number added to the mean square.
    pub(crate) fn epsilon_key(self) -> &'static str {
        match self {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
        }
    }
}

/// What a router's logits become before experts are picked by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    Softmax,
    Sigmoid,
    /// Picked by logits; the weights are the softmax of the picked ones.
    SoftmaxOfPicked,
    /// `sqrt(ln(1 + exp(x)))`
    SqrtSoftplus,
}

impl Gating {
    /// As `expert_gating_func` numbers them (llama.cpp's `llama_expert_gating_func_type`).
    pub(crate) fn of_number(number: usize) -> Option<Gating> {
        match number {
            1 => Some(Gating::Softmax),
            2 => Some(Gating::Sigmoid),
            3 => Some(Gating::SoftmaxOfPicked),
            4 => Some(Gating::SqrtSoftplus),
            _ => None,
        }
    }
}

/// Whether the weights of the picked experts are divided by their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalise {
    Never,
    Always,
    /// By the key `expert_weights_norm`; without it, no.
    AsFileSays,
}

/// Whether a family's layers have an optional kind of tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Never,
    /// Used where the file has it.
    Optional,
    Always,
}

/// What plain attention has in a family.
#[derive(Debug)]
pub struct AttentionTraits {
    /// Biases on the query, key and value projections.
    pub qkv_bias: Presence,
    /// A bias on the output projection.
    pub output_bias: Presence,
    /// RMS norms of queries and keys: of each head, or of all heads together where the file's norm is as
    /// long as that.
    pub qk_norm: Presence,
    /// Whether those norms come after the rotation instead of before.
    pub norm_after_rope: bool,
    /// A logit for each head that takes part in the softmax and has no value.
    pub sinks: Presence,
}

/// Projections, biases on them where the file has such, and a rotation.
pub const PLAIN_ATTENTION: AttentionTraits = AttentionTraits {
    qkv_bias: Presence::Optional,
    output_bias: Presence::Never,
    qk_norm: Presence::Never,
    norm_after_rope: false,
    sinks: Presence::Never,
};

/// How a family picks experts, and what they are made of.
#[derive(Debug)]
pub struct RouterTraits {
    /// Where the file does not say it.
    pub gating: Gating,
    pub normalise: Normalise,
    /// A bias on the router's logits.
    pub bias: Presence,
    /// A bias on the scores that experts are picked by, which their weights do not see (`exp_probs_b`).
    pub correction: Presence,
    /// Whether there may be an expert that every token uses.
    pub shared: bool,
    /// A gate on that expert's output: the sigmoid of a product with the block's input.
    pub shared_gate: Presence,
    /// Biases of the experts' own matrices.
    pub expert_bias: Presence,
}

/// Softmax, weights that sum to 1, no biases, no shared expert.
pub const PLAIN_ROUTER: RouterTraits = RouterTraits {
    gating: Gating::Softmax,
    normalise: Normalise::Always,
    bias: Presence::Never,
    correction: Presence::Never,
    shared: false,
    shared_gate: Presence::Never,
    expert_bias: Presence::Never,
};

/// What distinguishes one family from another.
#[derive(Debug)]
pub struct Family {
    /// `general.architecture` in the file, and the prefix of its keys.
    pub architecture: &'static str,
    pub rope_style: RopeStyle,
    pub norm: NormKind,
    pub activation: Activation,
    pub attention: AttentionTraits,
    pub router: RouterTraits,
    /// Whether the family's `details` read YaRN's log multiplier; elsewhere a file with one is refused.
    pub yarn_log_multiplier: bool,
    /// Whether `expert_count` > 0 is allowed (or demanded).
    pub experts: Presence,
    /// Whether the file may say that the first layers have no experts.
    pub leading_dense: bool,
    /// Biases on the dense feed-forward block.
    pub feed_forward_bias: Presence,
    /// Whether factors on the products of feed-forward blocks (`.scale` tensors, of some quantisers) apply,
    /// as in llama.cpp they do in some families only.
    pub feed_forward_scales: bool,
    /// Name of the norm before the feed-forward block.
    pub feed_forward_norm: &'static str,
    /// Name of the norm before the output matrix.
    pub output_norm: &'static str,
    /// RMS norms after attention and after the feed-forward block, before each residual sum.
    pub post_norms: Presence,
    /// Tensors, of the model or of a layer, that files may have and that are not used for generating text.
    pub left_out: &'static [&'static str],
    /// Reads what only this family has.
    pub details: fn(&Keys<'_>, &mut Config) -> Result<(), ModelError>,
}

/// What most families have; a family names what differs.
pub const PLAIN: Family = Family {
    architecture: "",
    rope_style: RopeStyle::Neox,
    norm: NormKind::Rms,
    activation: Activation::Silu,
    attention: PLAIN_ATTENTION,
    router: PLAIN_ROUTER,
    yarn_log_multiplier: false,
    experts: Presence::Never,
    leading_dense: false,
    feed_forward_bias: Presence::Never,
    feed_forward_scales: false,
    feed_forward_norm: "ffn_norm",
    output_norm: "output_norm",
    post_norms: Presence::Never,
    left_out: &[],
    details: no_details,
};

static FAMILIES: &[&Family] = &[
    &bailing::BAILINGMOE2,
    &deepseek2::DEEPSEEK2,
    &deepseek2::DEEPSEEK32,
    &deepseek2::GLM_DSA,
    &deepseek2::MISTRAL4,
    &dots1::DOTS1,
    &ernie::ERNIE4_5_MOE,
    &gemma3::GEMMA3,
    &glm4moe::GLM4MOE,
    &gpt_oss::GPT_OSS,
    &granite::GRANITE,
    &granite::GRANITEMOE,
    &hunyuan::HUNYUAN_MOE,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &llama::LLAMA,
    &minimax::MINIMAX_M2,
    &olmoe::OLMOE,
    &qwen::QWEN2,
    &qwen::QWEN2MOE,
    &qwen::QWEN3,
    &qwen::QWEN3MOE,
];

impl Family {
    /// Every architecture that adit knows.
    pub fn architectures() -> impl Iterator<Item = &'static str> {
        FAMILIES.iter().map(|family| family.architecture)
    }

    pub(crate) fn find(file: &str, architecture: &str) -> Result<&'static Family, ModelError> {
        let found = FAMILIES.iter().copied().find(|family| family.architecture == architecture);
        found.ok_or_else(|| ModelError::UnknownArchitecture {
            file: file.to_string(),
            found: architecture.chars().take(64).collect(),
            known: Family::architectures().collect::<Vec<_>>().join(", "),
        })
    }
}

/// For families that have nothing of their own to read.
fn no_details(_: &Keys<'_>, _: &mut Config) -> Result<(), ModelError> {
    Ok(())
}
