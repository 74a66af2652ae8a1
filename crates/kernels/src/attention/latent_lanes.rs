//! The vector forms of the steps whose lanes are heads, written once over registers of 16 floats. Owns the
//! blocking of registers; knows no softmax.
//!
//! Each multiply-add takes one element of the block, the same for all lanes: a register of queries, or of
//! weights, serves as many of them as there are sums.

use std::ops::Range;

use super::registers::Lanes;
use super::steps::LANES;
use crate::kv::{KEY_TILE, KV_BLOCK};

/// [`super::latent_steps::LatentSteps::score_lanes`], `P` positions at a time.
#[inline(always)]
pub fn score_lanes<L: Lanes, const P: usize>(
    lanes: L,
    keys: &[f32],
    queries: &[[f32; LANES]],
    positions: Range<usize>,
    next: &[u8],
    scores: &mut [[f32; LANES]; KV_BLOCK],
) {
    const { assert!(KEY_TILE.is_multiple_of(P)) };
    let dim = queries.len();
    assert!(keys.len() == KV_BLOCK * dim && positions.end <= KV_BLOCK);
    let mut lines = next.chunks(64);
    for first in (positions.start / P * P..positions.end).step_by(P) {
        let tile = &keys[first / KEY_TILE * KEY_TILE * dim..][..KEY_TILE * dim];
        let mut sums = [lanes.splat(0.0); P];
        for (d, (query, keys)) in queries.iter().zip(tile.as_chunks::<KEY_TILE>().0).enumerate() {
            // A line for each two elements of 16 positions: what F16 holds of them.
            if d % 2 == 0
                && let Some(line) = lines.next()
            {
                lanes.prefetch_far(line.as_ptr());
            }
            let query = lanes.load(query);
            for (sum, key) in sums.iter_mut().zip(&keys[first % KEY_TILE..][..P]) {
                *sum = lanes.fma(lanes.splat(*key), query, *sum);
            }
        }
        for (sum, scores) in sums.into_iter().zip(&mut scores[first..first + P]) {
            lanes.store(sum, scores);
        }
    }
}

/// [`super::latent_steps::LatentSteps::add_lanes`], `C` columns at a time.
#[inline(always)]
pub fn add_lanes<L: Lanes, const C: usize>(
    lanes: L,
    keys: &[f32],
    dim: usize,
    weights: &[[f32; LANES]; KV_BLOCK],
    fades: &[f32; LANES],
    positions: Range<usize>,
    sums: &mut [[f32; LANES]],
) {
    assert!(keys.len() == KV_BLOCK * dim && positions.end <= KV_BLOCK && sums.len() <= dim);
    let (chunks, tail) = sums.as_chunks_mut::<C>();
    let behind = chunks.len() * C;
    for (chunk, sums) in chunks.iter_mut().enumerate() {
        // SAFETY: asserted above; `sums` are columns of the `dim` that each position has.
        unsafe { add_columns(lanes, keys, [dim, chunk * C], weights, fades, positions.clone(), sums) };
    }
    for (column, sum) in tail.iter_mut().enumerate() {
        let sum = std::array::from_mut(sum);
        // SAFETY: as above.
        unsafe { add_columns(lanes, keys, [dim, behind + column], weights, fades, positions.clone(), sum) };
    }
}

/// # Safety
/// `keys` are those of a block with `dim` elements, of which there are `C` from `first` on.
#[inline(always)]
unsafe fn add_columns<L: Lanes, const C: usize>(
    lanes: L,
    keys: &[f32],
    [dim, first]: [usize; 2],
    weights: &[[f32; LANES]; KV_BLOCK],
    fades: &[f32; LANES],
    positions: Range<usize>,
    sums: &mut [[f32; LANES]; C],
) {
    let fades = lanes.load(fades);
    let mut registers = [lanes.splat(0.0); C];
    for (register, sum) in registers.iter_mut().zip(&*sums) {
        *register = lanes.mul(lanes.load(sum), fades);
    }
    for position in positions {
        let weight = lanes.load(&weights[position]);
        let place = (position / KEY_TILE * dim + first) * KEY_TILE + position % KEY_TILE;
        for (c, register) in registers.iter_mut().enumerate() {
            // SAFETY: the caller promises the columns of this position.
            let value = unsafe { *keys.get_unchecked(place + c * KEY_TILE) };
            *register = lanes.fma(lanes.splat(value), weight, *register);
        }
    }
    for (register, sum) in registers.into_iter().zip(sums) {
        lanes.store(register, sum);
    }
}

/// [`super::latent_steps::LatentSteps::heads_to_lanes`].
#[inline(always)]
pub fn heads_to_lanes<L: Lanes>(lanes: L, heads: &[&[f32]; LANES], out: &mut [[f32; LANES]]) {
    let whole = out.len() / LANES;
    for (chunk, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let rows = heads.map(|head| head.as_chunks::<LANES>().0.get(chunk).unwrap_or(&[0.0; LANES]));
        let turned = lanes.turn(rows.map(|row| lanes.load(row)));
        for (turned, out) in turned.into_iter().zip(out) {
            lanes.store(turned, out);
        }
    }
    for (d, out) in out.iter_mut().enumerate().skip(whole * LANES) {
        *out = heads.map(|head| head.get(d).copied().unwrap_or(0.0));
    }
}

/// [`super::latent_steps::LatentSteps::lanes_to_heads`].
#[inline(always)]
pub fn lanes_to_heads<L: Lanes>(lanes: L, x: &[[f32; LANES]], heads: &mut [f32]) {
    let len = x.len();
    let (chunks, tail) = x.as_chunks::<LANES>();
    for (chunk, x) in chunks.iter().enumerate() {
        let turned = lanes.turn(x.each_ref().map(|x| lanes.load(x)));
        for (turned, head) in turned.into_iter().zip(heads.chunks_exact_mut(len)) {
            lanes.store(turned, &mut head.as_chunks_mut().0[chunk]);
        }
    }
    for (lane, head) in heads.chunks_exact_mut(len).enumerate() {
        for (x, out) in tail.iter().zip(&mut head[chunks.len() * LANES..]) {
            *out = x[lane];
        }
    }
}
