//! Mixers that carry a state from position to position instead of looking back, one to a file.
//!
//! Each has its numbers, its weights and its lines of the forward pass; the recurrences themselves are
//! kernels. Rows of a lane are computed in their order, lane after lane, so that the state of each goes from
//! row to row however a prompt was cut.

mod compressed;
mod short_conv;

use std::ops::Range;

use adit_format::TensorType;

use crate::error::ModelError;
use crate::forward::{Pass, Row};
use crate::weights::{Binder, INPUTS_MAX, Tensor, kinds_of};
pub use compressed::{Compressed, CompressedConfig, Compression};
pub use short_conv::{ShortConv, ShortConvConfig};

/// The numbers of a recurrent layer.
#[derive(Debug, Clone, PartialEq)]
pub enum RecurrentConfig {
    ShortConv(ShortConvConfig),
    /// Its state is the window and what is not yet compressed; what is, stays by position.
    Compressed(CompressedConfig),
}

impl RecurrentConfig {
    /// Values of a lane's state.
    pub fn state_floats(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.state_floats(),
            RecurrentConfig::Compressed(attention) => attention.state_floats(),
        }
    }

    /// Values that the layer keeps of each row while it computes.
    pub fn row_floats(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.widths().iter().sum(),
            RecurrentConfig::Compressed(attention) => attention.widths().iter().sum(),
        }
    }

    /// The most values of a row that a matrix behind the first takes.
    pub fn output_width(&self) -> usize {
        match self {
            RecurrentConfig::ShortConv(conv) => conv.channels,
            RecurrentConfig::Compressed(attention) => attention.largest_input(),
        }
    }

    /// For what is kept of runs of positions: positions of a run, and the values kept of it.
    pub fn entries(&self) -> Option<(usize, usize)> {
        match self {
            RecurrentConfig::ShortConv(_) => None,
            RecurrentConfig::Compressed(attention) => attention.entries(),
        }
    }

    /// Values of a row's scores in a context of this length.
    pub fn score_floats(&self, context: usize) -> usize {
        match self {
            RecurrentConfig::ShortConv(_) => 0,
            RecurrentConfig::Compressed(attention) => attention.score_floats(context),
        }
    }
}

/// The weights of a recurrent layer.
#[derive(Debug)]
pub enum Recurrent {
    ShortConv(Box<ShortConv>),
    Compressed(Box<Compressed>),
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
        })
    }

    /// The types of the matrices that the layer's normalised input meets.
    pub fn input_kinds(&self) -> [TensorType; INPUTS_MAX] {
        match self {
            Recurrent::ShortConv(conv) => kinds_of(&[conv.input.weight]),
            Recurrent::Compressed(attention) => kinds_of(&attention.input_matrices()),
        }
    }

    /// Calls `of` with every matrix that meets what comes of that.
    pub fn for_each_later_matrix(&self, mut of: impl FnMut(Tensor)) {
        match self {
            Recurrent::ShortConv(conv) => of(conv.output.weight),
            Recurrent::Compressed(attention) => attention.later_matrices().into_iter().for_each(of),
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
            _ => unreachable!("a layer's weights are bound by its numbers"),
        }
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

/// Takes room for `count` rows of each of these widths from `buffer`, one part behind the other.
fn parts<const N: usize>(mut buffer: &mut [f32], count: usize, widths: [usize; N]) -> [&mut [f32]; N] {
    widths.map(|width| {
        let (part, rest) = std::mem::take(&mut buffer).split_at_mut(count * width);
        buffer = rest;
        part
    })
}
