//! How NEON unpacks the formats of 32-blocks. Knows no activations.

use std::arch::aarch64::*;

use adit_format::blocks::{
    BlockIq4Nl, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, IQ4_VALUES, MXFP4_VALUES,
};

use super::lanes::*;
use crate::formats::Format32;

/// A format of 32-blocks as the NEON kernels need it.
pub trait Wide32: Format32 {
    /// How much too large the codes are.
    const OFFSET: i8 = 0;

    /// The codes in their order.
    fn codes(&self) -> [int8x16_t; 2];

    /// `d` and, with `HAS_MIN`, `m` of four blocks.
    fn scales(blocks: [&Self; 4]) -> (float32x4_t, float32x4_t);
}

impl Wide32 for BlockQ4_0 {
    const OFFSET: i8 = 8;

    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(nibbles(load(&self.qs))) }
    }

    scale_only!();
}

impl Wide32 for BlockQ4_1 {
    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(nibbles(load(&self.qs))) }
    }

    scale_and_min!(m);
}

impl Wide32 for BlockQ5_0 {
    const OFFSET: i8 = 16;

    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(or(nibbles(load(&self.qs)), fifth_bits(self.qh))) }
    }

    scale_only!();
}

impl Wide32 for BlockQ5_1 {
    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(or(nibbles(load(&self.qs)), fifth_bits(self.qh))) }
    }

    scale_and_min!(m);
}

impl Wide32 for BlockQ8_0 {
    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { signed(load_pair(bytemuck::cast_ref(&self.qs))) }
    }

    scale_only!();
}

impl Wide32 for BlockIq4Nl {
    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { look_up(&IQ4_VALUES, nibbles(load(&self.qs))) }
    }

    scale_only!();
}

impl Wide32 for BlockMxfp4 {
    #[inline(always)]
    fn codes(&self) -> [int8x16_t; 2] {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { look_up(&MXFP4_VALUES, nibbles(load(&self.qs))) }
    }

    #[inline(always)]
    fn scales(blocks: [&Self; 4]) -> (float32x4_t, float32x4_t) {
        let [a, b, c, d] = blocks;
        // As `formats::mxfp4_scale`: exponent e - 1, below 2 a denormal.
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let e = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(
                u32::from_le_bytes([a.e, b.e, c.e, d.e]) as u64
            ))));
            let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
            let denormal = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(e));
            let is_normal = vcgtq_u32(e, vdupq_n_u32(1));
            (vreinterpretq_f32_u32(vbslq_u32(is_normal, normal, denormal)), vdupq_n_f32(0.0))
        }
    }
}
