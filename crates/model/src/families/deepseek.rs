//! DeepSeekMoE, the first: plain attention, a dense start, shared experts, gate weights as the softmax gives
//! them.

use super::{Family, Normalise, PLAIN, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits};

pub static DEEPSEEK: Family = Family {
    architecture: "deepseek",
    rope_style: RopeStyle::Normal,
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, normalise: Normalise::Never, shared: true, ..PLAIN_ROUTER },
    leading_dense: true,
    ..PLAIN
};
