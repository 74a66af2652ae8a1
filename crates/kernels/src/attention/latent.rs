//! The form for values that are the head of their key (multi-head latent attention in its absorbed form: one
//! head of keys, many query heads). Owns the online softmax over lanes of heads and its scratch; knows no
//! threads. The sums and their order are those of [`super::tile`].
//!
//! A block is widened once for all queries of a tile. Lanes are the heads of a row, 16 at a time, so each
//! element of the block is used as it lies, in scores and in sums of values: nothing is turned or stored
//! twice. What a row sees is then one range for all lanes.

use std::ops::Range;

use super::steps::{LANES, Steps, Stored};
use super::tile::{ALIGNMENT, Form, Tile, aligned};
use super::{AttentionShape, SEGMENT};
use crate::dot::add_lanes;
use crate::kv::{KV_BLOCK, KvFormat};
use crate::math;

/// Lanes (rows x heads, padded) that share what is widened of a block, unless a row alone has more.
const TILE_LANES: usize = 64;

/// Sets of [`LANES`] heads of a row.
fn sets(shape: &AttentionShape) -> usize {
    shape.group().div_ceil(LANES)
}

/// Most rows of a tile.
pub fn tile_rows(shape: &AttentionShape) -> usize {
    (TILE_LANES / (sets(shape) * LANES)).max(1)
}

/// Floats that one worker needs, also for a part of the heads: see [`Latent`].
pub fn worker_floats(shape: &AttentionShape) -> usize {
    let lane = shape.head_dim + 2 * shape.value_dim + KV_BLOCK + LANES + 2 + 2;
    let lanes = TILE_LANES.max(sets(shape) * LANES);
    2 * ALIGNMENT + KV_BLOCK * shape.head_dim + lanes * lane
}

/// Into how many parts the query heads of a stored head are cut, so that all `threads` have work where there
/// are few rows and segments of the past (`pieces`). Each part widens the past for itself, so no more than
/// that.
pub fn parts(shape: &AttentionShape, pieces: usize, threads: usize) -> usize {
    let whole = shape.group().is_multiple_of(LANES);
    let fits = |parts: &usize| whole && sets(shape).is_multiple_of(*parts);
    let enough = |parts: &usize| threads == 1 || pieces * shape.kv_heads * parts >= 2 * threads;
    let all = || (1..=sets(shape)).filter(fits);
    all().find(enough).or(all().next_back()).unwrap_or(1)
}

/// What one worker writes between the lines. A set is [`LANES`] heads of a row, in the order `[row][set]`;
/// lanes without a head hold zeros.
pub struct Latent<'a> {
    /// A block's keys in F32, as [`Stored`].
    keys: &'a mut [f32],
    /// Scaled queries: `[set][head_dim]`.
    queries: &'a mut [[f32; LANES]],
    /// Sums of values in the present segment: `[set][value_dim]`.
    sums: &'a mut [[f32; LANES]],
    /// The same in the end: `[set][lane][value_dim]`.
    results: &'a mut [f32],
    /// Scores, then weights, of the present block: `[set][position]`.
    weights: &'a mut [[f32; LANES]],
    /// Sums of weights in the present segment: `[set][position % LANES]`.
    totals: &'a mut [[f32; LANES]],
    /// The largest score in the present segment: `[set]`.
    maxima: &'a mut [[f32; LANES]],
    /// Factor on what was summed before the present block: `[set]`.
    fades: &'a mut [[f32; LANES]],
    /// Largest score and sum of weights of the segments that are merged in the output: `[set * LANES]`.
    merged: &'a mut [[f32; 2]],
}

impl<'a> Form<'a> for Latent<'a> {
    #[inline(always)]
    fn new(shape: &AttentionShape, floats: &'a mut [f32]) -> Latent<'a> {
        fn lanes(floats: &mut [f32]) -> &mut [[f32; LANES]] {
            floats.as_chunks_mut().0
        }
        let count = tile_rows(shape) * sets(shape) * LANES;
        let (keys, floats) = aligned(floats).split_at_mut(KV_BLOCK * shape.head_dim);
        let (queries, floats) = floats.split_at_mut(count * shape.head_dim);
        let (sums, floats) = floats.split_at_mut(count * shape.value_dim);
        let (results, floats) = floats.split_at_mut(count * shape.value_dim);
        let (weights, floats) = floats.split_at_mut(count * KV_BLOCK);
        let (totals, floats) = floats.split_at_mut(count * LANES);
        let (maxima, floats) = floats.split_at_mut(count);
        let (fades, floats) = floats.split_at_mut(count);
        Latent {
            keys,
            queries: lanes(queries),
            sums: lanes(sums),
            results,
            weights: lanes(weights),
            totals: lanes(totals),
            maxima: lanes(maxima),
            fades: lanes(fades),
            merged: &mut floats.as_chunks_mut().0[..count],
        }
    }

    #[inline(always)]
    fn load<'q, S: Steps>(&mut self, tile: &Tile<'_>, q: impl Fn(usize, usize) -> &'q [f32], steps: &S) {
        let AttentionShape { head_dim, scale, .. } = *tile.shape;
        let (group, sets) = (tile.shape.group(), sets(tile.shape));
        for (set, out) in self.queries.chunks_exact_mut(head_dim).take(tile.visible.len() * sets).enumerate()
        {
            let (row, first) = (set / sets, set % sets * LANES);
            let heads: [&[f32]; LANES] =
                std::array::from_fn(|lane| if first + lane < group { q(row, first + lane) } else { &[] });
            steps.heads_to_lanes(&heads, out);
            out.as_flattened_mut().iter_mut().for_each(|q| *q *= scale);
        }
    }

    #[inline(always)]
    fn segment<S: Steps>(&mut self, tile: &Tile<'_>, segment: usize, steps: &S) {
        let AttentionShape { value_dim, .. } = *tile.shape;
        let count = tile.visible.len() * sets(tile.shape);
        self.sums[..count * value_dim].fill([0.0; LANES]);
        self.totals[..count * LANES].fill([0.0; LANES]);
        self.maxima[..count].fill([f32::NEG_INFINITY; LANES]);
        let span = tile.span();
        let first = span.start.max(segment * SEGMENT) / KV_BLOCK;
        let end = span.end.min((segment + 1) * SEGMENT).div_ceil(KV_BLOCK);
        for block in first..end {
            self.block(tile, block, steps);
        }
        let sums = self.sums.chunks_exact(value_dim).take(count);
        for (sums, results) in sums.zip(self.results.chunks_exact_mut(LANES * value_dim)) {
            steps.lanes_to_heads(sums, results);
        }
    }

    #[inline(always)]
    fn result(&self, tile: &Tile<'_>, query: usize) -> (&[f32], [f32; 2]) {
        let (value_dim, place) = (tile.shape.value_dim, place(tile.shape, query));
        let (set, lane) = (place / LANES, place % LANES);
        let totals = std::array::from_fn(|i| self.totals[set * LANES + i][lane]);
        (&self.results[place * value_dim..][..value_dim], [self.maxima[set][lane], add_lanes(totals)])
    }

    #[inline(always)]
    fn merged(&mut self, tile: &Tile<'_>, query: usize) -> &mut [f32; 2] {
        &mut self.merged[place(tile.shape, query)]
    }
}

/// The lane, counted through all sets, of a query `row * group + head of the group`.
#[inline(always)]
fn place(shape: &AttentionShape, query: usize) -> usize {
    query / shape.group() * sets(shape) * LANES + query % shape.group()
}

impl Latent<'_> {
    /// Adds the positions of one block for all sets.
    #[inline(always)]
    fn block<S: Steps>(&mut self, tile: &Tile<'_>, block: usize, steps: &S) {
        let AttentionShape { head_dim, value_dim, .. } = *tile.shape;
        let sets = sets(tile.shape);
        let stored = tile.keys(block);
        let keys: &[f32] = match stored.format {
            KvFormat::F32 if cfg!(target_endian = "little") => match bytemuck::try_cast_slice(stored.bytes) {
                Ok(keys) => keys,
                Err(_) => widen(self.keys, stored, steps),
            },
            _ => widen(self.keys, stored, steps),
        };
        let ahead = tile.keys(tile.blocks.len().min(block + 2) - 1).bytes;
        let ahead = &mut ahead.chunks(ahead.len().div_ceil(tile.visible.len() * sets));
        for (set, queries) in self.queries.chunks_exact(head_dim).take(tile.visible.len() * sets).enumerate()
        {
            let next = ahead.next().unwrap_or_default();
            let seen = within(&tile.visible[set / sets], block);
            if seen.is_empty() {
                continue;
            }
            let weights: &mut [[f32; LANES]; KV_BLOCK] = (&mut self.weights[set * KV_BLOCK..][..KV_BLOCK])
                .try_into()
                .expect("a set has weights for a block");
            steps.score_lanes(keys, queries, seen.clone(), next, weights);
            if let Some(cap) = tile.shape.soft_cap {
                let scores = weights[seen.clone()].as_flattened_mut();
                scores.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
            }
            let (maxima, fades) = (&mut self.maxima[set], &mut self.fades[set]);
            weigh(weights, seen.clone(), maxima, fades, &mut self.totals[set * LANES..][..LANES]);
            let sums = &mut self.sums[set * value_dim..][..value_dim];
            steps.add_lanes(keys, head_dim, weights, fades, seen, sums);
        }
    }
}

/// The positions of a block that are in `visible`.
#[inline(always)]
fn within(visible: &Range<usize>, block: usize) -> Range<usize> {
    let start = block * KV_BLOCK;
    let within = |position: usize| position.clamp(start, start + KV_BLOCK) - start;
    within(visible.start)..within(visible.end)
}

#[inline(always)]
fn widen<'k, S: Steps>(out: &'k mut [f32], stored: Stored<'_>, steps: &S) -> &'k [f32] {
    steps.widen_keys(stored, out);
    out
}

/// Turns scores of a block into weights relative to the largest so far, lane by lane, and adds them to
/// their sums, of which `fades` remains.
#[inline(always)]
fn weigh(
    scores: &mut [[f32; LANES]; KV_BLOCK],
    seen: Range<usize>,
    maxima: &mut [f32; LANES],
    fades: &mut [f32; LANES],
    totals: &mut [[f32; LANES]],
) {
    let mut largest = *maxima;
    for scores in &scores[seen.clone()] {
        for lane in 0..LANES {
            largest[lane] = if scores[lane] > largest[lane] { scores[lane] } else { largest[lane] };
        }
    }
    for lane in 0..LANES {
        fades[lane] = math::exp(maxima[lane] - largest[lane]);
    }
    *maxima = largest;
    for totals in totals.iter_mut() {
        for lane in 0..LANES {
            totals[lane] *= fades[lane];
        }
    }
    for position in seen {
        let (scores, totals) = (&mut scores[position], &mut totals[position % LANES]);
        for lane in 0..LANES {
            scores[lane] = math::exp(scores[lane] - largest[lane]);
            totals[lane] += scores[lane];
        }
    }
}
