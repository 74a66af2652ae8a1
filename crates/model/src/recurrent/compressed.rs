//! Attention to a window and to what was before it, compressed (DeepSeek-V4; formulas as in llama.cpp's
//! `deepseek4`).
//!
//! All heads share one key, which is the value too. The latest keys lie in a ring in the lane's state. Of
//! every `ratio` positions one more key is made, their mean by weights of the model's own, channel by
//! channel; it stays. A query meets the window, all such keys of whole runs of positions before it, and its
//! head's sink.

use adit_kernels::{
    Pool, RopeStyle, add, add_scaled, rms_norm_in_place, rms_scale_heads, rope_heads, softmax,
};

use super::parts;
use crate::error::ModelError;
use crate::families::Presence;
use crate::forward::{Pass, Row};
use crate::memory::Entries;
use crate::scratch::Scratch;
use crate::weights::{Binder, PerHead, Projection, Tensor, Vector};

#[derive(Debug, Clone, PartialEq)]
pub struct CompressedConfig {
    pub heads: usize,
    /// Values in a head's query, and in the key.
    pub head_dim: usize,
    /// Of those, the last ones, which turn with the position.
    pub rotated: usize,
    /// Which of `Config::ropes` turns them.
    pub rope: usize,
    /// Values between the two matrices that make queries.
    pub query_rank: usize,
    /// Latest positions that are attended as they are.
    pub window: usize,
    pub compression: Option<Compression>,
    /// Groups of heads, each with an output matrix of its own.
    pub groups: usize,
    /// Values that each of these makes.
    pub group_rank: usize,
}

/// How positions become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Positions of a run.
    pub ratio: usize,
    /// Whether the run before takes part too, by values and weights of its own.
    pub overlaps: bool,
}

impl Compression {
    /// Values of a row for each channel.
    fn sides(self) -> usize {
        if self.overlaps { 2 } else { 1 }
    }

    /// Rows that are kept.
    fn span(self) -> usize {
        self.ratio * self.sides()
    }
}

impl CompressedConfig {
    fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values of a row before it is compressed; as many are their weights.
    fn row_values(&self) -> usize {
        self.compression.map_or(0, |compression| compression.sides() * self.head_dim)
    }

    /// The ring of keys; behind it the rows not yet compressed, then their weights.
    pub fn state_floats(&self) -> usize {
        let span = self.compression.map_or(0, Compression::span);
        self.window * self.head_dim + 2 * span * self.row_values()
    }

    /// Positions that one compressed key stands for, and its values.
    pub fn entries(&self) -> Option<(usize, usize)> {
        self.compression.map(|compression| (compression.ratio, self.head_dim))
    }

    /// Values of the scores of one row in a context of this length.
    pub fn score_floats(&self, context: usize) -> usize {
        let entries = self.compression.map_or(0, |compression| context / compression.ratio);
        self.heads * (self.window + entries + 1)
    }

    /// The most values of a row that a matrix takes.
    pub fn largest_input(&self) -> usize {
        self.query_width().max(self.groups * self.group_rank).max(self.query_rank)
    }

    /// Of each row: queries, what they are made of, the key, what is compressed and its weights, what was
    /// attended, the groups' outputs in their order and in that of rows, a key that is made.
    pub fn widths(&self) -> [usize; 9] {
        let (queries, outputs) = (self.query_width(), self.groups * self.group_rank);
        let made = self.head_dim + self.rotated;
        let row = self.row_values();
        [queries, self.query_rank, self.head_dim, row, row, queries, outputs, outputs, made]
    }
}

#[derive(Debug)]
pub struct Compressed {
    pub query_down: Projection,
    pub query_norm: Vector,
    pub query_up: Projection,
    pub key: Projection,
    pub key_norm: Vector,
    pub sinks: Vector,
    pub compressor: Option<Compressor>,
    pub groups: PerHead,
    pub output: Projection,
}

/// What makes one key of several positions.
#[derive(Debug)]
pub struct Compressor {
    pub values: Projection,
    pub weights: Projection,
    /// ratio x values of a row: added to the weights of a position by its place in its run
    pub places: Vector,
    pub norm: Vector,
}

impl Compressed {
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        layer: usize,
        config: &CompressedConfig,
    ) -> Result<Compressed, ModelError> {
        let width = binder.config.width;
        let (head, queries, none) = (config.head_dim, config.query_width(), Presence::Never);
        let at = |part: &str| format!("blk.{layer}.{part}");
        let group_cols = queries / config.groups;
        let compressor = match config.compression {
            None => None,
            Some(Compression { ratio, .. }) => {
                let values = config.row_values();
                Some(Compressor {
                    values: binder.projection(&at("attn_compressor_kv"), values, width, none)?,
                    weights: binder.projection(&at("attn_compressor_gate"), values, width, none)?,
                    places: binder.floats(&at("attn_compressor_ape.weight"), &[values, ratio])?,
                    norm: binder.vector(&at("attn_compressor_norm.weight"), head)?,
                })
            }
        };
        let groups = at("attn_output_a.weight");
        Ok(Compressed {
            query_down: binder.projection(&at("attn_q_a"), config.query_rank, width, none)?,
            query_norm: binder.vector(&at("attn_q_a_norm.weight"), config.query_rank)?,
            query_up: binder.projection(&at("attn_q_b"), queries, config.query_rank, none)?,
            key: binder.projection(&at("attn_kv"), head, width, none)?,
            key_norm: binder.vector(&at("attn_kv_a_norm.weight"), head)?,
            sinks: binder.vector(&at("attn_sinks.weight"), config.heads)?,
            compressor,
            groups: binder.per_head(&groups, [config.groups, config.group_rank, group_cols])?,
            output: binder.projection(
                &at("attn_output_b"),
                width,
                config.groups * config.group_rank,
                none,
            )?,
        })
    }

    /// The matrices that the layer's normalised input meets.
    pub fn input_matrices(&self) -> [Tensor; 4] {
        let (values, weights) = match &self.compressor {
            Some(compressor) => (compressor.values, compressor.weights),
            None => (self.key, self.key),
        };
        [self.query_down, self.key, values, weights].map(|projection| projection.weight)
    }

    /// The matrices that meet what comes of that.
    pub fn later_matrices(&self) -> [Tensor; 3] {
        [self.query_up.weight, self.groups.first, self.output.weight]
    }
}

/// A lane's compressor at one position.
#[derive(Clone, Copy)]
struct Run {
    compression: Compression,
    head_dim: usize,
    position: usize,
}

impl Run {
    /// Values of a row before it is compressed.
    fn row_values(&self) -> usize {
        self.compression.sides() * self.head_dim
    }

    /// The first position of the run.
    fn start(&self) -> usize {
        self.position / self.compression.ratio * self.compression.ratio
    }

    fn is_whole(&self) -> bool {
        (self.position + 1).is_multiple_of(self.compression.ratio)
    }

    /// Whole runs with this position's.
    fn whole(&self) -> usize {
        (self.position + 1) / self.compression.ratio
    }

    /// Keeps this position's values and weights, `places` being added to these.
    fn keep(&self, kept: &mut [f32], values: &[f32], weights: &[f32], places: &[f32]) {
        let (len, span) = (self.row_values(), self.compression.span());
        let (kept_values, kept_weights) = kept.split_at_mut(span * len);
        let row = self.position % span * len;
        kept_values[row..row + len].copy_from_slice(values);
        let kept_weights = &mut kept_weights[row..row + len];
        kept_weights.copy_from_slice(weights);
        add(kept_weights, &places[self.position % self.compression.ratio * len..][..len]);
    }

    /// out = mean of the run's values, and of those of the run before it where that takes part, by the
    /// softmax of their weights, channel by channel.
    fn compress(&self, kept: &[f32], out: &mut [f32]) {
        let Compression { ratio, overlaps } = self.compression;
        let (len, span, start) = (self.row_values(), self.compression.span(), self.start());
        let (values, weights) = kept.split_at(span * len);
        // With overlap, the run before has the first half of a row and this one the second.
        let before = if overlaps && start > 0 { start - ratio..start } else { 0..0 };
        let own = if overlaps { self.head_dim } else { 0 };
        let places = before.map(|at| at % span * len);
        let places = places.chain((start..=self.position).map(|at| at % span * len + own));
        for (channel, out) in out.iter_mut().enumerate() {
            let places = places.clone().map(|place| place + channel);
            let largest = places.clone().map(|at| weights[at]).fold(f32::NEG_INFINITY, f32::max);
            let (mut sum, mut weight_sum) = (0.0, 0.0);
            for at in places {
                let weight = (weights[at] - largest).exp();
                weight_sum += weight;
                sum += weight * values[at];
            }
            *out = sum / weight_sum;
        }
    }
}

/// Turns the end of each head by the angles of a position.
fn turn_ends(heads: &mut [f32], config: &CompressedConfig, angles: &[f32], style: RopeStyle) {
    for head in heads.chunks_exact_mut(config.head_dim) {
        rope_heads(&mut head[config.head_dim - config.rotated..], config.rotated, angles, style);
    }
}

/// Turns it back: as forth, between changes of the sign of every second value.
fn turn_ends_back(heads: &mut [f32], config: &CompressedConfig, angles: &[f32]) {
    let flip = |heads: &mut [f32]| {
        for head in heads.chunks_exact_mut(config.head_dim) {
            let end = &mut head[config.head_dim - config.rotated..];
            end.iter_mut().skip(1).step_by(2).for_each(|x| *x = -*x);
        }
    };
    flip(heads);
    turn_ends(heads, config, angles, RopeStyle::Normal);
    flip(heads);
}

/// What the query of one row meets.
struct Seen<'a> {
    config: &'a CompressedConfig,
    /// Keys of the window, in no order.
    ring: &'a [f32],
    entries: &'a Entries<'a>,
    /// Compressed keys.
    count: usize,
}

impl Seen<'_> {
    fn keys(&self) -> impl Iterator<Item = &[f32]> {
        let entries = (0..self.count).map(|at| self.entries.entry(at));
        self.ring.chunks_exact(self.config.head_dim).chain(entries)
    }

    /// out = attention of each head of the query
    fn attend(&self, pool: &Pool, query: &[f32], sinks: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let CompressedConfig { heads, head_dim, .. } = *self.config;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let len = self.ring.len() / head_dim + self.count + 1;
        let scores = &mut scores[..heads * len];
        pool.rows(scores, len, |head, scores| {
            let query = &query[head * head_dim..(head + 1) * head_dim];
            let keys = self.keys().map(|key| dot(query, key) * scale);
            let all = keys.chain([sinks[head]]);
            scores.iter_mut().zip(all).for_each(|(score, value)| *score = value);
            softmax(scores);
        });
        let scores = &*scores;
        pool.rows(out, head_dim, |head, out| {
            out.fill(0.0);
            let scores = &scores[head * len..(head + 1) * len];
            self.keys().zip(scores).for_each(|(key, &score)| add_scaled(out, key, score));
        });
    }
}

/// In several sums, which the compiler keeps in one register.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0; LANES];
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.0.iter().zip(b.0) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a.1.iter().zip(b.1).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

impl Pass<'_> {
    /// normed = output(attention(query, window and compressed keys)) of the normalised rows in `input`
    pub(super) fn compressed_attention(
        &mut self,
        index: usize,
        config: &CompressedConfig,
        weights: &Compressed,
        rows: &[Row],
    ) {
        let count = rows.len();
        self.compressed_projections(config, weights, count);
        let Pass { config: model, linear, scratch, memory, rotations, .. } = self;
        let Scratch { recurrent, attention: scores, .. } = &mut **scratch;
        let [query, _, key, values, gates, attended, _, _, made] = parts(recurrent, count, config.widths());
        let (queries, head_dim, row_values) = (config.query_width(), config.head_dim, config.row_values());
        for (at, &Row { lane, position, .. }) in rows.iter().enumerate() {
            let (state, mut entries) = memory.state_and_entries(index, lane);
            let (ring, kept) = state.split_at_mut(config.window * head_dim);
            let slot = position % config.window * head_dim;
            ring[slot..slot + head_dim].copy_from_slice(&key[at * head_dim..(at + 1) * head_dim]);
            let mut whole = 0;
            if let (Some(compression), Some(compressor)) = (config.compression, &weights.compressor) {
                let run = Run { compression, head_dim, position };
                let row = at * row_values..(at + 1) * row_values;
                run.keep(kept, &values[row.clone()], &gates[row], linear.vector(compressor.places));
                whole = run.whole();
                if run.is_whole() {
                    let (entry, angles) = made[..head_dim + config.rotated].split_at_mut(head_dim);
                    run.compress(kept, entry);
                    rms_norm_in_place(entry, linear.vector(compressor.norm), model.norm_epsilon);
                    rotations[config.rope].angles(run.start(), angles);
                    turn_ends(entry, config, angles, model.rope_style);
                    entries.entry_mut(whole - 1).copy_from_slice(entry);
                }
            }
            let ring = &ring[..config.window.min(position + 1) * head_dim];
            let seen = Seen { config, ring, entries: &entries, count: whole };
            let out = &mut attended[at * queries..(at + 1) * queries];
            let query = &query[at * queries..(at + 1) * queries];
            seen.attend(linear.pool, query, linear.vector(weights.sinks), scores, out);
        }
        self.compressed_output(config, weights, count);
    }

    /// Queries, keys and what is to be compressed of the rows in `input`.
    fn compressed_projections(&mut self, config: &CompressedConfig, weights: &Compressed, count: usize) {
        let Pass { config: model, linear, scratch, .. } = self;
        let Scratch { recurrent, input, angles, .. } = &mut **scratch;
        let [query, low_rank, key, values, gates, ..] = parts(recurrent, count, config.widths());
        linear.project(input, count, [(weights.query_down, &mut *low_rank), (weights.key, &mut *key)]);
        if let Some(compressor) = &weights.compressor {
            linear.project(input, count, [(compressor.values, values), (compressor.weights, gates)]);
        }
        let (epsilon, style) = (model.norm_epsilon, model.rope_style);
        let norm = linear.vector(weights.query_norm);
        let (rank, kinds) = (config.query_rank, [weights.query_up.weight.kind]);
        linear.fill(input, low_rank, [count, rank], &kinds, |_, row| rms_norm_in_place(row, norm, epsilon));
        linear.project(input, count, [(weights.query_up, &mut *query)]);
        let angles = |row: usize| &angles[config.rope][row * config.rotated..(row + 1) * config.rotated];
        linear.pool.rows(query, config.query_width(), |row, heads| {
            rms_scale_heads(heads, config.head_dim, epsilon);
            turn_ends(heads, config, angles(row), style);
        });
        let norm = linear.vector(weights.key_norm);
        linear.pool.rows(key, config.head_dim, |row, key| {
            rms_norm_in_place(key, norm, epsilon);
            turn_ends(key, config, angles(row), style);
        });
    }

    /// normed = output(group matrices(attended, turned back))
    fn compressed_output(&mut self, config: &CompressedConfig, weights: &Compressed, count: usize) {
        let Pass { linear, scratch, .. } = self;
        let Scratch { recurrent, input, angles, normed, .. } = &mut **scratch;
        let [query, _, _, _, _, attended, by_group, by_row, _] = parts(recurrent, count, config.widths());
        let (queries, rank) = (config.query_width(), config.group_rank);
        linear.pool.rows(attended, queries, |row, heads| {
            let angles = &angles[config.rope][row * config.rotated..(row + 1) * config.rotated];
            turn_ends_back(heads, config, angles);
        });
        let attended = &*attended;
        let cols = queries / config.groups;
        for (group, out) in by_group.chunks_exact_mut(count * rank).enumerate() {
            let matrix = weights.groups.head(group);
            linear.fill(input, query, [count, cols], &[matrix.kind], |row, out| {
                out.copy_from_slice(&attended[row * queries + group * cols..][..cols]);
            });
            linear.project(input, count, [(matrix.into(), out)]);
        }
        let by_group = &*by_group;
        let kinds = [weights.output.weight.kind];
        linear.fill(input, by_row, [count, config.groups * rank], &kinds, |row, out| {
            for (group, out) in out.chunks_exact_mut(rank).enumerate() {
                out.copy_from_slice(&by_group[(group * count + row) * rank..][..rank]);
            }
        });
        linear.project(input, count, [(weights.output, normed)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: usize = 2;

    fn run(overlaps: bool, position: usize) -> Run {
        Run { compression: Compression { ratio: 2, overlaps }, head_dim: HEAD, position }
    }

    /// Keeps rows whose values are their position, with equal weights, and compresses the last run.
    fn compressed(overlaps: bool, positions: usize) -> Vec<f32> {
        let last = run(overlaps, positions - 1);
        let mut kept = vec![0.0; 2 * last.compression.span() * last.row_values()];
        let zeros = vec![0.0; 2 * last.row_values()];
        for position in 0..positions {
            let values: Vec<f32> =
                (0..last.row_values()).map(|at| position as f32 + 100.0 * (at / HEAD) as f32).collect();
            run(overlaps, position).keep(&mut kept, &values, &zeros[..values.len()], &zeros);
        }
        let mut out = vec![0.0; HEAD];
        last.compress(&kept, &mut out);
        out
    }

    #[test]
    fn equal_weights_make_the_mean_of_a_run() {
        assert_eq!(compressed(false, 2), [0.5; HEAD]);
        assert_eq!(compressed(false, 6), [4.5; HEAD]);
    }

    #[test]
    fn with_overlap_the_run_before_takes_part_by_its_first_half() {
        assert_eq!(compressed(true, 2), [100.5; HEAD]);
        assert_eq!(compressed(true, 6), [(2.0 + 3.0 + 104.0 + 105.0) / 4.0; HEAD]);
    }

    #[test]
    fn what_was_turned_is_turned_back() {
        let config = CompressedConfig {
            heads: 2,
            head_dim: 6,
            rotated: 4,
            rope: 0,
            query_rank: 1,
            window: 1,
            compression: None,
            groups: 1,
            group_rank: 1,
        };
        let before: Vec<f32> = (0..12).map(|at| at as f32).collect();
        let mut heads = before.clone();
        let (sin, cos) = 0.7_f32.sin_cos();
        let angles = [cos, 0.0, sin, 1.0];
        turn_ends(&mut heads, &config, &angles, RopeStyle::Normal);
        assert_ne!(heads, before);
        turn_ends_back(&mut heads, &config, &angles);
        for (found, expected) in heads.iter().zip(&before) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
    }
}
