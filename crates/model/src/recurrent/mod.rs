//! Mixers that carry a state from position to position instead of looking back, one to a file.
//!
//! Each has its numbers, its weights and its lines of the forward pass; the recurrences themselves are
//! kernels. Rows of a lane are computed in their order, lane after lane, so that the state of each goes from
//! row to row however a prompt was cut.

mod compressed;
mod delta_net;
mod kimi_delta;
mod mamba2;
mod short_conv;

use std::ops::Range;

use adit_format::TensorType;
use adit_kernels::{Columns, Conv1d, Pool, causal_conv1d};

use crate::error::ModelError;
use crate::forward::{Pass, Row};
use crate::keys::{HEADS_MAX, Keys, WIDTH_MAX};
use crate::memory::Memory;
use crate::weights::{Binder, INPUTS_MAX, Tensor, kinds_of};
pub use compressed::{Compressed, CompressedConfig, Compression};
use delta_net::DeltaGates;
pub use delta_net::{DeltaNet, DeltaNetConfig};
pub use kimi_delta::{KimiDelta, KimiDeltaConfig};
pub use mamba2::{Mamba2, Mamba2Config};
pub use short_conv::{ShortConv, ShortConvConfig};

/// The numbers of a recurrent layer.
#[derive(Debug, Clone, PartialEq)]
pub enum RecurrentConfig {
    ShortConv(ShortConvConfig),
    /// Its state is the window and what is not yet compressed; what is, stays by position.
    Compressed(CompressedConfig),
    DeltaNet(DeltaNetConfig),
    KimiDelta(KimiDeltaConfig),
    Mamba2(Mamba2Config),
}

impl RecurrentConfig {
    /// Values of a lane's state.
    pub fn state_floats(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.state_floats(),
            RecurrentConfig::Compressed(attention) => attention.state_floats(),
            RecurrentConfig::DeltaNet(delta) => delta.state_floats(),
            RecurrentConfig::KimiDelta(delta) => delta.state_floats(),
            RecurrentConfig::Mamba2(mamba) => mamba.state_floats(),
        }
    }

    /// Values that the layer keeps of each row while it computes.
    pub fn row_floats(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.widths().iter().sum(),
            RecurrentConfig::Compressed(attention) => attention.widths().iter().sum(),
            RecurrentConfig::DeltaNet(delta) => delta.widths().iter().sum(),
            RecurrentConfig::KimiDelta(delta) => delta.widths().iter().sum(),
            RecurrentConfig::Mamba2(mamba) => mamba.widths().iter().sum(),
        }
    }

    /// The most values of a row that a matrix behind the first takes.
    pub fn output_width(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.channels,
            RecurrentConfig::Compressed(attention) => attention.largest_input(),
            RecurrentConfig::DeltaNet(delta) => delta.output_width(),
            RecurrentConfig::KimiDelta(delta) => delta.output_width(),
            RecurrentConfig::Mamba2(mamba) => mamba.output_width(),
        }
    }

    /// For what is kept of runs of positions: positions of a run, and the values kept of it.
    pub fn entries(&self) -> Option<(usize, usize)> {
        match self {
            RecurrentConfig::Compressed(attention) => attention.entries(),
            _ => None,
        }
    }

    /// Values of a row's scores in a context of this length.
    pub fn score_floats(&self, context: usize) -> usize {
        match self {
            RecurrentConfig::Compressed(attention) => attention.score_floats(context),
            _ => 0,
        }
    }
}

/// The weights of a recurrent layer.
#[derive(Debug)]
pub enum Recurrent {
    ShortConv(Box<ShortConv>),
    Compressed(Box<Compressed>),
    DeltaNet(Box<DeltaNet>),
    KimiDelta(Box<KimiDelta>),
    Mamba2(Box<Mamba2>),
}

impl Recurrent {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &RecurrentConfig,
    ) -> Result<Recurrent, ModelError> {
        Ok(match config {
            RecurrentConfig::ShortConv(config) => {
                Recurrent::ShortConv(Box::new(ShortConv::bind(binder, layer, config)?))
            }
            RecurrentConfig::Compressed(config) => {
                Recurrent::Compressed(Box::new(Compressed::bind(binder, layer, config)?))
            }
            RecurrentConfig::DeltaNet(config) => {
                Recurrent::DeltaNet(Box::new(DeltaNet::bind(binder, layer, config)?))
            }
            RecurrentConfig::KimiDelta(config) => {
                Recurrent::KimiDelta(Box::new(KimiDelta::bind(binder, layer, config)?))
            }
            RecurrentConfig::Mamba2(config) => {
                Recurrent::Mamba2(Box::new(Mamba2::bind(binder, layer, config)?))
            }
        })
    }

    /// The types of the matrices that the layer's normalised input meets.
    pub fn input_kinds(&self) -> [TensorType; INPUTS_MAX] {
        match self {
            Recurrent::ShortConv(conv) => kinds_of(&[conv.input.weight]),
            Recurrent::Compressed(attention) => kinds_of(&attention.input_matrices()),
            Recurrent::DeltaNet(delta) => {
                let DeltaNet { mixed, output_gate, gates, .. } = &**delta;
                let (first, second) = match gates {
                    DeltaGates::Apart { strength, decay } => (strength, decay),
                    DeltaGates::ByKeyHead(both) => (both, both),
                };
                kinds_of(&[mixed, output_gate, first, second].map(|it| it.weight))
            }
            Recurrent::KimiDelta(delta) => {
                let KimiDelta { mixed: [q, k, v], decay, output_gate, strength, .. } = &**delta;
                kinds_of(&[q, k, v, &decay.down, &output_gate.down, strength].map(|it| it.weight))
            }
            Recurrent::Mamba2(mamba) => kinds_of(&[mamba.input.weight]),
        }
    }

    /// Calls `of` with every matrix that meets what comes of that.
    pub fn for_each_later_matrix(&self, mut of: impl FnMut(Tensor)) {
        match self {
            Recurrent::ShortConv(conv) => of(conv.output.weight),
            Recurrent::Compressed(attention) => attention.later_matrices().into_iter().for_each(of),
            Recurrent::DeltaNet(delta) => of(delta.output.weight),
            Recurrent::KimiDelta(delta) => {
                let KimiDelta { decay, output_gate, output, .. } = &**delta;
                let ups = [decay.up, output_gate.up].into_iter().flatten();
                ups.chain([*output]).for_each(|it| of(it.weight));
            }
            Recurrent::Mamba2(mamba) => of(mamba.output.weight),
        }
    }
}

impl Pass<'_> {
    /// normed = mixer of the normalised rows in `input`
    pub fn recurrent(&mut self, index: usize, config: &RecurrentConfig, weights: &Recurrent, rows: &[Row]) {
        match (config, weights) {
            (RecurrentConfig::ShortConv(config), Recurrent::ShortConv(weights)) => {
                self.short_conv(index, config, weights, rows);
            }
            (RecurrentConfig::Compressed(config), Recurrent::Compressed(weights)) => {
                self.compressed_attention(index, config, weights, rows);
            }
            (RecurrentConfig::DeltaNet(config), Recurrent::DeltaNet(weights)) => {
                self.delta_net(index, config, weights, rows);
            }
            (RecurrentConfig::KimiDelta(config), Recurrent::KimiDelta(weights)) => {
                self.kimi_delta(index, config, weights, rows);
            }
            (RecurrentConfig::Mamba2(config), Recurrent::Mamba2(weights)) => {
                self.mamba2(index, config, weights, rows);
            }
            _ => unreachable!("a layer's weights are bound by its numbers"),
        }
    }
}

/// Sizes that files of all state space models and delta nets tell.
pub(crate) struct SsmSizes {
    /// Of the convolution.
    pub taps: usize,
    /// Values of all heads.
    pub inner: usize,
    pub state: usize,
    pub heads: usize,
    /// Divides the heads.
    pub groups: usize,
}

impl SsmSizes {
    pub fn read(keys: &Keys<'_>) -> Result<SsmSizes, ModelError> {
        let taps = keys.taps("ssm.conv_kernel")?;
        let inner = keys.size("ssm.inner_size", WIDTH_MAX)?;
        let state = keys.size("ssm.state_size", WIDTH_MAX)?;
        let heads = keys.size("ssm.time_step_rank", HEADS_MAX)?;
        let groups = keys.size("ssm.group_count", HEADS_MAX)?;
        if !inner.is_multiple_of(heads) {
            return Err(keys.bad("ssm.inner_size", inner, &format!("a multiple of {heads} heads")));
        }
        if !heads.is_multiple_of(groups) {
            return Err(keys.bad("ssm.time_step_rank", heads, &format!("a multiple of {groups} groups")));
        }
        Ok(SsmSizes { taps, inner, state, heads, groups })
    }
}

/// The runs of neighbouring rows of one lane: the lane, and their places.
fn lane_runs(rows: &[Row]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut first = 0;
    rows.chunk_by(|row, next| row.lane == next.lane).map(move |run| {
        let places = first..first + run.len();
        first = places.end;
        (run[0].lane, places)
    })
}

/// Convolves each lane's rows in their order: `to` has `width` values a row, `from` begins with them in rows
/// of `stride`; the last inputs of a lane lie in `tail` of its state of layer `index`.
fn convolve(
    pool: &Pool,
    conv: &Conv1d<'_>,
    rows: &[Row],
    (memory, index, tail): (&mut Memory, usize, Range<usize>),
    (from, stride): (&[f32], usize),
    (to, width): (&mut [f32], usize),
) {
    for (lane, run) in lane_runs(rows) {
        let columns = Columns::whole(&from[run.start * stride..], stride);
        let tail = &mut memory.state(index, lane)[tail.clone()];
        causal_conv1d(pool, conv, run.len(), columns, tail, &mut to[run.start * width..run.end * width]);
    }
}

/// Takes room for `count` rows of each of these widths from `buffer`, one part behind the other.
fn parts<const N: usize>(mut buffer: &mut [f32], count: usize, widths: [usize; N]) -> [&mut [f32]; N] {
    widths.map(|width| {
        let (part, rest) = std::mem::take(&mut buffer).split_at_mut(count * width);
        buffer = rest;
        part
    })
}
