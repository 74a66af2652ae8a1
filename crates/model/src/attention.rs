//! The attention block: a row's query meets the stored keys and values of its lane.

use adit_kernels::{
    AttentionRow, attention, clamp, mul, rms_norm_heads, rms_scale_heads, rope_heads, scale, sigmoid,
    softplus,
};

use crate::config::AttentionConfig;
use crate::families::GateFunction;
use crate::forward::{Pass, Row};
use crate::weights::{Attention, Projection, Vector};

impl Pass<'_> {
    /// normed = output(attention(query, keys, values)) of the normalised rows in `input`
    pub fn attention(&mut self, index: usize, config: &AttentionConfig, weights: &Attention, rows: &[Row]) {
        let Pass { linear, scratch, .. } = self;
        let count = rows.len();
        let is_gated = self.config.family.attention.gate_in_query;
        let query = if is_gated { &mut scratch.gated_query } else { &mut scratch.query };
        linear.project(
            &scratch.input,
            count,
            [(weights.query, query), (weights.key, &mut scratch.key), (weights.value, &mut scratch.value)],
        );
        if let Some(gate) = weights.gate {
            linear.project(&scratch.input, count, [(gate, &mut scratch.attention_gate)]);
        }
        if is_gated {
            self.take_queries(config, count);
        }
        self.norm_and_rotate_heads(config, weights, count);
        if let Some(factor) = config.temperature {
            let width = config.query_width();
            let query = &mut self.scratch.query[..count * width];
            self.linear.pool.rows(query, width, |row, query| scale(query, factor.at(rows[row].position)));
        }
        self.remember(index, config, rows);
        self.attend(index, config, weights.sinks, rows);
        let width = config.attended_width();
        if config.output_scale != 1.0 {
            let attended = &mut self.scratch.attended[..count * width];
            self.linear.pool.rows(attended, width, |_, heads| scale(heads, config.output_scale));
        }
        if let Some(gate) = weights.gate {
            self.gate_attended(gate, [width, config.value_dim], count);
        }
        if is_gated {
            self.gate_by_queries(config, count);
        }
        let Pass { linear, scratch, .. } = self;
        linear.load(
            &mut scratch.input,
            &scratch.attended,
            count,
            config.attended_width(),
            &[weights.output.weight.kind],
        );
        linear.project(&scratch.input, count, [(weights.output, &mut scratch.normed)]);
    }

    fn norm_and_rotate_heads(&mut self, config: &AttentionConfig, weights: &Attention, count: usize) {
        let Pass { config: model, linear, scratch, .. } = self;
        let (epsilon, style) = (model.norm_epsilon, model.rope_style);
        let norm_last = model.family.attention.norm_after_rope;
        let angles = config.rope.map(|rope| (&scratch.angles[rope], model.ropes[rope].dimensions));
        let sides = [
            (&mut scratch.query, config.query_width(), weights.query_norm),
            (&mut scratch.key, config.key_width(), weights.key_norm),
        ];
        if let Some(limit) = config.clamp {
            let value = &mut scratch.value[..count * config.value_width()];
            linear.pool.rows(value, config.value_width(), |_, value| clamp(value, -limit, limit));
        }
        if config.value_norm {
            let value = &mut scratch.value[..count * config.value_width()];
            linear.pool.rows(value, config.value_width(), |_, value| {
                rms_scale_heads(value, config.value_dim, epsilon);
            });
        }
        for (values, row_len, norm) in sides {
            let norm = linear.optional_vector(norm);
            linear.pool.rows(&mut values[..count * row_len], row_len, |row, heads| {
                config.clamp.iter().for_each(|&limit| clamp(heads, -limit, limit));
                if let Some(norm) = norm.filter(|_| !norm_last) {
                    rms_norm_heads(heads, norm, epsilon);
                }
                if let Some((angles, dimensions)) = angles {
                    let angles = &angles[row * dimensions..(row + 1) * dimensions];
                    rope_heads(heads, config.head_dim, angles, style);
                }
                if let Some(norm) = norm.filter(|_| norm_last) {
                    rms_norm_heads(heads, norm, epsilon);
                }
                if config.rms_after_rope {
                    rms_scale_heads(heads, config.head_dim, epsilon);
                }
            });
        }
    }

    /// attended *= function(gate), a gate for each head of `value_dim` values or for each value
    pub(crate) fn gate_attended(&mut self, gate: Projection, [width, value_dim]: [usize; 2], count: usize) {
        let Pass { config: model, linear, scratch, .. } = self;
        let (function, gates) = (model.family.attention.gate_function, gate.weight.rows);
        let gate = &mut scratch.attention_gate[..count * gates];
        linear.pool.rows(gate, gates, |_, gate| match function {
            GateFunction::Sigmoid => sigmoid(gate),
            GateFunction::Softplus => softplus(gate),
        });
        let gate = &*gate;
        linear.pool.rows(&mut scratch.attended[..count * width], width, |row, heads| {
            let gate = &gate[row * gates..(row + 1) * gates];
            match gates == width {
                true => mul(heads, gate),
                false => {
                    let heads = heads.chunks_exact_mut(value_dim);
                    heads.zip(gate).for_each(|(head, &gate)| scale(head, gate));
                }
            }
        });
    }

    fn remember(&mut self, index: usize, config: &AttentionConfig, rows: &[Row]) {
        let (key_width, value_width) = (config.key_width(), config.value_width());
        for (at, row) in rows.iter().enumerate() {
            let key = &self.scratch.key[at * key_width..(at + 1) * key_width];
            let value = &self.scratch.value[at * value_width..(at + 1) * value_width];
            self.memory.store(index, row.lane, row.position, key, value);
        }
    }

    fn attend(&mut self, index: usize, config: &AttentionConfig, sinks: Option<Vector>, rows: &[Row]) {
        let memory = &*self.memory;
        let count = rows.len();
        attention(
            self.linear.pool,
            &config.shape(),
            self.linear.optional_vector(sinks),
            &self.scratch.query[..count * config.query_width()],
            count,
            &|at| AttentionRow { position: rows[at].position, blocks: memory.blocks(rows[at].lane) },
            &memory.view(index),
            &mut self.scratch.attention,
            &mut self.scratch.attended[..count * config.attended_width()],
        );
    }
}
