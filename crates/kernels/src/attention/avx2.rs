//! Attention with AVX2: two registers of 8 floats, up to 4 queries together. Owns the intrinsics; the loops
//! are in [`super::lanes`].

use std::arch::x86_64::*;
use std::array::from_fn;
use std::ops::Range;

use super::lanes::vector_steps;
use super::registers::Lanes;
use super::steps::{Steps, Stored};
use crate::isa::Avx2;
use crate::kv::KV_BLOCK;

vector_steps! {
    Avx2, "avx2,fma,f16c", 4, [4, 4],
    [1, 4, 4], [2, 2, 2], [4, 1, 1]
}

impl Lanes for Avx2 {
    type Floats = (__m256, __m256);

    #[inline(always)]
    fn splat(self, x: f32) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has AVX2.
        let x = unsafe { _mm256_set1_ps(x) };
        (x, x)
    }

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> (__m256, __m256) {
        // SAFETY: as above, and 64 bytes are readable; the unaligned form asks for no more.
        unsafe { (_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn store(self, x: (__m256, __m256), out: &mut [f32; 16]) {
        // SAFETY: as above, and 64 bytes are writable; the unaligned form asks for no more.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), x.0);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), x.1);
        }
    }

    #[inline(always)]
    fn mul(self, a: (__m256, __m256), b: (__m256, __m256)) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has AVX2.
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn fma(self, a: (__m256, __m256), b: (__m256, __m256), c: (__m256, __m256)) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has FMA.
        unsafe { (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }

    #[inline(always)]
    fn max(self, a: (__m256, __m256), b: (__m256, __m256)) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has AVX2.
        unsafe { (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn largest_lane(self, x: (__m256, __m256)) -> f32 {
        // SAFETY: the token proves that the CPU has AVX2.
        unsafe {
            let eight = _mm256_max_ps(x.0, x.1);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn f32s(self, bytes: &[u8; 64]) -> (__m256, __m256) {
        let start = bytes.as_ptr().cast::<f32>();
        // SAFETY: the token proves that the CPU has AVX2, and 64 bytes are readable; the unaligned form
        // asks for no more.
        unsafe { (_mm256_loadu_ps(start), _mm256_loadu_ps(start.add(8))) }
    }

    #[inline(always)]
    fn f16s(self, bytes: &[u8; 32]) -> (__m256, __m256) {
        let start = bytes.as_ptr().cast::<__m128i>();
        // SAFETY: the token proves that the CPU has F16C, and 32 bytes are readable; the unaligned form
        // asks for no more.
        unsafe { (_mm256_cvtph_ps(_mm_loadu_si128(start)), _mm256_cvtph_ps(_mm_loadu_si128(start.add(1)))) }
    }

    #[inline(always)]
    fn bf16s(self, bytes: &[u8; 32]) -> (__m256, __m256) {
        let start = bytes.as_ptr().cast::<__m128i>();
        // SAFETY: the token proves that the CPU has AVX2, and 32 bytes are readable; the unaligned form
        // asks for no more.
        unsafe {
            let low = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(start)));
            let high = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(start.add(1))));
            (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }

    #[inline(always)]
    fn i8s(self, bytes: &[u8; 16]) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has AVX2, and 16 bytes are readable; the unaligned form
        // asks for no more.
        unsafe {
            let codes = _mm_loadu_si128(bytes.as_ptr().cast());
            let low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
            (low, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(codes))))
        }
    }

    #[inline(always)]
    fn splat_f16(self, bytes: &[u8; 2]) -> (__m256, __m256) {
        // SAFETY: the token proves that the CPU has F16C.
        let x = unsafe { _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(*bytes))) };
        (x, x)
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
    fn turn(self, x: [(__m256, __m256); 16]) -> [(__m256, __m256); 16] {
        // Four squares of 8 x 8: those beside the diagonal change places.
        // SAFETY: the token proves that the CPU has AVX2.
        let square = |rows: [__m256; 8]| unsafe { turn_8(rows) };
        let (first, last) = (|i: usize| x[i], |i: usize| x[i + 8]);
        let (a, b) = (square(from_fn(|i| first(i).0)), square(from_fn(|i| last(i).0)));
        let (c, d) = (square(from_fn(|i| first(i).1)), square(from_fn(|i| last(i).1)));
        from_fn(|i| if i < 8 { (a[i], b[i]) } else { (c[i - 8], d[i - 8]) })
    }
}

/// `out[i][j] = x[j][i]`
#[inline]
#[target_feature(enable = "avx2")]
fn turn_8(x: [__m256; 8]) -> [__m256; 8] {
    // Within each half first 4 rows x 4 elements are turned.
    let mut y = x;
    for i in [0, 4] {
        let (a, b) = (_mm256_unpacklo_ps(x[i], x[i + 1]), _mm256_unpackhi_ps(x[i], x[i + 1]));
        let (c, d) = (_mm256_unpacklo_ps(x[i + 2], x[i + 3]), _mm256_unpackhi_ps(x[i + 2], x[i + 3]));
        y[i] = _mm256_shuffle_ps::<0b01_00_01_00>(a, c);
        y[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, c);
        y[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(b, d);
        y[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(b, d);
    }
    let mut out = y;
    for e in 0..4 {
        out[e] = _mm256_permute2f128_ps::<0x20>(y[e], y[4 + e]);
        out[4 + e] = _mm256_permute2f128_ps::<0x31>(y[e], y[4 + e]);
    }
    out
}
