//! Activation functions of feed-forward blocks and gates, alone and with the product that follows. Owns the
//! formulas, as ggml has them; knows no threads.

use crate::isa::{Isa, per_isa};
use crate::math;

/// Makes a function that computes `formula` of each element and some constants in place, and its form for
/// a given instruction set.
macro_rules! in_place {
    ($(#[$doc:meta])* $name:ident, $isa:ident, |$x:ident $(, $constant:ident)*| $formula:expr) => {
        $(#[$doc])*
        pub fn $name(x: &mut [f32] $(, $constant: f32)*) {
            $isa(Isa::best(), x $(, $constant)*);
        }

        pub(super) fn $isa(isa: Isa, x: &mut [f32] $(, $constant: f32)*) {
            #[inline(always)]
            fn body(x: &mut [f32] $(, $constant: f32)*) {
                for place in x {
                    let $x = *place;
                    *place = $formula;
                }
            }
            per_isa!(fn on(x: &mut [f32] $(, $constant: f32)*) = body);
            on(isa, x $(, $constant)*);
        }
    };
}

/// As [`in_place`] for a formula of two elements, whose result takes the first one's place.
macro_rules! with_other {
    (
        $(#[$doc:meta])* $name:ident, $isa:ident,
        |$x:ident, $y:ident $(, $constant:ident)*| $formula:expr
    ) => {
        $(#[$doc])*
        pub fn $name($x: &mut [f32], $y: &[f32] $(, $constant: f32)*) {
            assert!($x.len() == $y.len(), "{} {}", $x.len(), $y.len());
            $isa(Isa::best(), $x, $y $(, $constant)*);
        }

        pub(super) fn $isa(isa: Isa, x: &mut [f32], y: &[f32] $(, $constant: f32)*) {
            #[inline(always)]
            fn body(x: &mut [f32], y: &[f32] $(, $constant: f32)*) {
                for (place, y) in x.iter_mut().zip(y) {
                    let ($x, $y) = (*place, *y);
                    *place = $formula;
                }
            }
            per_isa!(fn on(x: &mut [f32], y: &[f32] $(, $constant: f32)*) = body);
            on(isa, x, y $(, $constant)*);
        }
    };
}

/// The smaller one; NaN if `x` is.
#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

/// `x` between `low` and `high`; NaN if `x` is.
#[inline(always)]
fn between(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    at_most(x, high)
}

in_place!(
    /// `x = x / (1 + e^-x)`.
    silu, silu_isa, |x| math::silu(x)
);
in_place!(
    /// `x = 1 / (1 + e^-x)`.
    sigmoid, sigmoid_isa, |x| math::sigmoid(x)
);
in_place!(
    /// GELU in its tanh form (ggml's `ggml_gelu`).
    gelu_tanh, gelu_tanh_isa, |x| math::gelu_tanh(x)
);
in_place!(
    /// `x = x / 2 * (1 + erf(x / sqrt 2))`: GELU itself (ggml's `ggml_gelu_erf`).
    gelu_erf, gelu_erf_isa, |x| math::gelu_erf(x)
);
in_place!(
    /// `x = x / (1 + e^(-1.702 x))` (ggml's `ggml_gelu_quick`).
    gelu_quick, gelu_quick_isa, |x| x / (1.0 + math::exp(-1.702 * x))
);
in_place!(
    /// `x = max(x, 0)`.
    relu, relu_isa, |x| if x < 0.0 { 0.0 } else { x }
);
in_place!(
    /// `x = max(x, 0)^2`.
    relu_squared, relu_squared_isa, |x| if x < 0.0 { 0.0 } else { x * x }
);
in_place!(
    /// `x = ln(1 + e^x)`, which is `x` above 20 (ggml's `ggml_softplus`).
    softplus, softplus_isa, |x| math::softplus(x)
);
in_place!(
    /// `x = tanh x`.
    tanh, tanh_isa, |x| math::tanh(x)
);
in_place!(
    /// `x = e^x`.
    exp, exp_isa, |x| math::exp(x)
);
in_place!(
    /// `x` between `low` and `high`.
    clamp, clamp_isa, |x, low, high| between(x, low, high)
);

with_other!(
    /// `gate = silu(gate) * up`.
    silu_mul, silu_mul_isa, |gate, up| math::silu(gate) * up
);
with_other!(
    /// `gate = gelu(gate) * up`, GELU in its tanh form.
    gelu_tanh_mul, gelu_tanh_mul_isa, |gate, up| math::gelu_tanh(gate) * up
);
with_other!(
    /// `gate = gelu(gate) * up`, GELU itself.
    gelu_erf_mul, gelu_erf_mul_isa, |gate, up| math::gelu_erf(gate) * up
);
with_other!(
    /// `gate = max(gate, 0) * up`.
    relu_mul, relu_mul_isa, |gate, up| if gate < 0.0 { 0.0 } else { gate } * up
);
with_other!(
    /// `gate = g / (1 + e^(-alpha g)) * (u + 1)` of `g = min(gate, limit)` and `u` = `up` between `-limit`
    /// and `limit` (ggml's `ggml_swiglu_oai`; gpt-oss: alpha 1.702, limit 7).
    swiglu_oai, swiglu_oai_isa, |gate, up, alpha, limit| {
        let gate = at_most(gate, limit);
        gate / (1.0 + math::exp(-alpha * gate)) * (between(up, -limit, limit) + 1.0)
    }
);
with_other!(
    /// `gate = silu(min(gate, limit)) * u`, `u` being `up` between `-limit` and `limit` (ggml's
    /// `ggml_swiglu_clamp`: DeepSeek V4 and its kin).
    swiglu_clamp, swiglu_clamp_isa,
    |gate, up, limit| math::silu(at_most(gate, limit)) * between(up, -limit, limit)
);
with_other!(
    /// `gate = min(silu(gate), limit) * u`, `u` being `up` between `-limit` and `limit`: the limit stands
    /// behind the activation (llama.cpp's `LLM_FFN_SILU` with `swiglu_clamp` for the other families).
    silu_clamp_mul, silu_clamp_mul_isa,
    |gate, up, limit| at_most(math::silu(gate), limit) * between(up, -limit, limit)
);
with_other!(
    /// `gate = beta * tanh(gate / beta) * sigmoid(gate) * u`, `u` being `linear_beta * tanh(up /
    /// linear_beta)`, or `up` where `linear_beta` is not positive (llama.cpp's `LLM_FFN_SITU`: Kimi K3).
    situ_mul, situ_mul_isa, |gate, up, beta, linear_beta| {
        let up = if linear_beta > 0.0 { linear_beta * math::tanh(up * (1.0 / linear_beta)) } else { up };
        beta * math::tanh(gate * (1.0 / beta)) * math::sigmoid(gate) * up
    }
);
with_other!(
    /// `x *= sigmoid(gate)`: a gate on the output of attention.
    mul_sigmoid, mul_sigmoid_isa, |x, gate| x * math::sigmoid(gate)
);
with_other!(
    /// `x *= silu(gate)`: the gate behind the norm of a gated delta net.
    mul_silu, mul_silu_isa, |x, gate| x * math::silu(gate)
);
