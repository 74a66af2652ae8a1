//! Llama 1 to 3, Mistral, SmolLM2 and, with experts, Mixtral: one architecture in GGUF files.

use super::{Activation, Family, Presence, RopeStyle, no_details};

pub static LLAMA: Family = Family {
    architecture: "llama",
    // The converter permutes query and key rows so that pairs lie side by side.
    rope_style: RopeStyle::Normal,
    activation: Activation::Silu,
    experts: Presence::Optional,
    qkv_bias: Presence::Optional,
    other_biases: Presence::Optional,
    qk_norm: Presence::Never,
    post_norms: Presence::Never,
    details: no_details,
};
