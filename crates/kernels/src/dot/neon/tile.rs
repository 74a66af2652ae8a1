//! Several activation rows: eight weight rows are unpacked once for each 256 columns, packed as the products
//! want them, and met by all activation rows. Prefill and batches run here.

use std::arch::aarch64::*;
use std::ops::Range;

use super::blocks32::Wide32;
use super::blocks256::Wide256;
use super::lanes::*;
use super::products::{Products, Run, Sums};
use super::vector::run_sums;
use crate::activations::{Q8KScale, Row};
use crate::dot::{TILE_ROWS, WeightRows};

/// Weight rows unpacked at once.
pub const ROWS: usize = 8;
/// Columns unpacked at once.
const COLS: usize = 256;
/// Groups of 32 columns in that.
const GROUPS: usize = COLS / 32;

/// What two registers say of eight weight rows.
type Floats = [float32x4_t; 2];

/// The outputs of part `part` of a tile.
#[inline(always)]
fn eight_of(out: &mut [f32; TILE_ROWS], part: usize) -> &mut [f32; ROWS] {
    &mut out.as_chunks_mut().0[part]
}

#[inline]
#[target_feature(enable = "neon")]
fn load_eight(out: &mut [f32; TILE_ROWS], part: usize) -> Floats {
    let halves = eight_of(out, part).as_chunks::<4>().0;
    [load_floats(&halves[0]), load_floats(&halves[1])]
}

#[inline]
#[target_feature(enable = "neon")]
fn store_eight(x: Floats, out: &mut [f32; TILE_ROWS], part: usize) {
    for (x, out) in x.into_iter().zip(eight_of(out, part).as_chunks_mut::<4>().0) {
        store_floats(x, out);
    }
}

/// The codes of one group of eight rows, packed: two runs of 16 columns.
#[inline]
#[target_feature(enable = "neon")]
fn pack<P: Products>(codes: &[[int8x16_t; 2]; ROWS], offset: i8) -> [Run; 2] {
    let mut runs = [[vdupq_n_s8(0); ROWS]; 2];
    for (half, run) in runs.iter_mut().enumerate() {
        for r in 0..ROWS {
            run[r] = vsubq_s8(codes[r][half], vdupq_n_s8(offset));
        }
        *run = P::pack(*run);
    }
    runs
}

/// 256 columns, or fewer at the end, of eight rows of 32-blocks.
struct Packed32 {
    groups: [[Run; 2]; GROUPS],
    d: [Floats; GROUPS],
    m: [Floats; GROUPS],
}

#[inline]
#[target_feature(enable = "neon")]
fn pack32<F: Wide32, P: Products>(rows: &[&[F]; ROWS], first: usize, count: usize, packed: &mut Packed32) {
    for g in 0..count {
        let mut codes = [[vdupq_n_s8(0); 2]; ROWS];
        for r in 0..ROWS {
            codes[r] = rows[r][first + g].codes();
        }
        packed.groups[g] = pack::<P>(&codes, F::OFFSET);
        for (half, [a, b, c, d]) in rows.as_chunks::<4>().0.iter().enumerate() {
            let blocks = [&a[first + g], &b[first + g], &c[first + g], &d[first + g]];
            (packed.d[g][half], packed.m[g][half]) = F::scales(blocks);
        }
    }
}

#[target_feature(enable = "neon")]
pub fn multiply32<F: Wide32, P: Products>(
    isa: P,
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let rows = w.blocks::<F, ROWS>(0);
    let zero = [vdupq_n_f32(0.0); 2];
    let mut packed =
        Packed32 { groups: [[[vdupq_n_s8(0); 8]; 2]; GROUPS], d: [zero; GROUPS], m: [zero; GROUPS] };
    out.iter_mut().for_each(|out| *eight_of(out, part) = [0.0; ROWS]);
    for first in (0..rows[0].len()).step_by(GROUPS) {
        let count = GROUPS.min(rows[0].len() - first);
        pack32::<F, P>(&rows, first, count, &mut packed);
        for (x, out) in x.chunks(4).zip(out.chunks_mut(4)) {
            match x.len() {
                1 | 2 => meet32::<F, P, 2>(isa, &packed, x, first..first + count, out, part),
                _ => meet32::<F, P, 4>(isa, &packed, x, first..first + count, out, part),
            }
        }
    }
}

/// Adds the products of some blocks with up to `N` activation rows to `out`. Where there are fewer, the last
/// one is taken again.
#[inline]
#[target_feature(enable = "neon")]
fn meet32<F: Wide32, P: Products, const N: usize>(
    isa: P,
    packed: &Packed32,
    x: &[Row<'_>],
    blocks: Range<usize>,
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let row = |n: usize| n.min(x.len() - 1);
    let mut acc = [[vdupq_n_f32(0.0); 2]; N];
    let (mut codes, mut scales) = ([&[][..]; N], [&[][..]; N]);
    for n in 0..N {
        acc[n] = load_eight(&mut out[row(n)], part);
        codes[n] = &x[row(n)].codes.as_chunks::<32>().0[blocks.clone()];
        scales[n] = &x[row(n)].q8[blocks.clone()];
    }
    for g in 0..blocks.len().min(GROUPS) {
        let mut sums: Sums<N> = [[vdupq_n_s32(0); 2]; N];
        for (half, run) in packed.groups[g].iter().enumerate() {
            let mut x = [vdupq_n_s8(0); N];
            for n in 0..N {
                x[n] = load_codes(&codes[n][g].as_chunks::<16>().0[half]);
            }
            isa.add(run, &x, &mut sums);
        }
        let sums = P::in_rows(sums);
        for n in 0..N {
            let scale = &scales[n][g];
            for half in 0..2 {
                let d = vmulq_n_f32(packed.d[g][half], scale.d);
                acc[n][half] = vfmaq_f32(acc[n][half], d, vcvtq_f32_s32(sums[n][half]));
                if F::HAS_MIN {
                    acc[n][half] = vfmaq_n_f32(acc[n][half], packed.m[g][half], scale.sum);
                }
            }
        }
    }
    for n in 0..N.min(x.len()) {
        store_eight(acc[n], &mut out[n], part);
    }
}

/// One super-block of eight rows.
struct Packed256 {
    groups: [[Run; 2]; GROUPS],
    /// The scales of both runs of a group, as sums are spread; only the first with `SHARED`.
    scales: [[Sums<2>; 2]; GROUPS],
    /// The minimums of the even runs and of the odd ones, a lane to each row; only the first with `SHARED`.
    mins: [[int16x8_t; GROUPS]; 2],
    d: Floats,
    dmin: Floats,
}

#[inline]
#[target_feature(enable = "neon")]
fn pack256<F: Wide256, P: Products>(rows: &[&[F]; ROWS], index: usize, packed: &mut Packed256) {
    for g in 0..GROUPS {
        let mut codes = [[vdupq_n_s8(0); 2]; ROWS];
        for r in 0..ROWS {
            codes[r] = rows[r][index].codes(g);
        }
        packed.groups[g] = pack::<P>(&codes, F::OFFSET);
    }
    let (mut scales, mut mins) = ([[vdupq_n_s16(0); ROWS]; 2], [[vdupq_n_s16(0); ROWS]; 2]);
    for r in 0..ROWS {
        [scales[0][r], scales[1][r]] = rows[r][index].scale_words();
        if F::HAS_MIN {
            [mins[0][r], mins[1][r]] = rows[r][index].min_words();
        }
    }
    for odd in 0..scales_of_group::<F>() {
        for (g, scales) in transpose8(&scales[odd]).into_iter().enumerate() {
            let wide = [vmovl_s16(vget_low_s16(scales)), vmovl_high_s16(scales)];
            packed.scales[g][odd] = P::spread(wide);
        }
        packed.mins[odd] = transpose8(&mins[odd]);
    }
    for (half, [a, b, c, d]) in rows.as_chunks::<4>().0.iter().enumerate() {
        (packed.d[half], packed.dmin[half]) = F::scales([&a[index], &b[index], &c[index], &d[index]]);
    }
}

/// Scales that a group of 32 has.
const fn scales_of_group<F: Wide256>() -> usize {
    if F::SHARED { 1 } else { 2 }
}

#[target_feature(enable = "neon")]
pub fn multiply256<F: Wide256, P: Products>(
    isa: P,
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let rows = w.blocks::<F, ROWS>(0);
    let mut packed = Packed256 {
        groups: [[[vdupq_n_s8(0); 8]; 2]; GROUPS],
        scales: [[[[vdupq_n_s32(0); 2]; 2]; 2]; GROUPS],
        mins: [[vdupq_n_s16(0); GROUPS]; 2],
        d: [vdupq_n_f32(0.0); 2],
        dmin: [vdupq_n_f32(0.0); 2],
    };
    out.iter_mut().for_each(|out| *eight_of(out, part) = [0.0; ROWS]);
    for index in 0..rows[0].len() {
        pack256::<F, P>(&rows, index, &mut packed);
        for (x, out) in x.chunks(4).zip(out.chunks_mut(4)) {
            match x.len() {
                1 | 2 => meet256::<F, P, 2>(isa, &packed, x, index, out, part),
                _ => meet256::<F, P, 4>(isa, &packed, x, index, out, part),
            }
        }
    }
}

/// Adds the products of super-block `index` with up to `N` activation rows to `out`. Where there are fewer,
/// the last one is taken again.
#[inline]
#[target_feature(enable = "neon")]
fn meet256<F: Wide256, P: Products, const N: usize>(
    isa: P,
    packed: &Packed256,
    x: &[Row<'_>],
    index: usize,
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let row = |n: usize| &x[n.min(x.len() - 1)];
    let mut codes = [&[0; COLS]; N];
    for n in 0..N {
        codes[n] = &row(n).codes.as_chunks::<COLS>().0[index];
    }
    let zero: Sums<N> = [[vdupq_n_s32(0); 2]; N];
    let (mut totals, mut sums) = (zero, zero);
    for g in 0..GROUPS {
        for (odd, run) in packed.groups[g].iter().enumerate() {
            let mut x = [vdupq_n_s8(0); N];
            for n in 0..N {
                x[n] = load_codes(&codes[n].as_chunks::<16>().0[2 * g + odd]);
            }
            isa.add(run, &x, &mut sums);
            if F::SHARED && odd == 0 {
                continue;
            }
            let scales = &packed.scales[g][if F::SHARED { 0 } else { odd }];
            for n in 0..N {
                for part in 0..2 {
                    totals[n][part] = vmlaq_s32(totals[n][part], sums[n][part], scales[n % 2][part]);
                }
            }
            sums = zero;
        }
    }
    let totals = P::in_rows(totals);
    for n in 0..N.min(x.len()) {
        let scale = &x[n].q8k[index];
        let mins = if F::HAS_MIN { min_sums::<F>(packed, scale) } else { [vdupq_n_s32(0); 2] };
        let mut acc = load_eight(&mut out[n], part);
        for half in 0..2 {
            let d = vmulq_n_f32(packed.d[half], scale.d);
            acc[half] = vfmaq_f32(acc[half], d, vcvtq_f32_s32(totals[n][half]));
            if F::HAS_MIN {
                let dmin = vmulq_n_f32(packed.dmin[half], scale.d);
                acc[half] = vfmsq_f32(acc[half], dmin, vcvtq_f32_s32(mins[half]));
            }
        }
        store_eight(acc, &mut out[n], part);
    }
}

/// Minimums of eight rows times the run sums of an activation row.
#[inline]
#[target_feature(enable = "neon")]
fn min_sums<F: Wide256>(packed: &Packed256, scale: &Q8KScale) -> [int32x4_t; 2] {
    let run_sums = run_sums::<F>(scale);
    let mut sums = [vdupq_n_s32(0); 2];
    for odd in 0..scales_of_group::<F>() {
        for (mins, run_sum) in packed.mins[odd].into_iter().zip(words(run_sums[odd])) {
            sums[0] = vmlal_n_s16(sums[0], vget_low_s16(mins), run_sum);
            sums[1] = vmlal_high_n_s16(sums[1], mins, run_sum);
        }
    }
    sums
}
