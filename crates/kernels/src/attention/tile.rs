//! One head of keys and values and the queries of a few rows of one sequence: scores, softmax and sums of
//! values, block by block. Owns the online softmax and the scratch of a worker; knows no threads.

use std::ops::Range;

use super::steps::{LANES, Steps, Stored};
use super::{AttentionShape, SEGMENT, latent};
use crate::dot::add_lanes;
use crate::kv::{KV_BLOCK, KvFormat, KvView, Values};
use crate::math;

/// Queries (rows x heads of the group) that share what is read of a block, unless the group alone has more.
const TILE_QUERIES: usize = 64;
/// Queries from which widening a block once beats widening it for each few of them.
const WORTH_WIDENING: usize = 12;
/// More queries than any instruction set takes together.
const TOGETHER_MAX: usize = 8;
/// Floats in a cache line: what is read in registers starts at whole lines, because loads across two cost
/// double.
pub const ALIGNMENT: usize = 16;

/// How a tile is computed: what is written between the lines, and the softmax over it.
pub trait Form<'a>: Sized {
    /// Cuts the scratch of a worker into its parts.
    fn new(shape: &AttentionShape, floats: &'a mut [f32]) -> Self;

    /// Scales the queries into their place: `q(row, head of the group)` is a head.
    fn load<'q, S: Steps>(&mut self, tile: &Tile<'_>, q: impl Fn(usize, usize) -> &'q [f32], steps: &S);

    /// Computes the positions of one segment from nothing.
    fn segment<S: Steps>(&mut self, tile: &Tile<'_>, segment: usize, steps: &S);

    /// The result of one query, `row * group + head of the group`, in the present segment: sums of values,
    /// largest score, sum of weights.
    fn result(&self, tile: &Tile<'_>, query: usize) -> (&[f32], [f32; 2]);

    /// Largest score and sum of weights of the segments that are merged in the output.
    fn merged(&mut self, tile: &Tile<'_>, query: usize) -> &mut [f32; 2];
}

/// What begins at a whole line. An aligner may give up in theory; then speed is lost, nothing else.
#[inline(always)]
pub fn aligned(floats: &mut [f32]) -> &mut [f32] {
    let unaligned = floats.as_ptr().align_offset(ALIGNMENT * size_of::<f32>());
    &mut floats[unaligned.min(ALIGNMENT)..]
}

impl AttentionShape {
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Most rows of a tile.
    pub(super) fn tile_rows(&self) -> usize {
        match self.values {
            Values::Own => (TILE_QUERIES / self.group()).max(1),
            Values::HeadOfKey => latent::tile_rows(self),
        }
    }

    fn tile_queries(&self) -> usize {
        (self.tile_rows() * self.group()).next_multiple_of(TOGETHER_MAX)
    }

    fn padded_value_dim(&self) -> usize {
        self.value_dim.next_multiple_of(LANES)
    }

    /// Floats that one worker needs: see [`Scratch`].
    pub(super) fn worker_floats(&self) -> usize {
        if self.values == Values::HeadOfKey {
            return latent::worker_floats(self);
        }
        let query = self.head_dim + self.padded_value_dim() + KV_BLOCK + LANES + 2 + 2 + 2;
        let widened = KV_BLOCK * (self.head_dim + self.padded_value_dim());
        2 * ALIGNMENT + widened + (self.tile_queries() * query).next_multiple_of(ALIGNMENT)
    }
}

/// What one worker writes between the lines; queries stand in the order `[row][head of the group]`.
pub struct Scratch<'a> {
    /// A block's keys in F32, as [`Stored`].
    keys: &'a mut [f32],
    /// A block's values in F32: `[KV_BLOCK][padded value_dim]`.
    values: &'a mut [f32],
    /// Scaled queries: `[query][head_dim]`.
    queries: &'a mut [f32],
    /// Sums of values in the present segment: `[query][padded value_dim]`.
    sums: &'a mut [f32],
    /// Scores, then weights, of the present block.
    weights: &'a mut [[f32; KV_BLOCK]],
    /// Sums of weights in the present segment: position `p` in lane `p % LANES`.
    totals: &'a mut [[f32; LANES]],
    /// The largest score in the present segment.
    maxima: &'a mut [f32],
    /// Factor on what was summed before the present block.
    fades: &'a mut [f32],
    /// Positions that each query sees of the present block: start and end.
    seen: &'a mut [[u32; 2]],
    /// Largest score and sum of weights of the segments that are merged in the output.
    merged: &'a mut [[f32; 2]],
}

impl<'a> Form<'a> for Scratch<'a> {
    #[inline(always)]
    fn new(shape: &AttentionShape, floats: &'a mut [f32]) -> Scratch<'a> {
        let count = shape.tile_queries();
        let (keys, floats) = aligned(floats).split_at_mut(KV_BLOCK * shape.head_dim);
        let (values, floats) = floats.split_at_mut(KV_BLOCK * shape.padded_value_dim());
        let (weights, floats) = floats.split_at_mut(count * KV_BLOCK);
        let (sums, floats) = floats.split_at_mut(count * shape.padded_value_dim());
        let (totals, floats) = floats.split_at_mut(count * LANES);
        let (queries, floats) = floats.split_at_mut(count * shape.head_dim);
        let (maxima, floats) = floats.split_at_mut(count);
        let (fades, floats) = floats.split_at_mut(count);
        let (seen, floats) = floats.split_at_mut(2 * count);
        Scratch {
            keys,
            values,
            queries,
            sums,
            weights: weights.as_chunks_mut().0,
            totals: totals.as_chunks_mut().0,
            maxima,
            fades,
            seen: bytemuck::cast_slice_mut(seen),
            merged: &mut floats.as_chunks_mut().0[..count],
        }
    }

    #[inline(always)]
    fn load<'q, S: Steps>(&mut self, tile: &Tile<'_>, q: impl Fn(usize, usize) -> &'q [f32], _: &S) {
        let (group, head_dim) = (tile.shape.group(), tile.shape.head_dim);
        let mut places = self.queries.chunks_exact_mut(head_dim);
        for row in 0..tile.visible.len() {
            for (head, out) in places.by_ref().take(group).enumerate() {
                out.iter_mut().zip(q(row, head)).for_each(|(out, q)| *out = q * tile.shape.scale);
            }
        }
        let behind = tile.queries().next_multiple_of(tile.together::<S>()) - tile.queries();
        places.take(behind).for_each(|out| out.fill(0.0));
    }

    #[inline(always)]
    fn segment<S: Steps>(&mut self, tile: &Tile<'_>, segment: usize, steps: &S) {
        let padded_count = tile.queries().next_multiple_of(tile.together::<S>());
        self.sums[..padded_count * tile.shape.padded_value_dim()].fill(0.0);
        self.totals[..padded_count].fill([0.0; LANES]);
        self.maxima[..padded_count].fill(f32::NEG_INFINITY);
        let span = tile.span();
        let first = span.start.max(segment * SEGMENT) / KV_BLOCK;
        let end = span.end.min((segment + 1) * SEGMENT).div_ceil(KV_BLOCK);
        for block in first..end {
            tile.look(block, self);
            tile.score(block, self, steps);
            tile.add_values(block, self, steps);
        }
    }

    #[inline(always)]
    fn result(&self, tile: &Tile<'_>, query: usize) -> (&[f32], [f32; 2]) {
        let sums = &self.sums[query * tile.shape.padded_value_dim()..][..tile.shape.value_dim];
        (sums, [self.maxima[query], add_lanes(self.totals[query])])
    }

    #[inline(always)]
    fn merged(&mut self, _: &Tile<'_>, query: usize) -> &mut [f32; 2] {
        &mut self.merged[query]
    }
}

/// The rows of a tile and where their past lies.
pub struct Tile<'a> {
    pub shape: &'a AttentionShape,
    pub kv: &'a KvView<'a>,
    pub kv_head: usize,
    /// The blocks of the sequence.
    pub blocks: &'a [u32],
    /// Positions that each row sees.
    pub visible: &'a [Range<usize>],
}

impl Tile<'_> {
    pub fn queries(&self) -> usize {
        self.visible.len() * self.shape.group()
    }

    /// Positions that any row sees.
    #[inline(always)]
    pub fn span(&self) -> Range<usize> {
        let start = self.visible.iter().map(|visible| visible.start).min().unwrap_or(0);
        start..self.visible.iter().map(|visible| visible.end).max().unwrap_or(0)
    }

    /// How many queries stand together.
    #[inline(always)]
    fn together<S: Steps>(&self) -> usize {
        self.queries().next_power_of_two().min(S::QUERIES)
    }

    /// One head's keys of a block, with its values to come next.
    #[inline(always)]
    pub fn keys(&self, block: usize) -> Stored<'_> {
        let (layout, place) = (&self.kv.layout, self.place(block));
        let bytes = &self.kv.keys[place * layout.key_head_bytes()..][..layout.key_head_bytes()];
        let next = self.kv.values.as_ptr().wrapping_add(place * layout.value_head_bytes());
        Stored { format: layout.format, bytes, dim: layout.head_dim, next }
    }

    /// One head's values of a block, with the keys of the block after it to come next.
    #[inline(always)]
    fn values(&self, block: usize) -> Stored<'_> {
        let (layout, place) = (&self.kv.layout, self.place(block));
        let bytes = &self.kv.values[place * layout.value_head_bytes()..][..layout.value_head_bytes()];
        let after = self.place(self.blocks.len().min(block + 2) - 1);
        let next = self.kv.keys.as_ptr().wrapping_add(after * layout.key_head_bytes());
        Stored { format: layout.format, bytes, dim: layout.value_dim, next }
    }

    #[inline(always)]
    fn place(&self, block: usize) -> usize {
        self.blocks[block] as usize * self.kv.layout.kv_heads + self.kv_head
    }

    /// Scores the positions of a block for every query, and turns them into weights.
    #[inline(always)]
    fn score<S: Steps>(&self, block: usize, scratch: &mut Scratch<'_>, steps: &S) {
        let (head_dim, together) = (self.shape.head_dim, self.together::<S>());
        let mut keys = self.keys(block);
        if self.queries() >= WORTH_WIDENING && keys.format != KvFormat::F32 {
            steps.widen_keys(keys, scratch.keys);
            keys = widened(scratch.keys, head_dim);
        }
        for first in (0..self.queries()).step_by(together) {
            let mine = first..self.queries().min(first + together);
            let any = seen_by_any(&scratch.seen[mine.clone()]);
            if any.is_empty() {
                continue;
            }
            let queries = &scratch.queries[first * head_dim..(first + together) * head_dim];
            steps.score(keys, queries, any.clone(), &mut scratch.weights[first..first + together]);
            let mut largest = [f32::NEG_INFINITY; TOGETHER_MAX];
            for (query, largest) in mine.clone().zip(&mut largest) {
                let (scores, [start, end]) = (&mut scratch.weights[query], scratch.seen[query]);
                if let Some(cap) = self.shape.soft_cap {
                    scores.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
                }
                if end - start < KV_BLOCK as u32 {
                    scores[..start as usize].fill(f32::NEG_INFINITY);
                    scores[end as usize..].fill(f32::NEG_INFINITY);
                }
                *largest = steps.largest(scores, scratch.maxima[query]);
            }
            let mut fades = [1.0; TOGETHER_MAX];
            fades[..mine.len()].copy_from_slice(&scratch.maxima[mine.clone()]);
            for (fade, largest) in fades.iter_mut().zip(&largest) {
                *fade = math::exp(*fade - largest);
            }
            for ((query, largest), fade) in mine.zip(largest).zip(fades) {
                // Nothing seen yet: minus infinity, of which differences are NaN.
                let [start, end] = scratch.seen[query];
                scratch.fades[query] = if start < end { fade } else { 1.0 };
                if start < end {
                    scratch.maxima[query] = largest;
                    weigh(&mut scratch.weights[query], largest, fade, &mut scratch.totals[query]);
                }
            }
        }
    }

    /// Adds the values of a block by the weights of every query.
    #[inline(always)]
    fn add_values<S: Steps>(&self, block: usize, scratch: &mut Scratch<'_>, steps: &S) {
        let (padded, together) = (self.shape.padded_value_dim(), self.together::<S>());
        let mut values = self.values(block);
        if self.queries() >= WORTH_WIDENING && values.format != KvFormat::F32 {
            steps.widen_values(values, seen_by_any(&scratch.seen[..self.queries()]), scratch.values);
            values = widened(scratch.values, padded);
        }
        for first in (0..self.queries()).step_by(together) {
            let mine = first..self.queries().min(first + together);
            let seen = &scratch.seen[mine.clone()];
            let any = seen_by_any(seen);
            let start = seen.iter().map(|[start, _]| *start as usize).max().unwrap_or(0);
            let end = seen.iter().map(|[_, end]| *end as usize).min().unwrap_or(0);
            let common = if start < end { start..end } else { any.end..any.end };
            let mut add = |queries: Range<usize>, fades: &[f32], positions: Range<usize>| {
                let sums = &mut scratch.sums[queries.start * padded..queries.end * padded];
                steps.add_values(values, &scratch.weights[queries], fades, positions, sums);
            };
            if common == any {
                if !any.is_empty() {
                    add(first..first + together, &scratch.fades[first..first + together], common);
                }
                continue;
            }
            // What only some of the queries see is added for each alone, before and after the rest.
            for query in mine.clone() {
                let [start, end] = scratch.seen[query].map(|position| position as usize);
                let before = start..end.min(common.start);
                add(query..query + 1, &scratch.fades[query..query + 1], before);
            }
            if !common.is_empty() {
                add(first..first + together, &[1.0; TOGETHER_MAX][..together], common.clone());
            }
            for query in mine {
                let [start, end] = scratch.seen[query].map(|position| position as usize);
                let after = common.end.max(start)..end;
                if !after.is_empty() {
                    add(query..query + 1, &[1.0], after);
                }
            }
        }
    }

    /// Notes which positions of a block each query sees.
    #[inline(always)]
    fn look(&self, block: usize, scratch: &mut Scratch<'_>) {
        let start = block * KV_BLOCK;
        let rows = scratch.seen.chunks_exact_mut(self.shape.group());
        for (seen, visible) in rows.zip(self.visible) {
            let within = |position: usize| (position.clamp(start, start + KV_BLOCK) - start) as u32;
            seen.fill([within(visible.start), within(visible.end)]);
        }
    }
}

/// The least range that holds what any of the queries sees.
#[inline(always)]
fn seen_by_any(seen: &[[u32; 2]]) -> Range<usize> {
    let seen =
        seen.iter().filter(|[start, end]| start < end).map(|[start, end]| *start as usize..*end as usize);
    seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// Widened keys or values; they are near already.
#[inline(always)]
fn widened(floats: &[f32], dim: usize) -> Stored<'_> {
    let bytes: &[u8] = bytemuck::cast_slice(floats);
    Stored { format: KvFormat::F32, bytes, dim, next: bytes.as_ptr() }
}

/// Turns one query's scores of a block into weights relative to the largest score so far, and adds them to
/// their sum, of which `fade` remains. Positions that are not seen hold minus infinity and weigh nothing.
#[inline(always)]
fn weigh(scores: &mut [f32; KV_BLOCK], largest: f32, fade: f32, total: &mut [f32; LANES]) {
    total.iter_mut().for_each(|total| *total *= fade);
    for scores in scores.as_chunks_mut::<LANES>().0 {
        for lane in 0..LANES {
            scores[lane] = math::exp(scores[lane] - largest);
            total[lane] += scores[lane];
        }
    }
}
