//! The inner steps of attention on a chunk of decoded positions, for each instruction set. Owns the order of
//! their sums; knows no cache and no softmax.

use crate::dot::add_lanes;
use crate::kv::KvFormat;

/// Lanes of a score's sum. Rows of queries and decoded keys are padded with zeros to a multiple of this.
pub const LANES: usize = 16;

/// The instruction set of one pass: portable bodies call these, wide ones the vector forms.
pub trait Steps {
    /// Widens stored elements to floats, exactly.
    fn decode(&self, format: KvFormat, bytes: &[u8], out: &mut [f32]);

    /// `scores[i] = q . keys[i]`, keys `q.len()` floats apart, by the float rule of [`crate::dot`].
    fn dots(&self, q: &[f32], keys: &[f32], scores: &mut [f32]);
}

/// The scalar twin.
pub struct Portable;

impl Steps for Portable {
    fn decode(&self, format: KvFormat, bytes: &[u8], out: &mut [f32]) {
        crate::kv::decode(format, bytes, out);
    }

    fn dots(&self, q: &[f32], keys: &[f32], scores: &mut [f32]) {
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
            let mut lanes = [0.0f32; LANES];
            for (q, key) in q.as_chunks::<LANES>().0.iter().zip(key.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    lanes[lane] = q[lane].mul_add(key[lane], lanes[lane]);
                }
            }
            *score = add_lanes(lanes);
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Steps for crate::isa::Avx2 {
    #[inline(always)]
    fn decode(&self, format: KvFormat, bytes: &[u8], out: &mut [f32]) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { crate::kv::decode_avx2(format, bytes, out) }
    }

    #[inline(always)]
    fn dots(&self, q: &[f32], keys: &[f32], scores: &mut [f32]) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { dots_avx2(q, keys, scores) }
    }
}

/// Four keys at a time, two registers of lanes each: eight sums hide the latency of the multiply-adds. Where
/// fewer keys are left, the last one stands in.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dots_avx2(q: &[f32], keys: &[f32], scores: &mut [f32]) {
    use std::arch::x86_64::*;

    use crate::dot::{load_floats, store_floats4};

    let count = scores.len();
    for (first, scores) in (0..count).step_by(4).zip(scores.chunks_mut(4)) {
        let row = |i: usize| {
            let start = (first + i).min(count - 1) * q.len();
            keys[start..start + q.len()].as_chunks::<LANES>().0
        };
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        let (mut low, mut high) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 4]);
        for ((q, (a, b)), (c, d)) in q.as_chunks::<LANES>().0.iter().zip(a.iter().zip(b)).zip(c.iter().zip(d))
        {
            let halves = |x: &[f32; LANES]| {
                let [low, high] = *bytemuck::cast_ref::<_, [[f32; 8]; 2]>(x);
                (load_floats(&low), load_floats(&high))
            };
            let q = halves(q);
            let keys = [halves(a), halves(b), halves(c), halves(d)];
            for i in 0..4 {
                low[i] = _mm256_fmadd_ps(q.0, keys[i].0, low[i]);
                high[i] = _mm256_fmadd_ps(q.1, keys[i].1, high[i]);
            }
        }
        // As `add_lanes`: l + 8, l + 4, then for four keys at once l + 2 and l + 1.
        let fold = |i: usize| {
            let eight = _mm256_add_ps(low[i], high[i]);
            _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
        };
        let pair = |a, b| _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let (ab, cd) = (pair(fold(0), fold(1)), pair(fold(2), fold(3)));
        let sums = _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
        let mut four = [0.0; 4];
        store_floats4(sums, &mut four);
        match scores.first_chunk_mut() {
            Some(all) => *all = four,
            None => scores.iter_mut().zip(four).for_each(|(score, sum)| *score = sum),
        }
    }
}

/// `out += weights[i] * values[i]`, values `out.len()` floats apart, position after position by fused
/// multiply-add. Portable: widens by itself.
#[inline(always)]
pub fn add_weighted(out: &mut [f32], weights: &[f32], values: &[f32]) {
    let stride = out.len();
    let rows = || weights.iter().zip(values.chunks_exact(stride));
    let mut done = 0;
    // Eight registers of sums hide the latency of the multiply-adds; what is left goes in ever smaller steps.
    while stride - done >= 64 {
        add_columns::<64>(out, done, rows());
        done += 64;
    }
    while stride - done >= 8 {
        add_columns::<8>(out, done, rows());
        done += 8;
    }
    while done < stride {
        add_columns::<1>(out, done, rows());
        done += 1;
    }
}

/// Columns `first..first + N`.
#[inline(always)]
fn add_columns<'a, const N: usize>(
    out: &mut [f32],
    first: usize,
    rows: impl Iterator<Item = (&'a f32, &'a [f32])>,
) {
    let out: &mut [f32; N] = out[first..].first_chunk_mut().expect("N columns are left");
    let mut sums = *out;
    for (weight, value) in rows {
        let value: &[f32; N] = value[first..].first_chunk().expect("N columns are left");
        for lane in 0..N {
            sums[lane] = weight.mul_add(value[lane], sums[lane]);
        }
    }
    *out = sums;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919) as f32 * 0.13).sin() * 2.0).collect()
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn wide_dots_agree_with_the_scalar_twin() {
        let Some(isa) = crate::isa::Avx2::new() else { return };
        for dim in [16, 32, 48, 64, 80, 256] {
            for count in 1..=20 {
                let (q, keys) = (values(dim), values(dim * count));
                let (mut plain, mut wide) = (vec![0.0; count], vec![0.0; count]);
                Portable.dots(&q, &keys, &mut plain);
                isa.dots(&q, &keys, &mut wide);
                assert_eq!(plain, wide, "{count} of {dim}");
            }
        }
    }

    #[test]
    fn weighted_values_are_added_in_their_order() {
        for dim in [1, 8, 31, 32, 33, 64, 100] {
            let (weights, rows, mut out) = (values(5), values(5 * dim), vec![0.5; dim]);
            add_weighted(&mut out, &weights, &rows);
            for (d, out) in out.iter().enumerate() {
                let expected = (0..5).fold(0.5f32, |acc, i| weights[i].mul_add(rows[i * dim + d], acc));
                assert_eq!(*out, expected);
            }
        }
    }
}
