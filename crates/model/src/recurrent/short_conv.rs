//! Gated short convolutions (LFM2): each channel sees its last few positions.

use adit_kernels::{Conv1d, mul};

use super::{convolve, parts};
use crate::error::ModelError;
use crate::families::Presence;
use crate::forward::{Pass, Row};
use crate::weights::{Binder, Projection, Vector};

#[derive(Debug, Clone, PartialEq)]
pub struct ShortConvConfig {
    pub channels: usize,
    /// Positions that a convolution sees, its own with them.
    pub taps: usize,
}

impl ShortConvConfig {
    /// The inputs of the positions before: taps - 1 x channels.
    pub fn state_floats(&self) -> usize {
        (self.taps - 1) * self.channels
    }

    /// Of each row its two gates and input together, and the convolution of what passes the first gate.
    pub fn widths(&self) -> [usize; 2] {
        [3 * self.channels, self.channels]
    }
}

#[derive(Debug)]
pub struct ShortConv {
    /// Stacked: the gate before the convolution, the gate behind it, and what it is of.
    pub input: Projection,
    /// channels x taps
    pub conv: Vector,
    pub output: Projection,
}

impl ShortConv {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &ShortConvConfig,
    ) -> Result<ShortConv, ModelError> {
        let &ShortConvConfig { channels, taps } = config;
        let width = binder.config.width;
        let at = |part: &str| format!("blk.{layer}.shortconv.{part}");
        Ok(ShortConv {
            input: binder.projection(&at("in_proj"), 3 * channels, width, Presence::Never)?,
            conv: binder.floats(&at("conv.weight"), &[taps, channels])?,
            output: binder.projection(&at("out_proj"), width, channels, Presence::Never)?,
        })
    }
}

impl Pass<'_> {
    /// normed = output(behind * conv(before * x)) with before, behind and x of the rows in `input`
    pub(super) fn short_conv(
        &mut self,
        index: usize,
        config: &ShortConvConfig,
        weights: &ShortConv,
        rows: &[Row],
    ) {
        let Pass { linear, scratch, memory, .. } = self;
        let (pool, count, channels) = (linear.pool, rows.len(), config.channels);
        let [mixed, convolved] = parts(&mut scratch.recurrent, count, config.widths());
        linear.project(&scratch.input, count, [(weights.input, &mut *mixed)]);
        pool.rows(mixed, 3 * channels, |_, row| {
            let (before, rest) = row.split_at_mut(channels);
            mul(before, &rest[channels..]);
        });
        let conv = Conv1d { weight: linear.vector(weights.conv), bias: None, taps: config.taps, silu: false };
        let state = (&mut **memory, index, 0..config.state_floats());
        convolve(pool, &conv, rows, state, (mixed, 3 * channels), (convolved, channels));
        let kinds = [weights.output.weight.kind];
        linear.fill(&mut scratch.input, convolved, [count, channels], &kinds, |row, out| {
            mul(out, &mixed[row * 3 * channels + channels..][..channels]);
        });
        linear.project(&scratch.input, count, [(weights.output, &mut scratch.normed)]);
    }
}
