//! Ling and Ring 2.0 (bailingmoe2): one tensor for queries, keys and values, grouped sigmoid routing.

use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};

pub static BAILINGMOE2: Family = Family {
    architecture: "bailingmoe2",
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
