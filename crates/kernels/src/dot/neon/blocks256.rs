//! How NEON unpacks the formats of super-blocks. Knows no activations.
//!
//! The 16 sub-scales of a super-block are kept as 16 words in the order of
//! [`Q8KScale::run_sums`](crate::activations::Q8KScale): those of the even runs, then those of the odd ones.
//! Where the two runs of a group of 32 share a scale, both are the same.

use std::arch::aarch64::*;

use adit_format::blocks::{BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, IQ4_VALUES};

use super::lanes::*;
use crate::dot::packed::{k_scale_bytes, q3k_scale_bytes};
use crate::formats::Format256;

/// A format of super-blocks as the NEON kernels need it.
pub trait Wide256: Format256 {
    /// How much too large the codes are.
    const OFFSET: i8 = 0;
    /// Whether both runs of a group of 32 share a scale and a minimum.
    const SHARED: bool;

    /// The codes of group `group` of 32, in their order.
    fn codes(&self, group: usize) -> [int8x16_t; 2];

    /// The scales as words in the order of run sums.
    fn scale_words(&self) -> [int16x8_t; 2];

    /// The minimums likewise; only called with `HAS_MIN`.
    fn min_words(&self) -> [int16x8_t; 2] {
        unreachable!("a format without minimums")
    }

    /// `d` and, with `HAS_MIN`, `dmin` of four blocks.
    fn scales(blocks: [&Self; 4]) -> (float32x4_t, float32x4_t);
}

/// 32 bytes of a longer array, from byte `32 * index`.
#[inline]
#[target_feature(enable = "neon")]
fn part<const N: usize>(bytes: &[u8; N], index: usize) -> [uint8x16_t; 2] {
    load_pair(&bytes.as_chunks::<32>().0[index])
}

/// Bits `from` and up of each byte moved to bits `to` and up, those of `mask` kept.
#[inline]
#[target_feature(enable = "neon")]
fn bits(bytes: [uint8x16_t; 2], from: usize, to: usize, mask: u8) -> [uint8x16_t; 2] {
    let count = from as i8 - to as i8;
    let mask = vdupq_n_u8(mask);
    [vandq_u8(shift_right(bytes[0], count), mask), vandq_u8(shift_right(bytes[1], count), mask)]
}

/// 16 signed bytes, one for each run, as words in the order of run sums.
#[inline]
#[target_feature(enable = "neon")]
fn run_words(scales: int8x16_t) -> [int16x8_t; 2] {
    // Of each word, which is a pair of runs: the even one with its sign, then the odd one.
    let pairs = vreinterpretq_s16_s8(scales);
    [vshrq_n_s16::<8>(vshlq_n_s16::<8>(pairs)), vshrq_n_s16::<8>(pairs)]
}

/// 8 signed bytes, one for each group, as words in the order of run sums.
#[inline]
#[target_feature(enable = "neon")]
fn group_words(scales: u64) -> [int16x8_t; 2] {
    [vmovl_s8(vcreate_s8(scales)); 2]
}

impl Wide256 for BlockQ2K {
    const SHARED: bool = false;

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(bits(part(&self.qs, group / 4), 2 * (group % 4), 0, 3)) }
    }

    #[inline(always)]
    fn scale_words(&self) -> [int16x8_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { run_words(vreinterpretq_s8_u8(nibbles(load(&self.scales))[0])) }
    }

    #[inline(always)]
    fn min_words(&self) -> [int16x8_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { run_words(vreinterpretq_s8_u8(nibbles(load(&self.scales))[1])) }
    }

    scale_and_min!(dmin);
}

impl Wide256 for BlockQ3K {
    const OFFSET: i8 = 4;
    const SHARED: bool = false;

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let low = bits(part(&self.qs, group / 4), 2 * (group % 4), 0, 3);
            signed(or(low, bits(load_pair(&self.hmask), group, 2, 4)))
        }
    }

    #[inline(always)]
    fn scale_words(&self) -> [int16x8_t; 2] {
        let scales = q3k_scale_bytes(&self.scales);
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let scales = load(bytemuck::cast_ref(&scales));
            run_words(vreinterpretq_s8_u8(vsubq_u8(scales, vdupq_n_u8(32))))
        }
    }

    scale_only!();
}

/// Scales and minima of the two types that pack both in 6 bits.
macro_rules! k_words {
    () => {
        const SHARED: bool = true;

        #[inline(always)]
        fn scale_words(&self) -> [int16x8_t; 2] {
            // SAFETY: every aarch64 CPU has NEON.
            unsafe { group_words(k_scale_bytes(&self.scales).0) }
        }

        #[inline(always)]
        fn min_words(&self) -> [int16x8_t; 2] {
            // SAFETY: every aarch64 CPU has NEON.
            unsafe { group_words(k_scale_bytes(&self.scales).1) }
        }

        scale_and_min!(dmin);
    };
}

impl Wide256 for BlockQ4K {
    k_words!();

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(bits(part(&self.qs, group / 2), 4 * (group % 2), 0, 15)) }
    }
}

impl Wide256 for BlockQ5K {
    k_words!();

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let low = bits(part(&self.qs, group / 2), 4 * (group % 2), 0, 15);
            signed(or(low, bits(load_pair(&self.qh), group, 4, 16)))
        }
    }
}

impl Wide256 for BlockQ6K {
    const OFFSET: i8 = 32;
    const SHARED: bool = false;

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // Groups 0..4 of 128 weights: two parts of low nibbles, then the same two of high ones.
        let (half, quarter) = (group / 4, group % 4);
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let low = bits(part(&self.ql, half * 2 + quarter % 2), 4 * (quarter / 2), 0, 15);
            signed(or(low, bits(part(&self.qh, half), 2 * quarter, 4, 0x30)))
        }
    }

    #[inline(always)]
    fn scale_words(&self) -> [int16x8_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { run_words(load_codes(&self.scales)) }
    }

    scale_only!();
}

impl Wide256 for BlockIq4Xs {
    const SHARED: bool = true;

    #[inline(always)]
    fn codes(&self, group: usize) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { look_up(&IQ4_VALUES, nibbles(load(&self.qs.as_chunks::<16>().0[group]))) }
    }

    #[inline(always)]
    fn scale_words(&self) -> [int16x8_t; 2] {
        // As `formats::iq4xs_scales`, all at once, as words.
        let (low, high) = (u32::from_le_bytes(self.scales_l) as u64, u16::from_le_bytes(self.scales_h));
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            // Each byte twice, once with the nibble wanted at the bottom.
            let (even, odd) = (vcreate_u8(low), vcreate_u8(low >> 4));
            let low = vandq_u16(vmovl_u8(vzip1_u8(even, odd)), vdupq_n_u16(15));
            // Bits 2j and 2j + 1 of `high` go to the bottom of word j, then to bits 4 and 5.
            let places: [i16; 8] = [0, -2, -4, -6, -8, -10, -12, -14];
            let high = vandq_u16(vshlq_u16(vdupq_n_u16(high), load_words(&places)), vdupq_n_u16(3));
            let scales = vorrq_u16(low, vshlq_n_u16::<4>(high));
            [vsubq_s16(vreinterpretq_s16_u16(scales), vdupq_n_s16(32)); 2]
        }
    }

    scale_only!();
}
