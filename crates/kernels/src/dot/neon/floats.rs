//! F32, F16 and BF16 weights: 16 lanes in four registers for each output.

use std::arch::aarch64::*;

use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows, add_lanes};
use crate::formats::{Brain, Float, Half, Single};

/// A float format as the NEON kernel needs it.
pub trait WideFloat: Float {
    fn widen16(sixteen: &[Self; 16]) -> [float32x4_t; 4];
}

impl WideFloat for Single {
    #[inline(always)]
    fn widen16(sixteen: &[Single; 16]) -> [float32x4_t; 4] {
        let [a, b, c, d]: &[[u8; 16]; 4] = bytemuck::cast_ref(sixteen);
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { [singles4(a), singles4(b), singles4(c), singles4(d)] }
    }
}

impl WideFloat for Half {
    #[inline(always)]
    fn widen16(sixteen: &[Half; 16]) -> [float32x4_t; 4] {
        let [first, second]: &[[u8; 16]; 2] = bytemuck::cast_ref(sixteen);
        // SAFETY: every aarch64 CPU has NEON.
        let ([a, b], [c, d]) = unsafe { (halves8(first), halves8(second)) };
        [a, b, c, d]
    }
}

impl WideFloat for Brain {
    #[inline(always)]
    fn widen16(sixteen: &[Brain; 16]) -> [float32x4_t; 4] {
        let [first, second]: &[[u8; 16]; 2] = bytemuck::cast_ref(sixteen);
        // SAFETY: every aarch64 CPU has NEON.
        let ([a, b], [c, d]) = unsafe { (brains8(first), brains8(second)) };
        [a, b, c, d]
    }
}

/// Tiles of four weight rows and one activation row, or of two and two.
#[target_feature(enable = "neon")]
pub fn multiply<F: WideFloat>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let ((pairs, left), (outs, outs_left)) = (x.as_chunks::<2>(), out.as_chunks_mut::<2>());
    for (x, out) in pairs.iter().zip(outs) {
        for first in (0..w.count()).step_by(2) {
            meet::<F, 2, 2>(w, first, x, out);
        }
    }
    for (x, out) in left.iter().zip(outs_left) {
        for first in (0..w.count()).step_by(4) {
            meet::<F, 4, 1>(w, first, std::array::from_ref(x), std::array::from_mut(out));
        }
    }
}

/// Multiplies the weight rows from `first`, beyond the last the last again.
#[inline]
#[target_feature(enable = "neon")]
fn meet<F: WideFloat, const W: usize, const N: usize>(
    w: &WeightRows<'_>,
    first: usize,
    x: &[Row<'_>; N],
    out: &mut [[f32; TILE_ROWS]; N],
) {
    let w = w.blocks::<F, W>(first).map(|row| row.as_chunks::<16>());
    let x: [_; N] = std::array::from_fn(|n| x[n].floats.as_chunks::<16>());
    let mut acc = [[[vdupq_n_f32(0.0); 4]; W]; N];
    for i in 0..x[0].0.len() {
        let mut weights = [[vdupq_n_f32(0.0); 4]; W];
        for r in 0..W {
            weights[r] = F::widen16(&w[r].0[i]);
        }
        for n in 0..N {
            let x = x[n].0[i].as_chunks::<4>().0;
            for quarter in 0..4 {
                let x = load_floats(&x[quarter]);
                for r in 0..W {
                    acc[n][r][quarter] = vfmaq_f32(acc[n][r][quarter], weights[r][quarter], x);
                }
            }
        }
    }
    for n in 0..N {
        for r in 0..W {
            let mut lanes = [0.0; 16];
            for (quarter, lanes) in acc[n][r].into_iter().zip(lanes.as_chunks_mut::<4>().0) {
                store_floats(quarter, lanes);
            }
            for (lane, (w, x)) in lanes.iter_mut().zip(w[r].1.iter().zip(x[n].1)) {
                *lane = w.widen().mul_add(*x, *lane);
            }
            out[n][first + r] = add_lanes(lanes);
        }
    }
}
