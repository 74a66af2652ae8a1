//! Slices become slices: quantised maths and the worker pool. No I/O, no policy, no models.
//!
//! * [`Pool`]: the worker threads and how work is spread over them.
//! * [`Activations`], [`matmul`]: activations quantised once, multiplied with weights as they lie on disk.
//!   The order of every sum is fixed; the rule is written in `dot`.
//! * [`attention`], [`KvLayout`]: keys and values stored in blocks, and attention over them.
//! * [`gated_delta_rule`], [`mamba2_scan`], [`causal_conv1d`] and others of `recurrent`: layers that carry a
//!   state from row to row.
//! * Norms, rope, gated activation functions, softmax: rows of floats.
//!
//! Every kernel has a scalar twin with the same bits; [`Isa`] picks at run time. Sizes are checked with
//! `assert!` once at each call: a wrong size is a bug of the caller. Infinities and NaNs in activations or
//! weights make the outputs they touch NaN or infinite, and nothing else.
//!
//! **Invariant:** no output depends on the number of threads, on the other rows of a call, or on the
//! instruction set.

mod activations;
mod attention;
mod dot;
mod formats;
mod isa;
mod kv;
mod math;
mod matmul;
mod matrix;
mod ops;
mod pool;
mod recurrent;
pub mod roofline;
mod rope;

pub use activations::{ActivationFormat, Activations, activation_format};
pub use attention::{AttentionRow, AttentionShape, attention, attention_scratch_floats};
pub use isa::Isa;
#[cfg(target_arch = "x86_64")]
pub use isa::{Avx2, Avx512};
#[cfg(target_arch = "aarch64")]
pub use isa::{Neon, NeonI8mm};
pub use kv::{KEY_TILE, KV_BLOCK, KvFormat, KvLayout, KvView, Values};
pub use matmul::{Job, Selection, matmul};
pub use matrix::{Matrix, dequantize_row};
pub use ops::{
    add, add_scaled, clamp, delta_norm_heads, exp, gelu_erf, gelu_erf_mul, gelu_quick, gelu_tanh,
    gelu_tanh_mul, l2_norm_heads, layer_norm, mul, mul_sigmoid, mul_silu, relu, relu_mul, relu_squared,
    rms_norm, rms_norm_groups, rms_norm_heads, rms_norm_in_place, rms_scale_heads, scale, sigmoid, silu,
    silu_clamp_mul, silu_mul, situ_mul, soft_cap, softmax, softplus, swiglu_clamp, swiglu_oai, tanh, top_k,
};
pub use pool::Pool;
pub use recurrent::{
    CONV_TAPS_MAX, Columns, Conv1d, Decay, KeySharing, LinearInputs, LinearShape, MAMBA1_STATE_MAX, Mamba1,
    Mamba2, causal_conv1d, gated_delta_rule, linear_attention, mamba1_scan, mamba2_scan,
};
pub use rope::{RopeScaling, RopeStyle, RopeTable, rope, rope_heads};
