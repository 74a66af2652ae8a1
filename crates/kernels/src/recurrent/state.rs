//! States that are a matrix for each head: what keys wrote, queries read. Owns the recurrences of the gated
//! delta rule, of linear attention with decay and of Mamba-2, which are one with and without its parts.

use std::ops::Range;

use super::{Columns, piece, weight};
use crate::isa::per_isa;
use crate::math;
use crate::pool::{Pool, Rows};

/// Floats that are computed together.
const LANES: usize = 16;
/// Keys whose decay is computed together.
const KEYS: usize = 64;

/// Which head of queries and keys a head of values has, where there are fewer of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// Neighbours share one: `head / (heads / key_heads)` (qwen3next, Mamba-2).
    Neighbours,
    /// They take turns: `head % key_heads` (qwen35, whose files are ordered so).
    Turns,
}

/// What is the same for all rows of a layer. Qwen3-Next has `heads: 32, key_heads: 16, key_dim: 128,
/// value_dim: 128`.
#[derive(Clone, Copy, Debug)]
pub struct LinearShape {
    /// Heads of values, states and outputs.
    pub heads: usize,
    /// Heads of queries and keys; divides `heads`.
    pub key_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub sharing: KeySharing,
}

impl LinearShape {
    /// Floats of the state, zeros at the begin of a sequence: `[heads]`, in each of them sets of columns, 64
    /// together, then 16, then the rest, in each `[key_dim][columns]`. So what stays near while all rows pass
    /// lies together.
    pub fn state_floats(&self) -> usize {
        self.heads * self.key_dim * self.value_dim
    }

    #[inline(always)]
    fn key_head(&self, head: usize) -> usize {
        match self.sharing {
            KeySharing::Neighbours => head / (self.heads / self.key_heads),
            KeySharing::Turns => head % self.key_heads,
        }
    }
}

/// The rows of a call, in their order. Neither scaled nor normed here.
#[derive(Clone, Copy)]
pub struct LinearInputs<'a> {
    pub rows: usize,
    /// `[key_heads][key_dim]`.
    pub q: Columns<'a>,
    /// `[key_heads][key_dim]`.
    pub k: Columns<'a>,
    /// `[heads][value_dim]`.
    pub v: Columns<'a>,
}

/// Logarithms of what a state is multiplied by before a row writes to it.
#[derive(Clone, Copy)]
pub enum Decay<'a> {
    /// `[heads]` in each row (gated delta net).
    Head(Columns<'a>),
    /// `[heads][key_dim]` in each row (Kimi delta attention).
    KeyChannel(Columns<'a>),
    /// `[heads]`, the same in all rows (lightning attention).
    Fixed(&'a [f32]),
}

/// What a layer of Mamba-2 adds to its rows, all `[heads]`.
#[derive(Clone, Copy)]
pub struct Mamba2<'a> {
    pub dt_bias: &'a [f32],
    /// Negative, as `ssm_a` of a file: `-exp(A_log)`.
    pub a: &'a [f32],
    /// Factor of a row's own input in its output.
    pub d: Option<&'a [f32]>,
}

/// The gated delta rule (ggml's `ggml_gated_delta_net`, one row after the other). In each row and head, with
/// `S[key][value]`:
///
/// * `S *= exp(decay)`
/// * `delta = (v - k S) * beta`
/// * `S += k delta`
/// * `out = q S * scale`
///
/// llama.cpp's callers bring queries and keys to length one before it ([`crate::delta_norm_heads`]), `beta`
/// through a sigmoid, `decay` as `softplus(alpha + dt) * ssm_a`, and give `scale = 1 / sqrt(key_dim)`.
/// `beta[heads]` in each row; `state` is [`LinearShape::state_floats`], `out[rows][heads][value_dim]`.
#[expect(clippy::too_many_arguments, reason = "a kernel's inputs, state and output")]
pub fn gated_delta_rule(
    pool: &Pool,
    shape: &LinearShape,
    inputs: &LinearInputs<'_>,
    decay: Decay<'_>,
    beta: Columns<'_>,
    scale: f32,
    state: &mut [f32],
    out: &mut [f32],
) {
    beta.check("beta", inputs.rows, shape.heads);
    run(pool, shape, inputs, Gate::Delta { decay, beta }, scale, state, out);
}

/// Linear attention with decay: `S = S * exp(decay) + k v`, `out = q S * scale` (minimax-01's lightning
/// attention, `decay` being minus the slope of the head and layer, `scale` 1). Shapes as
/// [`gated_delta_rule`]'s.
pub fn linear_attention(
    pool: &Pool,
    shape: &LinearShape,
    inputs: &LinearInputs<'_>,
    decay: Decay<'_>,
    scale: f32,
    state: &mut [f32],
    out: &mut [f32],
) {
    run(pool, shape, inputs, Gate::Linear { decay }, scale, state, out);
}

/// A step of Mamba-2 for each row (ggml's `ggml_ssm_scan` with one `A` for a head): with `dt = softplus(dt +
/// dt_bias)`, `S = S * exp(dt * a) + B (x dt)`, `out = C S + d x`.
///
/// That is linear attention whose keys are B, queries C, values x: `shape` has `key_heads` groups of
/// `key_dim` states (d_state) and heads of `value_dim` elements, `inputs` has them as `k`, `q` and `v`;
/// `dt[heads]` in each row is raw.
///
/// Granite 4.0 H Small: `heads: 128, key_heads: 1, key_dim: 128, value_dim: 64`.
pub fn mamba2_scan(
    pool: &Pool,
    shape: &LinearShape,
    inputs: &LinearInputs<'_>,
    layer: &Mamba2<'_>,
    dt: Columns<'_>,
    state: &mut [f32],
    out: &mut [f32],
) {
    dt.check("dt", inputs.rows, shape.heads);
    for vector in [Some(layer.dt_bias), Some(layer.a), layer.d].into_iter().flatten() {
        assert!(vector.len() == shape.heads, "{} of {} heads", vector.len(), shape.heads);
    }
    run(pool, shape, inputs, Gate::Mamba { layer: *layer, dt }, 1.0, state, out);
}

/// In what the recurrences differ.
enum Gate<'a> {
    Delta { decay: Decay<'a>, beta: Columns<'a> },
    Linear { decay: Decay<'a> },
    Mamba { layer: Mamba2<'a>, dt: Columns<'a> },
}

struct Call<'a> {
    shape: LinearShape,
    inputs: LinearInputs<'a>,
    gate: Gate<'a>,
    scale: f32,
    /// `[heads]`.
    states: Rows<'a, f32>,
    /// `[rows][heads]`, each `[value_dim]`.
    outs: Rows<'a, f32>,
}

fn run(
    pool: &Pool,
    shape: &LinearShape,
    inputs: &LinearInputs<'_>,
    gate: Gate<'_>,
    scale: f32,
    state: &mut [f32],
    out: &mut [f32],
) {
    let LinearShape { heads, key_heads, key_dim, value_dim, .. } = *shape;
    let rows = inputs.rows;
    assert!(key_heads > 0 && heads > 0 && heads.is_multiple_of(key_heads), "{heads} heads on {key_heads}");
    assert!(key_dim > 0 && value_dim > 0);
    inputs.q.check("queries", rows, key_heads * key_dim);
    inputs.k.check("keys", rows, key_heads * key_dim);
    inputs.v.check("values", rows, heads * value_dim);
    if let Gate::Delta { decay, .. } | Gate::Linear { decay } = &gate {
        match decay {
            Decay::Head(logs) => logs.check("decay", rows, heads),
            Decay::KeyChannel(logs) => logs.check("decay", rows, heads * key_dim),
            Decay::Fixed(logs) => assert!(logs.len() == heads, "{} decays of {heads} heads", logs.len()),
        }
    }
    assert!(state.len() == shape.state_floats(), "{} floats of state", state.len());
    assert!(out.len() == rows * heads * value_dim, "{} floats of output", out.len());
    let (states, outs) = (Rows::new(state, key_dim * value_dim), Rows::new(out, value_dim));
    let call = Call { shape: *shape, inputs: *inputs, gate, scale, states, outs };
    let work = 2 * rows * shape.state_floats();
    pool.weighed_ranges(heads, piece(heads, work), weight(work), |_, heads| {
        run_heads(pool.isa(), &call, heads);
    });
}

/// One row of one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// Factors on the state: one, or logarithms of one for each key.
    decay: Factors<'a>,
    /// Factor on what is written.
    write: f32,
    /// Factor on the row's own value in its output.
    skip: f32,
}

enum Factors<'a> {
    One(f32),
    Logs(&'a [f32]),
}

impl<'a> Decay<'a> {
    #[inline(always)]
    fn factors(&self, row: usize, head: usize, key_dim: usize) -> Factors<'a> {
        match self {
            Decay::Head(logs) => Factors::One(math::exp(logs.row(row, head, 1)[0])),
            Decay::Fixed(logs) => Factors::One(math::exp(logs[head])),
            Decay::KeyChannel(logs) => Factors::Logs(logs.row(row, head * key_dim, key_dim)),
        }
    }
}

impl Call<'_> {
    #[inline(always)]
    fn token(&self, row: usize, head: usize) -> Token<'_> {
        let LinearShape { key_dim, value_dim, .. } = self.shape;
        let key_head = self.shape.key_head(head);
        let (decay, write, skip) = match &self.gate {
            Gate::Delta { decay, beta } => {
                (decay.factors(row, head, key_dim), beta.row(row, head, 1)[0], 0.0)
            }
            Gate::Linear { decay } => (decay.factors(row, head, key_dim), 1.0, 0.0),
            Gate::Mamba { layer, dt } => {
                let dt = math::softplus(dt.row(row, head, 1)[0] + layer.dt_bias[head]);
                let skip = layer.d.map_or(0.0, |d| d[head]);
                (Factors::One(math::exp(dt * layer.a[head])), dt, skip)
            }
        };
        Token {
            q: self.inputs.q.row(row, key_head * key_dim, key_dim),
            k: self.inputs.k.row(row, key_head * key_dim, key_dim),
            v: self.inputs.v.row(row, head * value_dim, value_dim),
            decay,
            write,
            skip,
        }
    }

    /// All rows of a head, for columns `first..first + LANES * C` of its state.
    #[inline(always)]
    fn columns<const C: usize, const DELTA: bool>(&self, head: usize, first: usize, len: usize) {
        let key_dim = self.shape.key_dim;
        // SAFETY: a head is one thread's alone.
        let state = &mut unsafe { self.states.row(head) }[first * key_dim..][..len * key_dim];
        for row in 0..self.inputs.rows {
            let token = self.token(row, head);
            // SAFETY: as above.
            let out = &mut unsafe { self.outs.row(row * self.shape.heads + head) }[first..first + len];
            let mut v = [[0.0; LANES]; C];
            v.as_flattened_mut()[..len].copy_from_slice(&token.v[first..first + len]);
            let mut read = step::<C, DELTA>(state, len, &token, &v);
            for (read, v) in read.as_flattened_mut().iter_mut().zip(v.as_flattened()) {
                *read *= self.scale;
                if let Gate::Mamba { .. } = self.gate {
                    *read = token.skip.mul_add(*v, *read);
                }
            }
            out.copy_from_slice(&read.as_flattened()[..len]);
        }
    }

    #[inline(always)]
    fn head<const DELTA: bool>(&self, head: usize) {
        let value_dim = self.shape.value_dim;
        let mut first = 0;
        while first + 4 * LANES <= value_dim {
            self.columns::<4, DELTA>(head, first, 4 * LANES);
            first += 4 * LANES;
        }
        while first < value_dim {
            let len = LANES.min(value_dim - first);
            self.columns::<1, DELTA>(head, first, len);
            first += len;
        }
    }
}

#[inline(always)]
fn run_heads_body(call: &Call<'_>, heads: Range<usize>) {
    for head in heads {
        match call.gate {
            Gate::Delta { .. } => call.head::<true>(head),
            Gate::Linear { .. } | Gate::Mamba { .. } => call.head::<false>(head),
        }
    }
}

per_isa!(fn run_heads(call: &Call<'_>, heads: Range<usize>) = run_heads_body);

/// A row's turn with `len` columns of a state, at most `C` sets of lanes; returns what its query reads.
#[inline(always)]
fn step<const C: usize, const DELTA: bool>(
    state: &mut [f32],
    len: usize,
    token: &Token<'_>,
    v: &[[f32; LANES]; C],
) -> [[f32; LANES]; C] {
    let mut written = *v;
    if DELTA {
        let mut recall = Recall { k: token.k, sums: [[0.0; LANES]; C] };
        for_keys(state, len, &token.decay, &mut recall);
        for (written, recalled) in written.as_flattened_mut().iter_mut().zip(recall.sums.as_flattened()) {
            *written -= recalled;
        }
    }
    for written in written.as_flattened_mut() {
        *written *= token.write;
    }
    let mut exchange = Exchange { k: token.k, q: token.q, written, read: [[0.0; LANES]; C] };
    // The delta rule's decay is done.
    let decay = if DELTA { &Factors::One(1.0) } else { &token.decay };
    for_keys(state, len, decay, &mut exchange);
    exchange.read
}

/// What is done with the rows of a state, key after key. No closure: those are compiled without the
/// instruction set of their caller.
trait ForKey<const C: usize> {
    fn visit(&mut self, key: usize, factor: f32, s: &mut [[f32; LANES]; C]);
}

/// `s *= factor`, and what a key reads of it.
struct Recall<'a, const C: usize> {
    k: &'a [f32],
    sums: [[f32; LANES]; C],
}

impl<const C: usize> ForKey<C> for Recall<'_, C> {
    #[inline(always)]
    fn visit(&mut self, key: usize, factor: f32, s: &mut [[f32; LANES]; C]) {
        let k = self.k[key];
        for (s, sum) in s.as_flattened_mut().iter_mut().zip(self.sums.as_flattened_mut()) {
            *s *= factor;
            *sum = s.mul_add(k, *sum);
        }
    }
}

/// `s = s * factor + k written`, and what a query reads of it.
struct Exchange<'a, const C: usize> {
    k: &'a [f32],
    q: &'a [f32],
    written: [[f32; LANES]; C],
    read: [[f32; LANES]; C],
}

impl<const C: usize> ForKey<C> for Exchange<'_, C> {
    #[inline(always)]
    fn visit(&mut self, key: usize, factor: f32, s: &mut [[f32; LANES]; C]) {
        let (k, q) = (self.k[key], self.q[key]);
        let written = self.written.as_flattened();
        let read = self.read.as_flattened_mut().iter_mut();
        for ((s, written), read) in s.as_flattened_mut().iter_mut().zip(written).zip(read) {
            *s = k.mul_add(*written, *s * factor);
            *read = s.mul_add(q, *read);
        }
    }
}

/// Visits each key's row of `len` columns of the state, in order.
#[inline(always)]
fn for_keys<const C: usize>(
    state: &mut [f32],
    len: usize,
    decay: &Factors<'_>,
    visitor: &mut impl ForKey<C>,
) {
    match decay {
        Factors::One(factor) => {
            for (key, row) in state.chunks_exact_mut(len).enumerate() {
                visit(visitor, key, *factor, row);
            }
        }
        Factors::Logs(logs) => {
            let blocks = state.chunks_mut(KEYS * len).zip(logs.chunks(KEYS));
            for (block, (state, logs)) in blocks.enumerate() {
                let mut factors = [0.0; KEYS];
                for (factor, log) in factors.iter_mut().zip(logs) {
                    *factor = math::exp(*log);
                }
                for (at, (row, factor)) in state.chunks_exact_mut(len).zip(factors).enumerate() {
                    visit(visitor, block * KEYS + at, factor, row);
                }
            }
        }
    }
}

#[inline(always)]
fn visit<const C: usize>(visitor: &mut impl ForKey<C>, key: usize, factor: f32, row: &mut [f32]) {
    if let Ok(whole) = row.as_chunks_mut().0.try_into() {
        visitor.visit(key, factor, whole);
    } else {
        // Fewer columns than lanes.
        let mut padded = [[0.0; LANES]; C];
        padded.as_flattened_mut()[..row.len()].copy_from_slice(row);
        visitor.visit(key, factor, &mut padded);
        row.copy_from_slice(&padded.as_flattened()[..row.len()]);
    }
}
