//! Mamba's first form, in which every channel is a head with a decay for each of its states. Owns its
//! recurrence; knows no threads.

use super::{Columns, piece, weight};
use crate::isa::per_isa;
use crate::math;
use crate::pool::{Pool, Rows};

/// Most states of a channel.
pub const MAMBA1_STATE_MAX: usize = 256;
/// Channels that are computed together.
const LANES: usize = 16;

/// What is the same for all rows of a layer.
#[derive(Clone, Copy)]
pub struct Mamba1<'a> {
    pub channels: usize,
    /// 1 to [`MAMBA1_STATE_MAX`].
    pub d_state: usize,
    /// `[channels]`.
    pub dt_bias: &'a [f32],
    /// `[channels][d_state]`, negative: `ssm_a` of a file.
    pub a: &'a [f32],
    /// `[channels]`: factor of a row's own input in its output.
    pub d: Option<&'a [f32]>,
}

struct Call<'a> {
    layer: Mamba1<'a>,
    rows: usize,
    /// x, dt, B and C.
    inputs: [Columns<'a>; 4],
    /// `[channels]`, each `[d_state]`.
    states: Rows<'a, f32>,
    /// `[rows][channels]`.
    out: Rows<'a, f32>,
}

/// A step of Mamba for each row of one sequence (ggml's `ggml_ssm_scan` with an `A` for each state; jamba):
/// with `dt = softplus(dt + dt_bias)`, `S[n] = S[n] * exp(dt * a[n]) + B[n] * (x * dt)`, `out = sum over n of
/// S[n] * C[n] + d * x` in each channel.
///
/// `inputs` are `x[channels]`, raw `dt[channels]`, `B[d_state]`, `C[d_state]` in each of `rows` rows.
/// `state[channels][d_state]`, zeros at the begin of a sequence; `out[rows][channels]`.
///
/// Jamba 1.5 Mini: 8192 channels with 16 states.
pub fn mamba1_scan(
    pool: &Pool,
    layer: &Mamba1<'_>,
    rows: usize,
    inputs: [Columns<'_>; 4],
    state: &mut [f32],
    out: &mut [f32],
) {
    let Mamba1 { channels, d_state, dt_bias, a, d } = *layer;
    assert!((1..=MAMBA1_STATE_MAX).contains(&d_state) && channels > 0, "{channels} of {d_state} states");
    assert!(a.len() == channels * d_state && dt_bias.len() == channels, "{} {}", a.len(), dt_bias.len());
    assert!(d.is_none_or(|d| d.len() == channels));
    for (columns, (what, len)) in
        inputs.iter().zip([("x", channels), ("dt", channels), ("B", d_state), ("C", d_state)])
    {
        columns.check(what, rows, len);
    }
    assert!(state.len() == channels * d_state, "{} floats of state", state.len());
    assert!(out.len() == rows * channels, "{} floats of output", out.len());
    let (states, out) = (Rows::new(state, d_state), Rows::new(out, 1));
    let call = Call { layer: *layer, rows, inputs, states, out };
    // An exponential for each state costs as much as a dozen multiply-adds.
    let (sets, work) = (channels.div_ceil(LANES), 16 * rows * channels * d_state);
    pool.weighed_ranges(sets, piece(sets, work), weight(work), |_, sets| {
        for set in sets {
            scan(pool.isa(), &call, set * LANES);
        }
    });
}

#[inline(always)]
fn scan_body(call: &Call<'_>, first: usize) {
    let Mamba1 { channels, d_state, dt_bias, a, d } = call.layer;
    let len = LANES.min(channels - first);
    let lanes = |row: &[f32]| {
        let mut lanes = [0.0; LANES];
        lanes[..len].copy_from_slice(row);
        lanes
    };
    let (mut states, mut factors) = ([[0.0; LANES]; MAMBA1_STATE_MAX], [[0.0; LANES]; MAMBA1_STATE_MAX]);
    for lane in 0..len {
        // SAFETY: a set of channels is one thread's alone.
        let state = unsafe { call.states.row(first + lane) };
        let a = &a[(first + lane) * d_state..][..d_state];
        for (n, (state, a)) in state.iter().zip(a).enumerate() {
            (states[n][lane], factors[n][lane]) = (*state, *a);
        }
    }
    let bias = lanes(&dt_bias[first..first + len]);
    let skip = lanes(d.map_or(&[0.0; LANES][..len], |d| &d[first..first + len]));
    let [x, dt, b, c] = call.inputs;
    for row in 0..call.rows {
        let (x, raw) = (lanes(x.row(row, first, len)), lanes(dt.row(row, first, len)));
        let (b, c) = (b.row(row, 0, d_state), c.row(row, 0, d_state));
        let (mut dt, mut written, mut read) = ([0.0; LANES], [0.0; LANES], [0.0f32; LANES]);
        for lane in 0..LANES {
            dt[lane] = math::softplus(raw[lane] + bias[lane]);
            written[lane] = x[lane] * dt[lane];
        }
        for (n, (state, factors)) in states[..d_state].iter_mut().zip(&factors).enumerate() {
            for lane in 0..LANES {
                let before = state[lane] * math::exp(dt[lane] * factors[lane]);
                state[lane] = b[n].mul_add(written[lane], before);
                read[lane] = state[lane].mul_add(c[n], read[lane]);
            }
        }
        if d.is_some() {
            for lane in 0..LANES {
                read[lane] = skip[lane].mul_add(x[lane], read[lane]);
            }
        }
        // SAFETY: as above.
        unsafe { call.out.span(row * channels + first, len) }.copy_from_slice(&read[..len]);
    }
    for lane in 0..len {
        // SAFETY: as above.
        let state = unsafe { call.states.row(first + lane) };
        for (out, lanes) in state.iter_mut().zip(&states) {
            *out = lanes[lane];
        }
    }
}

per_isa!(fn scan(call: &Call<'_>, first: usize) = scan_body);
