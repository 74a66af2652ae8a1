//! Model families. A family is data plus the few lines in which it differs, in one file of its own.
//!
//! The forward pass reads this data and never asks for a family's name.

mod afmoe;
mod arcee;
mod arctic;
mod bailing;
mod bailing3;
mod cohere;
mod dbrx;
mod deepseek;
mod deepseek2;
mod deepseek4;
mod dots1;
mod dots3note;
mod ernie;
mod exaone;
mod gemma3;
mod gemma4;
mod glm4moe;
mod glm5_next;
mod gpt_oss;
mod granite;
mod grok;
mod hunyuan;
mod hy_v4;
mod hyper;
mod internlm2;
mod kimi_linear;
mod laguna;
mod lfm2;
mod llama;
mod llama4;
mod maple;
mod mellum;
mod mimo2;
mod minicpm;
mod minimax;
mod mistral3;
mod nemotron;
mod olmoe;
mod phi;
mod qwen;
mod qwen_hybrid;
mod seed_oss;
mod smallthinker;
mod smollm3;
mod spark;
mod starcoder2;
mod vision;
mod xverse;

use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

/// Which values of a head a rotation pairs up.
pub use adit_kernels::RopeStyle;

/// The non-linearity between a feed-forward block's gate and its product with `up`; without a gate, that of
/// `up` alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)^2`
    ReluSquared,
    /// `silu(min(gate, limit)) * u`, `u` being `up` between `-limit` and `limit`.
    SwigluClamp(f32),
    /// `min(silu(gate), limit) * u`, the limit of the gate standing behind its activation.
    SiluClamp(f32),
    /// gpt-oss: `g / (1 + exp(-1.702 g)) * (u + 1)`, both limited to 7.
    SwigluOai,
}

/// How hidden states are normalised before blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// `x / rms(x) * weight`, plus a bias where there is one
    Rms,
    /// `(x - mean(x)) / deviation(x) * weight`, plus a bias where there is one
    Layer,
}

impl NormKind {
    /// The key of the number added to the mean square.
    pub(crate) fn epsilon_key(self) -> &'static str {
        match self {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer => "attention.layer_norm_epsilon",
        }
    }
}

/// The states that a block begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockInput {
    /// The residual stream as it is then.
    Hidden,
    /// The residual stream before the layer's mixer.
    Layer,
}

/// What a router's matrix multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterInput {
    /// What the experts see.
    Block,
    /// The residual stream before the layer's mixer, as it is (SmallThinker).
    Layer,
    /// The residual stream with a norm of its own, whose weights are `ffn_gate_inp.scale`, over the root of
    /// its width (Gemma 4).
    Scaled,
}

/// Where the gate of a feed-forward block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatePlace {
    /// In a tensor of its own.
    Own,
    /// In the first half of the rows of `ffn_up`.
    InUp,
    /// There is none.
    Nowhere,
}

/// What a gate's logits become before they are factors on what was attended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateFunction {
    Sigmoid,
    Softplus,
}

/// What a router's logits become before experts are picked by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    Softmax,
    Sigmoid,
    /// Picked by logits; the weights are the softmax of the picked ones.
    SoftmaxOfPicked,
    /// Picked by logits; the weights are their sigmoids (Llama 4).
    SigmoidOfPicked,
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
    /// Whether factors on them (`.scale` tensors) apply.
    pub qkv_scales: bool,
    /// A bias on the output projection.
    pub output_bias: Presence,
    /// Whether a factor on it applies.
    pub output_scales: bool,
    /// RMS norms of queries and keys: of each head, or of all heads together where the file's norm is as
    /// long as that.
    pub qk_norm: Presence,
    /// Whether keys, before their norm, are the values too where the file has none.
    pub keys_as_values: bool,
    /// Whether those norms come after the rotation instead of before.
    pub norm_after_rope: bool,
    /// Whether the rows of the query projection are, for each head, a query and then the gate on what that
    /// head attends.
    pub gate_in_query: bool,
    /// A logit for each head that takes part in the softmax and has no value.
    pub sinks: Presence,
    /// A gate on what was attended, for each head or each of its values (`attn_gate`).
    pub gate: Presence,
    pub gate_function: GateFunction,
}

/// Projections, biases on them where the file has such, and a rotation.
pub const PLAIN_ATTENTION: AttentionTraits = AttentionTraits {
    qkv_bias: Presence::Optional,
    qkv_scales: true,
    output_bias: Presence::Never,
    output_scales: true,
    qk_norm: Presence::Never,
    keys_as_values: false,
    norm_after_rope: false,
    gate_in_query: false,
    sinks: Presence::Never,
    gate: Presence::Never,
    gate_function: GateFunction::Sigmoid,
};

/// How a family picks experts, and what they are made of.
#[derive(Debug)]
pub struct RouterTraits {
    /// Where the file does not say it.
    pub gating: Gating,
    /// Whether the file may say it; elsewhere a file that says something else is refused.
    pub gating_varies: bool,
    pub input: RouterInput,
    /// Whether an expert's weight is a factor on its input instead of its output.
    pub weighs_input: bool,
    pub normalise: Normalise,
    /// A bias on the router's logits.
    pub bias: Presence,
    /// A bias on the scores that experts are picked by, which their weights do not see (`exp_probs_b`).
    pub correction: Presence,
    /// Whether there may be an expert that every token uses.
    pub shared: bool,
    /// What the names of that expert's tensors end in.
    pub shared_suffix: &'static str,
    /// A norm of its own before that expert, which then sees the residual stream; layers without experts have
    /// it too.
    pub shared_norm: Option<&'static str>,
    /// RMS norms of what that expert gives, and of what the routed ones give together.
    pub shared_post_norm: Option<&'static str>,
    pub post_norm: Option<&'static str>,
    /// A gate on that expert's output: the sigmoid of a product with the block's input.
    pub shared_gate: Presence,
    /// Biases of the experts' own matrices.
    pub expert_bias: Presence,
}

/// Softmax, weights that sum to 1, no biases, no shared expert.
pub const PLAIN_ROUTER: RouterTraits = RouterTraits {
    gating: Gating::Softmax,
    gating_varies: true,
    input: RouterInput::Block,
    weighs_input: false,
    normalise: Normalise::Always,
    bias: Presence::Never,
    correction: Presence::Never,
    shared: false,
    shared_suffix: "_shexp",
    shared_norm: None,
    shared_post_norm: None,
    post_norm: None,
    shared_gate: Presence::Never,
    expert_bias: Presence::Never,
};

/// As DeepSeek-V3 and those after it: the file says whether weights are normalised, and has a correction and
/// shared experts.
pub const DEEPSEEK_ROUTER: RouterTraits = RouterTraits {
    normalise: Normalise::AsFileSays,
    correction: Presence::Optional,
    shared: true,
    ..PLAIN_ROUTER
};

/// What distinguishes one family from another.
#[derive(Debug)]
pub struct Family {
    /// `general.architecture` in the file, and the prefix of its keys.
    pub architecture: &'static str,
    pub rope_style: RopeStyle,
    /// Which of these norms the file has, tells the key of its epsilon.
    pub norm: &'static [NormKind],
    pub norm_bias: Presence,
    pub activation: Activation,
    pub attention: AttentionTraits,
    pub router: RouterTraits,
    /// Whether the family's `details` read YaRN's log multiplier; elsewhere a file with one is refused.
    pub yarn_log_multiplier: bool,
    /// Whether `expert_count` > 0 is allowed (or demanded).
    pub experts: Presence,
    /// Whether the file may say that the first layers have no experts.
    pub leading_dense: bool,
    /// Whether those layers are routed that have a router, whatever the file says of leading ones. A dense
    /// block that they have too is not used.
    pub routed_by_tensors: bool,
    pub feed_forward_input: BlockInput,
    pub gate_place: GatePlace,
    /// Biases on the dense feed-forward block.
    pub feed_forward_bias: Presence,
    /// Whether factors on the products of feed-forward blocks (`.scale` tensors, of some quantisers) apply,
    /// as in llama.cpp they do in some families only.
    pub feed_forward_scales: bool,
    /// The same of layers that carry a state.
    pub recurrent_scales: bool,
    /// The same of latent attention's queries, where one matrix makes them.
    pub latent_query_scales: bool,
    /// Names of the norms before attention and before the feed-forward block, if there are such; they may be
    /// the same.
    pub mixer_norm: Option<&'static str>,
    pub feed_forward_norm: Option<&'static str>,
    /// Whether several residual streams become one by shares of their own; otherwise it is their mean.
    pub output_streams: bool,
    /// Name of the norm before the output matrix.
    pub output_norm: &'static str,
    /// RMS norms after attention and after the feed-forward block, before each residual sum.
    pub post_norms: Presence,
    pub post_mixer_norm: &'static str,
    /// One of these.
    pub post_feed_forward_norm: &'static [&'static str],
    /// A factor on the residual stream behind each layer (`layer_output_scale`).
    pub layer_scale: Presence,
    /// A bias on the logits.
    pub logit_bias: Presence,
    /// Tensors, of the model or of a layer, that files may have and that are not used for generating text.
    pub left_out: &'static [&'static str],
    /// Reads what only this family has.
    pub details: fn(&Keys<'_>, &mut Config) -> Result<(), ModelError>,
}

/// What most families have; a family names what differs.
pub const PLAIN: Family = Family {
    architecture: "",
    rope_style: RopeStyle::Neox,
    norm: &[NormKind::Rms],
    norm_bias: Presence::Never,
    activation: Activation::Silu,
    attention: PLAIN_ATTENTION,
    router: PLAIN_ROUTER,
    yarn_log_multiplier: false,
    experts: Presence::Never,
    leading_dense: false,
    routed_by_tensors: false,
    feed_forward_input: BlockInput::Hidden,
    gate_place: GatePlace::Own,
    feed_forward_bias: Presence::Never,
    feed_forward_scales: false,
    recurrent_scales: false,
    latent_query_scales: true,
    mixer_norm: Some("attn_norm"),
    feed_forward_norm: Some("ffn_norm"),
    output_streams: true,
    output_norm: "output_norm",
    post_norms: Presence::Never,
    post_mixer_norm: "post_attention_norm",
    post_feed_forward_norm: &["post_ffw_norm"],
    layer_scale: Presence::Never,
    logit_bias: Presence::Optional,
    left_out: &[],
    details: no_details,
};

static FAMILIES: &[&Family] = &[
    &afmoe::AFMOE,
    &arcee::ARCEE,
    &arctic::ARCTIC,
    &bailing::BAILINGMOE,
    &bailing::BAILINGMOE2,
    &bailing3::BAILINGMOE3,
    &cohere::COHERE2,
    &cohere::COHERE2MOE,
    &cohere::COMMAND_R,
    &dbrx::DBRX,
    &deepseek2::DEEPSEEK2,
    &deepseek2::DEEPSEEK32,
    &deepseek2::GLM_DSA,
    &deepseek2::MISTRAL4,
    &deepseek4::DEEPSEEK4,
    &deepseek::DEEPSEEK,
    &dots1::DOTS1,
    &dots3note::DOTS3NOTE,
    &ernie::ERNIE4_5,
    &ernie::ERNIE4_5_MOE,
    &exaone::EXAONE,
    &exaone::EXAONE4,
    &exaone::EXAONE_MOE,
    &gemma3::GEMMA,
    &gemma3::GEMMA2,
    &gemma3::GEMMA3,
    &gemma4::GEMMA4,
    &glm4moe::GLM4,
    &glm4moe::GLM4MOE,
    &glm5_next::GLM5_NEXT,
    &gpt_oss::GPT_OSS,
    &granite::GRANITE,
    &granite::GRANITE_SWA,
    &granite::GRANITEHYBRID,
    &granite::GRANITEMOE,
    &grok::GROK,
    &hunyuan::HUNYUAN_DENSE,
    &hunyuan::HUNYUAN_MOE,
    &hunyuan::HUNYUAN_VL,
    &hunyuan::HY_V3,
    &hy_v4::HY_V4,
    &internlm2::INTERNLM2,
    &laguna::LAGUNA,
    &kimi_linear::KIMI_LINEAR,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &llama4::LLAMA4,
    &llama::LLAMA,
    &maple::MAPLE,
    &mellum::MELLUM,
    &mimo2::MIMO2,
    &minicpm::MINICPM,
    &minimax::MINIMAX_M2,
    &minimax::MINIMAX_M3,
    &mistral3::MISTRAL3,
    &nemotron::NEMOTRON,
    &nemotron::NEMOTRON_H,
    &nemotron::NEMOTRON_H_MOE,
    &olmoe::OLMO2,
    &olmoe::OLMOE,
    &phi::PHI3,
    &phi::PHIMOE,
    &qwen::QWEN,
    &qwen::QWEN2,
    &qwen::QWEN2MOE,
    &qwen::QWEN3,
    &qwen::QWEN3MOE,
    &seed_oss::SEED_OSS,
    &smallthinker::SMALLTHINKER,
    &smollm3::SMOLLM3,
    &spark::SPARK2_5,
    &starcoder2::STARCODER2,
    &vision::PADDLEOCR,
    &vision::QWEN2VL,
    &vision::QWEN3VL,
    &vision::QWEN3VLMOE,
    &xverse::MAINCODER,
    &xverse::ORION,
    &xverse::PANGU_EMBEDDED,
    &xverse::XVERSE,
    &qwen_hybrid::QWEN35,
    &qwen_hybrid::QWEN35MOE,
    &qwen_hybrid::QWEN3NEXT,
];

impl Family {
    /// Every architecture that adit knows.
    pub fn architectures() -> impl Iterator<Item = &'static str> {
        FAMILIES.iter().map(|family| family.architecture)
    }

    /// Whether any block begins from the residual stream before the layer's mixer.
    pub(crate) fn keeps_layer_input(&self) -> bool {
        self.feed_forward_input == BlockInput::Layer || self.router.input == RouterInput::Layer
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
