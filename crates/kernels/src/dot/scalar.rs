//! The scalar twins: the accumulation rule of the module above written down as plainly as possible.

use adit_format::TensorType;

use super::{Kernel, TILE_ROWS, WeightRows, each_tile};
use crate::activations::{Row, run_place};
use crate::formats::{Float, Format32, Format256, function_for};

pub fn kernel(kind: TensorType) -> Kernel {
    function_for!(kind, tile_floats, tile32, tile256)
}

fn tile(
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    dot: impl Fn(&[u8], &Row<'_>) -> f32,
) {
    each_tile(w, x, out, |w, out| {
        for (out, x) in out.iter_mut().zip(x) {
            for (row, out) in out[..w.count()].iter_mut().enumerate() {
                *out = dot(w.row(row), x);
            }
        }
    });
}

fn tile_floats<F: Float>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    tile(w, x, out, |row, x| dot_floats(bytemuck::cast_slice::<u8, F>(row), x.floats));
}

fn tile32<F: Format32>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    tile(w, x, out, |row, x| dot32(bytemuck::cast_slice::<u8, F>(row), x));
}

fn tile256<F: Format256>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    tile(w, x, out, |row, x| dot256(bytemuck::cast_slice::<u8, F>(row), x));
}

fn dot32<F: Format32>(blocks: &[F], x: &Row<'_>) -> f32 {
    let mut acc = 0.0f32;
    for ((block, x), scale) in blocks.iter().zip(x.codes.as_chunks::<32>().0).zip(x.q8) {
        let w = block.unpack();
        let sum: i32 = w.codes.iter().zip(x).map(|(w, x)| *w as i32 * *x as i32).sum();
        acc = (w.d * scale.d).mul_add(sum as f32, acc);
        if F::HAS_MIN {
            acc = w.m.mul_add(scale.sum, acc);
        }
    }
    acc
}

fn dot256<F: Format256>(blocks: &[F], x: &Row<'_>) -> f32 {
    let mut acc = 0.0f32;
    for ((block, x), scale) in blocks.iter().zip(x.codes.as_chunks::<256>().0).zip(x.q8k) {
        let w = block.unpack();
        let product = |i: usize| w.scales[i / 16] * w.codes[i] as i32 * x[i] as i32;
        let sum: i32 = (0..256).map(product).sum();
        acc = (w.d * scale.d).mul_add(sum as f32, acc);
        if F::HAS_MIN {
            let min_product = |run: usize| w.mins[run] * scale.run_sums[run_place(run)] as i32;
            let min_sum: i32 = (0..16).map(min_product).sum();
            acc = (-(w.dmin * scale.d)).mul_add(min_sum as f32, acc);
        }
    }
    acc
}

fn dot_floats<F: Float>(row: &[F], x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (i, (w, x)) in row.iter().zip(x).enumerate() {
        lanes[i % 16] = w.widen().mul_add(*x, lanes[i % 16]);
    }
    add_lanes(lanes)
}

/// The order in which 16 lanes become one number.
#[inline(always)]
pub fn add_lanes(mut lanes: [f32; 16]) -> f32 {
    for width in [8, 4, 2, 1] {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}
