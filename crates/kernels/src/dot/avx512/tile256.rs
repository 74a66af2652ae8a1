//! Super-blocks met by several activation rows: two tiles of weight rows are unpacked once for each 256
//! columns, turned so that every 32-bit lane belongs to one row, and met by all activation rows.
//!
//! 32 bits suffice: activation codes lie in -127..=127, so the largest of all sums is that of Q6_K,
//! `256 * (32 * 127) * 128 < 2^28`. Unsigned codes are less than `2^8`, so that the sum of a run is less than
//! `256 * 2^8 * 127 < 2^23`, and it starts from minus its offset, so scales meet signed codes only. Minimums
//! add up to `63 * 127 * 256` at most.

use std::arch::x86_64::*;

use super::lanes::*;
use super::turn::Blocks;
use super::turned256::{GROUPS, Mins, Packed256, Scales, Turned256};
use crate::activations::{Q8KScale, Row};
use crate::dot::{TILE_ROWS, TILES, WeightRows};
use crate::isa::Avx512;

/// Activation rows that meet the unpacked weights together: as many as hide the latency of a product.
const ROWS: usize = 4;

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Turned256>(isa: Avx512, w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let rows = [w.blocks::<F, TILE_ROWS>(0), w.blocks(TILE_ROWS)];
    let zero = _mm512_setzero_si512();
    let empty = Packed256 {
        codes: [[zero; 8]; GROUPS],
        scales: [[zero; GROUPS]; 2],
        mins: [zero; 8],
        d: _mm512_setzero_ps(),
        dmin: _mm512_setzero_ps(),
    };
    let mut packed = [empty; TILES];
    out.fill([0.0; TILE_ROWS]);
    let (first_out, second_out) = out.split_at_mut(x.len());
    for index in 0..rows[0][0].len() {
        for (tile, (rows, packed)) in rows.iter().zip(&mut packed).enumerate() {
            let done = (index * TILES + tile) * TILE_ROWS * size_of::<F>();
            let ahead = w.bytes.as_ptr_range().end.wrapping_add(done);
            let mut blocks = Blocks { of_rows: [&rows[0][index]; TILE_ROWS], ahead };
            for (block, row) in blocks.of_rows.iter_mut().zip(rows) {
                *block = &row[index];
            }
            F::unpack16(&blocks, packed, isa);
        }
        let (xs, left) = x.as_chunks::<ROWS>();
        let (first_outs, first_left) = first_out.as_chunks_mut::<ROWS>();
        let (second_outs, second_left) = second_out.as_chunks_mut::<ROWS>();
        for ((x, first_out), second_out) in xs.iter().zip(first_outs).zip(second_outs) {
            meet::<F, ROWS, 1>(&packed, x, index, [first_out, second_out]);
        }
        match left.len() {
            0 => {}
            1 => meet_some::<F, 1, 4>(&packed, left, index, [first_left, second_left]),
            2 => meet_some::<F, 2, 2>(&packed, left, index, [first_left, second_left]),
            _ => meet_some::<F, 3, 2>(&packed, left, index, [first_left, second_left]),
        }
    }
}

/// [`meet`] for exactly `N` rows in slices.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet_some<F: Turned256, const N: usize, const G: usize>(
    packed: &[Packed256; TILES],
    x: &[Row<'_>],
    index: usize,
    [first_out, second_out]: [&mut [[f32; TILE_ROWS]]; TILES],
) {
    let out = [first_out.try_into().expect("N rows"), second_out.try_into().expect("N rows")];
    meet::<F, N, G>(packed, x.try_into().expect("N rows"), index, out);
}

/// Adds the products of super-block `index` to `out`; `G` groups side by side, so that there are sums enough
/// to work on while others wait.
#[inline(never)]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet<F: Turned256, const N: usize, const G: usize>(
    packed: &[Packed256; TILES],
    x: &[Row<'_>; N],
    index: usize,
    out: [&mut [[f32; TILE_ROWS]; N]; TILES],
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
    let mut sums = [[zero; TILES]; N];
    for g in (0..GROUPS).step_by(G) {
        for first in (0..8).step_by(run_quads) {
            let run = first / 4;
            let mut run_sums = [[[zero; TILES]; N]; G];
            if F::OFFSET != 0 {
                for (i, run_sums) in run_sums.iter_mut().enumerate() {
                    for n in 0..N {
                        run_sums[n] = [_mm512_set1_epi32(starts[n][8 * run + g + i]); TILES];
                    }
                }
            }
            for q in first..first + run_quads {
                for (i, run_sums) in run_sums.iter_mut().enumerate() {
                    for n in 0..N {
                        let quad = codes[n].as_chunks::<32>().0[g + i].as_chunks::<4>().0[q];
                        for t in 0..TILES {
                            run_sums[n][t] = add_products(run_sums[n][t], packed[t].codes[g + i][q], quad);
                        }
                    }
                }
            }
            for (i, run_sums) in run_sums.iter().enumerate() {
                for n in 0..N {
                    for t in 0..TILES {
                        let run_sum = match F::SCALES {
                            Scales::InCodes => run_sums[n][t],
                            _ => _mm512_mullo_epi32(run_sums[n][t], packed[t].scales[run][g + i]),
                        };
                        sums[n][t] = _mm512_add_epi32(sums[n][t], run_sum);
                    }
                }
            }
        }
    }
    for n in 0..N {
        let scale = &x[n].q8k[index];
        let x_d = _mm512_set1_ps(scale.d);
        for t in 0..TILES {
            let packed = &packed[t];
            let mut acc = load_floats(&out[t][n]);
            acc = _mm512_fmadd_ps(_mm512_mul_ps(packed.d, x_d), _mm512_cvtepi32_ps(sums[n][t]), acc);
            if F::MINS != Mins::None {
                let min_sum = _mm512_cvtepi32_ps(min_sum::<F>(packed, scale));
                acc = _mm512_fnmadd_ps(_mm512_mul_ps(packed.dmin, x_d), min_sum, acc);
            }
            store_floats(acc, &mut out[t][n]);
        }
    }
}

/// What the sums of runs or groups start from, so that the offset of the codes is taken off: of runs in the
/// order of [`Q8KScale::run_sums`], of groups in theirs.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn starts_of<F: Turned256>(scale: &Q8KScale) -> [i32; 16] {
    let mut starts = [0; 16];
    let sums = _mm512_cvtepi16_epi32(load_half(bytemuck::cast_ref(&scale.run_sums)));
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
fn min_sum<F: Turned256>(packed: &Packed256, scale: &Q8KScale) -> __m512i {
    let pairs: &[[i16; 2]] = match F::MINS {
        Mins::None => &[],
        Mins::OfGroups => bytemuck::cast_slice(&scale.group_sums),
        Mins::OfRuns => bytemuck::cast_slice(&scale.run_sums),
    };
    let mut sum = _mm512_setzero_si512();
    for (mins, pair) in packed.mins.iter().zip(pairs) {
        sum = _mm512_dpwssd_epi32(sum, *mins, _mm512_set1_epi32(bytemuck::cast(*pair)));
    }
    sum
}
