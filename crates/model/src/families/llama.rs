//! Llama 1 to 3, Mistral, SmolLM2 and, with experts, Mixtral: one architecture in GGUF files.

use super::{AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, Presence, RopeStyle};

pub static LLAMA: Family = Family {
    architecture: "llama",
    // The converter permutes query and key rows so that pairs lie side by side.
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Optional,
    feed_forward_bias: Presence::Optional,
    feed_forward_scales: true,
    ..PLAIN
};
