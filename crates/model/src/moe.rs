//! The routed feed-forward block: the model's own gate decides, the pager delivers, kernels compute.
//!
//! Rows are grouped by expert; each expert of the union is visited once, in whatever order its bytes
//! arrive, together with others that are there. Every pick's output is kept apart and summed in rank order
//! at the end, so the order of arrival cannot touch the result.

use std::ops::Range;

use adit_format::TensorType;
use adit_kernels::{Selection, add, add_scaled, rms_norm_in_place, scale, sigmoid};
use adit_pager::{Pager, Parts, Ready, TOGETHER_MAX};

use crate::config::{Config, Experts};
use crate::error::ModelError;
use crate::families::{BlockInput, RouterInput};
use crate::forward::{activate, activate_alone, dense};
use crate::linear::{Linear, floats};
use crate::norm::{load_normed, post_norm};
use crate::observe::{Observer, Routing};
use crate::router::Gate;
use crate::scratch::Scratch;
use crate::weights::{ExpertMatrix, Layer, Routed, SharedExpert};

/// normed = sum over picks of weight * expert(x) + shared expert(x), x = norm(hidden)
pub(crate) fn feed_forward(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    (pager, mut observer): (&mut Pager, Option<&mut (dyn Observer + 'static)>),
    (index, whole, layer): (usize, &Layer, &Routed),
    count: usize,
) -> Result<(), ModelError> {
    let experts = config.experts.as_ref().expect("a routed layer comes with the experts' numbers");
    let source = config.family.feed_forward_input;
    let kinds = layer.input_kinds();
    let seen_by_router = match config.family.router.input {
        RouterInput::Block => source,
        RouterInput::Layer => BlockInput::Layer,
        RouterInput::Scaled => BlockInput::Hidden,
    };
    router_logits(config, &linear, (whole, layer), (scratch, seen_by_router), count, &kinds);
    pick_experts(experts, Gate::new(experts, linear, layer), scratch, count);
    group_by_expert(experts, scratch, count);
    if let Some(observer) = &mut observer {
        tell(*observer, experts, scratch, pager, layer.group, count);
    }
    let waited_ns = pager.wait_ns();
    let members = std::mem::take(&mut scratch.members);
    let asked = match pager.ask(layer.group, &members) {
        Ok(asked) => asked,
        Err(error) => {
            scratch.members = members;
            return Err(error.into());
        }
    };
    // While the disk reads: nothing of it is needed here.
    prepare(config, linear, scratch, (index, whole, layer), count);
    let mut visit = Visit { config, linear, scratch, index, layer, placed: 0 };
    let streamed = asked.visit(|ready| {
        visit.run(&members, ready);
        Ok::<(), ModelError>(())
    });
    scratch.members = members;
    streamed?;
    if config.family.router.weighs_input {
        scratch.pick_weights[..count * experts.used].fill(1.0);
    }
    combine(config, linear, scratch, (experts, layer), count);
    if let Some(observer) = observer {
        observer.streamed(pager.wait_ns() - waited_ns);
    }
    Ok(())
}

/// Computes the shared expert; leaves in `input` what the routed ones see.
fn prepare(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    (index, whole, layer): (usize, &Layer, &Routed),
    count: usize,
) {
    let norm = (whole.feed_forward_norm, config.family.feed_forward_input);
    let kinds = layer.input_kinds();
    if config.family.router.input != RouterInput::Block {
        load_normed(config, &linear, norm, scratch, 0..count, &kinds);
    }
    let Some(shared) = &layer.shared else { return };
    if shared.norm.is_some() {
        let norm = (shared.norm, BlockInput::Hidden);
        load_normed(config, &linear, norm, scratch, 0..count, &shared.input_kinds());
    }
    shared_expert(config, linear, scratch, (index, shared), count);
    if shared.norm.is_some() {
        load_normed(config, &linear, norm, scratch, 0..count, &kinds);
    }
}

/// router = router(its input) of rows with these states. Leaves that input in `input`, for weights of these
/// kinds.
pub(crate) fn router_logits(
    config: &Config,
    linear: &Linear<'_>,
    (layer, routed): (&Layer, &Routed),
    (scratch, states): (&mut Scratch, BlockInput),
    count: usize,
    kinds: &[TensorType],
) {
    let norm = match config.family.router.input {
        RouterInput::Block => (layer.feed_forward_norm, states),
        RouterInput::Layer => (None, states),
        RouterInput::Scaled => (routed.router_norm, states),
    };
    load_normed(config, linear, norm, scratch, 0..count, kinds);
    linear.project(&scratch.input, count, [(routed.router.into(), &mut scratch.router)]);
    if config.family.router.input == RouterInput::Scaled {
        let factor = 1.0 / (config.width as f32).sqrt();
        let logits = &mut scratch.router[..count * routed.router.rows];
        linear.pool.rows(logits, routed.router.rows, |_, logits| scale(logits, factor));
    }
}

/// Each row's experts in order of score, and their weights.
fn pick_experts(experts: &Experts, gate: Gate<'_>, scratch: &mut Scratch, count: usize) {
    let rows = scratch.router[..count * experts.count].chunks_exact_mut(experts.count);
    let picked = scratch.picked.chunks_exact_mut(experts.used);
    let weights = scratch.pick_weights.chunks_exact_mut(experts.used);
    for (((scores, picked), weights), &token) in rows.zip(picked).zip(weights).zip(&scratch.tokens) {
        gate.pick_for(token, scores, &mut scratch.scores, picked);
        gate.weigh(scores, picked, weights);
    }
}

/// shared = gate * block(x) of the expert that every row uses
fn shared_expert(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    (index, shared): (usize, &SharedExpert),
    count: usize,
) {
    let Scratch { input, gate, up, inner, shared: out, shared_gates, .. } = scratch;
    let activation = config.layers[index].activation;
    dense(activation, linear, &shared.block, count, input, (gate, up, inner), out);
    if let Some(norm) = shared.post_norm {
        post_norm(config, &linear, norm, &mut out[..count * config.width]);
    }
    let Some(weight) = shared.gate else { return };
    linear.project(input, count, [(weight.into(), shared_gates)]);
    sigmoid(&mut shared_gates[..count]);
    let (width, gates) = (config.width, &*shared_gates);
    linear.pool.rows(&mut out[..count * width], width, |row, out| scale(out, gates[row]));
}

/// Counting sort of the picks by expert; `members` becomes the union, ascending.
fn group_by_expert(experts: &Experts, scratch: &mut Scratch, count: usize) {
    let Scratch { picked, members, starts, pair_rows, pair_picks, .. } = scratch;
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
    for (pick, &expert) in picked.iter().enumerate() {
        let next = &mut starts[expert as usize];
        pair_rows[*next as usize] = (pick / experts.used) as u32;
        pair_picks[*next as usize] = pick as u32;
        *next += 1;
    }
    starts.copy_within(0..experts.count, 1);
    starts[0] = 0;
}

/// Tells what the gate decided and what of it is missing.
fn tell(
    observer: &mut dyn Observer,
    experts: &Experts,
    scratch: &Scratch,
    pager: &Pager,
    group: usize,
    count: usize,
) {
    let missing = scratch.members.iter().filter(|&&member| !pager.is_resident(group, member));
    observer.routed(&Routing {
        layer: group,
        used: experts.used,
        picked: &scratch.picked[..count * experts.used],
        weights: &scratch.pick_weights[..count * experts.used],
        missing_bytes: missing.map(|&member| pager.read_bytes(group, member)).sum(),
        is_resident: &|expert| pager.is_resident(group, expert),
    });
}

/// The experts of one layer, computed as they arrive.
struct Visit<'a> {
    config: &'a Config,
    linear: Linear<'a>,
    scratch: &'a mut Scratch,
    /// The layer's number.
    index: usize,
    layer: &'a Routed,
    /// Outputs written so far.
    placed: usize,
}

impl Visit<'_> {
    /// Computes the experts in `ready`, as many at a time as the scratch has rows for.
    fn run(&mut self, members: &[u32], mut ready: &[Ready<'_>]) {
        let room = self.scratch.inner_rows;
        while !ready.is_empty() {
            let (mut experts, mut rows) = (0, 0);
            while experts < ready.len() {
                let more = self.pairs(members, &ready[experts]).len();
                // One expert alone always has room: it meets a row once.
                if experts > 0 && rows + more > room {
                    break;
                }
                (experts, rows) = (experts + 1, rows + more);
            }
            let (now, later) = ready.split_at(experts);
            self.run_together(members, now, rows);
            ready = later;
        }
    }

    /// Places of an expert's pairs in `pair_rows`.
    fn pairs(&self, members: &[u32], ready: &Ready<'_>) -> Range<usize> {
        let expert = members[ready.index] as usize;
        self.scratch.starts[expert] as usize..self.scratch.starts[expert + 1] as usize
    }

    /// Computes experts that meet `rows` rows together; their outputs come behind those before them.
    fn run_together(&mut self, members: &[u32], ready: &[Ready<'_>], rows: usize) {
        let Routed { gate, up, down, .. } = self.layer;
        let width = self.config.width;
        // Behind the last expert the last stands again, with no rows.
        let pairs: [_; TOGETHER_MAX] = std::array::from_fn(|at| match ready.get(at) {
            Some(ready) => self.pairs(members, ready),
            None => 0..0,
        });
        let parts = |at: usize| ready[at.min(ready.len() - 1)].parts;
        // The expert that a row of this round belongs to, and which of all pairs it is.
        let expert_of = |row: usize| {
            let (at, pair) = find_row(&pairs, row);
            (parts(at), members[ready[at].index] as usize, pair)
        };
        let scratch = &mut *self.scratch;
        let (pair_picks, pick_weights) = (&scratch.pair_picks, &scratch.pick_weights);
        let weighs_input = self.config.family.router.weighs_input;
        // What comes after a product with the block's input.
        let finish_inner = |matrix: &ExpertMatrix, row: usize, out: &mut [f32]| {
            let (parts, expert, pair) = expert_of(row);
            if weighs_input {
                scale(out, pick_weights[pair_picks[pair] as usize]);
            }
            finish(self.linear, matrix, (parts, expert), out);
        };

        let (mut gates, mut ups) = (&mut scratch.gate[..], &mut scratch.up[..]);
        let mut jobs: [_; 2 * TOGETHER_MAX] = std::array::from_fn(|at| {
            let (at, is_up) = (at / 2, at % 2 == 1);
            let (shape, outs) =
                if is_up { (up, &mut ups) } else { (gate.as_ref().unwrap_or(up), &mut gates) };
            // Experts without a gate meet no rows with it.
            let pairs = if is_up || gate.is_some() { pairs[at].clone() } else { 0..0 };
            let out = split_off(outs, pairs.len() * shape.rows);
            let rows = Selection::Listed(&scratch.pair_rows[pairs]);
            Linear::expert_job(*shape, parts(at).part(shape.part), rows, out)
        });
        self.linear.run(&scratch.input, &mut jobs[..2 * ready.len()]);

        if up.needs_more() || weighs_input {
            let out = &mut scratch.up[..rows * up.rows];
            self.linear.pool.rows(out, up.rows, |row, out| finish_inner(up, row, out));
        }
        let (activation, ups) = (self.config.layers[self.index].expert_activation, &scratch.up);
        let shape = [rows, up.rows];
        self.linear.fill(&mut scratch.inner, &mut scratch.gate, shape, &[down.kind], |row, out| {
            let up = &ups[row * up.rows..(row + 1) * up.rows];
            let Some(gate) = gate else {
                out.copy_from_slice(up);
                return activate_alone(activation, out);
            };
            if gate.needs_more() || weighs_input {
                finish_inner(gate, row, out);
            }
            activate(activation, out, up);
        });

        let mut first = 0;
        let outputs = &mut scratch.expert_outputs[self.placed * width..][..rows * width];
        let mut outs = &mut *outputs;
        let mut jobs: [_; TOGETHER_MAX] = std::array::from_fn(|at| {
            let count = pairs[at].len();
            let rows = Selection::Run { first, count };
            first += count;
            let out = split_off(&mut outs, count * width);
            Linear::expert_job(*down, parts(at).part(down.part), rows, out)
        });
        self.linear.run(&scratch.inner, &mut jobs[..ready.len()]);
        if down.needs_more() {
            self.linear.pool.rows(outputs, width, |row, out| {
                let (parts, expert, _) = expert_of(row);
                finish(self.linear, down, (parts, expert), out);
            });
        }

        for pair in pairs.into_iter().flatten() {
            scratch.places[scratch.pair_picks[pair] as usize] = self.placed as u32;
            self.placed += 1;
        }
    }
}

/// What comes after an expert's product: its factor and its bias.
fn finish(linear: Linear<'_>, matrix: &ExpertMatrix, (parts, expert): (Parts<'_>, usize), out: &mut [f32]) {
    if let Some(factors) = matrix.scale {
        scale(out, linear.vector(factors)[expert]);
    }
    if let Some(bias) = matrix.bias {
        add(out, &floats(parts.part(bias.part))[bias.first..bias.first + matrix.rows]);
    }
}

/// The run that the `row`th place of all runs is in, and the place.
fn find_row(runs: &[Range<usize>], row: usize) -> (usize, usize) {
    let mut behind = row;
    let mut at = 0;
    while behind >= runs[at].len() {
        behind -= runs[at].len();
        at += 1;
    }
    (at, runs[at].start + behind)
}

/// Takes the first `len` values from `rest`.
fn split_off<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (first, behind) = std::mem::take(rest).split_at_mut(len);
    *rest = behind;
    first
}

/// Sums each row's picks in rank order, then adds the shared expert.
fn combine(
    config: &Config,
    linear: Linear<'_>,
    scratch: &mut Scratch,
    (experts, layer): (&Experts, &Routed),
    count: usize,
) {
    let (width, used, epsilon) = (config.width, experts.used, config.norm_epsilon);
    let norm = linear.optional_vector(layer.post_norm);
    let Scratch { normed, expert_outputs, pick_weights, places, shared, .. } = scratch;
    linear.pool.rows(&mut normed[..count * width], width, |row, out| {
        out.fill(0.0);
        for pick in row * used..(row + 1) * used {
            let place = places[pick] as usize;
            add_scaled(out, &expert_outputs[place * width..(place + 1) * width], pick_weights[pick]);
        }
        if let Some(norm) = norm {
            rms_norm_in_place(out, norm, epsilon);
        }
        if layer.shared.is_some() {
            add(out, &shared[row * width..(row + 1) * width]);
        }
        if experts.sum_scale != 1.0 {
            scale(out, experts.sum_scale);
        }
    });
}
