//! Mamba-2 (arXiv:2405.21060): a state for each head whose decay, and what is written and read, come from the
//! position itself.

use adit_kernels::{
    Columns, Conv1d, KeySharing, LinearInputs, LinearShape, Mamba2 as Layer, causal_conv1d, mamba2_scan,
    mul_silu, rms_norm_groups,
};

use super::{SsmSizes, lane_runs, parts};
use crate::error::ModelError;
use crate::families::Presence;
use crate::forward::{Pass, Row};
use crate::keys::Keys;
use crate::weights::{Binder, Projection, Vector};

#[derive(Debug, Clone, PartialEq)]
pub struct Mamba2Config {
    pub heads: usize,
    pub head_dim: usize,
    /// Values of a head's state for each of its elements.
    pub state: usize,
    /// Heads of a group write and read the same places.
    pub groups: usize,
    /// Positions that the convolution before it sees.
    pub taps: usize,
}

impl Mamba2Config {
    /// Keys as in llama.cpp's `llama_model_mamba2::load_arch_hparams`.
    pub fn read(keys: &Keys<'_>) -> Result<Mamba2Config, ModelError> {
        let SsmSizes { taps, inner, state, heads, groups } = SsmSizes::read(keys)?;
        Ok(Mamba2Config { heads, head_dim: inner / heads, state, groups, taps })
    }

    pub fn output_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values, keys and queries of a row.
    fn mixed_width(&self) -> usize {
        self.output_width() + 2 * self.groups * self.state
    }

    /// Gate, values, keys, queries and time steps of a row.
    fn input_width(&self) -> usize {
        self.output_width() + self.mixed_width() + self.heads
    }

    fn conv_floats(&self) -> usize {
        (self.taps - 1) * self.mixed_width()
    }

    fn shape(&self) -> LinearShape {
        LinearShape {
            heads: self.heads,
            key_heads: self.groups,
            key_dim: self.state,
            value_dim: self.head_dim,
            sharing: KeySharing::Neighbours,
        }
    }

    /// The convolution's earlier inputs, then a matrix for each head.
    pub fn state_floats(&self) -> usize {
        self.conv_floats() + self.shape().state_floats()
    }

    /// Of each row what is projected, and what of it is convolved.
    pub fn widths(&self) -> [usize; 2] {
        [self.input_width(), self.mixed_width()]
    }
}

#[derive(Debug)]
pub struct Mamba2 {
    /// Stacked: gate, values, keys, queries, time steps.
    pub input: Projection,
    /// channels x taps
    pub conv: Vector,
    pub conv_bias: Option<Vector>,
    /// heads
    pub step_bias: Vector,
    /// heads; negative
    pub decay: Vector,
    /// heads: factor of a value in its own output
    pub skip: Vector,
    /// As long as all heads, of each group by itself.
    pub norm: Option<Vector>,
    pub output: Projection,
}

impl Mamba2 {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &Mamba2Config,
    ) -> Result<Mamba2, ModelError> {
        let (width, heads, values) = (binder.config.width, config.heads, config.output_width());
        let (channels, at) = (config.mixed_width(), |part: &str| format!("blk.{layer}.{part}"));
        let norm = at("ssm_norm.weight");
        Ok(Mamba2 {
            input: binder.recurrent_projection(&at("ssm_in"), config.input_width(), width)?,
            conv: binder.floats(&at("ssm_conv1d.weight"), &[config.taps, channels])?,
            conv_bias: binder.optional_vector(Presence::Optional, &at("ssm_conv1d.bias"), channels)?,
            step_bias: binder.vector(&at("ssm_dt.bias"), heads)?,
            decay: binder.floats(&at("ssm_a"), &[1, heads])?,
            skip: binder.floats(&at("ssm_d"), &[1, heads])?,
            norm: match binder.gguf.tensor(&norm) {
                None => None,
                Some(_) => Some(binder.floats(&norm, &[values / config.groups, config.groups])?),
            },
            output: binder.recurrent_projection(&at("ssm_out"), width, values)?,
        })
    }
}

impl Pass<'_> {
    /// normed = output(norm(scan(conv(values, keys, queries), time steps) * silu(gate))) of the rows in
    /// `input`
    pub(super) fn mamba2(&mut self, index: usize, config: &Mamba2Config, weights: &Mamba2, rows: &[Row]) {
        let Pass { config: model, linear, scratch, memory, .. } = self;
        let (pool, count, epsilon) = (linear.pool, rows.len(), model.norm_epsilon);
        let (input_width, mixed_width) = (config.input_width(), config.mixed_width());
        let (values, keys) = (config.output_width(), config.groups * config.state);
        let [input, convolved] = parts(&mut scratch.recurrent, count, config.widths());
        linear.project(&scratch.input, count, [(weights.input, &mut *input)]);
        let conv = Conv1d {
            weight: linear.vector(weights.conv),
            bias: linear.optional_vector(weights.conv_bias),
            taps: config.taps,
            silu: true,
        };
        let layer = Layer {
            dt_bias: linear.vector(weights.step_bias),
            a: linear.vector(weights.decay),
            d: Some(linear.vector(weights.skip)),
        };
        for (lane, run) in lane_runs(rows) {
            let projected = &input[run.start * input_width..];
            let column = |first: usize| Columns { data: projected, stride: input_width, first };
            let (tail, state) = memory.state(index, lane).split_at_mut(config.conv_floats());
            let mixed = &mut convolved[run.start * mixed_width..run.end * mixed_width];
            causal_conv1d(pool, &conv, run.len(), column(values), tail, mixed);
            let mixed = |first: usize| Columns { data: &*mixed, stride: mixed_width, first };
            let (v, k, q) = (mixed(0), mixed(values), mixed(values + keys));
            mamba2_scan(
                pool,
                &config.shape(),
                &LinearInputs { rows: run.len(), q, k, v },
                &layer,
                column(values + mixed_width),
                state,
                &mut scratch.attended[run.start * values..run.end * values],
            );
        }
        let (norm, kinds) = (linear.optional_vector(weights.norm), [weights.output.weight.kind]);
        let attended = &mut scratch.attended;
        linear.fill(&mut scratch.input, attended, [count, values], &kinds, |row, out| {
            mul_silu(out, &input[row * input_width..][..values]);
            if let Some(norm) = norm {
                rms_norm_groups(out, norm, values / config.groups, epsilon);
            }
        });
        linear.project(&scratch.input, count, [(weights.output, &mut scratch.normed)]);
    }
}
