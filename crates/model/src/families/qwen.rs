//! Qwen2 and 2.5 (biases on q, k, v), Qwen3 (norms on q and k instead) and Qwen3-MoE.

use super::{Activation, Family, Presence, RopeStyle, no_details};

/// What the three share.
const BASE: Family = Family {
    architecture: "qwen2",
    rope_style: RopeStyle::Neox,
    activation: Activation::Silu,
    experts: Presence::Never,
    qkv_bias: Presence::Optional,
    other_biases: Presence::Never,
    qk_norm: Presence::Never,
    post_norms: Presence::Never,
    details: no_details,
};

pub static QWEN2: Family = BASE;

pub static QWEN3: Family = Family { architecture: "qwen3", qk_norm: Presence::Always, ..BASE };

pub static QWEN3MOE: Family =
    Family { architecture: "qwen3moe", qk_norm: Presence::Always, experts: Presence::Always, ..BASE };
