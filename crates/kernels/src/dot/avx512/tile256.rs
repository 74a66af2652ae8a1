//! Super-blocks met by any number of activation rows: 16 weight rows are unpacked once for each 256 columns,
//! a row to each 32-bit lane, and met by all activation rows.
//!
//! # Why 32 bits suffice
//!
//! Activation codes lie in -127..=127 and the largest of all sums is that of Q6_K:
//! `256 * (32 * 127) * 128 < 2^28`. Unsigned codes add at most `252 * 127 * 256 < 2^23` before the offset is
//! taken off, and minimums at most `63 * 127 * 256`.

use std::arch::x86_64::*;

use super::blocks256::{GROUPS, Mins, Packed256, Scales, Wide256};
use super::turn::*;
use crate::activations::{Q8KScale, Row};
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx512;

/// Activation rows that meet the unpacked weights together: as many as hide the latency of a product.
const ROWS: usize = 8;

/// The rows of the tile; beyond the last, the last again.
fn sixteen_rows<'a, F: bytemuck::Pod>(w: &WeightRows<'a>) -> [&'a [F]; TILE_ROWS] {
    std::array::from_fn(|r| bytemuck::cast_slice(w.row(r.min(w.count() - 1))))
}

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Wide256>(isa: Avx512, w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let rows = sixteen_rows::<F>(w);
    let zero = _mm512_setzero_si512();
    let mut packed = Packed256 {
        codes: [[zero; 8]; GROUPS],
        scales: [[zero; GROUPS]; 2],
        mins: [zero; 8],
        d: _mm512_setzero_ps(),
        dmin: _mm512_setzero_ps(),
    };
    out.iter_mut().for_each(|out| *out = [0.0; TILE_ROWS]);
    for (index, first) in rows[0].iter().enumerate() {
        let mut blocks = [first; TILE_ROWS];
        for r in 1..TILE_ROWS {
            blocks[r] = &rows[r][index];
        }
        F::unpack16(&blocks, &mut packed, isa);
        let ((whole, left), (outs, outs_left)) = (x.as_chunks::<ROWS>(), out.as_chunks_mut::<ROWS>());
        for (x, out) in whole.iter().zip(outs) {
            meet::<F, ROWS>(&packed, x, index, out);
        }
        match left.len() {
            0 => {}
            1 => meet_some::<F, 1>(&packed, left, index, outs_left),
            2 => meet_some::<F, 2>(&packed, left, index, outs_left),
            3 => meet_some::<F, 3>(&packed, left, index, outs_left),
            4 => meet_some::<F, 4>(&packed, left, index, outs_left),
            5 => meet_some::<F, 5>(&packed, left, index, outs_left),
            6 => meet_some::<F, 6>(&packed, left, index, outs_left),
            _ => meet_some::<F, 7>(&packed, left, index, outs_left),
        }
    }
}

/// [`meet`] for exactly `N` rows in slices.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet_some<F: Wide256, const N: usize>(
    packed: &Packed256,
    x: &[Row<'_>],
    index: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    let x = x.try_into().expect("N rows");
    meet::<F, N>(packed, x, index, out.try_into().expect("N rows"));
}

/// Adds the products of super-block `index` to `out`.
#[inline(never)]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet<F: Wide256, const N: usize>(
    packed: &Packed256,
    x: &[Row<'_>; N],
    index: usize,
    out: &mut [[f32; TILE_ROWS]; N],
) {
    let zero = _mm512_setzero_si512();
    let mut codes = [&x[0].codes.as_chunks::<256>().0[index]; N];
    let mut starts = [[0; 16]; N];
    for n in 0..N {
        codes[n] = &x[n].codes.as_chunks::<256>().0[index];
        if F::OFFSET != 0 {
            starts[n] = starts_of::<F>(&x[n].q8k[index]);
        }
    }
    let run_quads = if F::SCALES == Scales::OfRuns { 4 } else { 8 };
    let mut sums = [zero; N];
    for g in 0..GROUPS {
        for first in (0..8).step_by(run_quads) {
            let run = first / 4;
            let mut run_sums = [zero; N];
            if F::OFFSET != 0 {
                for n in 0..N {
                    run_sums[n] = _mm512_set1_epi32(starts[n][8 * run + g]);
                }
            }
            for q in first..first + run_quads {
                let weights = packed.codes[g][q];
                for n in 0..N {
                    let quad: [i8; 4] = codes[n].as_chunks::<32>().0[g].as_chunks::<4>().0[q];
                    let quad = _mm512_set1_epi32(i32::from_ne_bytes(bytemuck::cast(quad)));
                    run_sums[n] = _mm512_dpbusd_epi32(run_sums[n], weights, quad);
                }
            }
            for n in 0..N {
                let run_sum = match F::SCALES {
                    Scales::InCodes => run_sums[n],
                    _ => _mm512_mullo_epi32(run_sums[n], packed.scales[run][g]),
                };
                sums[n] = _mm512_add_epi32(sums[n], run_sum);
            }
        }
    }
    for n in 0..N {
        let scale = &x[n].q8k[index];
        let x_d = _mm512_set1_ps(scale.d);
        let mut acc = load_floats(&out[n]);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(packed.d, x_d), _mm512_cvtepi32_ps(sums[n]), acc);
        if F::MINS != Mins::None {
            let min_sum = _mm512_cvtepi32_ps(min_sum::<F>(packed, scale));
            acc = _mm512_fnmadd_ps(_mm512_mul_ps(packed.dmin, x_d), min_sum, acc);
        }
        store_floats(acc, &mut out[n]);
    }
}

/// What the sums of runs or groups start from, so that the offset of the codes is taken off: of runs in the
/// order of [`Q8KScale::run_sums`], of groups in theirs.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn starts_of<F: Wide256>(scale: &Q8KScale) -> [i32; 16] {
    let mut starts = [0; 16];
    let sums = _mm512_cvtepi16_epi32(load_words(&scale.run_sums));
    let sums = match F::SCALES {
        Scales::OfRuns => sums,
        _ => _mm512_add_epi32(sums, _mm512_shuffle_i64x2::<0x4e>(sums, sums)),
    };
    store_dwords(_mm512_mullo_epi32(sums, _mm512_set1_epi32(-F::OFFSET)), &mut starts);
    starts
}

/// The run sums of one activation row times the minimums.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn min_sum<F: Wide256>(packed: &Packed256, scale: &Q8KScale) -> __m512i {
    let mut run_sums = scale.run_sums;
    if F::MINS == Mins::OfGroups {
        let all = load_words(&run_sums);
        let sums = _mm_add_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
        let paired = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        store_words(_mm256_castsi128_si256(_mm_shuffle_epi8(sums, paired)), &mut run_sums);
    }
    let pairs: &[[i16; 2]; 8] = bytemuck::cast_ref(&run_sums);
    let count = if F::MINS == Mins::OfGroups { 4 } else { 8 };
    let mut sum = _mm512_setzero_si512();
    for (mins, pair) in packed.mins.iter().zip(pairs).take(count) {
        sum = _mm512_dpwssd_epi32(sum, *mins, _mm512_set1_epi32(bytemuck::cast(*pair)));
    }
    sum
}
