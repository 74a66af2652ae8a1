//! The inner steps of latent attention on one block of positions, whose lanes are heads. Owns the order of
//! their sums, that of [`super::steps`], and the plain form that the vector forms are tested against.

use std::ops::Range;

use super::steps::{LANES, Portable};
use crate::kv::{KEY_TILE, KV_BLOCK};

/// What [`LANES`] heads of a row do with a block, for one instruction set. Keys are widened to F32:
/// `[tiles][dim][KEY_TILE]`; values are the first elements of each.
pub trait LatentSteps {
    /// `scores[position][lane] = sum over d of queries[d][lane] * key[d]`, from left to right by fused
    /// multiply-add from zero, for at least `positions`; `keys` are widened, and `next` is what will be read
    /// after them: a hint for the caches.
    fn score_lanes(
        &self,
        keys: &[f32],
        queries: &[[f32; LANES]],
        positions: Range<usize>,
        next: &[u8],
        scores: &mut [[f32; LANES]; KV_BLOCK],
    );

    /// `sums[column][lane] = sums[column][lane] * fades[lane]`, then `+= weights[position][lane] *
    /// key[column]`, position after position by fused multiply-add; `keys` are widened, of `dim` elements.
    fn add_lanes(
        &self,
        keys: &[f32],
        dim: usize,
        weights: &[[f32; LANES]; KV_BLOCK],
        fades: &[f32; LANES],
        positions: Range<usize>,
        sums: &mut [[f32; LANES]],
    );

    /// `out[element][lane] = heads[lane][element]`; a head that is empty gives zeros.
    fn heads_to_lanes(&self, heads: &[&[f32]; LANES], out: &mut [[f32; LANES]]);

    /// `heads[lane][element] = x[element][lane]`.
    fn lanes_to_heads(&self, x: &[[f32; LANES]], heads: &mut [f32]);
}

impl LatentSteps for Portable {
    fn score_lanes(
        &self,
        keys: &[f32],
        queries: &[[f32; LANES]],
        positions: Range<usize>,
        _: &[u8],
        scores: &mut [[f32; LANES]; KV_BLOCK],
    ) {
        for position in positions {
            let tile = &keys[position / KEY_TILE * KEY_TILE * queries.len()..];
            let mut sums = [0.0f32; LANES];
            for (query, keys) in queries.iter().zip(tile.as_chunks::<KEY_TILE>().0) {
                let key = keys[position % KEY_TILE];
                sums.iter_mut().zip(query).for_each(|(sum, query)| *sum = key.mul_add(*query, *sum));
            }
            scores[position] = sums;
        }
    }

    fn add_lanes(
        &self,
        keys: &[f32],
        dim: usize,
        weights: &[[f32; LANES]; KV_BLOCK],
        fades: &[f32; LANES],
        positions: Range<usize>,
        sums: &mut [[f32; LANES]],
    ) {
        for (column, sums) in sums.iter_mut().enumerate() {
            sums.iter_mut().zip(fades).for_each(|(sum, fade)| *sum *= fade);
            for position in positions.clone() {
                let value = keys[(position / KEY_TILE * dim + column) * KEY_TILE + position % KEY_TILE];
                let weights = &weights[position];
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum = value.mul_add(*weight, *sum));
            }
        }
    }

    fn heads_to_lanes(&self, heads: &[&[f32]; LANES], out: &mut [[f32; LANES]]) {
        for (element, out) in out.iter_mut().enumerate() {
            *out = heads.map(|head| head.get(element).copied().unwrap_or(0.0));
        }
    }

    fn lanes_to_heads(&self, x: &[[f32; LANES]], heads: &mut [f32]) {
        for (lane, head) in heads.chunks_exact_mut(x.len()).enumerate() {
            head.iter_mut().zip(x).for_each(|(out, x)| *out = x[lane]);
        }
    }
}
