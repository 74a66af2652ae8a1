//! Small steps that the AVX2 kernels of all formats share. Owns the loads, and so the pointers; knows no
//! format.
//!
//! In these kernels nothing hot goes through `array::map` or `array::from_fn`: the compiler does not reliably
//! inline them into functions with more target features, and a call in the inner loop halves the speed.

use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx2")]
pub fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_codes(codes: &[i8; 32]) -> __m256i {
    load(bytemuck::cast_ref(codes))
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_words(words: &[i16; 16]) -> __m256i {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_half(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; the unaligned form asks for no more.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_floats(x: &[f32; 8]) -> __m256 {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_floats(x: __m256, out: &mut [f32; 8]) {
    // SAFETY: 32 writable bytes; the unaligned form asks for no more.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), x) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_floats4(x: __m128, out: &mut [f32; 4]) {
    // SAFETY: 16 writable bytes; the unaligned form asks for no more.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), x) }
}

/// The 32 nibbles of 16 bytes: low nibbles in the lower half, high ones in the upper.
#[inline]
#[target_feature(enable = "avx2")]
pub fn nibbles(qs: &[u8; 16]) -> __m256i {
    let both = _mm256_broadcastsi128_si256(load_half(qs));
    let shifted = _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4));
    _mm256_and_si256(shifted, _mm256_set1_epi8(15))
}

/// 16 in byte `i` where bit `i` is set, else 0.
#[inline]
#[target_feature(enable = "avx2")]
pub fn fifth_bits(qh: [u8; 4]) -> __m256i {
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(qh)), spread);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
    _mm256_and_si256(set, _mm256_set1_epi8(16))
}

/// Each 16-bit word moved right by `count` bits, left if negative. Callers unroll, so it becomes immediate.
#[inline]
#[target_feature(enable = "avx2")]
pub fn shift_right(x: __m256i, count: i32) -> __m256i {
    if count >= 0 {
        _mm256_srl_epi16(x, _mm_cvtsi32_si128(count))
    } else {
        _mm256_sll_epi16(x, _mm_cvtsi32_si128(-count))
    }
}

/// What the 16 values of a table say for codes 0..16.
#[inline]
#[target_feature(enable = "avx2")]
pub fn look_up(table: &[i8; 16], codes: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(load_half(bytemuck::cast_ref(table)));
    _mm256_shuffle_epi8(table, codes)
}

/// Products of codes with activations, neighbours added: 16 words. Codes are bytes 0..=127, or signed if
/// `SIGNED`. No sum of two leaves 16 bits: activations lie in -127..=127.
#[inline]
#[target_feature(enable = "avx2")]
pub fn pair_products<const SIGNED: bool>(codes: __m256i, x: __m256i) -> __m256i {
    if SIGNED {
        // The instruction wants one side unsigned: move the signs over.
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes))
    } else {
        _mm256_maddubs_epi16(codes, x)
    }
}

/// Lane `r` becomes the sum of the 8 lanes of `sums[r]`.
#[inline]
#[target_feature(enable = "avx2")]
pub fn add_up4(sums: [__m256i; 4]) -> __m128i {
    let pair = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low, high) = (pair(sums[0], sums[1]), pair(sums[2], sums[3]));
    let all = _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
    _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all))
}

/// Four f16 numbers.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn halves4(x: [[u8; 2]; 4]) -> __m128 {
    let word = |i: usize| i16::from_le_bytes(x[i]);
    _mm_cvtph_ps(_mm_setr_epi16(word(0), word(1), word(2), word(3), 0, 0, 0, 0))
}

/// Four neighbouring pairs of f16 numbers: the firsts and the seconds.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn half_pairs4(x: [([u8; 2], [u8; 2]); 4]) -> (__m128, __m128) {
    let both = |i: usize| {
        let (first, second) = x[i];
        i32::from_le_bytes([first[0], first[1], second[0], second[1]])
    };
    let apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let all = _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_setr_epi32(both(0), both(1), both(2), both(3)), apart));
    (_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all))
}

/// Rows of eight 32-bit lanes become columns.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let pairs = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let quads = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((a0, a1), (b0, b1)) = (pairs(r[0], r[1]), pairs(r[2], r[3]));
    let ((c0, c1), (d0, d1)) = (pairs(r[4], r[5]), pairs(r[6], r[7]));
    let ((e0, e1), (e2, e3)) = (quads(a0, b0), quads(a1, b1));
    let ((f0, f1), (f2, f3)) = (quads(c0, d0), quads(c1, d1));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [
        low(e0, f0),
        low(e1, f1),
        low(e2, f2),
        low(e3, f3),
        high(e0, f0),
        high(e1, f1),
        high(e2, f2),
        high(e3, f3),
    ]
}
