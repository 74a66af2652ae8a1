//! Attention of new rows over stored keys and values. Owns the online softmax and its order; knows no cache
//! policy and no family.
//!
//! A row attends to its own positions only, in chunks of [`CHUNK`] that start at multiples of it, from low
//! to high; within a chunk, scores are 16-lane dot products (the float rule of [`crate::dot`]), and values
//! are added position after position. So a row's result depends on nothing but the row: not on other rows,
//! threads or the cutting of a prompt. Positions before the window are skipped, not masked.

use crate::dot::add_lanes;
use crate::isa::Isa;
use crate::kv::{self, KvView};
use crate::math;
use crate::pool::{Pool, Rows};

/// Positions scored before the running maximum is looked at again.
const CHUNK: usize = 64;
/// Multiply-adds below which waking helpers costs more than it saves.
const WORTH_SHARING: usize = 64 * 1024;

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

    /// Floats that one worker needs: a decoded row, and for each head of a group the scores of a chunk, the
    /// largest score and the sum of weights.
    fn worker_floats(&self) -> usize {
        self.head_dim.max(self.value_dim) + self.group() * (CHUNK + 2)
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
    // Heads outside, so that neighbouring items read the same keys and values.
    let items = rows.len() * kv_heads;
    let piece = if work < WORTH_SHARING { items.max(1) } else { items.div_ceil(pool.threads() * 16) };
    let outs = Rows::new(out, group * value_dim);
    let scratch = Rows::new(&mut scratch[..scratch_len * pool.threads()], scratch_len);
    pool.ranges(items, piece, |worker, items| {
        for item in items {
            let (kv_head, row) = (item / rows.len(), item % rows.len());
            let first_head = row * heads + kv_head * group;
            let task = Item {
                shape,
                kv,
                row: rows[row],
                kv_head,
                q: &q[first_head * head_dim..(first_head + group) * head_dim],
            };
            // SAFETY: an item is handed out once and owns its outputs; a worker owns its scratch.
            let (out, scratch) = unsafe { (outs.row(row * kv_heads + kv_head), scratch.row(worker)) };
            attend(pool.isa(), &task, scratch, out);
        }
    });
}

/// One row and one head of keys and values.
struct Item<'a> {
    shape: &'a AttentionShape,
    kv: &'a KvView<'a>,
    row: AttentionRow<'a>,
    kv_head: usize,
    /// `[group][head_dim]`.
    q: &'a [f32],
}

impl Item<'_> {
    /// Where the head of `dim` elements of a position lies.
    #[inline(always)]
    fn place(&self, position: usize, dim: usize) -> std::ops::Range<usize> {
        let block_len = self.kv.block_len;
        let slot = self.row.blocks[position / block_len] as usize * block_len + position % block_len;
        let bytes = self.kv.format.row_bytes(dim);
        let start = (slot * self.shape.kv_heads + self.kv_head) * bytes;
        start..start + bytes
    }
}

fn attend(isa: Isa, item: &Item<'_>, scratch: &mut [f32], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn wide(item: &Item<'_>, scratch: &mut [f32], out: &mut [f32]) {
        attend_body(item, scratch, out, |bytes, out| kv::decode_avx2(item.kv.format, bytes, out));
    }
    match isa {
        Isa::Scalar => attend_body(item, scratch, out, |bytes, out| kv::decode(item.kv.format, bytes, out)),
        // SAFETY: the token proves that the CPU has the features of `wide`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => unsafe { wide(item, scratch, out) },
    }
}

#[inline(always)]
fn attend_body(item: &Item<'_>, scratch: &mut [f32], out: &mut [f32], decode: impl Fn(&[u8], &mut [f32])) {
    let shape = item.shape;
    let (decoded, scratch) = scratch.split_at_mut(shape.head_dim.max(shape.value_dim));
    let (scores, states) = scratch.split_at_mut(shape.group() * CHUNK);
    let states = states.as_chunks_mut::<2>().0;
    states.fill([f32::NEG_INFINITY, 0.0]);
    out.fill(0.0);
    let mut start = shape.first_position(item.row.position);
    while start <= item.row.position {
        let end = (start / CHUNK * CHUNK + CHUNK).min(item.row.position + 1);
        score_keys(item, start..end, &mut decoded[..shape.head_dim], scores, &decode);
        let heads =
            scores.chunks_exact_mut(CHUNK).zip(states.iter_mut()).zip(out.chunks_exact_mut(shape.value_dim));
        for ((scores, state), out) in heads {
            weigh(&mut scores[..end - start], state, out);
        }
        add_values(item, start..end, &mut decoded[..shape.value_dim], scores, out, &decode);
        start = end;
    }
    for (out, [_, total]) in out.chunks_exact_mut(shape.value_dim).zip(states) {
        let inverse = 1.0 / *total;
        out.iter_mut().for_each(|out| *out *= inverse);
    }
}

/// Scores of one chunk: `scores[head][position - start]`.
#[inline(always)]
fn score_keys(
    item: &Item<'_>,
    positions: std::ops::Range<usize>,
    key: &mut [f32],
    scores: &mut [f32],
    decode: &impl Fn(&[u8], &mut [f32]),
) {
    for (index, position) in positions.enumerate() {
        decode(&item.kv.keys[item.place(position, key.len())], key);
        for (q, scores) in item.q.chunks_exact(key.len()).zip(scores.chunks_exact_mut(CHUNK)) {
            let score = dot(q, key) * item.shape.scale;
            scores[index] = match item.shape.soft_cap {
                Some(cap) => cap * math::tanh(score / cap),
                None => score,
            };
        }
    }
}

/// Turns one head's scores of a chunk into weights, relative to the largest score so far; rescales what was
/// summed relative to an older one.
#[inline(always)]
fn weigh(scores: &mut [f32], [max, total]: &mut [f32; 2], out: &mut [f32]) {
    let new_max = scores.iter().fold(*max, |max, score| if *score > max { *score } else { max });
    let mut lanes = [0.0f32; 16];
    for (i, score) in scores.iter_mut().enumerate() {
        *score = math::exp(*score - new_max);
        lanes[i % 16] += *score;
    }
    if new_max > *max {
        let fade = math::exp(*max - new_max);
        *total *= fade;
        out.iter_mut().for_each(|out| *out *= fade);
    }
    *total += add_lanes(lanes);
    *max = new_max;
}

/// Adds one chunk's values by their weights.
#[inline(always)]
fn add_values(
    item: &Item<'_>,
    positions: std::ops::Range<usize>,
    value: &mut [f32],
    weights: &[f32],
    out: &mut [f32],
    decode: &impl Fn(&[u8], &mut [f32]),
) {
    for (index, position) in positions.enumerate() {
        decode(&item.kv.values[item.place(position, value.len())], value);
        for (out, weights) in out.chunks_exact_mut(value.len()).zip(weights.chunks_exact(CHUNK)) {
            for (out, value) in out.iter_mut().zip(value.iter()) {
                *out = weights[index].mul_add(*value, *out);
            }
        }
    }
}

/// The float rule of [`crate::dot`].
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..16 {
            lanes[lane] = a[lane].mul_add(b[lane], lanes[lane]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        *lane = a.mul_add(*b, *lane);
    }
    add_lanes(lanes)
}
