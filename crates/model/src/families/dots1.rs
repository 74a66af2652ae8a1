//! dots.llm1: attention as Qwen3, routing as DeepSeek-V3 without groups.

use super::{AttentionTraits, DEEPSEEK_ROUTER, Family, PLAIN, PLAIN_ATTENTION, Presence};

pub static DOTS1: Family = Family {
    architecture: "dots1",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    ..PLAIN
};
