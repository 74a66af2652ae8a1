//! Nemotron: a squared rectifier and no gate, norms that take the mean away.

use super::{Activation, AttentionTraits, Family, GatePlace, NormKind, PLAIN, PLAIN_ATTENTION, Presence};

pub static NEMOTRON: Family = Family {
    architecture: "nemotron",
    norm: &[NormKind::Layer],
    norm_bias: Presence::Always,
    activation: Activation::ReluSquared,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    gate_place: GatePlace::Nowhere,
    feed_forward_bias: Presence::Optional,
    ..PLAIN
};
