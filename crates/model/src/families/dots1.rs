//! dots.llm1: attention as Qwen3, routing as DeepSeek-V3 without groups.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};

pub static DOTS1: Family = Family {
    architecture: "dots1",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits {
        normalise: Normalise::AsFileSays,
        correction: Presence::Optional,
        shared: true,
        ..PLAIN_ROUTER
    },
    leading_dense: true,
    ..PLAIN
};
