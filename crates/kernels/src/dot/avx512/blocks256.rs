//! How AVX-512 unpacks the formats of super-blocks for one activation row: 64 codes in their natural order.
//! Scales and minimums are unpacked as on AVX2. Knows no activations.

use std::arch::x86_64::*;

use adit_format::blocks::{BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};

use super::lanes::*;
use super::turned256::IQ4_RAISED;
use crate::dot::avx2::Wide256;
use crate::isa::Avx512;

/// A format of super-blocks as this kernel needs it, beyond what AVX2 does.
pub trait Codes256: Wide256 {
    /// How much too large the unsigned codes are.
    const OFFSET: i32 = 0;
    /// The products of the largest code with 127, in pairs, fit 16 bits.
    const PAIRS_FIT: bool = true;

    /// The codes `64 * part..64 * part + 64`.
    fn codes64(&self, part: usize, isa: Avx512) -> __m512i;
}

/// 32 bytes of a longer array from byte `32 * index`, twice.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn twice<const N: usize>(bytes: &[u8; N], index: usize) -> __m512i {
    _mm512_broadcast_i64x4(load_half(&bytes.as_chunks::<32>().0[index]))
}

/// Each dword of the lower half turned right by `low` bits, each of the upper by `high`. What leaves its byte
/// is masked away by callers.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn rotate(x: __m512i, low: i32, high: i32) -> __m512i {
    let counts = _mm512_inserti64x4::<1>(_mm512_set1_epi32(low), _mm256_set1_epi32(high));
    _mm512_rorv_epi32(x, counts)
}

impl Codes256 for BlockQ2K {
    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        let first = part as i32 % 2 * 4;
        // SAFETY: the token proves that the CPU has the features.
        unsafe { and(rotate(twice(&self.qs, part / 2), first, first + 2), 3) }
    }
}

impl Codes256 for BlockQ3K {
    const OFFSET: i32 = 4;

    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        let (first, group) = (part as i32 % 2 * 4, 2 * part as i32);
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = rotate(twice(&self.qs, part / 2), first, first + 2);
            join(3, low, 4, rotate(twice(&self.hmask, 0), group - 2, group - 1))
        }
    }
}

impl Codes256 for BlockQ4K {
    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { and(rotate(twice(&self.qs, part), 0, 4), 15) }
    }
}

impl Codes256 for BlockQ5K {
    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        let group = 2 * part as i32;
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = rotate(twice(&self.qs, part), 0, 4);
            join(15, low, 16, rotate(twice(&self.qh, 0), group - 4, group - 3))
        }
    }
}

impl Codes256 for BlockQ6K {
    const OFFSET: i32 = 32;

    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        let first = part as i32 % 2 * 4;
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let low = rotate(load(&self.ql.as_chunks::<64>().0[part / 2]), first, first);
            join(15, low, 48, rotate(twice(&self.qh, part / 2), first - 4, first - 2))
        }
    }
}

impl Codes256 for BlockIq4Xs {
    const OFFSET: i32 = 128;
    const PAIRS_FIT: bool = false;

    #[inline(always)]
    fn codes64(&self, part: usize, _: Avx512) -> __m512i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            // Two groups of 16 bytes, each once for its low and once for its high nibbles.
            let groups =
                _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), twice(&self.qs, part));
            let nibbles = _mm512_srlv_epi64(groups, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
            _mm512_shuffle_epi8(table(&IQ4_RAISED), and(nibbles, 15))
        }
    }
}
