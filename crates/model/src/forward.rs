//! One forward pass for every case: decode is one row per lane, prefill many rows of one lane.
//!
//! Layer by layer over all rows of a step, so that in a mixture-of-experts layer each needed expert is
//! read once per step. A row's result depends on nothing but its lane: not on the other rows, not on
//! threads, not on what the pager held. Knows no family by name and no file.

use std::ops::Range;

use adit_format::TensorType;
use adit_kernels::{
    AttentionRow, RopeTable, add, attention, gelu_tanh_mul, rms_norm, rms_norm_heads, rms_norm_in_place,
    rope_heads, scale, silu_mul, soft_cap,
};

use crate::config::Config;
use crate::error::ModelError;
use crate::families::Activation;
use crate::linear::Linear;
use crate::memory::Memory;
use crate::moe;
use crate::observe::Observer;
use crate::scout::Scouts;
use crate::scratch::{LOGIT_ROWS_MAX, Scratch};
use crate::weights::{FeedForward, Layer, Projection, Vector, Weights};
use adit_pager::Pager;

/// One token of one lane in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub lane: usize,
    pub token: u32,
    /// Must continue the lane: its length, then counting up within the step.
    pub position: usize,
    pub wants_logits: bool,
}

/// How queries and keys rotate, per kind of layer.
pub(crate) struct Rotations {
    pub full: RopeTable,
    pub sliding: Option<RopeTable>,
}

/// Everything a step reads or writes besides its rows.
pub(crate) struct Pass<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    pub linear: Linear<'a>,
    pub rotations: &'a Rotations,
    pub memory: &'a mut Memory,
    pub scratch: &'a mut Scratch,
    pub pager: Option<&'a mut Pager>,
    pub observer: Option<&'a mut (dyn Observer + 'static)>,
    pub scouts: &'a mut Scouts,
}

impl Pass<'_> {
    /// Computes all rows; calls `on_logits(row index, logits)` for those that want them, in order.
    pub fn run(&mut self, rows: &[Row], on_logits: &mut dyn FnMut(usize, &[f32])) -> Result<(), ModelError> {
        if let Some(pager) = &mut self.pager {
            pager.tick();
            self.scouts.hint_from_tokens(pager, self.observer.as_deref_mut(), rows);
        }
        self.embed(rows);
        self.rotate_angles(rows);
        let last = self.weights.layers.len() - 1;
        let mut count = rows.len();
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attention_block(index, layer, rows);
            if index == last {
                // Keys and values are stored; from here on only rows that want logits matter.
                count = self.keep_wanted(rows);
            }
            if count > 0 {
                self.feed_forward_block(index, rows, count)?;
                self.scouts.learn(index, self.scratch, rows, count);
            }
        }
        self.head(rows, count, on_logits);
        Ok(())
    }

    /// Moves the hidden states of the rows that want logits to the front, in order; returns their number.
    fn keep_wanted(&mut self, rows: &[Row]) -> usize {
        let width = self.config.width;
        let mut kept = 0;
        for (row, _) in rows.iter().enumerate().filter(|(_, row)| row.wants_logits) {
            self.scratch.hidden.copy_within(row * width..(row + 1) * width, kept * width);
            kept += 1;
        }
        kept
    }

    fn embed(&mut self, rows: &[Row]) {
        let (width, factor) = (self.config.width, self.config.embedding_scale);
        let table = self.linear.matrix(self.weights.embedding);
        self.linear.pool.rows(&mut self.scratch.hidden[..rows.len() * width], width, |row, out| {
            table.dequantize_row(rows[row].token as usize, out);
            if factor != 1.0 {
                scale(out, factor);
            }
        });
    }

    fn rotate_angles(&mut self, rows: &[Row]) {
        let dimensions = self.config.rope.dimensions;
        let fill = |table: &RopeTable, angles: &mut [f32]| {
            for (row, out) in rows.iter().zip(angles.chunks_exact_mut(dimensions)) {
                table.angles(row.position, out);
            }
        };
        fill(&self.rotations.full, &mut self.scratch.angles);
        if let Some(table) = &self.rotations.sliding {
            fill(table, &mut self.scratch.angles_sliding);
        }
    }

    /// hidden += post_norm(attention(norm(hidden)))
    fn attention_block(&mut self, index: usize, layer: &Layer, rows: &[Row]) {
        let Pass { config, linear, scratch, .. } = self;
        let count = rows.len();
        let kinds = [layer.query.weight.kind, layer.key.weight.kind, layer.value.weight.kind];
        load_normed(config, linear, layer.attention_norm, scratch, 0..count, &kinds);
        linear.project(
            &scratch.input,
            count,
            [
                (layer.query, &mut scratch.query),
                (layer.key, &mut scratch.key),
                (layer.value, &mut scratch.value),
            ],
        );
        self.norm_and_rotate_heads(index, layer, count);
        self.remember(index, rows);
        self.attend(index, rows);
        let Pass { config, linear, scratch, .. } = self;
        let attended = config.heads * config.value_dim;
        linear.load(
            &mut scratch.input,
            &scratch.attended,
            count,
            attended,
            &[layer.attention_output.weight.kind],
        );
        linear.project(&scratch.input, count, [(layer.attention_output, &mut scratch.normed)]);
        self.add_block(layer.post_attention_norm, count);
    }

    fn norm_and_rotate_heads(&mut self, index: usize, layer: &Layer, count: usize) {
        let Pass { config, linear, scratch, .. } = self;
        let (head_dim, dimensions) = (config.head_dim, config.rope.dimensions);
        let (epsilon, style) = (config.norm_epsilon, config.family.rope_style);
        let angles = match config.windows[index] {
            Some(_) if config.rope_sliding.is_some() => &scratch.angles_sliding,
            _ => &scratch.angles,
        };
        let sides = [
            (&mut scratch.query, config.query_width(), layer.query_norm),
            (&mut scratch.key, config.key_width(), layer.key_norm),
        ];
        for (values, row_len, norm) in sides {
            let norm = linear.optional_vector(norm);
            linear.pool.rows(&mut values[..count * row_len], row_len, |row, heads| {
                if let Some(norm) = norm {
                    rms_norm_heads(heads, norm, epsilon);
                }
                rope_heads(heads, head_dim, &angles[row * dimensions..(row + 1) * dimensions], style);
            });
        }
    }

    fn remember(&mut self, index: usize, rows: &[Row]) {
        let (key_width, value_width) = (self.config.key_width(), self.config.value_width());
        for (at, row) in rows.iter().enumerate() {
            let key = &self.scratch.key[at * key_width..(at + 1) * key_width];
            let value = &self.scratch.value[at * value_width..(at + 1) * value_width];
            self.memory.store(index, row.lane, row.position, key, value);
        }
    }

    fn attend(&mut self, index: usize, rows: &[Row]) {
        let config = self.config;
        let shape = config.attention_shape(index);
        let (query_width, attended_width) = (config.query_width(), config.heads * config.value_dim);
        let memory = &*self.memory;
        let count = rows.len();
        attention(
            self.linear.pool,
            &shape,
            None,
            &self.scratch.query[..count * query_width],
            count,
            &|at| AttentionRow { position: rows[at].position, blocks: memory.blocks(rows[at].lane) },
            &memory.view(index),
            &mut self.scratch.attention,
            &mut self.scratch.attended[..count * attended_width],
        );
    }

    /// hidden += post_norm(feed_forward(norm(hidden)))
    fn feed_forward_block(&mut self, index: usize, rows: &[Row], count: usize) -> Result<(), ModelError> {
        let weights = self.weights;
        let layer = &weights.layers[index];
        match &layer.feed_forward {
            FeedForward::Dense { gate, up, down } => {
                self.dense(layer.feed_forward_norm, [*gate, *up, *down], count);
            }
            routed => {
                let Pass { config, linear, scratch, .. } = self;
                let pager = self.pager.as_deref_mut().expect("models with routed layers have a pager");
                let observer = self.observer.as_deref_mut();
                let later = &weights.layers[index + 1..];
                self.scouts.look_ahead(config, linear, scratch, (pager, observer), (later, rows));
                let pager = (pager, self.observer.as_deref_mut());
                moe::feed_forward(config, *linear, scratch, pager, (layer.feed_forward_norm, routed), count)?;
            }
        }
        self.add_block(layer.post_feed_forward_norm, count);
        Ok(())
    }

    /// normed = down(activation(gate(x)) * up(x)) of x = norm(hidden)
    fn dense(&mut self, norm: Vector, [gate, up, down]: [Projection; 3], count: usize) {
        let Pass { config, linear, scratch, .. } = self;
        let inner = config.feed_forward;
        load_normed(config, linear, norm, scratch, 0..count, &[gate.weight.kind, up.weight.kind]);
        linear.project(&scratch.input, count, [(gate, &mut scratch.gate), (up, &mut scratch.up)]);
        let (activation, up_rows) = (config.family.activation, &scratch.up);
        let kinds = [down.weight.kind];
        linear.fill(&mut scratch.inner, &mut scratch.gate, [count, inner], &kinds, |row, gate| {
            activate(activation, gate, &up_rows[row * inner..(row + 1) * inner]);
        });
        linear.project(&scratch.inner, count, [(down, &mut scratch.normed)]);
    }

    /// hidden += post_norm(normed), the norm being optional
    fn add_block(&mut self, post_norm: Option<Vector>, count: usize) {
        let Pass { config, linear, scratch, .. } = self;
        let width = config.width;
        let norm = linear.optional_vector(post_norm);
        let epsilon = config.norm_epsilon;
        if let Some(norm) = norm {
            let block = &mut scratch.normed[..count * width];
            linear.pool.rows(block, width, |_, row| rms_norm_in_place(row, norm, epsilon));
        }
        let block = &scratch.normed;
        linear.pool.rows(&mut scratch.hidden[..count * width], width, |row, hidden| {
            add(hidden, &block[row * width..(row + 1) * width]);
        });
    }

    /// Logits of the `count` rows that want them, whose hidden states stand at the front.
    fn head(&mut self, rows: &[Row], count: usize, on_logits: &mut dyn FnMut(usize, &[f32])) {
        let Pass { config, linear, scratch, weights, .. } = self;
        let vocabulary = config.vocabulary;
        let mut wanted = rows.iter().enumerate().filter(|(_, row)| row.wants_logits).map(|(index, _)| index);
        for first in (0..count).step_by(LOGIT_ROWS_MAX) {
            let len = LOGIT_ROWS_MAX.min(count - first);
            let kinds = [weights.output.weight.kind];
            load_normed(config, linear, weights.output_norm, scratch, first..first + len, &kinds);
            linear.project(&scratch.input, len, [(weights.output, &mut scratch.logits)]);
            if let Some(cap) = config.logit_soft_cap {
                let logits = &mut scratch.logits[..len * vocabulary];
                linear.pool.rows(logits, vocabulary, |_, row| soft_cap(row, cap));
            }
            for (row, logits) in wanted.by_ref().zip(scratch.logits.chunks_exact(vocabulary)).take(len) {
                on_logits(row, logits);
            }
        }
    }
}

/// normed = norm(hidden) for some rows, as inputs of weights of these kinds
pub(crate) fn load_normed(
    config: &Config,
    linear: &Linear<'_>,
    norm: Vector,
    scratch: &mut Scratch,
    rows: Range<usize>,
    kinds: &[TensorType],
) {
    let (weight, width, epsilon) = (linear.vector(norm), config.width, config.norm_epsilon);
    let Scratch { hidden, normed, input, .. } = scratch;
    let hidden = &hidden[rows.start * width..];
    linear.fill(input, normed, [rows.len(), width], kinds, |row, out| {
        rms_norm(&hidden[row * width..(row + 1) * width], weight, epsilon, out);
    });
}

/// gate = activation(gate) * up
pub(crate) fn activate(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Silu => silu_mul(gate, up),
        Activation::GeluTanh => gelu_tanh_mul(gate, up),
    }
}
