//! Small steps that the NEON kernels of all formats share. Owns the loads, and so the pointers, and the three
//! instructions for which stable Rust has no intrinsics; knows no format.
//!
//! In these kernels nothing hot goes through `array::map` or `array::from_fn`: the compiler does not reliably
//! inline their closures here, and a call in the inner loop halves the speed.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::isa::{Neon, NeonI8mm};

#[inline]
#[target_feature(enable = "neon")]
pub fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// 32 bytes in their order.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_pair(bytes: &[u8; 32]) -> [uint8x16_t; 2] {
    let halves = bytes.as_chunks::<16>().0;
    [load(&halves[0]), load(&halves[1])]
}

#[inline]
#[target_feature(enable = "neon")]
pub fn load_codes(codes: &[i8; 16]) -> int8x16_t {
    vreinterpretq_s8_u8(load(bytemuck::cast_ref(codes)))
}

#[inline]
#[target_feature(enable = "neon")]
pub fn load_words(words: &[i16; 8]) -> int16x8_t {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { vld1q_s16(words.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub fn load_floats(x: &[f32; 4]) -> float32x4_t {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub fn store_floats(x: float32x4_t, out: &mut [f32; 4]) {
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { vst1q_f32(out.as_mut_ptr(), x) }
}

/// The lanes as numbers, which the compiler keeps in their register.
#[inline]
#[target_feature(enable = "neon")]
pub fn words(x: int16x8_t) -> [i16; 8] {
    let mut words = [0; 8];
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { vst1q_s16(words.as_mut_ptr(), x) };
    words
}

/// `acc[l] += a[4l] * b[4l] + .. + a[4l + 3] * b[4l + 3]`.
#[inline]
#[target_feature(enable = "neon")]
pub fn dot(_: Neon, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the token proves that the CPU has the instruction; it changes `acc` only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
            acc = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// `acc[l] += a[4l] * b[4 * QUAD] + .. + a[4l + 3] * b[4 * QUAD + 3]`.
#[inline]
#[target_feature(enable = "neon")]
pub fn dot_quad<const QUAD: usize>(_: Neon, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the token proves that the CPU has the instruction; it changes `acc` only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {acc:v}.4s, {a:v}.16b, {b:v}.4b[{quad}]",
            acc = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b, quad = const QUAD,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// `acc[2i + j] += a[8i] * b[8j] + .. + a[8i + 7] * b[8j + 7]`: two rows of 8 with two rows of 8.
#[inline]
#[target_feature(enable = "neon")]
pub fn dot_rows(_: NeonI8mm, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the token proves that the CPU has the instruction; it changes `acc` only.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {acc:v}.4s, {a:v}.16b, {b:v}.16b",
            acc = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// Lane `r` becomes the sum of the 4 lanes of `sums[r]`.
#[inline]
#[target_feature(enable = "neon")]
pub fn add_up4(sums: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]))
}

/// The lower halves of both, then the upper halves of both.
#[inline]
#[target_feature(enable = "neon")]
pub fn zip_halves(a: int32x4_t, b: int32x4_t) -> [int32x4_t; 2] {
    let (a, b) = (vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b));
    [vreinterpretq_s32_s64(vzip1q_s64(a, b)), vreinterpretq_s32_s64(vzip2q_s64(a, b))]
}

/// Rows of four 32-bit lanes become columns.
#[inline]
#[target_feature(enable = "neon")]
pub fn transpose4(r: [int32x4_t; 4]) -> [int32x4_t; 4] {
    let [even, even_below] = [vtrn1q_s32(r[0], r[1]), vtrn1q_s32(r[2], r[3])];
    let [odd, odd_below] = [vtrn2q_s32(r[0], r[1]), vtrn2q_s32(r[2], r[3])];
    let ([first, third], [second, fourth]) = (zip_halves(even, even_below), zip_halves(odd, odd_below));
    [first, second, third, fourth]
}

/// Rows of eight 16-bit lanes become columns.
#[inline]
#[target_feature(enable = "neon")]
pub fn transpose8(r: &[int16x8_t; 8]) -> [int16x8_t; 8] {
    // The even columns of a pair of rows, two lanes of 16 bits to one of 32, and the odd ones.
    let even = |a, b| vreinterpretq_s32_s16(vtrn1q_s16(a, b));
    let odd = |a, b| vreinterpretq_s32_s16(vtrn2q_s16(a, b));
    let evens = [even(r[0], r[1]), even(r[2], r[3]), even(r[4], r[5]), even(r[6], r[7])];
    let odds = [odd(r[0], r[1]), odd(r[2], r[3]), odd(r[4], r[5]), odd(r[6], r[7])];
    let (evens, odds) = (transpose4(evens), transpose4(odds));
    let column = |x: int32x4_t| vreinterpretq_s16_s32(x);
    [
        column(evens[0]),
        column(odds[0]),
        column(evens[1]),
        column(odds[1]),
        column(evens[2]),
        column(odds[2]),
        column(evens[3]),
        column(odds[3]),
    ]
}

/// The low nibbles of 16 bytes, then the high ones.
#[inline]
#[target_feature(enable = "neon")]
pub fn nibbles(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)]
}

/// Each byte moved right by `count` bits, left if negative. Callers unroll, so it becomes immediate.
#[inline]
#[target_feature(enable = "neon")]
pub fn shift_right(bytes: uint8x16_t, count: i8) -> uint8x16_t {
    vshlq_u8(bytes, vdupq_n_s8(-count))
}

/// 16 in byte `i` where bit `i` is set, else 0.
#[inline]
#[target_feature(enable = "neon")]
pub fn fifth_bits(qh: [u8; 4]) -> [uint8x16_t; 2] {
    let all = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(qh)));
    let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let set = |bytes: [u8; 16]| {
        let set = vtstq_u8(vqtbl1q_u8(all, load(&bytes)), bit);
        vandq_u8(set, vdupq_n_u8(16))
    };
    [
        set([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        set([2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]),
    ]
}

/// Both of a pair put together with those of another.
#[inline]
#[target_feature(enable = "neon")]
pub fn or(a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
    [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])]
}

/// Unsigned codes below 128 as the products want them.
#[inline]
#[target_feature(enable = "neon")]
pub fn signed(codes: [uint8x16_t; 2]) -> [int8x16_t; 2] {
    [vreinterpretq_s8_u8(codes[0]), vreinterpretq_s8_u8(codes[1])]
}

/// What the 16 values of a table say for codes 0..16.
#[inline]
#[target_feature(enable = "neon")]
pub fn look_up(table: &[i8; 16], codes: [uint8x16_t; 2]) -> [int8x16_t; 2] {
    let table = load_codes(table);
    [vqtbl1q_s8(table, codes[0]), vqtbl1q_s8(table, codes[1])]
}

/// Four f16 numbers.
#[inline]
#[target_feature(enable = "neon")]
pub fn halves4(x: [[u8; 2]; 4]) -> float32x4_t {
    // SAFETY: 8 readable bytes; no alignment is asked for.
    let bits = unsafe { vld1_u8(x.as_flattened().as_ptr()) };
    vcvt_f32_f16(vreinterpret_f16_u8(bits))
}

/// Eight f16 numbers in their order.
#[inline]
#[target_feature(enable = "neon")]
pub fn halves8(x: &[u8; 16]) -> [float32x4_t; 2] {
    let bits = vreinterpretq_f16_u8(load(x));
    [vcvt_f32_f16(vget_low_f16(bits)), vcvt_high_f32_f16(bits)]
}

/// Four neighbouring pairs of f16 numbers: the firsts and the seconds.
#[inline]
#[target_feature(enable = "neon")]
pub fn half_pairs4(x: [([u8; 2], [u8; 2]); 4]) -> (float32x4_t, float32x4_t) {
    let pairs: [[[u8; 2]; 2]; 4] = [x[0].into(), x[1].into(), x[2].into(), x[3].into()];
    let pairs = vreinterpretq_u16_u8(load(bytemuck::cast_ref(&pairs)));
    let widen = |halves| vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)));
    (widen(vuzp1q_u16(pairs, pairs)), widen(vuzp2q_u16(pairs, pairs)))
}

/// Four f32 numbers.
#[inline]
#[target_feature(enable = "neon")]
pub fn singles4(x: &[u8; 16]) -> float32x4_t {
    vreinterpretq_f32_u8(load(x))
}

/// Eight bf16 numbers in their order.
#[inline]
#[target_feature(enable = "neon")]
pub fn brains8(x: &[u8; 16]) -> [float32x4_t; 2] {
    let bits = vreinterpretq_u16_u8(load(x));
    let (low, high) = (vshll_n_u16::<16>(vget_low_u16(bits)), vshll_high_n_u16::<16>(bits));
    [vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)]
}
