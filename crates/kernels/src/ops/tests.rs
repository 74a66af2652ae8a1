//! Operations against their formulas in f64, and each instruction set against the scalar twin.

use super::gates::*;
use super::norms::*;
use super::*;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin() * 5.0).collect()
}

fn close(found: &[f32], expected: impl Iterator<Item = f64>) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (*found as f64 - expected).abs();
        assert!(error <= 2e-6 * expected.abs().max(0.1), "at {i}: {found} for {expected}");
    }
}

#[test]
fn rms_norm_follows_its_formula_whole_in_place_and_by_heads() {
    for len in [1, 7, 8, 64, 576, 1001] {
        let (x, weight) = (values(len, 1), values(len, 2));
        let mean = x.iter().map(|x| *x as f64 * *x as f64).sum::<f64>() / len as f64;
        let mut out = vec![0.0; len];
        rms_norm(&x, &weight, 1e-5, &mut out);
        close(&out, x.iter().zip(&weight).map(|(x, w)| *x as f64 / (mean + 1e-5).sqrt() * *w as f64));
        let mut in_place = x.clone();
        rms_norm_in_place(&mut in_place, &weight, 1e-5);
        assert_eq!(in_place, out);
        let mut heads = [&x[..], &x[..]].concat();
        rms_norm_heads(&mut heads, &weight, 1e-5);
        assert_eq!(heads, [&out[..], &out[..]].concat());
    }
}

#[test]
fn softmax_sums_to_one_and_survives_large_values() {
    let mut x = values(100, 3);
    let total: f64 = x.iter().map(|x| (*x as f64).exp()).sum();
    let expected: Vec<f64> = x.iter().map(|x| (*x as f64).exp() / total).collect();
    softmax(&mut x);
    close(&x, expected.into_iter());
    let mut large = [1e30, f32::NEG_INFINITY, 1e30];
    softmax(&mut large);
    assert_eq!(large, [0.5, 0.0, 0.5]);
}

#[test]
fn gates_caps_and_sums_follow_their_formulas() {
    let (x, y) = (values(99, 4), values(99, 5));
    let pairs = || x.iter().zip(&y).map(|(x, y)| (*x as f64, *y as f64));
    let applied = |f: &dyn Fn(&mut [f32])| {
        let mut out = x.clone();
        f(&mut out);
        out
    };
    close(&applied(&|out| silu_mul(out, &y)), pairs().map(|(x, y)| x / (1.0 + (-x).exp()) * y));
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh());
    close(&applied(&|out| gelu_tanh_mul(out, &y)), pairs().map(|(x, y)| gelu(x) * y));
    close(&applied(&|out| soft_cap(out, 3.0)), pairs().map(|(x, _)| 3.0 * (x / 3.0).tanh()));
    close(&applied(&|out| add(out, &y)), pairs().map(|(x, y)| x + y));
    close(&applied(&|out| mul(out, &y)), pairs().map(|(x, y)| x * y));
    close(&applied(&|out| scale(out, 0.3)), pairs().map(|(x, _)| x * 0.3f32 as f64));
    close(&applied(&|out| add_scaled(out, &y, 0.3)), pairs().map(|(x, y)| x + y * 0.3f32 as f64));
}

#[test]
fn norms_without_weights_by_groups_and_around_the_mean_follow_their_formulas() {
    for len in [1, 7, 64, 1001] {
        let (x, weight, bias) = (values(2 * len, 1), values(2 * len, 2), values(2 * len, 3));
        let halves = |f: &dyn Fn(&[f32]) -> f64| {
            let scales = [f(&x[..len]), f(&x[len..])];
            let scaled: Vec<f64> = (0..2 * len).map(|i| x[i] as f64 * scales[i / len]).collect();
            scaled
        };
        let applied = |f: &dyn Fn(&mut [f32])| {
            let mut out = x.clone();
            f(&mut out);
            out
        };
        let squares = |x: &[f32]| x.iter().map(|x| *x as f64 * *x as f64).sum::<f64>();
        let rms = halves(&|x| 1.0 / (squares(x) / len as f64 + 0.1f32 as f64).sqrt());
        let l2 = halves(&|x| 1.0 / squares(x).sqrt().max(0.1));
        close(&applied(&|x| rms_scale_heads(x, len, 0.1)), rms.iter().copied());
        close(&applied(&|x| l2_norm_heads(x, len, 0.1)), l2.into_iter());
        let delta = halves(&|x| 1.0 / (squares(x) + 0.1f32 as f64).sqrt());
        close(&applied(&|x| delta_norm_heads(x, len, 0.1)), delta.into_iter());
        let weighed = rms.iter().zip(&weight).map(|(x, w)| x * *w as f64);
        close(&applied(&|x| rms_norm_groups(x, &weight, len, 0.1)), weighed);

        let mean = x.iter().map(|x| *x as f64).sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (*x as f64 - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let mean_free = x.iter().map(|x| (*x as f64 - mean) / (variance + 0.1f32 as f64).sqrt());
        let mut out = vec![0.0; x.len()];
        layer_norm(&x, None, None, 0.1, &mut out);
        close(&out, mean_free.clone());
        layer_norm(&x, Some(&weight), None, 0.1, &mut out);
        close(&out, mean_free.zip(&weight).map(|(x, w)| x * *w as f64));
        let expected: Vec<f32> = out.iter().zip(&bias).map(|(x, b)| x + b).collect();
        layer_norm(&x, Some(&weight), Some(&bias), 0.1, &mut out);
        assert_eq!(out, expected);
    }
    let mut zero = [0.0; 4];
    l2_norm_heads(&mut zero, 4, 1e-6);
    assert_eq!(zero, [0.0; 4]);
}

#[test]
fn activations_and_their_limits_follow_their_formulas() {
    let (x, y) = (values(99, 4), values(99, 5));
    let pairs = || x.iter().zip(&y).map(|(x, y)| (*x as f64, *y as f64));
    let applied = |f: &dyn Fn(&mut [f32])| {
        let mut out = x.clone();
        f(&mut out);
        out
    };
    let sigmoid_of = |x: f64| 1.0 / (1.0 + (-x).exp());
    close(&applied(&silu), pairs().map(|(x, _)| x * sigmoid_of(x)));
    close(&applied(&sigmoid), pairs().map(|(x, _)| sigmoid_of(x)));
    close(&applied(&gelu_quick), pairs().map(|(x, _)| x * sigmoid_of(1.702 * x)));
    close(&applied(&relu), pairs().map(|(x, _)| x.max(0.0)));
    close(&applied(&relu_squared), pairs().map(|(x, _)| x.max(0.0).powi(2)));
    close(&applied(&softplus), pairs().map(|(x, _)| x.exp().ln_1p()));
    close(&applied(&tanh), pairs().map(|(x, _)| x.tanh()));
    close(&applied(&exp), pairs().map(|(x, _)| x.exp()));
    close(&applied(&|x| clamp(x, -2.0, 3.0)), pairs().map(|(x, _)| x.clamp(-2.0, 3.0)));
    close(&applied(&|out| relu_mul(out, &y)), pairs().map(|(x, y)| x.max(0.0) * y));
    close(&applied(&|out| mul_sigmoid(out, &y)), pairs().map(|(x, y)| x * sigmoid_of(y)));
    close(&applied(&|out| mul_silu(out, &y)), pairs().map(|(x, y)| x * y * sigmoid_of(y)));
    let oai = |x: f64, y: f64| x.min(3.0) * sigmoid_of(1.702 * x.min(3.0)) * (y.clamp(-3.0, 3.0) + 1.0);
    close(&applied(&|out| swiglu_oai(out, &y, 1.702, 3.0)), pairs().map(|(x, y)| oai(x, y)));
    let before = |x: f64, y: f64| x.min(3.0) * sigmoid_of(x.min(3.0)) * y.clamp(-3.0, 3.0);
    close(&applied(&|out| swiglu_clamp(out, &y, 3.0)), pairs().map(|(x, y)| before(x, y)));
    let behind = |x: f64, y: f64| (x * sigmoid_of(x)).min(3.0) * y.clamp(-3.0, 3.0);
    close(&applied(&|out| silu_clamp_mul(out, &y, 3.0)), pairs().map(|(x, y)| behind(x, y)));
    let situ = |x: f64, up: f64| 2.0 * (x / 2.0).tanh() * sigmoid_of(x) * up;
    let soft = |y: f64| 3.0 * (y / 3.0).tanh();
    close(&applied(&|out| situ_mul(out, &y, 2.0, 3.0)), pairs().map(|(x, y)| situ(x, soft(y))));
    close(&applied(&|out| situ_mul(out, &y, 2.0, 0.0)), pairs().map(|(x, y)| situ(x, y)));
    // GELU itself: the tanh form is within 5e-4 of it, and both halves of it are the same function.
    let (mut alone, mut tanh_form) = (x.clone(), x.clone());
    gelu_erf(&mut alone);
    gelu_tanh(&mut tanh_form);
    assert!(alone.iter().zip(&tanh_form).all(|(a, b)| (a - b).abs() < 5e-4));
    close(&applied(&|out| gelu_erf_mul(out, &y)), alone.iter().zip(&y).map(|(x, y)| (x * y) as f64));
}

#[test]
fn every_instruction_set_agrees_with_the_scalar_twin() {
    for len in (1..=40).chain([576, 1001]) {
        let (x, y) = (values(len, 6), values(len, 7));
        type Op = fn(Isa, &mut [f32], &[f32]);
        let ops: &[Op] = &[
            |isa, x, y| rms_norm_in_place_isa(isa, x, y, 1e-6),
            |isa, x, y| rms_norm_isa(isa, y, y, 1e-6, x),
            silu_mul_isa,
            gelu_tanh_mul_isa,
            |isa, x, _| soft_cap_isa(isa, x, 30.0),
            |isa, x, _| softmax_isa(isa, x),
            |isa, x, _| rms_scale_isa(isa, x, 1e-6),
            |isa, x, _| l2_norm_isa(isa, x, 1e-6),
            |isa, x, _| delta_norm_isa(isa, x, 1e-6),
            |isa, x, y| layer_norm_isa(isa, y, Some(y), Some(y), 1e-6, x),
            |isa, x, _| silu_isa(isa, x),
            |isa, x, _| sigmoid_isa(isa, x),
            |isa, x, _| gelu_tanh_isa(isa, x),
            |isa, x, _| gelu_erf_isa(isa, x),
            |isa, x, _| gelu_quick_isa(isa, x),
            |isa, x, _| relu_isa(isa, x),
            |isa, x, _| relu_squared_isa(isa, x),
            |isa, x, _| softplus_isa(isa, x),
            |isa, x, _| tanh_isa(isa, x),
            |isa, x, _| exp_isa(isa, x),
            |isa, x, _| clamp_isa(isa, x, -2.0, 3.0),
            gelu_erf_mul_isa,
            relu_mul_isa,
            |isa, x, y| swiglu_oai_isa(isa, x, y, 1.702, 3.0),
            |isa, x, y| swiglu_clamp_isa(isa, x, y, 3.0),
            |isa, x, y| silu_clamp_mul_isa(isa, x, y, 3.0),
            |isa, x, y| situ_mul_isa(isa, x, y, 2.0, 3.0),
            mul_sigmoid_isa,
            mul_silu_isa,
        ];
        for (index, op) in ops.iter().enumerate() {
            let mut expected = x.clone();
            op(Isa::Scalar, &mut expected, &y);
            for isa in Isa::all() {
                let mut found = x.clone();
                op(isa, &mut found, &y);
                assert_eq!(found, expected, "op {index}, {} of {len}", isa.name());
            }
        }
    }
}

#[test]
fn top_k_prefers_the_lower_place_among_equals_and_shuns_nan() {
    let mut out = [0; 4];
    top_k(&[1.0, 3.0, 2.0, 3.0, f32::NAN, 3.0, -1.0], &mut out);
    assert_eq!(out, [1, 3, 5, 2]);
    let mut all = [0; 3];
    top_k(&[f32::NAN, f32::NEG_INFINITY, 0.0], &mut all);
    assert_eq!(all, [2, 0, 1]);
    top_k(&[1.0], &mut []);
    for k in 1..=20 {
        let x = values(20, k);
        let mut sorted: Vec<u32> = (0..20).collect();
        sorted.sort_by(|a, b| x[*b as usize].total_cmp(&x[*a as usize]).then(a.cmp(b)));
        let mut found = vec![0; k];
        top_k(&x, &mut found);
        assert_eq!(found, sorted[..k]);
    }
}
