//! StarCoder 2: biases everywhere, no gate, norms that take the mean away.

use super::{Activation, AttentionTraits, Family, GatePlace, NormKind, PLAIN, PLAIN_ATTENTION, Presence};

pub static STARCODER2: Family = Family {
    architecture: "starcoder2",
    norm: &[NormKind::Layer],
    norm_bias: Presence::Always,
    activation: Activation::GeluTanh,
    attention: AttentionTraits { output_bias: Presence::Always, ..PLAIN_ATTENTION },
    gate_place: GatePlace::Nowhere,
    feed_forward_bias: Presence::Always,
    ..PLAIN
};
