//! Operations against their formulas in f64, and each instruction set against the scalar twin.

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
fn every_instruction_set_agrees_with_the_scalar_twin() {
    for len in (1..=40).chain([576, 1001]) {
        let (x, y) = (values(len, 6), values(len, 7));
        type Op = fn(Isa, &mut [f32], &[f32]);
        let ops: [Op; 6] = [
            |isa, x, y| rms_norm_in_place_isa(isa, x, y, 1e-6),
            |isa, x, y| rms_norm_isa(isa, y, y, 1e-6, x),
            silu_mul_isa,
            gelu_tanh_mul_isa,
            |isa, x, _| soft_cap_isa(isa, x, 30.0),
            |isa, x, _| softmax_isa(isa, x),
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
