//! MiniMax-M2: norms over all query heads and all key heads together, sigmoid routing with a correction.

use super::{AttentionTraits, Family, Gating, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};

pub static MINIMAX_M2: Family = Family {
    architecture: "minimax-m2",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, correction: Presence::Always, ..PLAIN_ROUTER },
    ..PLAIN
};
