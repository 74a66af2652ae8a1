//! Blocks of 16 weight rows turned so that each row has a 32-bit lane, and loads and stores: owns the
//! pointers; knows no format.

use std::arch::x86_64::*;

/// 16 bytes of each of 16 blocks, from byte `at`: register `q` holds bytes `4q..4q + 4` of block `r` in
/// lane `r`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn turn16<B: bytemuck::Pod>(blocks: &[&B; 16], at: usize) -> [__m512i; 4] {
    let mut rows = [_mm512_setzero_si512(); 4];
    for r in 0..4 {
        let low = _mm512_castsi128_si512(load16(blocks[r], at));
        let low = _mm512_inserti32x4::<1>(low, load16(blocks[r + 4], at));
        let low = _mm512_inserti32x4::<2>(low, load16(blocks[r + 8], at));
        rows[r] = _mm512_inserti32x4::<3>(low, load16(blocks[r + 12], at));
    }
    turn_lanes(rows)
}

/// The same for 32 bytes.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn turn32<B: bytemuck::Pod>(blocks: &[&B; 16], at: usize) -> [__m512i; 8] {
    let mut halves = [[_mm512_setzero_si512(); 4]; 2];
    for half in 0..2 {
        for r in 0..4 {
            let low = _mm512_castsi256_si512(load32(blocks[half * 8 + r], at));
            halves[half][r] = _mm512_inserti64x4::<1>(low, load32(blocks[half * 8 + 4 + r], at));
        }
    }
    let (a, b) = (turn_lanes(halves[0]), turn_lanes(halves[1]));
    let mut out = [_mm512_setzero_si512(); 8];
    for q in 0..4 {
        out[q] = _mm512_shuffle_i32x4::<0x88>(a[q], b[q]);
        out[4 + q] = _mm512_shuffle_i32x4::<0xdd>(a[q], b[q]);
    }
    out
}

/// The same for 64 bytes.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn turn64<B: bytemuck::Pod>(blocks: &[&B; 16], at: usize) -> [__m512i; 16] {
    let mut fours = [[_mm512_setzero_si512(); 4]; 4];
    for four in 0..4 {
        for r in 0..4 {
            fours[four][r] = load64(blocks[four * 4 + r], at);
        }
        fours[four] = turn_lanes(fours[four]);
    }
    let [a, b, c, d] = fours;
    let mut out = [_mm512_setzero_si512(); 16];
    for q in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x44>(a[q], b[q]);
        let high = _mm512_shuffle_i32x4::<0xee>(a[q], b[q]);
        let low2 = _mm512_shuffle_i32x4::<0x44>(c[q], d[q]);
        let high2 = _mm512_shuffle_i32x4::<0xee>(c[q], d[q]);
        out[q] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        out[4 + q] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        out[8 + q] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        out[12 + q] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
    out
}

/// Turns each of the four 4 x 4 squares of dwords.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn turn_lanes(r: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
    let (c, d) = (_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}

/// `N` bytes of a block, from byte `at`.
#[inline(always)]
fn part<const N: usize, B: bytemuck::Pod>(block: &B, at: usize) -> &[u8; N] {
    bytemuck::bytes_of(block)[at..].first_chunk().expect("inside the block")
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn load16<B: bytemuck::Pod>(block: &B, at: usize) -> __m128i {
    // SAFETY: 16 readable bytes; the unaligned form asks for no more.
    unsafe { _mm_loadu_si128(part::<16, B>(block, at).as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn load32<B: bytemuck::Pod>(block: &B, at: usize) -> __m256i {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_si256(part::<32, B>(block, at).as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn load64<B: bytemuck::Pod>(block: &B, at: usize) -> __m512i {
    // SAFETY: 64 readable bytes; the unaligned form asks for no more.
    unsafe { _mm512_loadu_si512(part::<64, B>(block, at).as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_words(words: &[i16; 16]) -> __m256i {
    // SAFETY: 32 readable bytes; the unaligned form asks for no more.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_floats(x: &[f32; 16]) -> __m512 {
    // SAFETY: 64 readable bytes; the unaligned form asks for no more.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn store_floats(x: __m512, out: &mut [f32; 16]) {
    // SAFETY: 64 writable bytes; the unaligned form asks for no more.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn store_dwords(x: __m512i, out: &mut [i32; 16]) {
    // SAFETY: 64 writable bytes; the unaligned form asks for no more.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn load_table(table: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; the unaligned form asks for no more.
    unsafe { _mm_loadu_si128(table.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn store_words(x: __m256i, out: &mut [i16; 16]) {
    // SAFETY: 32 writable bytes; the unaligned form asks for no more.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), x) }
}
