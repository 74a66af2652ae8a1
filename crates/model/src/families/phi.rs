//! Phi-3 and Phi-4 (gate and up in one tensor), Phi-3.5 with experts (biases on norms).

use super::{
    AttentionTraits, Family, GatePlace, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits,
};

pub static PHI3: Family = Family { architecture: "phi3", gate_place: GatePlace::InUp, ..PLAIN };

pub static PHIMOE: Family = Family {
    architecture: "phimoe",
    norm_bias: Presence::Always,
    attention: AttentionTraits { output_bias: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    ..PLAIN
};
