//! Attention of new rows over stored keys and values. Owns the order of all sums and the spreading of work;
//! knows no cache policy and no family.
//!
//! # The rule
//!
//! A row's result depends on nothing but the row: not on other rows, threads, the cutting of a prompt or the
//! instruction set. Positions before the window are skipped, not masked.
//!
//! * A score is `sum of (q[d] * scale) * k[d]`, from left to right by fused multiply-add from zero; stored
//!   elements are widened to f32 exactly, for Q8_0 as `code as f32 * scale`.
//! * Positions are taken in blocks of [`KV_BLOCK`] that start at multiples of it, from low to high. The
//!   largest score so far is updated once for each block; sums relative to an older one are multiplied by
//!   `exp(old - new)`, then weights `exp(score - largest)` are added: to the total in 16 lanes, position `p`
//!   in lane `p % 16`, and times the values to the sums, position after position by fused multiply-add.
//! * That begins anew in each segment of [`SEGMENT`] positions, whose results are merged from low to high:
//!   `sum = fma(next, b, sum * a)`, `a` and `b` being `exp` of the difference of either's largest score to
//!   the larger one. So threads can share the past of a single row.
//! * A sink is merged into the total alone, as a last segment of one position without a value.
//! * Values at the head of their keys ([`Values::HeadOfKey`]) give the bits of the same values stored alone.
//!
//! A tile of work is one head of keys and values with some rows of one sequence, in all segments; where
//! there are too few of those for all threads, with one segment.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod latent;
#[cfg(target_arch = "x86_64")]
mod latent_lanes;
mod latent_steps;
#[cfg(target_arch = "x86_64")]
mod registers;
mod steps;
mod tile;

use std::ops::Range;

use crate::isa::{Isa, per_isa};
use crate::kv::{KV_BLOCK, KvView, Values};
use crate::math;
use crate::pool::{Pool, Rows};
use latent::Latent;
use steps::{Portable, Steps};
use tile::{Form, Scratch, Tile};

/// Positions whose sums stand alone before they are merged.
const SEGMENT: usize = 512;
/// Rows of a sequence that read its past together where threads share it; each takes its own scratch.
const SHARED_ROWS: usize = 4;
/// Multiply-adds below which waking helpers costs more than it saves.
const WORTH_SHARING: usize = 256 * 1024;
/// Tiles for each thread, so that none waits long for another at the end.
const TILES_PER_THREAD: usize = 8;

/// What is the same for all rows of a layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    pub heads: usize,
    /// Divides `heads`: that many query heads in a row share one head of keys and values.
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    /// [`Values::HeadOfKey`] is latent attention in its absorbed form: `value_dim` is at most `head_dim`.
    pub values: Values,
    /// Factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A row at position p sees positions `(p - window, p]`.
    pub window: Option<usize>,
    /// Positions are cut into runs of so many, and a row sees those of its own run (Llama 4).
    pub chunk: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

impl AttentionShape {
    fn visible(&self, position: usize) -> Range<usize> {
        let window = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let chunk = self.chunk.map_or(0, |chunk| position / chunk * chunk);
        window.max(chunk)..position + 1
    }

    /// Floats of a segment's result for one query: sums of values, largest score, sum of weights.
    fn result_floats(&self) -> usize {
        self.value_dim + 2
    }
}

/// The segments that hold some positions.
fn segments(positions: Range<usize>) -> Range<usize> {
    positions.start / SEGMENT..positions.end.div_ceil(SEGMENT)
}

/// One row: where it stands and where its past lies.
#[derive(Clone, Copy)]
pub struct AttentionRow<'a> {
    /// Its own position, whose key and value are stored already.
    pub position: usize,
    /// Block number of positions `KV_BLOCK * i ..`; those wholly before the window are not read.
    pub blocks: &'a [u32],
}

/// Floats of scratch that [`attention`] needs on a pool of `threads` for positions below `context`: a fixed
/// amount for each thread, and results of segments where threads share a row.
pub fn attention_scratch_floats(shape: &AttentionShape, threads: usize, context: usize) -> usize {
    let shared = if threads > 1 { SHARED_ROWS * shape.heads * context.div_ceil(SEGMENT) } else { 0 };
    shape.worker_floats() * threads + shared * shape.result_floats()
}

/// `out[row][head][value_dim] = softmax(scale * q . keys) . values` for `q[row][head][head_dim]`; `rows`
/// tells of each of the `count` rows. `sinks[head]` are scores of one more position, which takes its share of
/// the softmax but has no value (ggml's `ggml_soft_max_add_sinks`; gpt-oss): neither scaled nor capped.
#[expect(clippy::too_many_arguments, reason = "a kernel's inputs, workspace and output")]
pub fn attention<'a>(
    pool: &Pool,
    shape: &AttentionShape,
    sinks: Option<&[f32]>,
    q: &[f32],
    count: usize,
    rows: &(dyn Fn(usize) -> AttentionRow<'a> + Sync),
    kv: &KvView<'_>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let AttentionShape { heads, kv_heads, head_dim, value_dim, .. } = *shape;
    assert!(kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads on {kv_heads}");
    assert!(head_dim > 0 && value_dim > 0);
    let layout = &kv.layout;
    assert!(
        [layout.kv_heads, layout.head_dim, layout.value_dim] == [kv_heads, head_dim, value_dim]
            && layout.values == shape.values
            && (shape.values == Values::Own || value_dim <= head_dim),
        "{layout:?} for {shape:?}"
    );
    assert!(shape.window != Some(0) && shape.chunk != Some(0), "a window of no positions");
    assert!(sinks.is_none_or(|sinks| sinks.len() == heads), "{} sinks", sinks.map_or(0, <[f32]>::len));
    assert!(q.len() == count * heads * head_dim, "{} floats of queries", q.len());
    assert!(out.len() == count * heads * value_dim, "{} floats of output", out.len());
    let mut work = 0;
    let mut segments_max = 0;
    for row in (0..count).map(rows) {
        assert!(row.blocks.len() > row.position / KV_BLOCK, "position {} has no block", row.position);
        let visible = shape.visible(row.position);
        work += visible.len() * heads * (head_dim + value_dim);
        segments_max = segments(visible).len().max(segments_max);
    }
    // From here on a stored head may stand for several, each with some of its query heads.
    let parts = match shape.values {
        Values::HeadOfKey if work >= WORTH_SHARING => {
            latent::parts(shape, count * segments_max, pool.threads())
        }
        _ => 1,
    };
    let shape = &AttentionShape { kv_heads: kv_heads * parts, ..*shape };
    let kv_heads = shape.kv_heads;
    let worker_floats = shape.worker_floats();
    assert!(scratch.len() >= worker_floats * pool.threads(), "{} floats of scratch", scratch.len());
    let (workers, shared) = scratch.split_at_mut(worker_floats * pool.threads());
    let call = Call { shape, parts, sinks, q, rows, kv, workers: Rows::new(workers, worker_floats) };
    let wanted = pool.threads() * TILES_PER_THREAD;
    let scarce = count * kv_heads < wanted && segments_max > 1;
    if pool.threads() > 1 && work >= WORTH_SHARING && scarce {
        let mut rest = 0..count;
        while !rest.is_empty() {
            let run = call.run(rest.start..rest.end.min(rest.start + SHARED_ROWS.min(shape.tile_rows())));
            rest.start = run.end;
            call.share(pool, run, shared, out);
        }
        return;
    }
    let tile_rows = (count * kv_heads / wanted).clamp(1, shape.tile_rows());
    let tiles = count.div_ceil(tile_rows);
    let piece = if work < WORTH_SHARING { (tiles * kv_heads).max(1) } else { 1 };
    let outs = Rows::new(out, heads / kv_heads * value_dim);
    pool.weighed_ranges(tiles * kv_heads, piece, work.max(1).ilog2() as usize, |worker, items| {
        for item in items {
            // Heads outside, so that neighbouring items read the same keys and values.
            let (kv_head, first) = (item / tiles, item % tiles * tile_rows);
            let mut rest = first..count.min(first + tile_rows);
            while !rest.is_empty() {
                let rows = call.run(rest.clone());
                rest.start = rows.end;
                call.attend(pool.isa(), worker, Item { kv_head, rows, goal: Goal::Whole(&outs) });
            }
        }
    });
}

/// What a call of [`attention`] was given.
struct Call<'a, 'r> {
    /// With `parts` heads of keys and values for each that is stored.
    shape: &'a AttentionShape,
    parts: usize,
    /// `[head]`.
    sinks: Option<&'a [f32]>,
    /// `[row][head][head_dim]`.
    q: &'a [f32],
    rows: &'a (dyn Fn(usize) -> AttentionRow<'r> + Sync),
    kv: &'a KvView<'a>,
    /// Scratch of each worker.
    workers: Rows<'a, f32>,
}

/// One head of keys and values with some rows of one sequence.
struct Item<'a> {
    kv_head: usize,
    rows: Range<usize>,
    goal: Goal<'a>,
}

/// What becomes of an item.
enum Goal<'a> {
    /// All segments, merged into the output: `[row * kv_heads + kv_head]`, each `[group][value_dim]`.
    Whole(&'a Rows<'a, f32>),
    /// The result of one segment, which is number `segment - first` of `segments`, to be merged later:
    /// `[((row of the item) * heads + head) * segments + number]`, each [`AttentionShape::result_floats`].
    Part { segment: usize, first: usize, segments: usize, results: &'a Rows<'a, f32> },
}

/// Most rows of a tile.
const ROWS_MAX: usize = 64;

impl Call<'_, '_> {
    /// The first of `rows` that are of one sequence.
    fn run(&self, rows: Range<usize>) -> Range<usize> {
        let blocks = (self.rows)(rows.start).blocks;
        let same = rows.clone().take_while(|row| std::ptr::eq((self.rows)(*row).blocks, blocks)).count();
        rows.start..rows.start + same
    }

    /// Computes some rows of one sequence, all threads sharing its past.
    fn share(&self, pool: &Pool, rows: Range<usize>, results: &mut [f32], out: &mut [f32]) {
        let AttentionShape { heads, kv_heads, value_dim, .. } = *self.shape;
        let visible = |row: usize| self.shape.visible((self.rows)(row).position);
        let start = rows.clone().map(|row| visible(row).start).min().unwrap_or(0);
        let end = rows.clone().map(|row| visible(row).end).max().unwrap_or(0);
        let all = segments(start..end);
        let result_floats = self.shape.result_floats();
        let len = rows.len() * heads * all.len() * result_floats;
        assert!(results.len() >= len, "{} floats of shared scratch", results.len());
        let results = Rows::new(&mut results[..len], result_floats);
        let weight = (end - start).ilog2() as usize;
        pool.weighed_ranges(kv_heads * all.len(), 1, weight, |worker, items| {
            for item in items {
                let (kv_head, segment) = (item / all.len(), all.start + item % all.len());
                let goal = Goal::Part { segment, first: all.start, segments: all.len(), results: &results };
                self.attend(pool.isa(), worker, Item { kv_head, rows: rows.clone(), goal });
            }
        });
        let outs = &mut out[rows.start * heads * value_dim..rows.end * heads * value_dim];
        pool.rows(outs, value_dim, |query, out| {
            let mut state = [0.0; 2];
            let mine = segments(visible(rows.start + query / heads));
            for segment in mine.clone() {
                // SAFETY: the workers have left; results are only read, each query's by one worker.
                let result = unsafe { results.row(query * all.len() + segment - all.start) };
                let (next, next_state) = result.split_at(value_dim);
                if segment == mine.start {
                    out.copy_from_slice(next);
                    state.copy_from_slice(next_state);
                } else {
                    merge(pool.isa(), out, &mut state, next, [next_state[0], next_state[1]]);
                }
            }
            self.finish(query % heads, out, state);
        });
    }

    /// Makes sums of weighted values means of values: divides by the sum of weights, the sink's among them.
    #[inline(always)]
    fn finish(&self, head: usize, sums: &mut [f32], [largest, total]: [f32; 2]) {
        let factor = match self.sinks {
            Some(sinks) => {
                let max = if sinks[head] > largest { sinks[head] } else { largest };
                let (a, b) = (math::exp(largest - max), math::exp(sinks[head] - max));
                a / total.mul_add(a, b)
            }
            None => 1.0 / total,
        };
        sums.iter_mut().for_each(|sum| *sum *= factor);
    }

    fn attend(&self, isa: Isa, worker: usize, item: Item<'_>) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn wide(call: &Call<'_, '_>, worker: usize, item: Item<'_>, token: crate::isa::Avx2) {
            call.attend_with(worker, item, &token);
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn widest(call: &Call<'_, '_>, worker: usize, item: Item<'_>, token: crate::isa::Avx512) {
            call.attend_with(worker, item, &token);
        }
        match isa {
            Isa::Scalar => self.attend_with(worker, item, &Portable),
            // SAFETY: the token proves that the CPU has the features of `wide`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => unsafe { wide(self, worker, item, token) },
            // SAFETY: the token proves that the CPU has the features of `widest`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => unsafe { widest(self, worker, item, token) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::NeonI8mm(_) => self.attend_with(worker, item, &Portable),
        }
    }

    #[inline(always)]
    fn attend_with<S: Steps>(&self, worker: usize, item: Item<'_>, steps: &S) {
        match self.shape.values {
            Values::Own => self.attend_as::<S, Scratch>(worker, item, steps),
            Values::HeadOfKey => self.attend_as::<S, Latent>(worker, item, steps),
        }
    }

    #[inline(always)]
    fn attend_as<'s, S: Steps, F: Form<'s>>(&'s self, worker: usize, item: Item<'_>, steps: &S) {
        let Item { kv_head, rows, goal } = item;
        let AttentionShape { heads, kv_heads, head_dim, value_dim, .. } = *self.shape;
        let group = heads / kv_heads;
        let mut visible = [const { 0..0 }; ROWS_MAX];
        for (visible, row) in visible.iter_mut().zip(rows.clone()) {
            *visible = self.shape.visible((self.rows)(row).position);
        }
        let visible = &visible[..rows.len()];
        let blocks = (self.rows)(rows.start).blocks;
        let stored = kv_head / self.parts;
        let tile = Tile { shape: self.shape, kv: self.kv, kv_head: stored, blocks, visible };
        // SAFETY: only this worker uses its scratch.
        let mut form = F::new(self.shape, unsafe { self.workers.row(worker) });
        let head = |row: usize, head: usize| (rows.start + row) * heads + kv_head * group + head;
        form.load(&tile, |row, of_group| &self.q[head(row, of_group) * head_dim..][..head_dim], steps);
        let segments = match goal {
            Goal::Whole(_) => segments(tile.span()),
            Goal::Part { segment, .. } => segment..segment + 1,
        };
        for segment in segments {
            form.segment(&tile, segment, steps);
            for query in 0..tile.queries() {
                let (row, of_group) = (query / group, query % group);
                let mine = self::segments(visible[row].clone());
                if !mine.contains(&segment) {
                    continue;
                }
                let mut merged = *form.merged(&tile, query);
                let (sums, state) = form.result(&tile, query);
                match &goal {
                    Goal::Part { first, segments, results, .. } => {
                        let query = row * heads + kv_head * group + of_group;
                        // SAFETY: each segment of each query is one item's alone.
                        let result = unsafe { results.row(query * segments + segment - first) };
                        result[..value_dim].copy_from_slice(sums);
                        result[value_dim..].copy_from_slice(&state);
                    }
                    Goal::Whole(outs) => {
                        // SAFETY: rows of a head of keys and values are one item's alone.
                        let out = unsafe { outs.row((rows.start + row) * kv_heads + kv_head) };
                        let out = &mut out[of_group * value_dim..][..value_dim];
                        if segment == mine.start {
                            out.copy_from_slice(sums);
                            merged = state;
                        } else {
                            merge_body(out, &mut merged, sums, state);
                        }
                        if segment + 1 == mine.end {
                            self.finish(kv_head * group + of_group, out, merged);
                        }
                        *form.merged(&tile, query) = merged;
                    }
                }
            }
        }
    }
}

/// Adds the next segment's sums, relative to its largest score and with its sum of weights (`next_state`).
#[inline(always)]
fn merge_body(sums: &mut [f32], state: &mut [f32; 2], next: &[f32], next_state: [f32; 2]) {
    let max = if next_state[0] > state[0] { next_state[0] } else { state[0] };
    let (a, b) = (math::exp(state[0] - max), math::exp(next_state[0] - max));
    for (sum, next) in sums.iter_mut().zip(next) {
        *sum = next.mul_add(b, *sum * a);
    }
    *state = [max, next_state[1].mul_add(b, state[1] * a)];
}

per_isa!(
    fn merge(sums: &mut [f32], state: &mut [f32; 2], next: &[f32], next_state: [f32; 2]) = merge_body
);
