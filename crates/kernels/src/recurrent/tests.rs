//! Recurrences against their formulas in f64, and independent of threads, cutting and instruction set.

use super::*;
use crate::{Isa, Pool};

/// Numbers between -1 and 1, of which no two runs are alike.
fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 31 + seed * 1009) as f32 * 0.37).sin()).collect()
}

fn close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (*found as f64 - expected).abs();
        assert!(error <= 2e-5 * expected.abs().max(1.0), "{what} at {i}: {found} for {expected}");
    }
}

const ROWS: usize = 7;

/// Computes some rows: the pool, the first of them, how many, the state, the outputs.
type Run<'a> = &'a dyn Fn(&Pool, usize, usize, &mut [f32], &mut [f32]);

/// Runs `ROWS` rows from a state at once, in pieces, one by one, on every instruction set and several
/// threads, which must all give the same bits; returns what it gave.
fn every_way(state: &[f32], out_len: usize, run: Run<'_>) -> (Vec<f32>, Vec<f32>) {
    let (mut state_0, mut out_0) = (state.to_vec(), vec![f32::NAN; ROWS * out_len]);
    run(&Pool::with_isa(1, Isa::Scalar), 0, ROWS, &mut state_0, &mut out_0);
    for isa in Isa::all() {
        for (threads, rows) in [(1, 1), (1, ROWS), (2, 3), (3, ROWS)] {
            let pool = Pool::with_isa(threads, isa);
            let (mut state, mut out) = (state.to_vec(), vec![f32::NAN; ROWS * out_len]);
            for (at, out) in out.chunks_mut(rows * out_len).enumerate() {
                run(&pool, at * rows, out.len() / out_len, &mut state, out);
            }
            let way = format!("{} {threads} threads, {rows} rows at a time", isa.name());
            assert!(out == out_0 && state == state_0, "{way}");
        }
    }
    (state_0, out_0)
}

/// Some columns of rows from `first_row` on.
fn part(data: &[f32], stride: usize, first: usize, first_row: usize) -> Columns<'_> {
    Columns { data: &data[first_row * stride..], stride, first }
}

#[test]
fn a_convolution_is_its_formula_however_its_rows_are_cut() {
    for (taps, channels) in [(1, 5), (2, 16), (3, 40), (4, 10_000), (8, 33)] {
        let (weight, bias) = (values(taps * channels, 1), values(channels, 2));
        let (x, state) = (values(ROWS * (channels + 3), 3), values((taps - 1) * channels, 4));
        for (bias, silu) in [(None, false), (Some(&bias[..]), true)] {
            let conv = Conv1d { weight: &weight, bias, taps, silu };
            let (state_after, out) = every_way(&state, channels, &|pool, first, rows, state, out| {
                causal_conv1d(pool, &conv, rows, part(&x, channels + 3, 2, first), state, out);
            });
            let history = |row: usize, channel: usize| match row.checked_sub(taps - 1) {
                Some(row) => x[row * (channels + 3) + 2 + channel],
                None => state[row * channels + channel],
            };
            let value = |row: usize, channel: usize| {
                let tap = |tap| history(row + tap, channel) as f64 * weight[channel * taps + tap] as f64;
                let sum = (0..taps).map(tap).sum::<f64>() + bias.map_or(0.0, |bias| bias[channel] as f64);
                if silu { sum / (1.0 + (-sum).exp()) } else { sum }
            };
            let all = |row| (0..channels).map(move |channel| (row, channel));
            let expected: Vec<f64> = (0..ROWS).flat_map(all).map(|(row, c)| value(row, c)).collect();
            close(&out, &expected, &format!("{taps} taps of {channels}"));
            let tail: Vec<f32> =
                (ROWS..ROWS + taps - 1).flat_map(all).map(|(row, c)| history(row, c)).collect();
            assert_eq!(state_after, tail);
        }
    }
}

/// The formulas of a head in f64: factors of the state, and what is written and read.
struct Truth {
    state: Vec<f64>,
    key_dim: usize,
    value_dim: usize,
}

impl Truth {
    /// Where the state has an element: columns lie in sets of 64, of 16, and the rest.
    fn place(&self, key: usize, column: usize) -> usize {
        let whole = self.value_dim / 64 * 64;
        let (first, len) = match column < whole {
            true => (column / 64 * 64, 64),
            false => {
                let first = whole + (column - whole) / 16 * 16;
                (first, 16.min(self.value_dim - first))
            }
        };
        first * self.key_dim + key * len + column - first
    }

    fn step(&mut self, decay: &dyn Fn(usize) -> f64, k: &[f32], q: &[f32], write: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.value_dim];
        for key in 0..self.key_dim {
            for (column, out) in out.iter_mut().enumerate() {
                let place = self.place(key, column);
                let s = &mut self.state[place];
                *s = *s * decay(key) + k[key] as f64 * write[column];
                *out += *s * q[key] as f64;
            }
        }
        out
    }

    /// What keys read of the state after its decay.
    fn recall(&self, decay: &dyn Fn(usize) -> f64, k: &[f32], column: usize) -> f64 {
        let s = |key: usize| self.state[self.place(key, column)] * decay(key);
        (0..self.key_dim).map(|key| s(key) * k[key] as f64).sum()
    }
}

fn shapes() -> [LinearShape; 5] {
    let shape = |heads, key_heads, key_dim, value_dim, sharing| LinearShape {
        heads,
        key_heads,
        key_dim,
        value_dim,
        sharing,
    };
    [
        shape(4, 2, 128, 128, KeySharing::Neighbours),
        shape(4, 2, 16, 80, KeySharing::Turns),
        shape(3, 1, 65, 7, KeySharing::Neighbours),
        shape(1, 1, 1, 1, KeySharing::Turns),
        shape(6, 3, 24, 33, KeySharing::Turns),
    ]
}

/// Inputs of a shape: `[q | k | v]` in each row, keys and queries short enough to keep states in range.
fn inputs(shape: &LinearShape) -> (Vec<f32>, usize) {
    let stride = 2 * shape.key_heads * shape.key_dim + shape.heads * shape.value_dim;
    let mut x = values(ROWS * stride, 5);
    let factor = 1.0 / (shape.key_dim as f32).sqrt();
    for row in x.chunks_exact_mut(stride) {
        row[..2 * shape.key_heads * shape.key_dim].iter_mut().for_each(|x| *x *= factor);
    }
    (x, stride)
}

fn linear<'a>(
    shape: &LinearShape,
    x: &'a [f32],
    stride: usize,
    first: usize,
    rows: usize,
) -> LinearInputs<'a> {
    let keys = shape.key_heads * shape.key_dim;
    LinearInputs {
        rows,
        q: part(x, stride, 0, first),
        k: part(x, stride, keys, first),
        v: part(x, stride, 2 * keys, first),
    }
}

fn key_head(shape: &LinearShape, head: usize) -> usize {
    match shape.sharing {
        KeySharing::Neighbours => head * shape.key_heads / shape.heads,
        KeySharing::Turns => head % shape.key_heads,
    }
}

/// The expected outputs and state: `decay(row, head, key)` is a factor, `write(truth, decay, row, head, k,
/// v)` what is written.
#[expect(clippy::type_complexity, reason = "two formulas")]
fn truth(
    shape: &LinearShape,
    state: &[f32],
    decay: &dyn Fn(usize, usize, usize) -> f64,
    write: &dyn Fn(&Truth, &dyn Fn(usize) -> f64, usize, usize, &[f32], &[f32]) -> Vec<f64>,
    scale: f64,
) -> (Vec<f64>, Vec<f64>) {
    let LinearShape { heads, key_heads, key_dim, value_dim, .. } = *shape;
    let (x, stride) = inputs(shape);
    let mut out = vec![0.0; ROWS * heads * value_dim];
    let mut states = Vec::new();
    for (head, state) in state.chunks_exact(key_dim * value_dim).enumerate() {
        let mut truth = Truth { state: state.iter().map(|s| *s as f64).collect(), key_dim, value_dim };
        for row in 0..ROWS {
            let x = &x[row * stride..][..stride];
            let (q, rest) = x.split_at(key_heads * key_dim);
            let (k, v) = rest.split_at(key_heads * key_dim);
            let from = key_head(shape, head) * key_dim;
            let (q, k) = (&q[from..][..key_dim], &k[from..][..key_dim]);
            let decay = |key: usize| decay(row, head, key);
            let write = write(&truth, &decay, row, head, k, &v[head * value_dim..][..value_dim]);
            let read = truth.step(&decay, k, q, &write);
            let out = &mut out[(row * heads + head) * value_dim..][..value_dim];
            out.iter_mut().zip(read).for_each(|(out, read)| *out = read * scale);
        }
        states.extend(truth.state);
    }
    (states, out)
}

#[test]
fn the_gated_delta_rule_is_its_formula_with_a_decay_for_heads_or_for_their_key_channels() {
    for shape in shapes() {
        let LinearShape { heads, key_dim, value_dim, .. } = shape;
        let (x, stride) = inputs(&shape);
        let state = values(shape.state_floats(), 6);
        let logs: Vec<f32> = values(ROWS * heads * key_dim, 7).iter().map(|x| -x.abs()).collect();
        let beta: Vec<f32> = values(ROWS * heads, 8).iter().map(|x| x.abs()).collect();
        for channels in [false, true] {
            let per_row = if channels { heads * key_dim } else { heads };
            let (state_after, out) =
                every_way(&state, heads * value_dim, &|pool, first, rows, state, out| {
                    let logs = part(&logs, per_row, 0, first);
                    let decay = if channels { Decay::KeyChannel(logs) } else { Decay::Head(logs) };
                    let (inputs, beta) =
                        (linear(&shape, &x, stride, first, rows), part(&beta, heads, 0, first));
                    gated_delta_rule(pool, &shape, &inputs, decay, beta, 0.5, state, out);
                });
            let factor = |row: usize, head: usize, key: usize| {
                let place = if channels { (row * heads + head) * key_dim + key } else { row * heads + head };
                (logs[place] as f64).exp()
            };
            let (states, expected) = truth(
                &shape,
                &state,
                &factor,
                &|truth, decay, row, head, k, v| {
                    let delta = |(column, v): (usize, &f32)| {
                        (*v as f64 - truth.recall(decay, k, column)) * beta[row * heads + head] as f64
                    };
                    v.iter().enumerate().map(delta).collect()
                },
                0.5,
            );
            close(&out, &expected, &format!("{shape:?}"));
            close(&state_after, &states, &format!("state of {shape:?}"));
        }
    }
}

#[test]
fn linear_attention_is_its_formula() {
    for shape in shapes() {
        let LinearShape { heads, value_dim, .. } = shape;
        let (x, stride) = inputs(&shape);
        let state = values(shape.state_floats(), 6);
        let slopes: Vec<f32> = values(heads, 7).iter().map(|x| -x.abs()).collect();
        let (state_after, out) = every_way(&state, heads * value_dim, &|pool, first, rows, state, out| {
            let inputs = linear(&shape, &x, stride, first, rows);
            linear_attention(pool, &shape, &inputs, Decay::Fixed(&slopes), 2.0, state, out);
        });
        let (states, expected) = truth(
            &shape,
            &state,
            &|_, head, _| (slopes[head] as f64).exp(),
            &|_, _, _, _, _, v| v.iter().map(|v| *v as f64).collect(),
            2.0,
        );
        close(&out, &expected, &format!("{shape:?}"));
        close(&state_after, &states, &format!("state of {shape:?}"));
    }
}

fn softplus(x: f32) -> f64 {
    (x as f64).exp().ln_1p()
}

#[test]
fn mamba_2_is_its_formula() {
    for shape in shapes() {
        let LinearShape { heads, key_heads, key_dim, value_dim, .. } = shape;
        let (x, stride) = inputs(&shape);
        let state = values(shape.state_floats(), 6);
        let (raw, dt_bias, d) = (values(ROWS * heads, 9), values(heads, 10), values(heads, 11));
        let a: Vec<f32> = values(heads, 12).iter().map(|x| -x.abs()).collect();
        for d in [None, Some(&d[..])] {
            let layer = Mamba2 { dt_bias: &dt_bias, a: &a, d };
            let (state_after, out) =
                every_way(&state, heads * value_dim, &|pool, first, rows, state, out| {
                    let inputs = linear(&shape, &x, stride, first, rows);
                    mamba2_scan(pool, &shape, &inputs, &layer, part(&raw, heads, 0, first), state, out);
                });
            let dt = |row: usize, head: usize| softplus(raw[row * heads + head] + dt_bias[head]);
            let (states, mut expected) = truth(
                &shape,
                &state,
                &|row, head, _| (dt(row, head) * a[head] as f64).exp(),
                &|_, _, row, head, _, v| v.iter().map(|v| *v as f64 * dt(row, head)).collect(),
                1.0,
            );
            for (i, expected) in expected.iter_mut().enumerate() {
                let (row, column) = (i / (heads * value_dim), i % (heads * value_dim));
                let v = x[row * stride + 2 * key_heads * key_dim + column] as f64;
                *expected += d.map_or(0.0, |d| d[column / value_dim] as f64 * v);
            }
            close(&out, &expected, &format!("{shape:?}"));
            close(&state_after, &states, &format!("state of {shape:?}"));
        }
    }
}

#[test]
fn mamba_1_is_its_formula() {
    for (channels, d_state) in [(1, 1), (16, 16), (37, 5), (200, 16)] {
        let stride = 2 * channels + 2 * d_state;
        let (x, state) = (values(ROWS * stride, 13), values(channels * d_state, 14));
        let (dt_bias, d) = (values(channels, 15), values(channels, 16));
        let a: Vec<f32> = values(channels * d_state, 17).iter().map(|x| -x.abs()).collect();
        let layer = Mamba1 { channels, d_state, dt_bias: &dt_bias, a: &a, d: Some(&d) };
        let (state_after, out) = every_way(&state, channels, &|pool, first, rows, state, out| {
            let columns = [0, channels, 2 * channels, 2 * channels + d_state];
            mamba1_scan(pool, &layer, rows, columns.map(|at| part(&x, stride, at, first)), state, out);
        });
        let mut states: Vec<f64> = state.iter().map(|s| *s as f64).collect();
        let mut expected = Vec::new();
        for row in x.chunks_exact(stride) {
            let (b, c) = row[2 * channels..].split_at(d_state);
            for channel in 0..channels {
                let dt = softplus(row[channels + channel] + dt_bias[channel]);
                let mut sum = d[channel] as f64 * row[channel] as f64;
                for n in 0..d_state {
                    let s = &mut states[channel * d_state + n];
                    *s = *s * (dt * a[channel * d_state + n] as f64).exp()
                        + b[n] as f64 * row[channel] as f64 * dt;
                    sum += *s * c[n] as f64;
                }
                expected.push(sum);
            }
        }
        close(&out, &expected, &format!("{channels} of {d_state}"));
        close(&state_after, &states, "state");
    }
}
