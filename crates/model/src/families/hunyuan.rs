//! Hunyuan-A13B: norms on queries and keys behind the rotation, a shared expert.

use super::{AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};

pub static HUNYUAN_MOE: Family = Family {
    architecture: "hunyuan-moe",
    attention: AttentionTraits { qk_norm: Presence::Always, norm_after_rope: true, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { shared: true, ..PLAIN_ROUTER },
    ..PLAIN
};
