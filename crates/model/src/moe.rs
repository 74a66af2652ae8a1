//! The routed feed-forward block: the model's own gate decides, the pager delivers, kernels compute.
//!
//! Rows are grouped by expert; each expert of the union is visited once, in whatever order its bytes
//! arrive. Every pick's output is kept apart and summed in rank order at the end, so the order of
//! arrival cannot touch the result.

use adit_kernels::{add_scaled, softmax, top_k};
use adit_pager::Pager;

use crate::config::{Config, Experts};
use crate::error::ModelError;
use crate::forward::activate;
use crate::linear::Linear;
use crate::scratch::Scratch;
use crate::weights::{ExpertMatrix, FeedForward, Projection};

/// Smallest sum that picked weights are divided by (as llama.cpp: the smallest normal f16).
const WEIGHT_SUM_MIN: f32 = 6.103_515_6e-5;
/// Parts of an expert in its pager group.
const GATE: usize = 0;
const UP: usize = 1;
const DOWN: usize = 2;

/// normed = sum over picks of weight * expert(normed)
pub(crate) fn feed_forward(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    pager: &mut Pager,
    layer: &FeedForward,
    count: usize,
) -> Result<(), ModelError> {
    let FeedForward::Routed { router, group, gate, up, down } = layer else {
        unreachable!("dense blocks are computed by the forward pass");
    };
    let experts = config.experts.as_ref().expect("a routed layer comes with the experts' numbers");
    linear.load(&mut scratch.input, &scratch.normed, count, config.width, &[router.kind, gate.kind, up.kind]);
    let projection = Projection { weight: *router, bias: None };
    linear.project(&scratch.input, count, [(projection, &mut scratch.router)]);
    pick_experts(experts, scratch, count);
    group_by_expert(experts, scratch, count);

    let members = std::mem::take(&mut scratch.members);
    let streamed = pager.stream(*group, &members, |index, parts| {
        let expert = members[index] as usize;
        let matrices = [(*gate, parts.part(GATE)), (*up, parts.part(UP)), (*down, parts.part(DOWN))];
        run_expert(config, linear, scratch, expert, matrices);
        Ok::<(), ModelError>(())
    });
    scratch.members = members;
    streamed?;
    combine(config, linear, scratch, experts.used, count);
    Ok(())
}

/// Softmax over the router's logits, top-k, weights normalised to sum 1 and scaled.
fn pick_experts(experts: &Experts, scratch: &mut Scratch, count: usize) {
    let rows = scratch.router[..count * experts.count].chunks_exact_mut(experts.count);
    let picked = scratch.picked.chunks_exact_mut(experts.used);
    for ((probabilities, picked), weights) in
        rows.zip(picked).zip(scratch.pick_weights.chunks_exact_mut(experts.used))
    {
        softmax(probabilities);
        top_k(probabilities, picked);
        let sum: f32 = picked.iter().map(|&expert| probabilities[expert as usize]).sum();
        for (weight, &expert) in weights.iter_mut().zip(&*picked) {
            *weight = probabilities[expert as usize] / sum.max(WEIGHT_SUM_MIN) * experts.weights_scale;
        }
    }
}

/// Counting sort of (row, rank) pairs by expert; `members` becomes the union, ascending.
fn group_by_expert(experts: &Experts, scratch: &mut Scratch, count: usize) {
    let Scratch { picked, members, starts, pair_rows, pair_ranks, .. } = scratch;
    let picked = &picked[..count * experts.used];
    starts.fill(0);
    for &expert in picked {
        starts[expert as usize + 1] += 1;
    }
    members.clear();
    for expert in 0..experts.count {
        if starts[expert + 1] > 0 {
            members.push(expert as u32);
        }
        starts[expert + 1] += starts[expert];
    }
    // Filling moves each start to the next one's place; shifting back restores them.
    for (at, &expert) in picked.iter().enumerate() {
        let next = &mut starts[expert as usize];
        pair_rows[*next as usize] = (at / experts.used) as u32;
        pair_ranks[*next as usize] = (at % experts.used) as u32;
        *next += 1;
    }
    starts.copy_within(0..experts.count, 1);
    starts[0] = 0;
}

/// Computes one expert for all rows that picked it, into `expert_outputs`.
fn run_expert(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    expert: usize,
    matrices: [(ExpertMatrix, &[u8]); 3],
) {
    let [(gate, gate_bytes), (up, up_bytes), (down, down_bytes)] = matrices;
    let (inner, width) = (gate.rows, config.width);
    let pairs = scratch.starts[expert] as usize..scratch.starts[expert + 1] as usize;
    let (rows, ranks) = (&scratch.pair_rows[pairs.clone()], &scratch.pair_ranks[pairs]);
    let count = rows.len();
    linear.project_expert(
        &scratch.input,
        Some(rows),
        count,
        [(gate, gate_bytes, &mut scratch.gate), (up, up_bytes, &mut scratch.up)],
    );
    activate(&linear, config.family.activation, &mut scratch.gate, &scratch.up, inner, count);
    linear.load(&mut scratch.inner, &scratch.gate, count, inner, &[down.kind]);
    linear.project_expert(&scratch.inner, None, count, [(down, down_bytes, &mut scratch.expert_rows)]);
    let used = config.experts.as_ref().map_or(0, |experts| experts.used);
    let outputs = scratch.expert_rows.chunks_exact(width);
    for ((&row, &rank), output) in rows.iter().zip(ranks).zip(outputs) {
        let at = (row as usize * used + rank as usize) * width;
        scratch.expert_outputs[at..at + width].copy_from_slice(output);
    }
}

/// Sums each row's picks in rank order.
fn combine(config: &Config, linear: Linear<'_>, scratch: &mut Scratch, used: usize, count: usize) {
    let width = config.width;
    let Scratch { normed, expert_outputs, pick_weights, .. } = scratch;
    linear.pool.rows(&mut normed[..count * width], width, |row, out| {
        out.fill(0.0);
        for rank in 0..used {
            let pick = row * used + rank;
            add_scaled(out, &expert_outputs[pick * width..(pick + 1) * width], pick_weights[pick]);
        }
    });
}
