//! All working memory of a step, in one struct whose every field carries its shape.
//!
//! Sized once for the largest step; a step borrows it and allocates nothing.

use adit_kernels::{ActivationFormat, Activations, activation_format, attention_scratch_floats};

use crate::config::{AttentionConfig, Config, LatentConfig, MixerConfig};
use crate::latent::LATENT_ROWS_MAX;
use crate::recurrent::RecurrentConfig;
use crate::weights::{Mixer, Weights};

/// Rows whose logits are computed in one go; more than that are taken in turns.
pub const LOGIT_ROWS_MAX: usize = 16;

/// What the largest step looks like.
#[derive(Debug, Clone, Copy)]
pub struct StepShape {
    /// Rows of one step: the prefill chunk.
    pub rows: usize,
    /// Positions that a lane may have.
    pub context: usize,
    pub threads: usize,
}

pub(crate) struct Scratch {
    /// rows x width: the residual stream, or what is gathered of several.
    pub hidden: Vec<f32>,
    /// rows x streams x width, where there are several residual streams
    pub streams: Vec<f32>,
    /// rows x shares of streams in a block
    pub shares: Vec<f32>,
    /// rows x width, where a block begins from it: the residual stream before the layer's mixer
    pub layer_input: Vec<f32>,
    /// rows x width: the normalised residual; later a block's output.
    pub normed: Vec<f32>,
    /// rows x heads * head_dim, as the projection makes them
    pub query: Vec<f32>,
    /// rows x heads * 2 head_dim, where gates come with queries: a query and its gate for each head
    pub gated_query: Vec<f32>,
    /// rows x kv_heads * head_dim
    pub key: Vec<f32>,
    /// rows x kv_heads * value_dim
    pub value: Vec<f32>,
    /// rows x heads * value_dim
    pub attended: Vec<f32>,
    /// rows x rows of a gate on what was attended
    pub attention_gate: Vec<f32>,
    /// rows x rank, where queries are made in two steps
    pub low_rank: Vec<f32>,
    /// latent rows x heads x (latent + rotated): queries of latents
    pub absorbed: Vec<f32>,
    /// latent rows x heads x latent: what was attended; before, the part of queries that does not turn
    pub latents: Vec<f32>,
    /// heads x latent rows x latent or value_dim: products of each head's matrix
    pub products: Vec<f32>,
    /// heads x latent rows: where each head's rows are among `[row][head]`
    pub head_rows: Vec<u32>,
    /// Activations of single heads.
    pub head_input: Activations,
    /// rows x what a recurrent layer keeps apart of a row
    pub recurrent: Vec<f32>,
    /// Rows that `gate`, `up` and `inner` have room for, however long they are: those of a step, and at least
    /// one for each expert used.
    pub inner_rows: usize,
    /// inner rows x inner width of a feed-forward block or expert
    pub gate: Vec<f32>,
    /// as `gate`
    pub up: Vec<f32>,
    /// for each rotation, rows x its dimensions: cosine and sine pairs of each row's position
    pub angles: Vec<Vec<f32>>,
    /// rows: the token of each row, in the order of `hidden`
    pub tokens: Vec<u32>,
    /// rows x experts: the router's logits, then scores
    pub router: Vec<f32>,
    /// experts: the scores of one row that experts are picked by
    pub scores: Vec<f32>,
    /// rows x used: each row's experts in order of probability; the place in this order is a pick's rank
    pub picked: Vec<u32>,
    /// rows x used: the weight of each pick in the row's sum
    pub pick_weights: Vec<f32>,
    /// experts: this layer's union, ascending
    pub members: Vec<u32>,
    /// experts + 1: where each expert's entries begin in `pair_rows` and `pair_picks`
    pub starts: Vec<u32>,
    /// rows x used: row of each pick, grouped by expert
    pub pair_rows: Vec<u32>,
    /// rows x used: the pick, as its place in `picked`
    pub pair_picks: Vec<u32>,
    /// rows x used x width: every pick's output in the order of computing, summed in rank order once all
    /// are there
    pub expert_outputs: Vec<f32>,
    /// rows x used: row of each pick's output in `expert_outputs`
    pub places: Vec<u32>,
    /// rows x width, where there are shared experts: their output
    pub shared: Vec<f32>,
    /// rows: the shared experts' gates
    pub shared_gates: Vec<f32>,
    /// Activations of a block's input, in the formats that weights ask for.
    pub input: Activations,
    /// Activations of a feed-forward block's inner values.
    pub inner: Activations,
    /// Workspace of the attention kernel.
    pub attention: Vec<f32>,
    /// logit rows x vocabulary
    pub logits: Vec<f32>,
}

/// Hands out memory, or only counts it: the plan and the allocation are then the same sum.
struct Carver {
    bytes: usize,
    count_only: bool,
}

impl Carver {
    fn take<T: Clone + Default>(&mut self, len: usize) -> Vec<T> {
        self.bytes += len * size_of::<T>();
        if self.count_only { Vec::new() } else { vec![T::default(); len] }
    }

    fn activations(&mut self, rows: usize, cols: usize, formats: &[ActivationFormat]) -> Activations {
        self.bytes += Activations::bytes_needed(rows, cols, formats);
        if self.count_only { Activations::new(0, 0, &[]) } else { Activations::new(rows, cols, formats) }
    }
}

impl Scratch {
    /// Bytes that [`Scratch::new`] will take.
    pub fn bytes(config: &Config, weights: &Weights, shape: StepShape) -> usize {
        let mut carver = Carver { bytes: 0, count_only: true };
        Scratch::carve(config, weights, shape, &mut carver);
        carver.bytes
    }

    pub fn new(config: &Config, weights: &Weights, shape: StepShape) -> Scratch {
        Scratch::carve(config, weights, shape, &mut Carver { bytes: 0, count_only: false })
    }

    fn carve(config: &Config, weights: &Weights, shape: StepShape, memory: &mut Carver) -> Scratch {
        let StepShape { rows, context, threads } = shape;
        let width = config.width;
        let attended = config.largest_of_mixers(MixerConfig::output_width);
        let of_attention = |of: fn(&AttentionConfig) -> usize| {
            config.largest_of_mixers(|mixer| mixer.attention().map_or(0, of))
        };
        let of_latent =
            |of: fn(&LatentConfig) -> usize| config.largest_of_mixers(|mixer| mixer.latent().map_or(0, of));
        let latent_rows = rows.min(LATENT_ROWS_MAX);
        let latents = latent_rows * of_latent(|latent| latent.attention.heads);
        let unrotated = of_latent(|latent| latent.unrotated.max(latent.latent));
        let low_rank = of_latent(|latent| latent.query_rank);
        let of_recurrent = |of: fn(&RecurrentConfig) -> usize| {
            config.largest_of_mixers(|mixer| mixer.recurrent().map_or(0, of))
        };
        let (streams, shares) = match &config.streams {
            Some(streams) => (streams.count * width, streams.shares()[0]),
            None => (0, 0),
        };
        let inner = config.largest_inner();
        let (experts, used, shared) = match &config.experts {
            Some(experts) => (experts.count, experts.used, experts.shared > 0),
            None => (0, 0, false),
        };
        let [input_formats, inner_formats, head_formats] = formats(weights);
        // A single row meets all its experts at once.
        let inner_rows = rows.max(used);
        let gated_rows = if config.family.attention.gate_in_query { rows } else { 0 };
        let shared_rows = if shared { rows } else { 0 };
        Scratch {
            hidden: memory.take(rows * width),
            streams: memory.take(rows * streams),
            shares: memory.take(rows * shares),
            layer_input: memory.take(if config.family.keeps_layer_input() { rows * width } else { 0 }),
            normed: memory.take(rows * width),
            query: memory.take(rows * config.largest_of_mixers(MixerConfig::query_width)),
            gated_query: memory.take(gated_rows * 2 * of_attention(AttentionConfig::query_width)),
            key: memory.take(rows * of_attention(AttentionConfig::key_width)),
            value: memory.take(rows * of_attention(AttentionConfig::value_width)),
            attended: memory.take(rows * attended),
            attention_gate: memory.take(rows * widest_gate(weights)),
            low_rank: memory.take(rows * low_rank),
            absorbed: memory.take(latents * of_latent(|latent| latent.attention.head_dim)),
            latents: memory.take(latents * unrotated),
            products: memory.take(latents * of_latent(|latent| latent.latent.max(latent.value_dim))),
            head_rows: memory.take(latents),
            head_input: memory.activations(latents, unrotated, &head_formats),
            recurrent: memory.take(rows * of_recurrent(RecurrentConfig::row_floats)),
            inner_rows,
            gate: memory.take(inner_rows * inner),
            up: memory.take(inner_rows * inner),
            angles: config.ropes.iter().map(|rope| memory.take(rows * rope.dimensions)).collect(),
            tokens: memory.take(rows),
            router: memory.take(rows * experts),
            scores: memory.take(experts),
            picked: memory.take(rows * used),
            pick_weights: memory.take(rows * used),
            members: memory.take(experts),
            starts: memory.take(experts + 1),
            pair_rows: memory.take(rows * used),
            pair_picks: memory.take(rows * used),
            expert_outputs: memory.take(rows * used * width),
            places: memory.take(rows * used),
            shared: memory.take(shared_rows * width),
            shared_gates: memory.take(shared_rows),
            input: memory.activations(rows, width.max(attended).max(low_rank).max(streams), &input_formats),
            inner: memory.activations(inner_rows, inner, &inner_formats),
            attention: memory.take(config.largest_of_mixers(|mixer| {
                let floats = |of: &AttentionConfig| attention_scratch_floats(&of.shape(), threads, context);
                let recurrent = mixer.recurrent().map_or(0, |recurrent| recurrent.score_floats(context));
                mixer.attention().map_or(recurrent, floats)
            })),
            logits: memory.take(rows.min(LOGIT_ROWS_MAX) * config.vocabulary),
        }
    }
}

/// Values of the widest gate on what attention gives.
fn widest_gate(weights: &Weights) -> usize {
    let gates = weights.layers.iter().filter_map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => attention.gate.map(|gate| gate.weight.rows),
        Mixer::Latent(latent) => latent.gate.map(|gate| gate.weight.rows),
        Mixer::Recurrent(_) | Mixer::Absent => None,
    });
    gates.max().unwrap_or(0)
}

/// The activation formats that each kind of input is needed in.
fn formats(weights: &Weights) -> [Vec<ActivationFormat>; 3] {
    let mut lists = [const { Vec::new() }; 3];
    weights.for_each_kind(|kind, input| {
        let format = activation_format(kind).expect("binding admits only types with kernels");
        let list: &mut Vec<_> = &mut lists[input as usize];
        if !list.contains(&format) {
            list.push(format);
        }
    });
    lists
}
