//! How AVX-512 unpacks the formats of super-blocks: one block of each of 16 weight rows at once, turned so
//! that every 32-bit lane belongs to one row. Knows no activations.
//!
//! Packed bytes are turned first and split into codes afterwards: the same shuffles move two to four codes.

use std::arch::x86_64::*;
use std::mem::offset_of;

use adit_format::blocks::{BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, IQ4_VALUES};

use super::lanes::*;
use super::turn::Blocks;
use crate::formats::Format256;
use crate::isa::Avx512;

/// Groups of 32 columns in a super-block.
pub const GROUPS: usize = 8;

/// One super-block of 16 weight rows.
#[derive(Clone, Copy)]
pub struct Packed256 {
    /// Unsigned codes: register `[g][q]` holds columns `32g + 4q..32g + 4q + 4` of row `r` in lane `r`.
    pub codes: [[__m512i; 8]; GROUPS],
    /// `[run within the group][group]`, as far as the format has them.
    pub scales: [[__m512i; GROUPS]; 2],
    /// Minimums as pairs of words, as many as [`Turned256::MINS`] says.
    pub mins: [__m512i; 8],
    pub d: __m512,
    pub dmin: __m512,
}

/// What the sums of a run are multiplied with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scales {
    /// Nothing: the codes hold the scales already.
    InCodes,
    /// One scale for 32 columns.
    OfGroups,
    /// One scale for 16 columns.
    OfRuns,
}

/// Which run sums meet the minimums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mins {
    None,
    /// The four pairs of `group_sums` of [`Q8KScale`](crate::activations::Q8KScale).
    OfGroups,
    /// The eight pairs of its `run_sums`.
    OfRuns,
}

/// A format of super-blocks as the AVX-512 kernels need it.
pub trait Turned256: Format256 {
    const SCALES: Scales;
    const MINS: Mins = Mins::None;
    /// How much too large the unsigned codes are.
    const OFFSET: i32 = 0;

    /// Sets what the format has of `packed`: all codes, and the scales and minimums that the constants name.
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, isa: Avx512);
}

/// Each dword turned right by `count` bits, left if negative. Bits that stay within their byte move as in a
/// shift; what becomes of the others is masked away.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn rotate(x: __m512i, count: i32) -> __m512i {
    _mm512_rorv_epi32(x, _mm512_set1_epi32(count))
}

/// Two bits of each byte, from bit `2 * index`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn two_bits(x: __m512i, index: usize) -> __m512i {
    and(rotate(x, 2 * index as i32), 3)
}

/// The f16 numbers in the upper halves of dwords.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn upper_halves(x: __m512i) -> __m512 {
    halves(_mm512_srli_epi32::<16>(x))
}

/// Byte `index` of each dword.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn byte_of(x: __m512i, index: usize) -> __m512i {
    match index {
        3 => _mm512_srli_epi32::<24>(x),
        _ => _mm512_and_si512(rotate(x, 8 * index as i32), _mm512_set1_epi32(255)),
    }
}

/// The same with its sign.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn signed_byte_of(x: __m512i, index: usize) -> __m512i {
    _mm512_srai_epi32::<24>(rotate(x, 8 * index as i32 - 24))
}

/// Bytes 0 and 2 of each dword as words, then bytes 1 and 3.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn word_pairs(x: __m512i) -> [__m512i; 2] {
    let even = _mm512_set1_epi16(255);
    [_mm512_and_si512(x, even), _mm512_and_si512(_mm512_srli_epi32::<8>(x), even)]
}

/// Byte `index` of each dword, as both of its words.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn both_words(x: __m512i, index: usize) -> __m512i {
    // Bytes with the highest bit set choose zero.
    let first = _mm512_set4_epi32(
        0x800c_800c_u32 as i32,
        0x8008_8008_u32 as i32,
        0x8004_8004_u32 as i32,
        0x8000_8000_u32 as i32,
    );
    _mm512_shuffle_epi8(x, _mm512_add_epi8(first, _mm512_set1_epi16(index as i16)))
}

impl Turned256 for BlockQ2K {
    const SCALES: Scales = Scales::InCodes;
    const MINS: Mins = Mins::OfRuns;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let [.., d] = blocks.turn16(offset_of!(Self, d) + 4 - 16);
            (packed.d, packed.dmin) = (halves(d), upper_halves(d));
            let scales = blocks.turn16(offset_of!(Self, scales));
            for (k, scales) in scales.iter().enumerate() {
                [packed.mins[k], packed.mins[4 + k]] = word_pairs(and(_mm512_srli_epi32::<4>(*scales), 15));
            }
            let qs = blocks.turn64(offset_of!(Self, qs));
            for g in 0..GROUPS {
                let scales = and(scales[g / 2], 15);
                for q in 0..8 {
                    // At most 3 times 15: the product of a byte does not touch the next one.
                    let codes = two_bits(qs[g / 4 * 8 + q], g % 4);
                    packed.codes[g][q] = _mm512_mullo_epi16(codes, both_words(scales, g % 2 * 2 + q / 4));
                }
            }
        }
    }
}

impl Turned256 for BlockQ3K {
    const SCALES: Scales = Scales::InCodes;
    // Codes are -4..=3, scales -32..=31, so products -124..=128.
    const OFFSET: i32 = 124;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            // The scales and d are the last 14 bytes.
            let window = blocks.turn16(offset_of!(Self, scales) - 2);
            packed.d = upper_halves(window[3]);
            let scales = q3k_scales(window);
            let hmask = blocks.turn32(offset_of!(Self, hmask));
            let qs = blocks.turn64(offset_of!(Self, qs));
            for g in 0..GROUPS {
                for run in 0..2 {
                    let scale = both_words(scales[g / 2], g % 2 * 2 + run);
                    let scale = _mm512_sub_epi16(scale, _mm512_set1_epi16(32));
                    // With c the code plus 4: scale * (c - 4) + 124 for both bytes of a word at once. That
                    // is 0..=252 for each, so modulo 2^16 the word is right whatever its parts are.
                    let rest = _mm512_mullo_epi16(scale, _mm512_set1_epi16(-4 * 0x101));
                    let rest = _mm512_add_epi16(rest, _mm512_set1_epi16(124 * 0x101));
                    for q in 4 * run..4 * run + 4 {
                        let low = rotate(qs[g / 4 * 8 + q], g as i32 % 4 * 2);
                        let high = rotate(hmask[q], g as i32 - 2);
                        let codes = join(3, low, 4, high);
                        packed.codes[g][q] = _mm512_add_epi16(_mm512_mullo_epi16(codes, scale), rest);
                    }
                }
            }
        }
    }
}

/// The scales of Q3_K plus 32, four runs in a dword, from its last 16 bytes; as `formats::q3k_scales`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn q3k_scales(window: [__m512i; 4]) -> [__m512i; 4] {
    let [w0, w1, w2, w3] = window;
    let joined = |a, b| _mm512_or_si512(_mm512_srli_epi32::<16>(a), _mm512_slli_epi32::<16>(b));
    let (a, b, c) = (joined(w0, w1), joined(w1, w2), joined(w2, w3));
    let scale = |low, high| join(15, low, 48, high);
    [
        scale(a, rotate(c, -4)),
        scale(b, rotate(c, -2)),
        scale(rotate(a, 4), c),
        scale(rotate(b, 4), rotate(c, 2)),
    ]
}

/// Header, scales and minimums of Q4_K and Q5_K, which begin alike; as `formats::k_scales`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn unpack_k_scales<B: bytemuck::Pod>(blocks: &Blocks<'_, B>, packed: &mut Packed256) {
    let [d, a, b, c] = blocks.turn16(0);
    (packed.d, packed.dmin) = (halves(d), upper_halves(d));
    let joined = |low, high| join(15, low, 48, rotate(high, 2));
    let scales = [and(a, 63), joined(c, a)];
    let mins = [and(b, 63), joined(rotate(c, 4), b)];
    for g in 0..GROUPS {
        packed.scales[0][g] = byte_of(scales[g / 4], g % 4);
    }
    for (half, mins) in mins.into_iter().enumerate() {
        [packed.mins[2 * half], packed.mins[2 * half + 1]] = word_pairs(mins);
    }
}

impl Turned256 for BlockQ4K {
    const SCALES: Scales = Scales::OfGroups;
    const MINS: Mins = Mins::OfGroups;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            unpack_k_scales(blocks, packed);
            for half in 0..2 {
                let qs = blocks.turn64(offset_of!(Self, qs) + 64 * half);
                for (i, qs) in qs.iter().enumerate() {
                    let (g, q) = (4 * half + i / 8 * 2, i % 8);
                    packed.codes[g][q] = and(*qs, 15);
                    packed.codes[g + 1][q] = and(rotate(*qs, 4), 15);
                }
            }
        }
    }
}

impl Turned256 for BlockQ5K {
    const SCALES: Scales = Scales::OfGroups;
    const MINS: Mins = Mins::OfGroups;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            unpack_k_scales(blocks, packed);
            let qh = blocks.turn32(offset_of!(Self, qh));
            for half in 0..2 {
                let qs = blocks.turn64(offset_of!(Self, qs) + 64 * half);
                for (i, qs) in qs.iter().enumerate() {
                    let (g, q) = (4 * half + i / 8 * 2, i % 8);
                    let fifth = [rotate(qh[q], g as i32 - 4), rotate(qh[q], g as i32 - 3)];
                    packed.codes[g][q] = join(15, *qs, 16, fifth[0]);
                    packed.codes[g + 1][q] = join(15, rotate(*qs, 4), 16, fifth[1]);
                }
            }
        }
    }
}

impl Turned256 for BlockQ6K {
    const SCALES: Scales = Scales::OfRuns;
    const OFFSET: i32 = 32;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let [.., d] = blocks.turn16(offset_of!(Self, d) + 2 - 16);
            packed.d = upper_halves(d);
            let scales = blocks.turn16(offset_of!(Self, scales));
            for run in 0..16 {
                packed.scales[run % 2][run / 2] = signed_byte_of(scales[run / 4], run % 4);
            }
            let qh = blocks.turn64(offset_of!(Self, qh));
            for half in 0..2 {
                let ql = blocks.turn64(offset_of!(Self, ql) + 64 * half);
                for (i, ql) in ql.iter().enumerate() {
                    // Low nibbles are the first 64 of 128 columns.
                    let (quarter, q) = (i / 8, i % 8);
                    let qh = qh[8 * half + q];
                    let high = [rotate(qh, 2 * quarter as i32 - 4), rotate(qh, 2 * quarter as i32)];
                    let g = 4 * half + quarter;
                    packed.codes[g][q] = join(15, *ql, 48, high[0]);
                    packed.codes[g + 2][q] = join(15, rotate(*ql, 4), 48, high[1]);
                }
            }
        }
    }
}

/// The table of the IQ4 types, made positive.
pub const IQ4_RAISED: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (IQ4_VALUES[i] as i32 + <BlockIq4Xs as Turned256>::OFFSET) as u8;
        i += 1;
    }
    table
};

impl Turned256 for BlockIq4Xs {
    const SCALES: Scales = Scales::OfGroups;
    const OFFSET: i32 = 128;

    #[inline(always)]
    fn unpack16(blocks: &Blocks<'_, Self>, packed: &mut Packed256, _: Avx512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let [first, scales_l, ..] = blocks.turn16(0);
            packed.d = halves(first);
            for g in 0..GROUPS {
                // As `formats::iq4xs_scales`.
                let low = rotate(scales_l, 4 * g as i32);
                let high = rotate(first, 16 + 2 * g as i32 - 4);
                let scale = _mm512_and_si512(join(15, low, 48, high), _mm512_set1_epi32(63));
                packed.scales[0][g] = _mm512_sub_epi32(scale, _mm512_set1_epi32(32));
            }
            let table = table(&IQ4_RAISED);
            for half in 0..2 {
                let qs = blocks.turn64(offset_of!(Self, qs) + 64 * half);
                for (i, qs) in qs.iter().enumerate() {
                    let (g, q) = (4 * half + i / 4, i % 4);
                    packed.codes[g][q] = _mm512_shuffle_epi8(table, and(*qs, 15));
                    packed.codes[g][4 + q] = _mm512_shuffle_epi8(table, and(rotate(*qs, 4), 15));
                }
            }
        }
    }
}
