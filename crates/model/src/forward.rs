//! One forward pass for every case: decode is one row per lane, prefill many rows of one lane.
//!
//! Layer by layer over all rows of a step, so that in a mixture-of-experts layer each needed expert is
//! read once per step. A row's result depends on nothing but its lane: not on the other rows, not on
//! threads, not on what the pager held. Knows no family by name and no file.

use adit_kernels::{
    Activations, RopeTable, add, add_scaled, gelu_tanh, gelu_tanh_mul, mul, relu, relu_mul, relu_squared,
    scale, silu, silu_clamp_mul, silu_mul, soft_cap, swiglu_clamp, swiglu_oai,
};

use crate::config::{Config, MixerConfig};
use crate::error::ModelError;
use crate::families::{Activation, BlockInput};
use crate::linear::Linear;
use crate::memory::Memory;
use crate::moe;
use crate::norm::{load_normed, post_norm};
use crate::observe::Observer;
use crate::scout::Scouts;
use crate::scratch::{LOGIT_ROWS_MAX, Scratch};
use crate::up_projection::UpProjectionAdapter;
use crate::weights::{Dense, FeedForward, Layer, Mixer, Vector, Weights};
use adit_pager::Pager;

/// Constants of gpt-oss's activation (its reference implementation, `swiglu`).
const SWIGLU_OAI_ALPHA: f32 = 1.702;
const SWIGLU_OAI_LIMIT: f32 = 7.0;

/// One token of one lane in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub lane: usize,
    pub token: u32,
    /// Must continue the lane: its length, then counting up within the step.
    pub position: usize,
    pub wants_logits: bool,
}

/// Everything a step reads or writes besides its rows.
pub(crate) struct Pass<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    pub linear: Linear<'a>,
    /// Per layer, what corrects the up-projection of latent attention.
    pub up_adapters: &'a [Option<UpProjectionAdapter>],
    /// The rotations that layers use, by number.
    pub rotations: &'a [RopeTable],
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
        self.begin_streams(rows.len());
        self.rotate_angles(rows);
        let last = self.weights.layers.len() - 1;
        let mut count = rows.len();
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.mixer_block(index, layer, rows);
            if index == last {
                // Keys and values are stored; from here on only rows that want logits matter.
                count = self.keep_wanted(rows);
            }
            if count > 0 {
                self.feed_forward_block(index, rows, count)?;
                self.scouts.learn(index, self.scratch, rows, count);
            }
        }
        self.head(rows, count, on_logits)
    }

    /// Moves the hidden states of the rows that want logits to the front, in order; returns their number.
    fn keep_wanted(&mut self, rows: &[Row]) -> usize {
        let width = self.config.width;
        let mut kept = 0;
        let all = self.config.streams.map_or(0, |streams| streams.count * width);
        let Scratch { hidden, layer_input, streams, tokens, .. } = &mut *self.scratch;
        for (row, _) in rows.iter().enumerate().filter(|(_, row)| row.wants_logits) {
            for states in [&mut *hidden, &mut *layer_input].into_iter().filter(|states| !states.is_empty()) {
                states.copy_within(row * width..(row + 1) * width, kept * width);
            }
            streams.copy_within(row * all..(row + 1) * all, kept * all);
            tokens[kept] = tokens[row];
            kept += 1;
        }
        kept
    }

    fn embed(&mut self, rows: &[Row]) {
        let (width, factor) = (self.config.width, self.config.embedding_scale);
        let table = self.linear.matrix(self.weights.embedding);
        self.scratch.tokens.iter_mut().zip(rows).for_each(|(token, row)| *token = row.token);
        self.linear.pool.rows(&mut self.scratch.hidden[..rows.len() * width], width, |row, out| {
            table.dequantize_row(rows[row].token as usize, out);
            if factor != 1.0 {
                scale(out, factor);
            }
        });
    }

    fn rotate_angles(&mut self, rows: &[Row]) {
        for (table, angles) in self.rotations.iter().zip(&mut self.scratch.angles) {
            for (row, out) in rows.iter().zip(angles.chunks_exact_mut(table.n_rot())) {
                table.angles(row.position, out);
            }
        }
    }

    /// hidden += post_norm(mixer(norm(hidden)))
    fn mixer_block(&mut self, index: usize, layer: &Layer, rows: &[Row]) {
        if let Mixer::Absent = layer.mixer {
            return;
        }
        self.gather_streams(layer.mixer_streams.as_ref(), rows.len());
        let Pass { config, linear, scratch, .. } = self;
        let count = rows.len();
        if !scratch.layer_input.is_empty() {
            let states = 0..count * config.width;
            scratch.layer_input[states.clone()].copy_from_slice(&scratch.hidden[states]);
        }
        let norm = (layer.mixer_norm, BlockInput::Hidden);
        load_normed(config, linear, norm, scratch, 0..count, &layer.mixer.input_kinds());
        match (&config.layers[index].mixer, &layer.mixer) {
            (MixerConfig::Attention(config), Mixer::Attention(weights)) => {
                self.attention(index, config, weights, rows);
            }
            (MixerConfig::Latent(config), Mixer::Latent(weights)) => {
                self.latent_attention(index, config, weights, rows);
            }
            (MixerConfig::Recurrent(config), Mixer::Recurrent(weights)) => {
                self.recurrent(index, config, weights, rows);
            }
            _ => unreachable!("a layer's weights are bound by its numbers"),
        }
        self.add_block(layer.post_mixer_norm, count);
    }

    /// hidden += post_norm(feed_forward(norm(hidden)))
    fn feed_forward_block(&mut self, index: usize, rows: &[Row], count: usize) -> Result<(), ModelError> {
        let weights = self.weights;
        let layer = &weights.layers[index];
        self.gather_streams(layer.feed_forward_streams.as_ref(), count);
        match &layer.feed_forward {
            FeedForward::Absent => return Ok(()),
            FeedForward::Dense(block) => {
                let Pass { config, linear, scratch, .. } = self;
                let norm = (layer.feed_forward_norm, config.family.feed_forward_input);
                load_normed(config, linear, norm, scratch, 0..count, &block.input_kinds());
                let Scratch { input, gate, up, inner, normed, .. } = &mut **scratch;
                let activation = config.layers[index].activation;
                dense(activation, *linear, block, count, input, (gate, up, inner), normed);
            }
            FeedForward::Routed(routed) => {
                let Pass { config, linear, scratch, .. } = self;
                let pager = self.pager.as_deref_mut().expect("models with routed layers have a pager");
                let observer = self.observer.as_deref_mut();
                let later = &weights.layers[index + 1..];
                self.scouts.look_ahead(config, linear, scratch, (pager, observer), (later, rows));
                let pager = (pager, self.observer.as_deref_mut());
                moe::feed_forward(config, *linear, scratch, pager, (index, layer, routed), count)?;
            }
        }
        self.add_block(layer.post_feed_forward_norm, count);
        if let Some(factor) = layer.scale {
            let Pass { config, linear, scratch, .. } = self;
            let factor = linear.vector(factor)[0];
            let hidden = &mut scratch.hidden[..count * config.width];
            linear.pool.rows(hidden, config.width, |_, hidden| scale(hidden, factor));
        }
        Ok(())
    }

    /// hidden += post_norm(normed), the norm being optional; several streams take their shares of it
    fn add_block(&mut self, norm: Option<Vector>, count: usize) {
        let Pass { config, linear, scratch, .. } = self;
        let width = config.width;
        if let Some(norm) = norm {
            post_norm(config, linear, norm, &mut scratch.normed[..count * width]);
        }
        if let Some(streams) = config.streams {
            return self.spread_to_streams(&streams, count);
        }
        let (block, factor) = (&scratch.normed, config.residual_scale);
        linear.pool.rows(&mut scratch.hidden[..count * width], width, |row, hidden| {
            let block = &block[row * width..(row + 1) * width];
            match factor {
                1.0 => add(hidden, block),
                factor => add_scaled(hidden, block, factor),
            }
        });
    }

    /// Logits of the `count` rows that want them, whose hidden states stand at the front. Error when one is
    /// no number: nobody could choose by it.
    fn head(
        &mut self,
        rows: &[Row],
        count: usize,
        on_logits: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ModelError> {
        self.gather_streams(self.weights.output_streams.as_ref(), count);
        let Pass { config, linear, scratch, weights, .. } = self;
        let vocabulary = config.vocabulary;
        let mut wanted = rows.iter().enumerate().filter(|(_, row)| row.wants_logits).map(|(index, _)| index);
        for first in (0..count).step_by(LOGIT_ROWS_MAX) {
            let len = LOGIT_ROWS_MAX.min(count - first);
            let kinds = [weights.output.weight.kind];
            let norm = (Some(weights.output_norm), BlockInput::Hidden);
            load_normed(config, linear, norm, scratch, first..first + len, &kinds);
            linear.project(&scratch.input, len, [(weights.output, &mut scratch.logits)]);
            let (factor, cap) = (config.logit_scale, config.logit_soft_cap);
            if factor != 1.0 || cap.is_some() {
                let logits = &mut scratch.logits[..len * vocabulary];
                linear.pool.rows(logits, vocabulary, |_, row| {
                    scale(row, factor);
                    cap.iter().for_each(|&cap| soft_cap(row, cap));
                });
            }
            for (row, logits) in wanted.by_ref().zip(scratch.logits.chunks_exact(vocabulary)).take(len) {
                // Without a way out of the loop, it takes many at a time.
                if logits.iter().fold(false, |found, logit| found | logit.is_nan()) {
                    return Err(ModelError::NotANumber { position: rows[row].position });
                }
                on_logits(row, logits);
            }
        }
        Ok(())
    }
}

/// out = down(activation(gate(x)) * up(x)), or down(activation(up(x))), of the rows x in `input`
pub(crate) fn dense(
    activation: Activation,
    linear: Linear<'_>,
    block: &Dense,
    count: usize,
    input: &Activations,
    (gate, up, inner): (&mut [f32], &mut [f32], &mut Activations),
    out: &mut [f32],
) {
    let width = block.up.weight.rows;
    let kinds = [block.down.weight.kind];
    match block.gate {
        Some(matrix) => {
            linear.project(input, count, [(matrix, &mut *gate), (block.up, &mut *up)]);
            linear.fill(inner, gate, [count, width], &kinds, |row, gate| {
                activate(activation, gate, &up[row * width..(row + 1) * width]);
            });
        }
        None => {
            linear.project(input, count, [(block.up, &mut *up)]);
            linear.fill(inner, gate, [count, width], &kinds, |row, out| {
                out.copy_from_slice(&up[row * width..(row + 1) * width]);
                activate_alone(activation, out);
            });
        }
    }
    linear.project(inner, count, [(block.down, out)]);
}

/// gate = activation(gate) * up
pub(crate) fn activate(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Silu => silu_mul(gate, up),
        Activation::GeluTanh => gelu_tanh_mul(gate, up),
        Activation::Relu => relu_mul(gate, up),
        Activation::ReluSquared => {
            relu_squared(gate);
            mul(gate, up);
        }
        Activation::SwigluClamp(limit) => swiglu_clamp(gate, up, limit),
        Activation::SiluClamp(limit) => silu_clamp_mul(gate, up, limit),
        Activation::SwigluOai => swiglu_oai(gate, up, SWIGLU_OAI_ALPHA, SWIGLU_OAI_LIMIT),
    }
}

/// x = activation(x), without a gate
pub(crate) fn activate_alone(activation: Activation, x: &mut [f32]) {
    match activation {
        Activation::Silu => silu(x),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::Relu => relu(x),
        Activation::ReluSquared => relu_squared(x),
        Activation::SwigluClamp(_) | Activation::SiluClamp(_) | Activation::SwigluOai => {
            unreachable!("no family has these without a gate")
        }
    }
}
