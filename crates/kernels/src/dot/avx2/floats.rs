//! F32, F16 and BF16 weights: 16 lanes in two registers for each of four weight rows.

use std::arch::x86_64::*;

use super::lanes::*;
use crate::dot::{TILE_ROWS, WeightRows, add_lanes};
use crate::formats::{Brain, Float, Half, Single};
use crate::isa::Avx2;

/// A float format as the AVX2 kernel needs it.
pub trait WideFloat: Float {
    fn widen8(eight: &[Self; 8], isa: Avx2) -> __m256;
}

impl WideFloat for Single {
    #[inline(always)]
    fn widen8(eight: &[Single; 8], _: Avx2) -> __m256 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm256_castsi256_ps(load(bytemuck::cast_ref(eight))) }
    }
}

impl WideFloat for Half {
    #[inline(always)]
    fn widen8(eight: &[Half; 8], _: Avx2) -> __m256 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm256_cvtph_ps(load_half(bytemuck::cast_ref(eight))) }
    }
}

impl WideFloat for Brain {
    #[inline(always)]
    fn widen8(eight: &[Brain; 8], _: Avx2) -> __m256 {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let words = _mm256_cvtepu16_epi32(load_half(bytemuck::cast_ref(eight)));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn multiply<F: WideFloat>(isa: Avx2, w: &WeightRows<'_>, x: &[f32], out: &mut [f32; TILE_ROWS]) {
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let chunks = w.blocks::<F, 4>(first).map(|row| row.as_chunks::<16>());
        let (x_chunks, x_tail) = x.as_chunks::<16>();
        let mut acc = [[_mm256_setzero_ps(); 2]; 4];
        for (i, x) in x_chunks.iter().enumerate() {
            let x = x.as_chunks::<8>().0;
            for half in 0..2 {
                let x = load_floats(&x[half]);
                for r in 0..4 {
                    let w = F::widen8(&chunks[r].0[i].as_chunks::<8>().0[half], isa);
                    acc[r][half] = _mm256_fmadd_ps(w, x, acc[r][half]);
                }
            }
        }
        for r in 0..4 {
            let mut lanes = [0.0; 16];
            for (half, lanes) in lanes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                store_floats(acc[r][half], lanes);
            }
            for (lane, (w, x)) in lanes.iter_mut().zip(chunks[r].1.iter().zip(x_tail)) {
                *lane = w.widen().mul_add(*x, *lane);
            }
            out[r] = add_lanes(lanes);
        }
    }
}
