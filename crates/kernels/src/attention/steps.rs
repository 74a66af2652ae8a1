//! The inner steps of attention on one block of positions. Owns the order of their sums and the plain form
//! that the vector forms are tested against; knows no softmax and no sequences.

use std::ops::Range;

use super::latent_steps::LatentSteps;
use crate::kv::{KEY_TILE, KV_BLOCK, KvFormat, key_element, value_element};

/// Floats that are computed together; sums of values are padded to a multiple of this.
pub const LANES: usize = 16;

/// One head's keys or values of a block, as stored or widened to F32 in the same order.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    pub format: KvFormat,
    /// Keys: `[tiles][dim][KEY_TILE]`; values: `[KV_BLOCK]` rows.
    pub bytes: &'a [u8],
    /// Elements of a head.
    pub dim: usize,
    /// What as many bytes of will be read next: a hint for the caches, never followed.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "plain steps ask for nothing ahead"))]
    pub next: *const u8,
}

impl<'a> Stored<'a> {
    pub fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.dim)
    }

    /// Keys of one tile of positions.
    pub fn tile(&self, tile: usize) -> &'a [u8] {
        let bytes = KEY_TILE * self.row_bytes();
        &self.bytes[tile * bytes..(tile + 1) * bytes]
    }
}

/// What the queries of a group do with a block, for one instruction set. A group has 1, 2, 4 .. up to
/// [`Steps::QUERIES`] queries; how many, the slices tell.
pub trait Steps: LatentSteps {
    /// Most queries that share the registers.
    const QUERIES: usize;

    /// `scores[query][position] = sum over d of queries[query][d] * key[d]`, from left to right by fused
    /// multiply-add from zero, for at least the tiles that hold `positions`.
    fn score(
        &self,
        keys: Stored<'_>,
        queries: &[f32],
        positions: Range<usize>,
        scores: &mut [[f32; KV_BLOCK]],
    );

    /// `sums[query][column] = sums[query][column] * fades[query]`, then `+= weights[query][position] *
    /// value[column]`, position after position by fused multiply-add. `sums` are padded to whole [`LANES`].
    fn add_values(
        &self,
        values: Stored<'_>,
        weights: &[[f32; KV_BLOCK]],
        fades: &[f32],
        positions: Range<usize>,
        sums: &mut [f32],
    );

    /// The largest of `scores` and `floor`; a NaN is never the largest.
    fn largest(&self, scores: &[f32; KV_BLOCK], floor: f32) -> f32;

    /// Widens all keys of a block to F32 in their order.
    fn widen_keys(&self, keys: Stored<'_>, out: &mut [f32]);

    /// Widens the values of `positions`, each to a row padded to whole [`LANES`] with anything.
    fn widen_values(&self, values: Stored<'_>, positions: Range<usize>, out: &mut [f32]);
}

/// The scalar twin.
pub struct Portable;

impl Steps for Portable {
    const QUERIES: usize = 4;

    fn score(
        &self,
        keys: Stored<'_>,
        queries: &[f32],
        positions: Range<usize>,
        scores: &mut [[f32; KV_BLOCK]],
    ) {
        for (query, scores) in queries.chunks_exact(keys.dim).zip(scores) {
            let tiles = positions.start / KEY_TILE..positions.end.div_ceil(KEY_TILE);
            for (tile, scores) in tiles.clone().zip(&mut scores.as_chunks_mut::<KEY_TILE>().0[tiles]) {
                let tile = keys.tile(tile);
                *scores = [0.0; KEY_TILE];
                for (dim, q) in query.iter().enumerate() {
                    for (lane, score) in scores.iter_mut().enumerate() {
                        *score = q.mul_add(key_element(keys.format, tile, dim, lane), *score);
                    }
                }
            }
        }
    }

    fn add_values(
        &self,
        values: Stored<'_>,
        weights: &[[f32; KV_BLOCK]],
        fades: &[f32],
        positions: Range<usize>,
        sums: &mut [f32],
    ) {
        let padded = values.dim.next_multiple_of(LANES);
        for ((sums, weights), fade) in sums.chunks_exact_mut(padded).zip(weights).zip(fades) {
            let sums = &mut sums[..values.dim];
            sums.iter_mut().for_each(|sum| *sum *= fade);
            for position in positions.clone() {
                let row = &values.bytes[position * values.row_bytes()..][..values.row_bytes()];
                for (column, sum) in sums.iter_mut().enumerate() {
                    *sum = weights[position].mul_add(value_element(values.format, row, column), *sum);
                }
            }
        }
    }

    fn largest(&self, scores: &[f32; KV_BLOCK], floor: f32) -> f32 {
        scores.iter().fold(floor, |largest, score| if *score > largest { *score } else { largest })
    }

    fn widen_keys(&self, keys: Stored<'_>, out: &mut [f32]) {
        for (tile, out) in out.chunks_exact_mut(keys.dim * KEY_TILE).enumerate() {
            for (element, out) in out.iter_mut().enumerate() {
                *out = key_element(keys.format, keys.tile(tile), element / KEY_TILE, element % KEY_TILE);
            }
        }
    }

    fn widen_values(&self, values: Stored<'_>, positions: Range<usize>, out: &mut [f32]) {
        let padded = values.dim.next_multiple_of(LANES);
        for position in positions {
            let row = &values.bytes[position * values.row_bytes()..][..values.row_bytes()];
            for (column, out) in out[position * padded..][..values.dim].iter_mut().enumerate() {
                *out = value_element(values.format, row, column);
            }
        }
    }
}
