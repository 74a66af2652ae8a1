//! Arcee AFM: Llama with a squared rectifier and no gate.

use super::{Activation, Family, GatePlace, PLAIN, RopeStyle};

pub static ARCEE: Family = Family {
    architecture: "arcee",
    rope_style: RopeStyle::Normal,
    activation: Activation::ReluSquared,
    gate_place: GatePlace::Nowhere,
    ..PLAIN
};
