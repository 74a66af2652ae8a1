//! Element-wise operations, norms, activation functions and softmax on rows of floats. Owns their order of
//! additions; knows no threads (callers spread rows with [`crate::Pool::rows`]) and no formats.
//!
//! Sums run in fixed lanes: 8 of f64 where the peer sums in double precision, so every instruction set gives
//! the same bits.

mod gates;
mod norms;

use crate::isa::{Isa, per_isa};
use crate::math;

pub use gates::{
    clamp, exp, gelu_erf, gelu_erf_mul, gelu_quick, gelu_tanh, gelu_tanh_mul, mul_sigmoid, mul_silu, relu,
    relu_mul, relu_squared, sigmoid, silu, silu_clamp_mul, silu_mul, situ_mul, softplus, swiglu_clamp,
    swiglu_oai, tanh,
};
pub use norms::{
    delta_norm_heads, l2_norm_heads, layer_norm, rms_norm, rms_norm_groups, rms_norm_heads,
    rms_norm_in_place, rms_scale_heads,
};

/// Adds up `value(x[i])` in 8 lanes of f64.
#[inline(always)]
fn sum_f64(x: &[f32], value: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (chunks, tail) = x.as_chunks::<8>();
    for chunk in chunks {
        for lane in 0..8 {
            lanes[lane] += value(chunk[lane]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane += value(*x);
    }
    for width in [4, 2, 1] {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

#[inline(always)]
fn soft_cap_body(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * math::tanh(*x / cap);
    }
}

#[inline(always)]
fn softmax_body(x: &mut [f32]) {
    let max = x.iter().fold(f32::NEG_INFINITY, |max, x| if *x > max { *x } else { max });
    for x in x.iter_mut() {
        *x = math::exp(*x - max);
    }
    let inverse = (1.0 / sum_f64(x, f64::from)) as f32;
    for x in x {
        *x *= inverse;
    }
}

per_isa!(fn soft_cap_isa(x: &mut [f32], cap: f32) = soft_cap_body);
per_isa!(fn softmax_isa(x: &mut [f32]) = softmax_body);

/// `x = cap * tanh(x / cap)`.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    assert!(cap > 0.0, "a soft cap must be positive, not {cap}");
    soft_cap_isa(Isa::best(), x, cap);
}

/// `x = e^x / sum(e^x)`, kept in range by the largest. All minus infinity gives NaN.
pub fn softmax(x: &mut [f32]) {
    softmax_isa(Isa::best(), x);
}

/// `x += y`.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len(), "{} {}", x.len(), y.len());
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// `x *= y`.
pub fn mul(x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len(), "{} {}", x.len(), y.len());
    x.iter_mut().zip(y).for_each(|(x, y)| *x *= y);
}

/// `x *= factor`.
pub fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// `x += factor * y`: an expert's output into the sum of a row.
pub fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) {
    assert!(x.len() == y.len(), "{} {}", x.len(), y.len());
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

/// The places of the `out.len()` largest values, largest first; of equal ones the lower place first. NaN
/// counts as less than everything.
pub fn top_k(x: &[f32], out: &mut [u32]) {
    assert!(out.len() <= x.len(), "the {} largest of {}", out.len(), x.len());
    let key = |place: u32| if x[place as usize].is_nan() { f32::NEG_INFINITY } else { x[place as usize] };
    let mut count = 0;
    for place in 0..x.len() as u32 {
        // Later places go behind equal ones, so a full list only yields to something larger.
        let rank = out[..count].iter().rposition(|kept| key(*kept) >= key(place)).map_or(0, |last| last + 1);
        if rank == out.len() {
            continue;
        }
        count = (count + 1).min(out.len());
        out[rank..count].rotate_right(1);
        out[rank] = place;
    }
}

#[cfg(test)]
mod tests;
