//! F32, F16 and BF16 weights: the 16 lanes of an output are one register, of four weight rows times up to six
//! activation rows at once.

use std::arch::x86_64::*;

use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows};
use crate::formats::{Brain, Float, Half, Single};
use crate::isa::Avx512;

/// Weight rows multiplied at once.
const ROWS: usize = 4;

/// A float format as the AVX-512 kernel needs it.
pub trait WideFloat: Float {
    fn widen16(sixteen: &[Self; 16], isa: Avx512) -> __m512;
}

impl WideFloat for Single {
    #[inline(always)]
    fn widen16(sixteen: &[Single; 16], _: Avx512) -> __m512 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm512_castsi512_ps(load(bytemuck::cast_ref(sixteen))) }
    }
}

impl WideFloat for Half {
    #[inline(always)]
    fn widen16(sixteen: &[Half; 16], _: Avx512) -> __m512 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm512_cvtph_ps(load_half(bytemuck::cast_ref(sixteen))) }
    }
}

impl WideFloat for Brain {
    #[inline(always)]
    fn widen16(sixteen: &[Brain; 16], _: Avx512) -> __m512 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let words = _mm512_cvtepu16_epi32(load_half(bytemuck::cast_ref(sixteen)));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
}

/// One tile of weight rows.
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: WideFloat>(isa: Avx512, w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    for first in (0..w.count()).step_by(ROWS) {
        let rows = w.blocks::<F, ROWS>(first);
        let (x, out) = meet_all::<F, 6>(isa, &rows, first, x, out);
        let (x, out) = meet_all::<F, 2>(isa, &rows, first, x, out);
        meet_all::<F, 1>(isa, &rows, first, x, out);
    }
}

/// Multiplies with `N` activation rows at a time; gives back those that are left, fewer than `N`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet_all<'x, 'out, F: WideFloat, const N: usize>(
    isa: Avx512,
    rows: &[&[F]; ROWS],
    first: usize,
    x: &'x [Row<'x>],
    out: &'out mut [[f32; TILE_ROWS]],
) -> (&'x [Row<'x>], &'out mut [[f32; TILE_ROWS]]) {
    let ((x, x_left), (out, out_left)) = (x.as_chunks::<N>(), out.as_chunks_mut::<N>());
    for (x, out) in x.iter().zip(out) {
        let products = meet(isa, rows, x);
        for (out, products) in out.iter_mut().zip(products) {
            out.as_chunks_mut().0[first / ROWS] = products;
        }
    }
    (x_left, out_left)
}

/// The products of some weight rows with `N` activation rows.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet<F: WideFloat, const N: usize>(
    isa: Avx512,
    rows: &[&[F]; ROWS],
    x: &[Row<'_>; N],
) -> [[f32; ROWS]; N] {
    let (whole, left) = (rows[0].len() / 16, rows[0].len() % 16);
    let (mut w, mut floats) = ([&[][..]; ROWS], [&[][..]; N]);
    for r in 0..ROWS {
        w[r] = &rows[r].as_chunks::<16>().0[..whole];
    }
    for n in 0..N {
        floats[n] = &x[n].floats.as_chunks::<16>().0[..whole];
    }
    let mut lanes = [[_mm512_setzero_ps(); ROWS]; N];
    for i in 0..whole {
        let mut wide = [_mm512_setzero_ps(); ROWS];
        for r in 0..ROWS {
            wide[r] = F::widen16(&w[r][i], isa);
        }
        for n in 0..N {
            let x = load_floats(&floats[n][i]);
            for r in 0..ROWS {
                lanes[n][r] = _mm512_fmadd_ps(wide[r], x, lanes[n][r]);
            }
        }
    }
    let mut products = [[0.0; ROWS]; N];
    for n in 0..N {
        for r in 0..ROWS {
            if left > 0 {
                let w = F::widen16(&padded(rows[r]), isa);
                let x = load_floats(&padded(x[n].floats));
                lanes[n][r] = _mm512_mask3_fmadd_ps(w, x, lanes[n][r], (1 << left) - 1);
            }
            products[n][r] = add_lanes(lanes[n][r]);
        }
    }
    products
}

/// What is left of a row behind whole sixteens.
fn padded<T: bytemuck::Zeroable + Copy>(row: &[T]) -> [T; 16] {
    let left = row.as_chunks::<16>().1;
    let mut padded = [T::zeroed(); 16];
    padded[..left.len()].copy_from_slice(left);
    padded
}

/// As `dot::add_lanes`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn add_lanes(lanes: __m512) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}
