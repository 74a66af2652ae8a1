//! How AVX2 unpacks the formats of super-blocks. Knows no activations.
//!
//! The 16 sub-scales of a super-block are kept as 16 words in the order of
//! [`Q8KScale::run_sums`](crate::activations::Q8KScale): even runs in the lower half, odd ones in the upper.
//! So one shuffle within the halves spreads the two scales of a group of 32 over its products.

use std::arch::x86_64::*;

use adit_format::blocks::{BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, IQ4_VALUES};

use super::lanes::*;
use crate::dot::packed::{k_scale_bytes, q3k_scale_bytes};
use crate::formats::Format256;
use crate::isa::Avx2;

/// A format of super-blocks as the AVX2 kernels need it.
pub trait Wide256: Format256 {
    /// Codes are signed bytes; else they are 0..=127.
    const SIGNED: bool = false;
    /// How much too large the unsigned codes are, as a power of two; 0 for none.
    const OFFSET_BITS: i32 = 0;
    /// How many products of the largest code with 127, in pairs, fit 16 bits together; at most 4, those of a
    /// run, if runs of 16 have a scale each.
    const PAIRS: usize;

    /// The codes of group `group` of 32, in their order.
    fn codes(&self, group: usize, isa: Avx2) -> __m256i;

    /// The scales as words in the order of run sums.
    fn scale_words(&self, isa: Avx2) -> __m256i;

    /// The minimums likewise; only called with `HAS_MIN`.
    fn min_words(&self, _: Avx2) -> __m256i {
        unreachable!("a format without minimums")
    }

    /// `d` and, with `HAS_MIN`, `dmin` of four blocks.
    fn scales(blocks: [&Self; 4], isa: Avx2) -> (__m128, __m128);
}

/// 32 bytes of a longer array, from byte `32 * index`.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8; N], index: usize) -> &[u8; 32] {
    &bytes.as_chunks::<32>().0[index]
}

/// Two bits of each byte, from bit `2 * index`.
#[inline]
#[target_feature(enable = "avx2")]
fn two_bits(bytes: __m256i, index: usize) -> __m256i {
    _mm256_and_si256(shift_right(bytes, 2 * index as i32), _mm256_set1_epi8(3))
}

/// Bit `from` of each byte, moved to bit `to`.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_at(bytes: __m256i, from: usize, to: usize) -> __m256i {
    _mm256_and_si256(shift_right(bytes, from as i32 - to as i32), _mm256_set1_epi8(1 << to))
}

/// The low or high nibbles of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn nibble_of(bytes: __m256i, high: bool) -> __m256i {
    _mm256_and_si256(shift_right(bytes, if high { 4 } else { 0 }), _mm256_set1_epi8(15))
}

/// 16 signed bytes, one for each run, as words in the order of run sums.
#[inline]
#[target_feature(enable = "avx2")]
fn run_words(scales: __m128i) -> __m256i {
    let even_then_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, even_then_odd))
}

/// 8 signed bytes, one for each group, as words in the order of run sums.
#[inline]
#[target_feature(enable = "avx2")]
fn group_words(scales: u64) -> __m256i {
    _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(_mm_cvtsi64_si128(scales as i64)))
}

impl Wide256 for BlockQ2K {
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { two_bits(load(part(&self.qs, group / 4)), group % 4) }
    }

    #[inline(always)]
    fn scale_words(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { run_words(_mm_and_si128(load_half(&self.scales), _mm_set1_epi8(15))) }
    }

    #[inline(always)]
    fn min_words(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { run_words(_mm_and_si128(_mm_srli_epi16::<4>(load_half(&self.scales)), _mm_set1_epi8(15))) }
    }

    scale_and_min!(dmin);
}

impl Wide256 for BlockQ3K {
    const OFFSET_BITS: i32 = 2;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = two_bits(load(part(&self.qs, group / 4)), group % 4);
            _mm256_or_si256(low, bit_at(load(&self.hmask), group, 2))
        }
    }

    #[inline(always)]
    fn scale_words(&self, _: Avx2) -> __m256i {
        let scales = q3k_scale_bytes(&self.scales);
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let scales = load_half(bytemuck::cast_ref(&scales));
            run_words(_mm_sub_epi8(scales, _mm_set1_epi8(32)))
        }
    }

    scale_only!();
}

/// Scales and minima of the two types that pack both in 6 bits.
macro_rules! k_words {
    () => {
        #[inline(always)]
        fn scale_words(&self, _: Avx2) -> __m256i {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { group_words(k_scale_bytes(&self.scales).0) }
        }

        #[inline(always)]
        fn min_words(&self, _: Avx2) -> __m256i {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { group_words(k_scale_bytes(&self.scales).1) }
        }
    };
}

impl Wide256 for BlockQ4K {
    const PAIRS: usize = 8;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { nibble_of(load(part(&self.qs, group / 2)), group % 2 == 1) }
    }

    k_words!();

    scale_and_min!(dmin);
}

impl Wide256 for BlockQ5K {
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = nibble_of(load(part(&self.qs, group / 2)), group % 2 == 1);
            _mm256_or_si256(low, bit_at(load(&self.qh), group, 4))
        }
    }

    k_words!();

    scale_and_min!(dmin);
}

impl Wide256 for BlockQ6K {
    const OFFSET_BITS: i32 = 5;
    const PAIRS: usize = 2;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // Groups 0..4 of 128 weights: two parts of low nibbles, then the same two of high ones.
        let (half, quarter) = (group / 4, group % 4);
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = nibble_of(load(part(&self.ql, half * 2 + quarter % 2)), quarter >= 2);
            let high = shift_right(load(part(&self.qh, half)), 2 * quarter as i32 - 4);
            _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
        }
    }

    #[inline(always)]
    fn scale_words(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { run_words(load_half(bytemuck::cast_ref(&self.scales))) }
    }

    scale_only!();
}

impl Wide256 for BlockIq4Xs {
    const SIGNED: bool = true;
    const PAIRS: usize = 1;

    #[inline(always)]
    fn codes(&self, group: usize, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { look_up(&IQ4_VALUES, nibbles(&self.qs.as_chunks::<16>().0[group])) }
    }

    #[inline(always)]
    fn scale_words(&self, _: Avx2) -> __m256i {
        // As `formats::iq4xs_scales`, all at once, as words.
        let (low, high) = (i32::from_le_bytes(self.scales_l), i16::from_le_bytes(self.scales_h));
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let bytes = _mm_unpacklo_epi8(_mm_cvtsi32_si128(low), _mm_cvtsi32_si128(low >> 4));
            let low = _mm_cvtepu8_epi16(_mm_and_si128(bytes, _mm_set1_epi8(15)));
            // Bits 2j and 2j + 1 of `high` go to the top of word j, then down to bits 4 and 5.
            let place = _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
            let high = _mm_srli_epi16::<14>(_mm_mullo_epi16(_mm_set1_epi16(high), place));
            let scales = _mm_or_si128(low, _mm_slli_epi16::<4>(high));
            _mm256_broadcastsi128_si256(_mm_sub_epi16(scales, _mm_set1_epi16(32)))
        }
    }

    scale_only!();
}
