//! Attention of new rows over stored keys and values. Owns the online softmax and its order; knows no cache
//! policy and no family.
//!
//! A row attends to its own positions only, in chunks of [`CHUNK`] that start at multiples of it, from low
//! to high. Within a chunk scores are summed by the float rule of [`crate::dot`], and values are added
//! position after position. So a row's result depends on nothing but the row: not on other rows, threads or
//! the cutting of a prompt. Positions before the window are skipped, not masked.
//!
//! The unit of work is one head of keys and values with up to [`TILE_ROWS`] rows: a chunk is decoded once
//! for all of them that share it, and for all query heads of the group.

mod steps;

use std::ops::Range;

use crate::dot::add_lanes;
use crate::isa::Isa;
use crate::kv::KvView;
use crate::math;
use crate::pool::{Pool, Rows};
use steps::{LANES, Portable, Steps, add_weighted};

/// Positions scored before the running maximum is looked at again.
const CHUNK: usize = 32;
/// Rows that share a decoded chunk.
const TILE_ROWS: usize = 8;
/// Floats in a cache line: decoded rows start at whole lines, because loads across two cost double.
const ALIGNMENT: usize = 16;
/// Multiply-adds below which waking helpers costs more than it saves.
const WORTH_SHARING: usize = 256 * 1024;

/// What is the same for all rows of a layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    pub heads: usize,
    /// Divides `heads`: that many query heads in a row share one head of keys and values.
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    /// Factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A row at position p sees positions `(p - window, p]`.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

impl AttentionShape {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Floats of a query or a decoded key: whole lanes.
    fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Floats that one worker needs: see [`Scratch`].
    fn worker_floats(&self) -> usize {
        let decoded = CHUNK * self.padded_dim().max(self.value_dim);
        ALIGNMENT + decoded + self.padded_dim() + TILE_ROWS * self.group() * (CHUNK + 2)
    }

    fn first_position(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// One row: where it stands and where its past lies.
#[derive(Clone, Copy)]
pub struct AttentionRow<'a> {
    /// Its own position, whose key and value are stored already.
    pub position: usize,
    /// Block number of positions `block_len * i ..`; those wholly before the window are not read.
    pub blocks: &'a [u32],
}

/// Floats of scratch that [`attention`] needs on a pool of `threads`.
pub fn attention_scratch_floats(shape: &AttentionShape, threads: usize) -> usize {
    shape.worker_floats() * threads
}

/// `out[row][head][value_dim] = softmax(scale * q . keys) . values` for `q[row][head][head_dim]`.
pub fn attention(
    pool: &Pool,
    shape: &AttentionShape,
    q: &[f32],
    rows: &[AttentionRow<'_>],
    kv: &KvView<'_>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let AttentionShape { heads, kv_heads, head_dim, value_dim, .. } = *shape;
    assert!(kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads on {kv_heads}");
    assert!(head_dim > 0 && value_dim > 0 && kv.block_len > 0);
    assert!(shape.window != Some(0), "a window of no positions");
    assert!(q.len() == rows.len() * heads * head_dim, "{} floats of queries", q.len());
    assert!(out.len() == rows.len() * heads * value_dim, "{} floats of output", out.len());
    let scratch_len = shape.worker_floats();
    assert!(scratch.len() >= scratch_len * pool.threads(), "{} floats of scratch", scratch.len());
    for row in rows {
        assert!(row.blocks.len() > row.position / kv.block_len, "position {} has no block", row.position);
    }

    let group = shape.group();
    let visible = |row: &AttentionRow<'_>| row.position + 1 - shape.first_position(row.position);
    let work: usize = rows.iter().map(|row| visible(row) * heads * (head_dim + value_dim)).sum();
    let tiles = rows.len().div_ceil(TILE_ROWS);
    let items = tiles * kv_heads;
    let piece = if work < WORTH_SHARING { items.max(1) } else { items.div_ceil(pool.threads() * 16) };
    let outs = Rows::new(out, group * value_dim);
    let scratch = Rows::new(&mut scratch[..scratch_len * pool.threads()], scratch_len);
    pool.weighed_ranges(items, piece, work.max(1).ilog2() as usize, |worker, items| {
        for item in items {
            // Heads outside, so that neighbouring items read the same keys and values.
            let (kv_head, first) = (item / tiles, item % tiles * TILE_ROWS);
            // SAFETY: only this worker uses its scratch.
            let scratch = unsafe { scratch.row(worker) };
            // Rows of one sequence go together.
            let mut rest = first..rows.len().min(first + TILE_ROWS);
            while !rest.is_empty() {
                let blocks = rows[rest.start].blocks;
                let same =
                    rows[rest.clone()].iter().take_while(|row| std::ptr::eq(row.blocks, blocks)).count();
                let tile = Tile { shape, kv, rows, blocks, q, outs: &outs, kv_head };
                tile.attend(pool.isa(), rest.start..rest.start + same, scratch);
                rest.start += same;
            }
        }
    });
}

/// One head of keys and values, and what the rows need.
struct Tile<'a> {
    shape: &'a AttentionShape,
    kv: &'a KvView<'a>,
    rows: &'a [AttentionRow<'a>],
    /// The blocks of the rows.
    blocks: &'a [u32],
    /// `[row][head][head_dim]`.
    q: &'a [f32],
    /// `[row * kv_heads + kv_head]`, each `[group][value_dim]`.
    outs: &'a Rows<'a, f32>,
    kv_head: usize,
}

impl Tile<'_> {
    fn attend(&self, isa: Isa, rows: Range<usize>, scratch: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn wide(tile: &Tile<'_>, rows: Range<usize>, scratch: &mut [f32], token: crate::isa::Avx2) {
            tile.attend_with(rows, scratch, &token);
        }
        match isa {
            Isa::Scalar => self.attend_with(rows, scratch, &Portable),
            // SAFETY: the token proves that the CPU has the features of `wide`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => unsafe { wide(self, rows, scratch, token) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => unsafe { wide(self, rows, scratch, token.avx2()) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::NeonI8mm(_) => self.attend_with(rows, scratch, &Portable),
        }
    }

    /// Computes the outputs of up to [`TILE_ROWS`] rows of one sequence.
    #[inline(always)]
    fn attend_with(&self, rows: Range<usize>, scratch: &mut [f32], steps: &impl Steps) {
        let mut scratch = Scratch::new(self.shape, scratch);
        rows.clone().for_each(|row| self.out(row).fill(0.0));
        let first = rows.clone().map(|row| self.visible(row).start).min().unwrap_or(0);
        let end = rows.clone().map(|row| self.visible(row).end).max().unwrap_or(0);
        for chunk in (first / CHUNK * CHUNK..end).step_by(CHUNK) {
            let seen = chunk.max(first)..end.min(chunk + CHUNK);
            self.score(rows.clone(), seen.clone(), &mut scratch, steps);
            self.add_values(rows.clone(), seen, &mut scratch, steps);
        }
        for (row, states) in rows.zip(scratch.states.chunks_exact(self.shape.group())) {
            for (out, [_, total]) in self.out(row).chunks_exact_mut(self.shape.value_dim).zip(states) {
                let inverse = 1.0 / total;
                out.iter_mut().for_each(|out| *out *= inverse);
            }
        }
    }

    /// Scores the positions `seen` of a chunk for every row and head, and turns them into weights.
    #[inline(always)]
    fn score(&self, rows: Range<usize>, seen: Range<usize>, scratch: &mut Scratch<'_>, steps: &impl Steps) {
        let AttentionShape { heads, head_dim, value_dim, scale, soft_cap, .. } = *self.shape;
        let (group, padded_dim) = (self.shape.group(), self.shape.padded_dim());
        self.decode(
            self.kv.keys,
            head_dim,
            seen.clone(),
            scratch.decoded.chunks_exact_mut(padded_dim),
            steps,
        );
        for (index, row) in rows.enumerate() {
            let mine = self.visible_of(row, &seen);
            if mine.is_empty() {
                continue;
            }
            let keys = &scratch.decoded[(mine.start - seen.start) * padded_dim..];
            for (head, out) in self.out(row).chunks_exact_mut(value_dim).enumerate() {
                let q = &self.q[(row * heads + self.kv_head * group + head) * head_dim..][..head_dim];
                scratch.query.iter_mut().zip(q).for_each(|(scaled, q)| *scaled = q * scale);
                let scores = &mut scratch.scores[index * group + head];
                steps.dots(scratch.query, keys, &mut scores[..mine.len()]);
                if let Some(cap) = soft_cap {
                    scores.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
                }
                scores[mine.len()..].fill(f32::NEG_INFINITY);
                weigh(scores, &mut scratch.states[index * group + head], out);
            }
        }
    }

    /// Adds the values of `seen` by the weights of every row and head.
    #[inline(always)]
    fn add_values(
        &self,
        rows: Range<usize>,
        seen: Range<usize>,
        scratch: &mut Scratch<'_>,
        steps: &impl Steps,
    ) {
        let (group, value_dim) = (self.shape.group(), self.shape.value_dim);
        self.decode(
            self.kv.values,
            value_dim,
            seen.clone(),
            scratch.decoded.chunks_exact_mut(value_dim),
            steps,
        );
        for (index, row) in rows.enumerate() {
            let mine = self.visible_of(row, &seen);
            let values = &scratch.decoded[(mine.start - seen.start) * value_dim..];
            for (head, out) in self.out(row).chunks_exact_mut(value_dim).enumerate() {
                add_weighted(out, &scratch.scores[index * group + head][..mine.len()], values);
            }
        }
    }

    /// Positions that a row attends to.
    #[inline(always)]
    fn visible(&self, row: usize) -> Range<usize> {
        let position = self.rows[row].position;
        self.shape.first_position(position)..position + 1
    }

    /// Those of them within `seen`; empty, at a place in `seen`, where there are none.
    #[inline(always)]
    fn visible_of(&self, row: usize, seen: &Range<usize>) -> Range<usize> {
        let visible = self.visible(row);
        let start = visible.start.clamp(seen.start, seen.end);
        start..visible.end.clamp(start, seen.end)
    }

    /// Widens heads of `dim` stored elements, one position after the other; zeros behind each.
    #[inline(always)]
    fn decode<'b>(
        &self,
        stored: &[u8],
        dim: usize,
        positions: Range<usize>,
        out: impl Iterator<Item = &'b mut [f32]>,
        steps: &impl Steps,
    ) {
        // Divisions here, additions in the loop: a head may be as short as 64 bytes.
        let block_len = self.kv.block_len;
        let bytes = self.kv.format.row_bytes(dim);
        let (mut block, mut offset) = (positions.start / block_len, positions.start % block_len);
        for out in out.take(positions.len()) {
            let slot = self.blocks[block] as usize * block_len + offset;
            let start = (slot * self.shape.kv_heads + self.kv_head) * bytes;
            let (elements, rest) = out.split_at_mut(dim);
            steps.decode(self.kv.format, &stored[start..start + bytes], elements);
            rest.fill(0.0);
            offset += 1;
            if offset == block_len {
                (block, offset) = (block + 1, 0);
            }
        }
    }

    /// `[group][value_dim]` of a row.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "each row is one tile's alone")]
    fn out(&self, row: usize) -> &mut [f32] {
        // SAFETY: rows of a head of keys and values belong to one tile, which one worker has, and the
        // slices that this returns are never held two at a time.
        unsafe { self.outs.row(row * self.shape.kv_heads + self.kv_head) }
    }
}

/// What one worker writes between the lines.
struct Scratch<'a> {
    /// Keys, then values, of a chunk: `[CHUNK][padded_dim]`, `[CHUNK][value_dim]`.
    decoded: &'a mut [f32],
    /// One scaled query, `[padded_dim]`.
    query: &'a mut [f32],
    /// Scores, then weights: `[row][head][CHUNK]`.
    scores: &'a mut [[f32; CHUNK]],
    /// The largest score and the sum of weights so far: `[row][head]`.
    states: &'a mut [[f32; 2]],
}

impl<'a> Scratch<'a> {
    #[inline(always)]
    fn new(shape: &AttentionShape, floats: &'a mut [f32]) -> Scratch<'a> {
        let unaligned = floats.as_ptr().align_offset(ALIGNMENT * size_of::<f32>());
        // An aligner may give up in theory; then speed is lost, nothing else.
        let (_, floats) = floats.split_at_mut(unaligned.min(ALIGNMENT));
        let (decoded, floats) = floats.split_at_mut(CHUNK * shape.padded_dim().max(shape.value_dim));
        let (query, floats) = floats.split_at_mut(shape.padded_dim());
        let (scores, states) = floats.split_at_mut(TILE_ROWS * shape.group() * CHUNK);
        let scores = scores.as_chunks_mut().0;
        query.fill(0.0);
        let states = &mut states.as_chunks_mut().0[..TILE_ROWS * shape.group()];
        states.fill([f32::NEG_INFINITY, 0.0]);
        Scratch { decoded, query, scores, states }
    }
}

/// Turns one head's scores of a chunk into weights, relative to the largest score so far; rescales what was
/// summed relative to an older one. Places without a position hold minus infinity and weigh nothing.
#[inline(always)]
fn weigh(scores: &mut [f32; CHUNK], [max, total]: &mut [f32; 2], out: &mut [f32]) {
    const WIDE: usize = 16;
    // A NaN is never the largest, so the order of comparing does not matter.
    let mut largest = [*max; WIDE];
    for scores in scores.as_chunks::<WIDE>().0 {
        for lane in 0..WIDE {
            largest[lane] = if scores[lane] > largest[lane] { scores[lane] } else { largest[lane] };
        }
    }
    let new_max = largest.iter().fold(*max, |max, score| if *score > max { *score } else { max });
    let mut lanes = [0.0f32; WIDE];
    for scores in scores.as_chunks_mut::<WIDE>().0 {
        for lane in 0..WIDE {
            scores[lane] = math::exp(scores[lane] - new_max);
            lanes[lane] += scores[lane];
        }
    }
    if new_max > *max {
        let fade = math::exp(*max - new_max);
        *total *= fade;
        out.iter_mut().for_each(|out| *out *= fade);
    }
    *total += add_lanes(lanes);
    *max = new_max;
}
