//! Gated delta nets (Qwen3-Next, Qwen3.5; arXiv:2412.06464): a matrix for each head that forgets, and of
//! which each position corrects what its key reads.

use adit_kernels::{
    Activations, Columns, Conv1d, Decay, KeySharing, LinearInputs, LinearShape, add, delta_norm_heads,
    gated_delta_rule, mul, mul_silu, rms_norm_heads, sigmoid, softplus,
};

use super::{SsmSizes, convolve, lane_runs, parts};
use crate::error::ModelError;
use crate::forward::{Pass, Row};
use crate::keys::Keys;
use crate::linear::Linear;
use crate::weights::{Binder, Projection, Vector};

#[derive(Debug, Clone, PartialEq)]
pub struct DeltaNetConfig {
    /// Heads of values, each with a state.
    pub heads: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Which heads share a head of keys.
    pub sharing: KeySharing,
    /// Positions that the convolution before it sees.
    pub taps: usize,
}

impl DeltaNetConfig {
    /// Keys as in llama.cpp's `llama_model_qwen3next::load_arch_hparams`.
    pub fn read(keys: &Keys<'_>, sharing: KeySharing) -> Result<DeltaNetConfig, ModelError> {
        let SsmSizes { taps, inner, state, heads, groups } = SsmSizes::read(keys)?;
        let value_dim = inner / heads;
        Ok(DeltaNetConfig { heads, key_heads: groups, key_dim: state, value_dim, sharing, taps })
    }

    fn keys_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    pub fn output_width(&self) -> usize {
        self.heads * self.value_dim
    }

    /// Queries, keys and values of a row.
    fn mixed_width(&self) -> usize {
        2 * self.keys_width() + self.output_width()
    }

    fn conv_floats(&self) -> usize {
        (self.taps - 1) * self.mixed_width()
    }

    fn shape(&self) -> LinearShape {
        let &DeltaNetConfig { heads, key_heads, key_dim, value_dim, sharing, .. } = self;
        LinearShape { heads, key_heads, key_dim, value_dim, sharing }
    }

    /// The convolution's earlier inputs, then a matrix for each head.
    pub fn state_floats(&self) -> usize {
        self.conv_floats() + self.shape().state_floats()
    }

    /// Of each row queries, keys and values, the same convolved, the gate on the output, the logits of write
    /// strength and decay, and these themselves.
    pub fn widths(&self) -> [usize; 5] {
        [self.mixed_width(), self.mixed_width(), self.output_width(), 2 * self.heads, 2 * self.heads]
    }
}

/// What makes write strength and decay.
#[derive(Debug)]
pub enum DeltaGates {
    Apart {
        strength: Projection,
        decay: Projection,
    },
    /// For each head of keys the rows of its heads' strengths, then those of their decays.
    ByKeyHead(Projection),
}

#[derive(Debug)]
pub struct DeltaNet {
    /// Stacked: queries, keys and values.
    pub mixed: Projection,
    pub output_gate: Projection,
    pub gates: DeltaGates,
    /// channels x taps
    pub conv: Vector,
    /// heads
    pub decay_bias: Vector,
    /// heads; negative
    pub decay: Vector,
    /// value_dim
    pub norm: Vector,
    pub output: Projection,
}

impl DeltaNet {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &DeltaNetConfig,
    ) -> Result<DeltaNet, ModelError> {
        let (width, heads, values) = (binder.config.width, config.heads, config.output_width());
        let at = |part: &str| format!("blk.{layer}.{part}");
        let gates = match config.sharing {
            KeySharing::Neighbours => {
                DeltaGates::ByKeyHead(binder.recurrent_projection(&at("ssm_ba"), 2 * heads, width)?)
            }
            KeySharing::Turns => DeltaGates::Apart {
                strength: binder.recurrent_projection(&at("ssm_beta"), heads, width)?,
                decay: binder.recurrent_projection(&at("ssm_alpha"), heads, width)?,
            },
        };
        Ok(DeltaNet {
            mixed: binder.recurrent_projection(&at("attn_qkv"), config.mixed_width(), width)?,
            output_gate: binder.recurrent_projection(&at("attn_gate"), values, width)?,
            gates,
            conv: binder.floats(&at("ssm_conv1d.weight"), &[config.taps, config.mixed_width()])?,
            decay_bias: binder.vector(&at("ssm_dt.bias"), heads)?,
            decay: binder.vector(&at("ssm_a"), heads)?,
            norm: binder.vector(&at("ssm_norm.weight"), config.value_dim)?,
            output: binder.recurrent_projection(&at("ssm_out"), width, values)?,
        })
    }
}

impl DeltaNet {
    /// `gates[row] = [strengths][logarithms of decays]`, a value for each head.
    fn fill_gates(
        &self,
        linear: Linear<'_>,
        input: &Activations,
        config: &DeltaNetConfig,
        count: usize,
        logits: &mut [f32],
        gates: &mut [f32],
    ) {
        let heads = config.heads;
        let apart = match &self.gates {
            DeltaGates::Apart { strength, decay } => {
                let (strengths, decays) = logits.split_at_mut(count * heads);
                linear.project(input, count, [(*strength, strengths), (*decay, decays)]);
                true
            }
            DeltaGates::ByKeyHead(both) => {
                linear.project(input, count, [(*both, &mut *logits)]);
                false
            }
        };
        let (bias, factor) = (linear.vector(self.decay_bias), linear.vector(self.decay));
        linear.pool.rows(gates, 2 * heads, |row, gates| {
            let (strengths, decays) = gates.split_at_mut(heads);
            if apart {
                strengths.copy_from_slice(&logits[row * heads..][..heads]);
                decays.copy_from_slice(&logits[(count + row) * heads..][..heads]);
            } else {
                let sharing = heads / config.key_heads;
                let of_row = logits[row * 2 * heads..][..2 * heads].chunks_exact(2 * sharing);
                let heads = strengths.chunks_exact_mut(sharing).zip(decays.chunks_exact_mut(sharing));
                for (logits, (strengths, decays)) in of_row.zip(heads) {
                    strengths.copy_from_slice(&logits[..sharing]);
                    decays.copy_from_slice(&logits[sharing..]);
                }
            }
            sigmoid(strengths);
            add(decays, bias);
            softplus(decays);
            mul(decays, factor);
        });
    }
}

impl Pass<'_> {
    /// normed = output(norm(delta rule of conv(queries, keys, values)) * silu(gate)) of the rows in `input`
    pub(super) fn delta_net(
        &mut self,
        index: usize,
        config: &DeltaNetConfig,
        weights: &DeltaNet,
        rows: &[Row],
    ) {
        let Pass { config: model, linear, scratch, memory, .. } = self;
        let (pool, count, epsilon) = (linear.pool, rows.len(), model.norm_epsilon);
        let (mixed_width, keys_width) = (config.mixed_width(), config.keys_width());
        let (heads, key_dim, values) = (config.heads, config.key_dim, config.output_width());
        let [mixed, convolved, output_gate, logits, gates] =
            parts(&mut scratch.recurrent, count, config.widths());
        let input = &scratch.input;
        linear.project(
            input,
            count,
            [(weights.mixed, &mut *mixed), (weights.output_gate, &mut *output_gate)],
        );
        weights.fill_gates(*linear, input, config, count, logits, gates);

        let conv = Conv1d { weight: linear.vector(weights.conv), bias: None, taps: config.taps, silu: true };
        let state = (&mut **memory, index, 0..config.conv_floats());
        convolve(pool, &conv, rows, state, (mixed, mixed_width), (convolved, mixed_width));
        pool.rows(convolved, mixed_width, |_, row| {
            delta_norm_heads(&mut row[..2 * keys_width], key_dim, epsilon);
        });
        for (lane, run) in lane_runs(rows) {
            let row = &convolved[run.start * mixed_width..];
            let columns = |first: usize| Columns { data: row, stride: mixed_width, first };
            let (q, k, v) = (columns(0), columns(keys_width), columns(2 * keys_width));
            let gates = &gates[run.start * 2 * heads..];
            let gate = |first: usize| Columns { data: gates, stride: 2 * heads, first };
            let (_, state) = memory.state(index, lane).split_at_mut(config.conv_floats());
            gated_delta_rule(
                pool,
                &config.shape(),
                &LinearInputs { rows: run.len(), q, k, v },
                Decay::Head(gate(heads)),
                gate(0),
                1.0 / (key_dim as f32).sqrt(),
                state,
                &mut scratch.attended[run.start * values..run.end * values],
            );
        }

        let (norm, kinds) = (linear.vector(weights.norm), [weights.output.weight.kind]);
        let attended = &mut scratch.attended;
        linear.fill(&mut scratch.input, attended, [count, values], &kinds, |row, out| {
            rms_norm_heads(out, norm, epsilon);
            mul_silu(out, &output_gate[row * values..(row + 1) * values]);
        });
        linear.project(&scratch.input, count, [(weights.output, &mut scratch.normed)]);
    }
}
