//! Ling and Ring: bailingmoe, and 2.0 (bailingmoe2) with norms on queries and keys and routing in groups.

use super::{
    AttentionTraits, DEEPSEEK_ROUTER, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence,
    RopeStyle, RouterTraits,
};

pub static BAILINGMOE: Family = Family {
    architecture: "bailingmoe",
    rope_style: RopeStyle::Normal,
    experts: Presence::Always,
    router: RouterTraits {
        gating_varies: false,
        normalise: Normalise::AsFileSays,
        shared: true,
        ..PLAIN_ROUTER
    },
    ..PLAIN
};

pub static BAILINGMOE2: Family = Family {
    architecture: "bailingmoe2",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    ..PLAIN
};
