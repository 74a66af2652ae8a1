//! OLMoE: norms over all query heads and all key heads together, gate weights as the softmax gives them.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};

pub static OLMOE: Family = Family {
    architecture: "olmoe",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { normalise: Normalise::Never, ..PLAIN_ROUTER },
    ..PLAIN
};
