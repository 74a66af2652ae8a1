//! Kimi delta attention (Kimi Linear, arXiv:2510.26692): a delta rule in which each element of a key forgets
//! at a pace of its own.

use adit_kernels::{
    Columns, Conv1d, Decay, KeySharing, LinearInputs, LinearShape, add, delta_norm_heads, gated_delta_rule,
    mul_sigmoid, rms_norm_heads, scale, sigmoid, softplus,
};

use super::{convolve, lane_runs, parts};
use crate::error::ModelError;
use crate::forward::{Pass, Row};
use crate::weights::{Binder, Projection, Vector};

#[derive(Debug, Clone, PartialEq)]
pub struct KimiDeltaConfig {
    pub heads: usize,
    /// Of queries, keys and values.
    pub head_dim: usize,
    /// Positions that the convolutions before it see.
    pub taps: usize,
    /// Whether one matrix makes the decays and one the gates, without few values between two.
    pub whole_gates: bool,
    /// Decays are this times a sigmoid of the product with the heads' factors, instead of a softplus times
    /// them.
    pub lowest_decay: Option<f32>,
    /// Whether the file's factors are the negatives of those that the sigmoid sees, as a softplus needs them.
    pub negative_factors: bool,
    /// Least norm that queries and keys are divided by.
    pub norm_epsilon: f32,
}

impl KimiDeltaConfig {
    pub fn output_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Earlier inputs of one of the three convolutions.
    fn conv_floats(&self) -> usize {
        (self.taps - 1) * self.output_width()
    }

    fn shape(&self) -> LinearShape {
        let &KimiDeltaConfig { heads, head_dim, .. } = self;
        LinearShape {
            heads,
            key_heads: heads,
            key_dim: head_dim,
            value_dim: head_dim,
            sharing: KeySharing::Neighbours,
        }
    }

    /// Makes decays of what their matrix gave, a factor for each head.
    fn finish_decays(&self, decays: &mut [f32], factors: &[f32]) {
        if self.lowest_decay.is_none() {
            softplus(decays);
        }
        let heads = decays.chunks_exact_mut(self.head_dim);
        heads.zip(factors).for_each(|(head, &factor)| scale(head, factor));
        if let Some(lowest) = self.lowest_decay {
            if self.negative_factors {
                scale(decays, -1.0);
            }
            sigmoid(decays);
            scale(decays, lowest);
        }
    }

    /// The earlier inputs of three convolutions, then a matrix for each head.
    pub fn state_floats(&self) -> usize {
        3 * self.conv_floats() + self.shape().state_floats()
    }

    /// Of each row queries, keys and values, the same convolved, decays and the gate on the output with what
    /// they are made of, and write strengths.
    pub fn widths(&self) -> [usize; 11] {
        let (all, one) = (self.output_width(), self.head_dim);
        [all, all, all, all, all, all, one, one, all, all, self.heads]
    }
}

/// Two matrices with few values between them, or one alone.
#[derive(Debug, Clone, Copy)]
pub struct LowRank {
    pub down: Projection,
    pub up: Option<Projection>,
}

#[derive(Debug)]
pub struct KimiDelta {
    /// Queries, keys and values.
    pub mixed: [Projection; 3],
    /// channels x taps each
    pub convs: [Vector; 3],
    pub decay: LowRank,
    pub output_gate: LowRank,
    pub strength: Projection,
    /// heads x head_dim
    pub decay_bias: Vector,
    /// heads; negative
    pub decay_factor: Vector,
    /// head_dim
    pub norm: Vector,
    pub output: Projection,
}

impl KimiDelta {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &KimiDeltaConfig,
    ) -> Result<KimiDelta, ModelError> {
        let (width, all, one) = (binder.config.width, config.output_width(), config.head_dim);
        let at = |part: &str| format!("blk.{layer}.{part}");
        let mixed = |binder: &mut Binder<'_>, part: &str| {
            binder.recurrent_projection(&at(&format!("attn_{part}")), all, width)
        };
        let conv = |binder: &mut Binder<'_>, part: &str| {
            binder.floats(&at(&format!("ssm_conv1d_{part}.weight")), &[config.taps, 1, all])
        };
        let low_rank = |binder: &mut Binder<'_>, part: &str| {
            let (down, up) = (at(&format!("ssm_{part}_a")), at(&format!("ssm_{part}_b")));
            Ok::<_, ModelError>(match config.whole_gates {
                true => LowRank { down: binder.recurrent_projection(&down, all, width)?, up: None },
                false => LowRank {
                    down: binder.recurrent_projection(&down, one, width)?,
                    up: Some(binder.recurrent_projection(&up, all, one)?),
                },
            })
        };
        Ok(KimiDelta {
            mixed: [mixed(binder, "q")?, mixed(binder, "k")?, mixed(binder, "v")?],
            convs: [conv(binder, "q")?, conv(binder, "k")?, conv(binder, "v")?],
            decay: low_rank(binder, "f")?,
            output_gate: low_rank(binder, "g")?,
            strength: binder.recurrent_projection(&at("ssm_beta"), config.heads, width)?,
            decay_bias: binder.vector(&at("ssm_dt.bias"), all)?,
            decay_factor: binder.floats(&at("ssm_a"), &[1, config.heads])?,
            norm: binder.vector(&at("ssm_norm.weight"), one)?,
            output: binder.recurrent_projection(&at("attn_output"), width, all)?,
        })
    }
}

impl Pass<'_> {
    /// normed = output(norm(delta rule of conv(queries, keys, values)) * sigmoid(gate)) of the rows in
    /// `input`
    pub(super) fn kimi_delta(
        &mut self,
        index: usize,
        config: &KimiDeltaConfig,
        weights: &KimiDelta,
        rows: &[Row],
    ) {
        let Pass { config: model, linear, scratch, memory, .. } = self;
        let (pool, count, epsilon) = (linear.pool, rows.len(), model.norm_epsilon);
        let (heads, one, all) = (config.heads, config.head_dim, config.output_width());
        let [q_in, k_in, v_in, q, k, v, decay_low, gate_low, decays, gate, strengths] =
            parts(&mut scratch.recurrent, count, config.widths());
        let [query, key, value] = weights.mixed;
        // A matrix that stands alone makes all values at once.
        let decay_first = if weights.decay.up.is_some() { &mut *decay_low } else { &mut *decays };
        let gate_first = if weights.output_gate.up.is_some() { &mut *gate_low } else { &mut *gate };
        linear.project(
            &scratch.input,
            count,
            [
                (query, &mut *q_in),
                (key, &mut *k_in),
                (value, &mut *v_in),
                (weights.decay.down, decay_first),
                (weights.output_gate.down, gate_first),
                (weights.strength, &mut *strengths),
            ],
        );
        for (LowRank { up, .. }, low, out) in
            [(weights.decay, &*decay_low, &mut *decays), (weights.output_gate, &*gate_low, &mut *gate)]
        {
            let Some(up) = up else { continue };
            linear.load(&mut scratch.input, low, count, one, &[up.weight.kind]);
            linear.project(&scratch.input, count, [(up, out)]);
        }
        sigmoid(strengths);
        let (bias, factor) = (linear.vector(weights.decay_bias), linear.vector(weights.decay_factor));
        pool.rows(decays, all, |_, row| {
            add(row, bias);
            config.finish_decays(row, factor);
        });

        let tails = config.conv_floats();
        let convolutions = [(&*q_in, &mut *q), (&*k_in, &mut *k), (&*v_in, &mut *v)];
        for (part, (from, to)) in convolutions.into_iter().enumerate() {
            let weight = linear.vector(weights.convs[part]);
            let conv = Conv1d { weight, bias: None, taps: config.taps, silu: true };
            let state = (&mut **memory, index, part * tails..(part + 1) * tails);
            convolve(pool, &conv, rows, state, (from, all), (to, all));
        }
        for part in [&mut *q, &mut *k] {
            pool.rows(part, all, |_, row| delta_norm_heads(row, one, config.norm_epsilon));
        }
        for (lane, run) in lane_runs(rows) {
            let [q, k, v, decays] =
                [&*q, &*k, &*v, &*decays].map(|all_rows| Columns::whole(&all_rows[run.start * all..], all));
            let inputs = LinearInputs { rows: run.len(), q, k, v };
            gated_delta_rule(
                pool,
                &config.shape(),
                &inputs,
                Decay::KeyChannel(decays),
                Columns::whole(&strengths[run.start * heads..], heads),
                1.0 / (one as f32).sqrt(),
                &mut memory.state(index, lane)[3 * tails..],
                &mut scratch.attended[run.start * all..run.end * all],
            );
        }

        let (norm, kinds) = (linear.vector(weights.norm), [weights.output.weight.kind]);
        let attended = &mut scratch.attended;
        linear.fill(&mut scratch.input, attended, [count, all], &kinds, |row, out| {
            rms_norm_heads(out, norm, epsilon);
            mul_sigmoid(out, &gate[row * all..(row + 1) * all]);
        });
        linear.project(&scratch.input, count, [(weights.output, &mut scratch.normed)]);
    }
}
