//! Norms of rows and heads. Owns their order of additions; knows no threads.

use super::sum_f64;
use crate::isa::{Isa, per_isa};

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    // A square of an f32 is exact in f64.
    let mean = (sum_f64(x, |x| x as f64 * x as f64) / x.len() as f64) as f32;
    1.0 / (mean + eps).sqrt()
}

#[inline(always)]
fn rms_norm_body(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = inverse_rms(x, eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
fn rms_norm_in_place_body(x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = inverse_rms(x, eps);
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * scale * weight;
    }
}

#[inline(always)]
fn rms_scale_body(x: &mut [f32], eps: f32) {
    let scale = inverse_rms(x, eps);
    x.iter_mut().for_each(|x| *x *= scale);
}

#[inline(always)]
fn l2_norm_body(x: &mut [f32], eps: f32) {
    let length = (sum_f64(x, |x| x as f64 * x as f64) as f32).sqrt();
    // A NaN stays one.
    let scale = 1.0 / if length < eps { eps } else { length };
    x.iter_mut().for_each(|x| *x *= scale);
}

#[inline(always)]
fn delta_norm_body(x: &mut [f32], eps: f32) {
    let scale = 1.0 / (sum_f64(x, |x| x as f64 * x as f64) as f32 + eps).sqrt();
    x.iter_mut().for_each(|x| *x *= scale);
}

#[inline(always)]
fn layer_norm_body(x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let mean = sum_f64(x, f64::from) / x.len() as f64;
    for (out, x) in out.iter_mut().zip(x) {
        *out = (*x as f64 - mean) as f32;
    }
    let scale = inverse_rms(out, eps);
    out.iter_mut().for_each(|out| *out *= scale);
    if let Some(weight) = weight {
        out.iter_mut().zip(weight).for_each(|(out, weight)| *out *= weight);
    }
    if let Some(bias) = bias {
        out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
    }
}

per_isa!(pub(super) fn rms_norm_isa(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body);
per_isa!(
    pub(super) fn rms_norm_in_place_isa(x: &mut [f32], weight: &[f32], eps: f32) = rms_norm_in_place_body
);
per_isa!(pub(super) fn rms_scale_isa(x: &mut [f32], eps: f32) = rms_scale_body);
per_isa!(pub(super) fn delta_norm_isa(x: &mut [f32], eps: f32) = delta_norm_body);
per_isa!(pub(super) fn l2_norm_isa(x: &mut [f32], eps: f32) = l2_norm_body);
per_isa!(
    pub(super) fn layer_norm_isa(
        x: &[f32],
        weight: Option<&[f32]>,
        bias: Option<&[f32]>,
        eps: f32,
        out: &mut [f32],
    ) = layer_norm_body
);

/// `out = x / sqrt(mean(x^2) + eps) * weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "{} {} {}", x.len(), weight.len(), out.len());
    rms_norm_isa(Isa::best(), x, weight, eps, out);
}

/// As [`rms_norm`], over `x` itself.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    assert!(x.len() == weight.len(), "{} {}", x.len(), weight.len());
    rms_norm_in_place_isa(Isa::best(), x, weight, eps);
}

/// As [`rms_norm_in_place`] on each head of `weight.len()` elements by itself, all with the same weights.
pub fn rms_norm_heads(x: &mut [f32], weight: &[f32], eps: f32) {
    for head in heads(x, weight.len()) {
        rms_norm_in_place_isa(Isa::best(), head, weight, eps);
    }
}

/// As [`rms_norm_in_place`] on each group of `group_len` elements by itself, each with its own part of
/// `weight[x.len()]` (Mamba-2: `d_inner / n_group`).
pub fn rms_norm_groups(x: &mut [f32], weight: &[f32], group_len: usize, eps: f32) {
    assert!(x.len() == weight.len(), "{} {}", x.len(), weight.len());
    for (group, weight) in heads(x, group_len).zip(weight.chunks_exact(group_len)) {
        rms_norm_in_place_isa(Isa::best(), group, weight, eps);
    }
}

/// `x = x / sqrt(mean(x^2) + eps)` on each head of `head_len` elements by itself: the norm without weights.
pub fn rms_scale_heads(x: &mut [f32], head_len: usize, eps: f32) {
    heads(x, head_len).for_each(|head| rms_scale_isa(Isa::best(), head, eps));
}

/// `x = x / max(sqrt(sum(x^2)), eps)` on each head of `head_len` elements by itself, as ggml's
/// `ggml_l2_norm` has it.
pub fn l2_norm_heads(x: &mut [f32], head_len: usize, eps: f32) {
    heads(x, head_len).for_each(|head| l2_norm_isa(Isa::best(), head, eps));
}

/// `x = x / sqrt(sum(x^2) + eps)` on each head of `head_len` elements by itself: queries and keys of gated
/// delta nets (llama.cpp's `build_gdn_l2_norm`).
pub fn delta_norm_heads(x: &mut [f32], head_len: usize, eps: f32) {
    heads(x, head_len).for_each(|head| delta_norm_isa(Isa::best(), head, eps));
}

/// `out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias`, without what is not there; the variance
/// is that of all elements, divided by their number.
pub fn layer_norm(x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    assert!(x.len() == out.len(), "{} {}", x.len(), out.len());
    for vector in [weight, bias].into_iter().flatten() {
        assert!(vector.len() == x.len(), "{} {}", x.len(), vector.len());
    }
    layer_norm_isa(Isa::best(), x, weight, bias, eps, out);
}

fn heads(x: &mut [f32], head_len: usize) -> std::slice::ChunksExactMut<'_, f32> {
    assert!(head_len > 0 && x.len().is_multiple_of(head_len), "{} / {head_len}", x.len());
    x.chunks_exact_mut(head_len)
}
