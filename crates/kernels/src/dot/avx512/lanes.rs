//! Small steps that the AVX-512 kernels of all formats share. Owns the loads and stores, and so the pointers;
//! knows no format.
//!
//! As on AVX2, nothing hot goes through `array::map` or `array::from_fn`.

use std::arch::x86_64::*;

use crate::dot::TILE_ROWS;

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 readable bytes; the unaligned form asks for no more.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_quarter(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; the unaligned form asks for no more.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_half(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// One 32-bit number for each row of a tile.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_words(words: &[u32; TILE_ROWS]) -> __m512i {
    load(bytemuck::cast_ref(words))
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_floats(x: &[f32; TILE_ROWS]) -> __m512 {
    // SAFETY: 64 readable bytes; the unaligned form asks for no more.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn store_floats(x: __m512, out: &mut [f32; TILE_ROWS]) {
    // SAFETY: 64 writable bytes; the unaligned form asks for no more.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) }
}

/// A table of 16 bytes, once in every quarter.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn table(bytes: &[u8; 16]) -> __m512i {
    _mm512_broadcast_i32x4(load_quarter(bytes))
}

/// Adds to each lane the products of its four codes, unsigned bytes, with four activations: exact.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn add_products(sums: __m512i, codes: __m512i, x: [i8; 4]) -> __m512i {
    _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(i32::from_ne_bytes(bytemuck::cast(x))))
}

/// The f16 numbers in the low halves of 16 words.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn halves(words: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words))
}

/// 16 bytes of each of 16 rows become columns: register `q` holds bytes `4q..4q + 4` of row `r` in lane `r`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn transpose(rows: [&[u8; 16]; TILE_ROWS]) -> [__m512i; 4] {
    // Rows `i`, `i + 4`, `i + 8` and `i + 12` side by side, so that each quarter is turned in itself.
    let mut r = [_mm512_setzero_si512(); 4];
    for i in 0..4 {
        let first = _mm512_castsi128_si512(load_quarter(rows[i]));
        let two = _mm512_inserti32x4::<1>(first, load_quarter(rows[i + 4]));
        let three = _mm512_inserti32x4::<2>(two, load_quarter(rows[i + 8]));
        r[i] = _mm512_inserti32x4::<3>(three, load_quarter(rows[i + 12]));
    }
    turn_quarters(r)
}

/// Turns the squares of 4 by 4 dwords that the quarters of four registers are.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn turn_quarters(r: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
    let (c, d) = (_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}

/// Each byte and `byte`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn and(x: __m512i, byte: i8) -> __m512i {
    _mm512_and_si512(x, _mm512_set1_epi8(byte))
}

/// Of each byte, the bits in `low` from `x`, those in `high` from `y`, and no others.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn join(low: i8, x: __m512i, high: i8, y: __m512i) -> __m512i {
    and(_mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi8(low), x, y), low | high)
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn store_dwords(x: __m512i, out: &mut [i32; 16]) {
    // SAFETY: 64 writable bytes; the unaligned form asks for no more.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) }
}
