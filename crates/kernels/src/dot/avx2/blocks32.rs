//! How AVX2 unpacks the formats of 32-blocks. Knows no activations.

use std::arch::x86_64::*;

use adit_format::blocks::{
    BlockIq4Nl, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, IQ4_VALUES, MXFP4_VALUES,
};

use super::lanes::*;
use crate::formats::Format32;
use crate::isa::Avx2;

/// A format of 32-blocks as the AVX2 kernels need it.
pub trait Wide32: Format32 {
    /// Codes are signed bytes; else they are 0..=127.
    const SIGNED: bool = false;
    /// How much too large the unsigned codes are.
    const OFFSET: i32 = 0;
    /// How many products of the largest code with 127, in pairs, fit 16 bits together.
    const PAIRS: usize;

    /// The codes in their order.
    fn codes(&self, isa: Avx2) -> __m256i;

    /// `d` and, with `HAS_MIN`, `m` of four blocks.
    fn scales(blocks: [&Self; 4], isa: Avx2) -> (__m128, __m128);
}

impl Wide32 for BlockQ4_0 {
    const OFFSET: i32 = 8;
    const PAIRS: usize = 8;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { nibbles(&self.qs) }
    }

    scale_only!();
}

impl Wide32 for BlockQ4_1 {
    const PAIRS: usize = 8;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { nibbles(&self.qs) }
    }

    scale_and_min!(m);
}

impl Wide32 for BlockQ5_0 {
    const OFFSET: i32 = 16;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm256_or_si256(nibbles(&self.qs), fifth_bits(self.qh)) }
    }

    scale_only!();
}

impl Wide32 for BlockQ5_1 {
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { _mm256_or_si256(nibbles(&self.qs), fifth_bits(self.qh)) }
    }

    scale_and_min!(m);
}

impl Wide32 for BlockQ8_0 {
    const SIGNED: bool = true;
    const PAIRS: usize = 1;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { load_codes(&self.qs) }
    }

    scale_only!();
}

impl Wide32 for BlockIq4Nl {
    const SIGNED: bool = true;
    const PAIRS: usize = 1;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { look_up(&IQ4_VALUES, nibbles(&self.qs)) }
    }

    scale_only!();
}

/// The table of MXFP4, made positive.
const MXFP4_RAISED: [i8; 16] = {
    let mut table = MXFP4_VALUES;
    let mut i = 0;
    while i < 16 {
        table[i] += 12;
        i += 1;
    }
    table
};

impl Wide32 for BlockMxfp4 {
    const OFFSET: i32 = 12;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn codes(&self, _: Avx2) -> __m256i {
        // SAFETY: the token proves that the CPU has the features.
        unsafe { look_up(&MXFP4_RAISED, nibbles(&self.qs)) }
    }

    #[inline(always)]
    fn scales(blocks: [&Self; 4], _: Avx2) -> (__m128, __m128) {
        let [a, b, c, d] = blocks;
        // As `formats::mxfp4_scale`: exponent e - 1, below 2 a denormal.
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let e = _mm_setr_epi32(a.e as i32, b.e as i32, c.e as i32, d.e as i32);
            let normal = _mm_slli_epi32::<23>(_mm_sub_epi32(e, _mm_set1_epi32(1)));
            let denormal = _mm_sllv_epi32(_mm_set1_epi32(0x0020_0000), e);
            let is_normal = _mm_cmpgt_epi32(e, _mm_set1_epi32(1));
            (_mm_castsi128_ps(_mm_blendv_epi8(denormal, normal, is_normal)), _mm_setzero_ps())
        }
    }
}
