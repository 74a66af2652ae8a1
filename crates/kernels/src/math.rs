//! Elementary functions with the same bits on every machine and instruction set: only additions, fused
//! multiply-adds, divisions and bit moves, so that a loop over them widens to vectors unchanged.

/// `e^x` within 2 units in the last place; 0 below -87.3 (no denormals), infinity above 88.7, NaN for NaN.
///
/// `e^x = 2^n * e^r` with `n = round(x / ln 2)`, |r| <= ln 2 / 2, and the polynomial of Cephes' `expf`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let e = (p * r).mul_add(r, r) + 1.0;
    // 2^n in two halves, because n may be 128 while the result is finite.
    let n = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    let value = e * power(half) * power(n.wrapping_sub(half));
    // Comparisons are false for NaN, which then passes through `value` (its r is NaN).
    let value = if x < -87.3 { 0.0 } else { value };
    if x > 88.72 { f32::INFINITY } else { value }
}

/// `tanh x`, absolute error below 2e-7.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `ln(1 + e^x)`, relative error below 3e-7; `x` above 20, as ggml has it.
///
/// `max(x, 0) + ln(1 + z)` with `z = e^-|x|`, and `ln(1 + z) = 2 artanh(s)`, `s = z / (2 + z)` at most 1/3,
/// by its series.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let z = exp(-x.abs());
    let s = z / (2.0 + z);
    let square = s * s;
    let mut series = 1.0 / 17.0f32;
    for divisor in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series.mul_add(square, 1.0 / divisor);
    }
    let value = (2.0 * s).mul_add(series, if x > 0.0 { x } else { 0.0 });
    if x > 20.0 { x } else { value }
}

/// `erf x` within 2 units in the last place: two polynomials, the upper one in the exponent (N. Juffa's
/// minimax approximations).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let mut low = -5.967_617e-4f32;
    for coefficient in [4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1] {
        low = low.mul_add(s, coefficient);
    }
    let low = low.mul_add(x, x);
    let high = (-1.728_534_7e-5f32).mul_add(t, 3.831_971_3e-4);
    let mut high = high.mul_add(s, (-3.883_964_4e-3f32).mul_add(t, 2.425_462_2e-2));
    for coefficient in [-1.067_778_8e-1, -6.348_467e-1, -1.287_175_1e-1] {
        high = high.mul_add(t, coefficient);
    }
    let high = (1.0 - exp(high.mul_add(t, -t))).copysign(x);
    if t > 0.927_734_4 { high } else { low }
}

/// GELU itself: `x / 2 * (1 + erf(x / sqrt 2))`, absolute error below 2e-7 times the larger of |x| and 1.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The tanh form of GELU (ggml's `ggml_gelu_f32`): `x / 2 * (1 + tanh(u))`, which is `x / (1 + e^(-2u))`
/// without its cancellation.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
    x / (1.0 + exp(-TWO_SQRT_2_OVER_PI * x * (0.044715 * x * x + 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values over the whole useful range, dense and uneven.
    fn samples() -> impl Iterator<Item = f32> {
        (-900_000..900_000).map(|i| i as f32 * 1.03e-4)
    }

    #[test]
    fn exp_is_within_two_units_of_the_true_value() {
        for x in samples().filter(|x| (-87.0..88.7).contains(x)) {
            let truth = (x as f64).exp();
            let unit = (truth as f32).next_up() as f64 - truth as f32 as f64;
            assert!((exp(x) as f64 - truth).abs() <= 2.0 * unit, "{x}: {} {truth}", exp(x));
        }
    }

    #[test]
    fn exp_saturates_and_keeps_nan() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_silu_and_gelu_follow_their_formulas() {
        for x in samples() {
            let wide = x as f64;
            assert!((tanh(x) as f64 - wide.tanh()).abs() < 2e-7, "tanh {x}");
            let truth = wide / (1.0 + (-wide).exp());
            assert!((silu(x) as f64 - truth).abs() <= 3e-7 * truth.abs() + 1e-30, "silu {x}");
            let inner = 0.797_884_560_802_865_4 * wide * (0.044715 * wide * wide + 1.0);
            let truth = 0.5 * wide * (1.0 + inner.tanh());
            assert!((gelu_tanh(x) as f64 - truth).abs() < 3e-7 * wide.abs().max(1.0), "gelu {x}");
        }
    }

    #[test]
    fn sigmoid_and_softplus_follow_their_formulas() {
        for x in samples() {
            let wide = x as f64;
            let truth = 1.0 / (1.0 + (-wide).exp());
            assert!((sigmoid(x) as f64 - truth).abs() <= 3e-7 * truth + 1e-37, "sigmoid {x}");
            let truth = if x > 20.0 { wide } else { wide.exp().ln_1p() };
            assert!((softplus(x) as f64 - truth).abs() <= 4e-7 * truth + 1e-37, "softplus {x}");
        }
        assert!(sigmoid(f32::NAN).is_nan() && softplus(f32::NAN).is_nan());
        assert_eq!((softplus(f32::INFINITY), softplus(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
    }

    /// By the series of `e^(x^2) erf(x)`, whose terms are all positive.
    fn true_erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= 2.0 * x * x / (2 * n + 1) as f64;
            sum += term;
        }
        if x.abs() > 6.0 { x.signum() } else { 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum }
    }

    #[test]
    fn erf_and_its_gelu_follow_their_formulas() {
        for x in samples().step_by(7) {
            let (wide, truth) = (x as f64, true_erf(x as f64));
            let unit = (truth as f32).abs().next_up() as f64 - (truth as f32).abs() as f64;
            assert!((erf(x) as f64 - truth).abs() <= 2.0 * unit, "erf {x}: {} {truth}", erf(x));
            let truth = 0.5 * wide * (1.0 + true_erf(wide * std::f64::consts::FRAC_1_SQRT_2));
            assert!((gelu_erf(x) as f64 - truth).abs() < 2e-7 * wide.abs().max(1.0), "gelu {x}");
        }
        assert!(erf(f32::NAN).is_nan());
        assert_eq!((erf(f32::INFINITY), erf(-1e30), erf(0.0)), (1.0, -1.0, 0.0));
    }
}
