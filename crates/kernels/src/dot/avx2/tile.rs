//! Several activation rows: eight weight rows are unpacked once for each 256 columns, turned so that every
//! 32-bit lane belongs to one row, and met by all activation rows. Prefill and batches run here.

use std::arch::x86_64::*;
use std::ops::Range;

use super::blocks32::Wide32;
use super::blocks256::Wide256;
use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx2;

/// Weight rows unpacked at once.
pub const ROWS: usize = 8;
/// Columns unpacked at once.
const COLS: usize = 256;
/// Groups of 32 columns in that.
const GROUPS: usize = COLS / 32;

/// 32 columns of eight rows: register `q` holds columns `4q..4q + 4` of row `r` in lane `r`.
type Group = [__m256i; 8];

/// The outputs of part `part` of a tile.
#[inline(always)]
fn eight_of(out: &mut [f32; TILE_ROWS], part: usize) -> &mut [f32; ROWS] {
    &mut out.as_chunks_mut().0[part]
}

/// An expression for each of eight blocks. Not `map`: its closure would not be compiled for AVX2.
macro_rules! each {
    ($blocks:expr, $block:ident => $value:expr) => {{
        let blocks = $blocks;
        [
            {
                let $block = blocks[0];
                $value
            },
            {
                let $block = blocks[1];
                $value
            },
            {
                let $block = blocks[2];
                $value
            },
            {
                let $block = blocks[3];
                $value
            },
            {
                let $block = blocks[4];
                $value
            },
            {
                let $block = blocks[5];
                $value
            },
            {
                let $block = blocks[6];
                $value
            },
            {
                let $block = blocks[7];
                $value
            },
        ]
    }};
}

/// Eight numbers from two times four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight(low: (__m128, __m128), high: (__m128, __m128)) -> (__m256, __m256) {
    (_mm256_set_m128(high.0, low.0), _mm256_set_m128(high.1, low.1))
}

/// Adds the products of one group with `N` activation rows to `sums`. Products are first added as words,
/// `pairs` registers of them, then scaled: by `scales[0]` the first 16 columns, by `scales[1]` the others.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_group<const N: usize, const SIGNED: bool>(
    group: &Group,
    x: &[&[i8; 32]; N],
    pairs: usize,
    scales: &[__m256i; 2],
    sums: &mut [__m256i; N],
) {
    for first in (0..8).step_by(pairs) {
        let mut words = [_mm256_setzero_si256(); N];
        for (q, codes) in group.iter().enumerate().skip(first).take(pairs) {
            for n in 0..N {
                let quad = i32::from_ne_bytes(bytemuck::cast(x[n].as_chunks::<4>().0[q]));
                let products = pair_products::<SIGNED>(*codes, _mm256_set1_epi32(quad));
                words[n] = _mm256_add_epi16(words[n], products);
            }
        }
        for n in 0..N {
            sums[n] = _mm256_add_epi32(sums[n], _mm256_madd_epi16(words[n], scales[first / 4]));
        }
    }
}

/// 256 columns, or fewer at the end, of eight rows of 32-blocks.
struct Packed32 {
    groups: [Group; GROUPS],
    d: [__m256; GROUPS],
    m: [__m256; GROUPS],
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pack32<F: Wide32>(isa: Avx2, rows: &[&[F]; 8], first: usize, count: usize, packed: &mut Packed32) {
    for g in 0..count {
        let blocks = each!(rows, row => &row[first + g]);
        packed.groups[g] = transpose(each!(blocks, block => block.codes(isa)));
        let [a, b, c, d, e, f, g_, h] = blocks;
        (packed.d[g], packed.m[g]) = eight(F::scales([a, b, c, d], isa), F::scales([e, f, g_, h], isa));
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn multiply32<F: Wide32>(
    isa: Avx2,
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let rows = w.blocks::<F, ROWS>(0);
    let zero = _mm256_setzero_si256();
    let mut packed = Packed32 {
        groups: [[zero; 8]; GROUPS],
        d: [_mm256_setzero_ps(); GROUPS],
        m: [_mm256_setzero_ps(); GROUPS],
    };
    out.iter_mut().for_each(|out| *eight_of(out, part) = [0.0; ROWS]);
    for first in (0..rows[0].len()).step_by(GROUPS) {
        let count = GROUPS.min(rows[0].len() - first);
        pack32(isa, &rows, first, count, &mut packed);
        let ((fours, left), (outs, outs_left)) = (x.as_chunks::<4>(), out.as_chunks_mut::<4>());
        for (x, out) in fours.iter().zip(outs) {
            meet32::<F, 4>(&packed, x, first..first + count, out, part);
        }
        for (x, out) in left.iter().zip(outs_left) {
            meet32::<F, 1>(
                &packed,
                std::array::from_ref(x),
                first..first + count,
                std::array::from_mut(out),
                part,
            );
        }
    }
}

/// Adds the products of some blocks to `out`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn meet32<F: Wide32, const N: usize>(
    packed: &Packed32,
    x: &[Row<'_>; N],
    blocks: Range<usize>,
    out: &mut [[f32; TILE_ROWS]; N],
    part: usize,
) {
    let ones = [_mm256_set1_epi16(1); 2];
    let (mut acc, mut codes, mut scales) = ([_mm256_setzero_ps(); N], [&[][..]; N], [&[][..]; N]);
    for n in 0..N {
        acc[n] = load_floats(eight_of(&mut out[n], part));
        codes[n] = &x[n].codes.as_chunks::<32>().0[blocks.clone()];
        scales[n] = &x[n].q8[blocks.clone()];
    }
    for g in 0..blocks.len().min(GROUPS) {
        let mut sums = [_mm256_setzero_si256(); N];
        let mut group = [&codes[0][g]; N];
        for n in 1..N {
            group[n] = &codes[n][g];
        }
        match F::SIGNED {
            true => add_group::<N, true>(&packed.groups[g], &group, F::PAIRS, &ones, &mut sums),
            false => add_group::<N, false>(&packed.groups[g], &group, F::PAIRS, &ones, &mut sums),
        }
        for n in 0..N {
            let scale = &scales[n][g];
            let excess = _mm256_set1_epi32(F::OFFSET * scale.code_sum);
            let sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[n], excess));
            let d = _mm256_mul_ps(packed.d[g], _mm256_set1_ps(scale.d));
            acc[n] = _mm256_fmadd_ps(d, sum, acc[n]);
            if F::HAS_MIN {
                acc[n] = _mm256_fmadd_ps(packed.m[g], _mm256_set1_ps(scale.sum), acc[n]);
            }
        }
    }
    for n in 0..N {
        store_floats(acc[n], eight_of(&mut out[n], part));
    }
}

/// One super-block of eight rows.
struct Packed256 {
    groups: [Group; GROUPS],
    /// The scale of each run of 16, twice in every lane: `[group][run of the group]`.
    scales: [[__m256i; 2]; GROUPS],
    /// What run sums are multiplied with: the minimums or, with an offset, the scales, two runs to a lane in
    /// the order of run sums.
    biases: [__m256i; 8],
    d: __m256,
    dmin: __m256,
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pack256<F: Wide256>(isa: Avx2, rows: &[&[F]; 8], index: usize, packed: &mut Packed256) {
    let blocks = each!(rows, row => &row[index]);
    for g in 0..GROUPS {
        packed.groups[g] = transpose(each!(blocks, block => block.codes(g, isa)));
    }
    // Lane k of a row's words holds runs 4k and 4k + 2, lane 4 + k runs 4k + 1 and 4k + 3.
    let words = transpose(each!(blocks, block => block.scale_words(isa)));
    for k in 0..4 {
        for odd in 0..2 {
            let pair = words[odd * 4 + k];
            let low = _mm256_blend_epi16::<0xaa>(pair, _mm256_slli_epi32::<16>(pair));
            let high = _mm256_blend_epi16::<0x55>(pair, _mm256_srli_epi32::<16>(pair));
            packed.scales[2 * k][odd] = low;
            packed.scales[2 * k + 1][odd] = high;
        }
    }
    packed.biases = if F::HAS_MIN { transpose(each!(blocks, block => block.min_words(isa))) } else { words };
    let [a, b, c, d, e, f, g, h] = blocks;
    (packed.d, packed.dmin) = eight(F::scales([a, b, c, d], isa), F::scales([e, f, g, h], isa));
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn multiply256<F: Wide256>(
    isa: Avx2,
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    part: usize,
) {
    let rows = w.blocks::<F, ROWS>(0);
    let zero = _mm256_setzero_si256();
    let mut packed = Packed256 {
        groups: [[zero; 8]; GROUPS],
        scales: [[zero; 2]; GROUPS],
        biases: [zero; 8],
        d: _mm256_setzero_ps(),
        dmin: _mm256_setzero_ps(),
    };
    out.iter_mut().for_each(|out| *eight_of(out, part) = [0.0; ROWS]);
    for index in 0..rows[0].len() {
        pack256(isa, &rows, index, &mut packed);
        let ((fours, left), (outs, outs_left)) = (x.as_chunks::<4>(), out.as_chunks_mut::<4>());
        for (x, out) in fours.iter().zip(outs) {
            meet256::<F, 4>(&packed, x, index, out, part);
        }
        for (x, out) in left.iter().zip(outs_left) {
            meet256::<F, 1>(&packed, std::array::from_ref(x), index, std::array::from_mut(out), part);
        }
    }
}

/// Adds the products of super-block `index` to `out`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn meet256<F: Wide256, const N: usize>(
    packed: &Packed256,
    x: &[Row<'_>; N],
    index: usize,
    out: &mut [[f32; TILE_ROWS]; N],
    part: usize,
) {
    let mut sums = [_mm256_setzero_si256(); N];
    let mut codes = [&x[0].codes.as_chunks::<256>().0[index]; N];
    for n in 1..N {
        codes[n] = &x[n].codes.as_chunks::<256>().0[index];
    }
    for g in 0..GROUPS {
        let mut group = [&codes[0].as_chunks::<32>().0[g]; N];
        for n in 1..N {
            group[n] = &codes[n].as_chunks::<32>().0[g];
        }
        match F::SIGNED {
            true => add_group::<N, true>(&packed.groups[g], &group, F::PAIRS, &packed.scales[g], &mut sums),
            false => add_group::<N, false>(&packed.groups[g], &group, F::PAIRS, &packed.scales[g], &mut sums),
        }
    }
    for n in 0..N {
        let scale = &x[n].q8k[index];
        let x_d = _mm256_set1_ps(scale.d);
        let mut bias_sum = _mm256_setzero_si256();
        if F::HAS_MIN || F::OFFSET_BITS != 0 {
            let run_sums: &[[i16; 2]; 8] = bytemuck::cast_ref(&scale.run_sums);
            for (bias, pair) in packed.biases.iter().zip(run_sums) {
                let pair = _mm256_set1_epi32(bytemuck::cast(*pair));
                bias_sum = _mm256_add_epi32(bias_sum, _mm256_madd_epi16(*bias, pair));
            }
        }
        let mut sum = sums[n];
        if F::OFFSET_BITS != 0 {
            sum = _mm256_sub_epi32(sum, _mm256_sll_epi32(bias_sum, _mm_cvtsi32_si128(F::OFFSET_BITS)));
        }
        let mut acc = load_floats(eight_of(&mut out[n], part));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(packed.d, x_d), _mm256_cvtepi32_ps(sum), acc);
        if F::HAS_MIN {
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(packed.dmin, x_d), _mm256_cvtepi32_ps(bias_sum), acc);
        }
        store_floats(acc, eight_of(&mut out[n], part));
    }
}
