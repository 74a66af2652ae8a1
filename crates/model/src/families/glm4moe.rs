//! GLM-4.5 and 4.6: a dense start, then sigmoid routing with a correction and a shared expert.

use super::{
    AttentionTraits, Family, Gating, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};

pub static GLM4MOE: Family = Family {
    architecture: "glm4moe",
    attention: AttentionTraits { qk_norm: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::Sigmoid,
        normalise: Normalise::AsFileSays,
        correction: Presence::Optional,
        shared: true,
        ..PLAIN_ROUTER
    },
    leading_dense: true,
    // The file names the norm before the feed-forward block after the attention that it follows.
    feed_forward_norm: Some("post_attention_norm"),
    ..PLAIN
};
