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
}
