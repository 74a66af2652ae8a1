//! Attention with AVX-512: a register of 16 floats, up to 8 queries together. Owns the intrinsics; the loops
//! are in [`super::lanes`].

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::vector_steps;
use super::registers::Lanes;
use super::steps::{Steps, Stored};
use crate::isa::Avx512;
use crate::kv::KV_BLOCK;

vector_steps! {
    Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", 8, [16, 16],
    [1, 4, 4], [2, 4, 4], [4, 4, 4], [8, 2, 2]
}

impl Lanes for Avx512 {
    type Floats = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        // SAFETY: as above, and 64 bytes are readable; the unaligned form asks for no more.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32; 16]) {
        // SAFETY: as above, and 64 bytes are writable; the unaligned form asks for no more.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn largest_lane(self, x: __m512) -> f32 {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe { _mm512_reduce_max_ps(x) }
    }

    #[inline(always)]
    fn f32s(self, bytes: &[u8; 64]) -> __m512 {
        // SAFETY: as above, and 64 bytes are readable; the unaligned form asks for no more.
        unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn f16s(self, bytes: &[u8; 32]) -> __m512 {
        // SAFETY: as above, and 32 bytes are readable; the unaligned form asks for no more.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn bf16s(self, bytes: &[u8; 32]) -> __m512 {
        // SAFETY: as above, and 32 bytes are readable; the unaligned form asks for no more.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn i8s(self, bytes: &[u8; 16]) -> __m512 {
        // SAFETY: as above, and 16 bytes are readable; the unaligned form asks for no more.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn splat_f16(self, bytes: &[u8; 2]) -> __m512 {
        // SAFETY: the token proves that the CPU has AVX-512 F and AVX2.
        unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes(*bytes))) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch reads nothing that the program sees and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn prefetch_far(self, address: *const u8) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    fn turn(self, x: [__m512; 16]) -> [__m512; 16] {
        // SAFETY: the token proves that the CPU has AVX-512 F.
        unsafe {
            // Element j of row i stands at [i][j]; within each 128 bits first 4 rows x 4 elements are turned.
            let mut y = x;
            for i in (0..16).step_by(4) {
                let (a, b) = (_mm512_unpacklo_ps(x[i], x[i + 1]), _mm512_unpackhi_ps(x[i], x[i + 1]));
                let (c, d) = (_mm512_unpacklo_ps(x[i + 2], x[i + 3]), _mm512_unpackhi_ps(x[i + 2], x[i + 3]));
                let wide = |x| _mm512_castps_pd(x);
                y[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(a), wide(c)));
                y[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(wide(a), wide(c)));
                y[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(b), wide(d)));
                y[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(wide(b), wide(d)));
            }
            // y[4 r + e] has in quarter q the elements 4 q + e of rows 4 r ..; now the quarters are turned.
            let mut out = y;
            for e in 0..4 {
                let low = |a, b| _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                let high = |a, b| _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                let (even, odd) = (low(y[e], y[4 + e]), high(y[e], y[4 + e]));
                let (even_high, odd_high) = (low(y[8 + e], y[12 + e]), high(y[8 + e], y[12 + e]));
                out[e] = low(even, even_high);
                out[4 + e] = low(odd, odd_high);
                out[8 + e] = high(even, even_high);
                out[12 + e] = high(odd, odd_high);
            }
            out
        }
    }
}
