//! Norms of the residual stream: before blocks, after blocks, before the output.

use std::ops::Range;

use adit_format::TensorType;
use adit_kernels::{add, layer_norm, rms_norm, rms_norm_in_place};

use crate::config::Config;
use crate::families::{BlockInput, NormKind};
use crate::linear::Linear;
use crate::scratch::Scratch;
use crate::weights::{Norm, Vector};

/// A norm with its numbers at hand.
#[derive(Clone, Copy)]
pub(crate) struct Normaliser<'a> {
    kind: NormKind,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    epsilon: f32,
}

impl<'a> Normaliser<'a> {
    pub fn new(config: &Config, linear: &Linear<'a>, norm: Norm) -> Normaliser<'a> {
        Normaliser {
            kind: config.norm,
            weight: linear.vector(norm.weight),
            bias: linear.optional_vector(norm.bias),
            epsilon: config.norm_epsilon,
        }
    }

    /// out = norm(x)
    pub fn apply(&self, x: &[f32], out: &mut [f32]) {
        match self.kind {
            NormKind::Rms => {
                rms_norm(x, self.weight, self.epsilon, out);
                self.bias.iter().for_each(|bias| add(out, bias));
            }
            NormKind::Layer => layer_norm(x, Some(self.weight), self.bias, self.epsilon, out),
        }
    }
}

/// input = norm(hidden) for some rows, for weights of these kinds; without a norm, the states as they are
pub(crate) fn load_normed(
    config: &Config,
    linear: &Linear<'_>,
    (norm, source): (Option<Norm>, BlockInput),
    scratch: &mut Scratch,
    rows: Range<usize>,
    kinds: &[TensorType],
) {
    let width = config.width;
    let Scratch { hidden, layer_input, normed, input, .. } = scratch;
    let states = match source {
        BlockInput::Hidden => &hidden[rows.start * width..],
        BlockInput::Layer => &layer_input[rows.start * width..],
    };
    let norm = norm.map(|norm| Normaliser::new(config, linear, norm));
    linear.fill(input, normed, [rows.len(), width], kinds, |row, out| {
        let states = &states[row * width..(row + 1) * width];
        match norm {
            Some(norm) => norm.apply(states, out),
            None => out.copy_from_slice(states),
        }
    });
}

/// states = rms_norm(states), row by row: a norm after a block
pub(crate) fn post_norm(config: &Config, linear: &Linear<'_>, norm: Vector, states: &mut [f32]) {
    let (weight, epsilon) = (linear.vector(norm), config.norm_epsilon);
    linear.pool.rows(states, config.width, |_, row| rms_norm_in_place(row, weight, epsilon));
}
