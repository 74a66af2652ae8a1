//! Layers that carry a state from row to row instead of looking back: short convolutions, gated delta rules,
//! state space models, linear attention. Owns their formulas and the order of their sums; knows no families
//! and no snapshots.
//!
//! # The rule
//!
//! A call takes the rows of one sequence in their order and updates its state in place. Rows are computed one
//! after the other from the state that the row before left, so cutting a prompt cannot change a bit. A
//! state's columns (elements of a value, channels) never meet, so they are the lanes, and threads share heads
//! or channels. Every sum runs from left to right by fused multiply-add from zero.

mod conv;
mod mamba1;
mod state;

pub use conv::{CONV_TAPS_MAX, Conv1d, causal_conv1d};
pub use mamba1::{MAMBA1_STATE_MAX, Mamba1, mamba1_scan};
pub use state::{
    Decay, KeySharing, LinearInputs, LinearShape, Mamba2, gated_delta_rule, linear_attention, mamba2_scan,
};

/// Some neighbouring columns of rows: row `r` is `data[r * stride + first..]`, as long as its user asks. So
/// the parts of a projection's output need no copies.
///
/// Queries, keys and values of a delta net whose 16 + 16 + 32 heads of 128 lie in one row of 8192:
/// `Columns { data, stride: 8192, first: 0 }`, `first: 2048` and `first: 4096`.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub first: usize,
}

impl<'a> Columns<'a> {
    /// Rows that hold nothing else.
    pub fn whole(data: &'a [f32], stride: usize) -> Columns<'a> {
        Columns { data, stride, first: 0 }
    }

    /// Columns `from..from + len` of these in a row.
    #[inline(always)]
    fn row(&self, row: usize, from: usize, len: usize) -> &'a [f32] {
        &self.data[row * self.stride + self.first + from..][..len]
    }

    fn check(&self, what: &str, rows: usize, len: usize) {
        assert!(self.first + len <= self.stride, "{what}: {} + {len} of {}", self.first, self.stride);
        let end = rows.checked_sub(1).map_or(0, |last| last * self.stride + self.first + len);
        assert!(self.data.len() >= end, "{what}: {} floats for {rows} rows", self.data.len());
    }
}

/// Multiply-adds below which waking helpers costs more than it saves.
const WORTH_SHARING: usize = 256 * 1024;

/// Units (heads, sets of channels) to claim at once.
fn piece(units: usize, work: usize) -> usize {
    if work < WORTH_SHARING { units.max(1) } else { 1 }
}

fn weight(work: usize) -> usize {
    work.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests;
