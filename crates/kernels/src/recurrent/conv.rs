//! Short causal convolutions, each channel by itself. Owns the tail of earlier rows; knows no threads.

use super::{Columns, piece, weight};
use crate::isa::per_isa;
use crate::math;
use crate::pool::{Pool, Rows};

/// Most taps of a [`Conv1d`].
pub const CONV_TAPS_MAX: usize = 8;
/// Channels that are computed together.
const LANES: usize = 16;
/// Channels that one thread takes through all rows: long enough to read memory in runs, and a few rows of
/// them stay near.
const RUN: usize = 256;

/// What is the same for all rows of a layer.
#[derive(Clone, Copy)]
pub struct Conv1d<'a> {
    /// `[channels][taps]`, as GGUF stores it; the last tap meets the present row.
    pub weight: &'a [f32],
    /// `[channels]`.
    pub bias: Option<&'a [f32]>,
    /// 1 to [`CONV_TAPS_MAX`].
    pub taps: usize,
    /// Whether `silu` follows.
    pub silu: bool,
}

struct Call<'a> {
    conv: Conv1d<'a>,
    rows: usize,
    x: Columns<'a>,
    /// `[taps - 1]` rows.
    state: ColumnsMut<'a>,
    /// `[rows]`.
    out: ColumnsMut<'a>,
}

/// Rows of channels, of which each run is written by one thread.
struct ColumnsMut<'a> {
    data: Rows<'a, f32>,
    channels: usize,
}

impl<'a> ColumnsMut<'a> {
    fn new(data: &'a mut [f32], channels: usize) -> ColumnsMut<'a> {
        ColumnsMut { data: Rows::new(data, 1), channels }
    }

    /// # Safety
    /// No other thread uses these columns.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "threads have disjoint channels, by the contract")]
    unsafe fn at(&self, row: usize, first: usize, len: usize) -> &mut [f32] {
        // SAFETY: the caller promises it.
        unsafe { self.data.span(row * self.channels + first, len) }
    }
}

/// `out[t][c] = bias[c] + sum over i of weight[c][i] * x[t + i - (taps - 1)][c]`, through `silu` where the
/// layer has it: ggml's `ggml_ssm_conv` with what follows it (qwen3next, kimi-linear, Mamba, lfm2).
///
/// `x` has `channels` columns in `rows` rows of one sequence, `out[rows][channels]`. `state[taps -
/// 1][channels]` are the rows before, oldest first, zeros at the begin of a sequence; it is left as the next
/// rows need it.
///
/// A layer of Qwen3-Next: 4 taps, 8192 channels, no bias, `silu`, a state of `3 x 8192`. One of LFM2: 3 taps,
/// 2048 channels, neither.
pub fn causal_conv1d(
    pool: &Pool,
    conv: &Conv1d<'_>,
    rows: usize,
    x: Columns<'_>,
    state: &mut [f32],
    out: &mut [f32],
) {
    assert!((1..=CONV_TAPS_MAX).contains(&conv.taps), "{} taps", conv.taps);
    let channels = conv.weight.len() / conv.taps;
    assert!(channels > 0 && conv.weight.len() == channels * conv.taps, "{} weights", conv.weight.len());
    assert!(conv.bias.is_none_or(|bias| bias.len() == channels), "a bias for each of {channels}");
    x.check("input", rows, channels);
    assert!(state.len() == (conv.taps - 1) * channels, "{} floats of state", state.len());
    assert!(out.len() == rows * channels, "{} floats of output", out.len());
    let (state, out) = (ColumnsMut::new(state, channels), ColumnsMut::new(out, channels));
    let call = Call { conv: *conv, rows, x, state, out };
    let (runs, work) = (channels.div_ceil(RUN), rows * channels * conv.taps);
    pool.weighed_ranges(runs, piece(runs, work), weight(work), |_, runs| {
        for first in runs.map(|run| run * RUN) {
            convolve(pool.isa(), &call, first, RUN.min(channels - first));
        }
    });
}

/// A set of channels of a row, the last of which may be fewer.
#[inline(always)]
fn load(row: &[f32], set: usize) -> [f32; LANES] {
    let rest = &row[set * LANES..];
    if let Some(whole) = rest.first_chunk() {
        return *whole;
    }
    let mut lanes = [0.0; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}

#[inline(always)]
fn store(lanes: &[f32; LANES], row: &mut [f32], set: usize) {
    let rest = &mut row[set * LANES..];
    match rest.first_chunk_mut() {
        Some(whole) => *whole = *lanes,
        None => rest.copy_from_slice(&lanes[..rest.len()]),
    }
}

/// All rows of the channels `first..first + len`, at most [`RUN`].
#[inline(always)]
fn convolve_body(call: &Call<'_>, first: usize, len: usize) {
    let Call { conv, x, rows, .. } = call;
    let (taps, sets) = (conv.taps, len.div_ceil(LANES));
    let mut weights = [[[0.0; LANES]; RUN / LANES]; CONV_TAPS_MAX];
    for (at, channel) in conv.weight[first * taps..(first + len) * taps].chunks_exact(taps).enumerate() {
        for (weights, weight) in weights.iter_mut().zip(channel) {
            weights[at / LANES][at % LANES] = *weight;
        }
    }
    for row in 0..*rows {
        let mut window: [&[f32]; CONV_TAPS_MAX] = [&[]; CONV_TAPS_MAX];
        for (tap, window) in window[..taps].iter_mut().enumerate() {
            *window = match (row + tap).checked_sub(taps - 1) {
                Some(row) => x.row(row, first, len),
                // SAFETY: only this thread has these channels, and it writes them below.
                None => unsafe { call.state.at(row + tap, first, len) },
            };
        }
        // SAFETY: as above.
        let out = unsafe { call.out.at(row, first, len) };
        for set in 0..sets {
            let mut sums = [0.0f32; LANES];
            for (weights, window) in weights[..taps].iter().zip(&window) {
                let window = load(window, set);
                for lane in 0..LANES {
                    sums[lane] = window[lane].mul_add(weights[set][lane], sums[lane]);
                }
            }
            if let Some(bias) = conv.bias {
                let bias = load(&bias[first..first + len], set);
                for lane in 0..LANES {
                    sums[lane] += bias[lane];
                }
            }
            if conv.silu {
                for sum in &mut sums {
                    *sum = math::silu(*sum);
                }
            }
            store(&sums, out, set);
        }
    }
    for tap in 0..if *rows == 0 { 0 } else { taps - 1 } {
        let last: &[f32] = match (rows + tap).checked_sub(taps - 1) {
            Some(row) => x.row(row, first, len),
            // SAFETY: as above; another row than the one below, for there are rows.
            None => unsafe { call.state.at(rows + tap, first, len) },
        };
        // SAFETY: as above.
        unsafe { call.state.at(tap, first, len) }.copy_from_slice(last);
    }
}

per_isa!(fn convolve(call: &Call<'_>, first: usize, len: usize) = convolve_body);
