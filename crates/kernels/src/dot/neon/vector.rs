//! One activation row: four weight rows at a time, their sums side by side in one register. Decode runs
//! here, at the speed of memory.

use std::arch::aarch64::*;

use super::blocks32::Wide32;
use super::blocks256::Wide256;
use super::lanes::*;
use crate::activations::{Q8KScale, Row};
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Neon;

#[target_feature(enable = "neon")]
pub fn multiply32<F: Wide32>(isa: Neon, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = w.blocks::<F, 4>(first);
        let mut acc = vdupq_n_f32(0.0);
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        let x = x.codes.as_chunks::<32>().0.iter().zip(x.q8);
        for (((a, b), (c, d)), (x, scale)) in rows.zip(x) {
            let (x, blocks) = (signed(load_pair(bytemuck::cast_ref(x))), [a, b, c, d]);
            let mut sums = [vdupq_n_s32(0); 4];
            for r in 0..4 {
                let [low, high] = blocks[r].codes();
                sums[r] = dot(isa, dot(isa, sums[r], low, x[0]), high, x[1]);
            }
            let mut sum = add_up4(sums);
            if F::OFFSET != 0 {
                sum = vsubq_s32(sum, vdupq_n_s32(F::OFFSET as i32 * scale.code_sum));
            }
            let (d, m) = F::scales(blocks);
            acc = vfmaq_f32(acc, vmulq_n_f32(d, scale.d), vcvtq_f32_s32(sum));
            if F::HAS_MIN {
                acc = vfmaq_n_f32(acc, m, scale.sum);
            }
        }
        store_floats(acc, out);
    }
}

#[target_feature(enable = "neon")]
pub fn multiply256<F: Wide256>(isa: Neon, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = w.blocks::<F, 4>(first);
        let mut acc = vdupq_n_f32(0.0);
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        let x = x.codes.as_chunks::<256>().0.iter().zip(x.q8k);
        for (((a, b), (c, d)), (x, scale)) in rows.zip(x) {
            let blocks = [a, b, c, d];
            let sum = sums256(isa, blocks, x, scale);
            let (d, dmin) = F::scales(blocks);
            acc = vfmaq_f32(acc, vmulq_n_f32(d, scale.d), vcvtq_f32_s32(sum));
            if F::HAS_MIN {
                let run_sums = run_sums::<F>(scale);
                let mut mins = [vdupq_n_s32(0); 4];
                for r in 0..4 {
                    mins[r] = run_products::<F>(blocks[r].min_words(), run_sums);
                }
                acc = vfmsq_f32(acc, vmulq_n_f32(dmin, scale.d), vcvtq_f32_s32(add_up4(mins)));
            }
        }
        store_floats(acc, out);
    }
}

/// The scaled products of one super-block of each of four rows.
#[inline]
#[target_feature(enable = "neon")]
fn sums256<F: Wide256>(isa: Neon, blocks: [&F; 4], x: &[i8; 256], scale: &Q8KScale) -> int32x4_t {
    let mut sums = [vdupq_n_s32(0); 4];
    let mut scales = [[vdupq_n_s16(0); 2]; 4];
    for r in 0..4 {
        scales[r] = blocks[r].scale_words();
    }
    // Four groups of 32 columns at a time, so that their sums lie side by side as their scales do.
    for (half, x) in x.as_chunks::<128>().0.iter().enumerate() {
        for r in 0..4 {
            let (mut even, mut odd) = ([vdupq_n_s32(0); 4], [vdupq_n_s32(0); 4]);
            for (group, x) in x.as_chunks::<32>().0.iter().enumerate() {
                let x = signed(load_pair(bytemuck::cast_ref(x)));
                let [low, high] = blocks[r].codes(half * 4 + group);
                even[group] = dot(isa, even[group], low, x[0]);
                match F::SHARED {
                    true => even[group] = dot(isa, even[group], high, x[1]),
                    false => odd[group] = dot(isa, odd[group], high, x[1]),
                }
            }
            sums[r] = vmlaq_s32(sums[r], add_up4(even), four_words(scales[r][0], half));
            if !F::SHARED {
                sums[r] = vmlaq_s32(sums[r], add_up4(odd), four_words(scales[r][1], half));
            }
        }
    }
    if F::OFFSET != 0 {
        let run_sums = run_sums::<F>(scale);
        for r in 0..4 {
            let excess = run_products::<F>(scales[r], run_sums);
            sums[r] = vmlsq_n_s32(sums[r], excess, F::OFFSET as i32);
        }
    }
    add_up4(sums)
}

/// The lower or the upper four of eight words.
#[inline]
#[target_feature(enable = "neon")]
fn four_words(words: int16x8_t, half: usize) -> int32x4_t {
    if half == 0 { vmovl_s16(vget_low_s16(words)) } else { vmovl_high_s16(words) }
}

/// The sums of the runs that a scale of `F` covers: of 16 activations each or, in the first half, of 32.
#[inline]
#[target_feature(enable = "neon")]
pub fn run_sums<F: Wide256>(scale: &Q8KScale) -> [int16x8_t; 2] {
    let [even, odd] = scale.run_sums.as_chunks::<8>().0 else { unreachable!("16 runs") };
    let (even, odd) = (load_words(even), load_words(odd));
    if F::SHARED { [vaddq_s16(even, odd), vdupq_n_s16(0)] } else { [even, odd] }
}

/// Products of scales or minimums with run sums, in 4 partial sums.
#[inline]
#[target_feature(enable = "neon")]
fn run_products<F: Wide256>(words: [int16x8_t; 2], run_sums: [int16x8_t; 2]) -> int32x4_t {
    let add = |sum, words, run_sums| {
        vmlal_high_s16(vmlal_s16(sum, vget_low_s16(words), vget_low_s16(run_sums)), words, run_sums)
    };
    let sum = add(vdupq_n_s32(0), words[0], run_sums[0]);
    if F::SHARED { sum } else { add(sum, words[1], run_sums[1]) }
}
