//! Multi-head latent attention in its absorbed form (DeepSeek-V2, arXiv:2405.04434, section 2.1).
//!
//! What is stored of a position is its latent and one rotated key. A head's query is taken to the space of
//! latents before it meets them, and what it attended is taken from there to the head's output afterwards, so
//! keys and values of heads never exist. Prefill does the same as decode: there is one set of bits.

use adit_kernels::{
    Activations, AttentionRow, Job, Selection, attention, rms_norm_in_place, rope_heads, scale,
};

use crate::config::LatentConfig;
use crate::forward::{Pass, Row};
use crate::linear::Linear;
use crate::scratch::Scratch;
use crate::weights::{Latent, LatentQuery, PerHead};

/// Rows whose queries are in the space of latents at the same time: there they are long.
pub(crate) const LATENT_ROWS_MAX: usize = 64;
/// Heads whose products are computed together.
const HEADS_TOGETHER: usize = 16;

impl Pass<'_> {
    /// normed = output(latent attention) of the normalised rows in `input`
    pub fn latent_attention(&mut self, index: usize, config: &LatentConfig, weights: &Latent, rows: &[Row]) {
        let Pass { config: model, linear, scratch, .. } = self;
        let count = rows.len();
        let Scratch { input, low_rank, key, query, attention_gate, .. } = &mut **scratch;
        if let Some(gate) = weights.gate {
            linear.project(input, count, [(gate, &mut attention_gate[..])]);
        }
        match &weights.query {
            LatentQuery::Direct(direct) => {
                linear.project(input, count, [(*direct, query), (weights.compress, key)]);
            }
            LatentQuery::LowRank { down, norm, up } => {
                linear.project(input, count, [(*down, &mut low_rank[..]), (weights.compress, key)]);
                let (norm, epsilon) = (linear.vector(*norm), model.norm_epsilon);
                let shape = [count, config.query_rank];
                linear.fill(input, low_rank, shape, &[up.weight.kind], |_, row| {
                    rms_norm_in_place(row, norm, epsilon);
                });
                linear.project(input, count, [(*up, query)]);
            }
        }
        self.finish_queries(config, rows);
        self.remember_latents(index, config, weights, rows);
        for first in (0..count).step_by(LATENT_ROWS_MAX) {
            let last = count.min(first + LATENT_ROWS_MAX);
            self.attend_latents(index, config, weights, &rows[first..last], first);
        }
        if let Some(gate) = weights.gate {
            self.gate_attended(gate, [config.output_width(), config.value_dim], count);
        }
        let Pass { linear, scratch, .. } = self;
        let Scratch { input, attended, normed, .. } = &mut **scratch;
        linear.load(input, attended, count, config.output_width(), &[weights.output.weight.kind]);
        linear.project(input, count, [(weights.output, normed)]);
    }

    /// Turns the end of each query head by its row's position.
    fn finish_queries(&mut self, config: &LatentConfig, rows: &[Row]) {
        let LatentConfig { unrotated, rotated, .. } = *config;
        let Pass { config: model, linear, scratch, .. } = self;
        let Scratch { query, angles, .. } = &mut **scratch;
        let style = model.rope_style;
        let width = config.query_width();
        let angles = config.attention.rope.map(|rope| &angles[rope]);
        linear.pool.rows(&mut query[..rows.len() * width], width, |row, heads| {
            let temperature = config.attention.temperature.map(|factor| factor.at(rows[row].position));
            for head in heads.chunks_exact_mut(unrotated + rotated) {
                if let Some(angles) = angles {
                    let angles = &angles[row * rotated..(row + 1) * rotated];
                    rope_heads(&mut head[unrotated..], rotated, angles, style);
                }
                temperature.iter().for_each(|&factor| scale(head, factor));
            }
        });
    }

    /// Stores each row's normalised latent and turned key.
    fn remember_latents(&mut self, index: usize, config: &LatentConfig, weights: &Latent, rows: &[Row]) {
        let LatentConfig { latent, rotated, .. } = *config;
        let Pass { config: model, linear, scratch, memory, .. } = self;
        let Scratch { key, angles, .. } = &mut **scratch;
        let (norm, epsilon, style) =
            (linear.vector(weights.latent_norm), model.norm_epsilon, model.rope_style);
        let width = latent + rotated;
        for (at, row) in rows.iter().enumerate() {
            let key = &mut key[at * width..(at + 1) * width];
            rms_norm_in_place(&mut key[..latent], norm, epsilon);
            if let Some(norm) = linear.optional_vector(weights.rotated_norm) {
                rms_norm_in_place(&mut key[latent..], norm, epsilon);
            }
            if let Some(rope) = config.attention.rope {
                let angles = &angles[rope][at * rotated..(at + 1) * rotated];
                rope_heads(&mut key[latent..], rotated, angles, style);
            }
            memory.store(index, row.lane, row.position, key, &[]);
        }
    }

    /// Attention of some rows, of which `first` is the first among all of the step.
    fn attend_latents(
        &mut self,
        index: usize,
        config: &LatentConfig,
        weights: &Latent,
        rows: &[Row],
        first: usize,
    ) {
        let LatentConfig { latent, rotated, unrotated, value_dim, .. } = *config;
        let heads = config.attention.heads;
        let count = rows.len();
        let Pass { linear, scratch, memory, up_adapters, .. } = self;
        let adapter = up_adapters[index].as_ref();
        let Scratch {
            query,
            absorbed,
            latents,
            products,
            head_rows,
            head_input,
            attended,
            attention: workspace,
            ..
        } = &mut **scratch;
        let query = &query[first * config.query_width()..];
        let of_heads = |row: usize| &query[row * (unrotated + rotated)..(row + 1) * (unrotated + rotated)];

        // Queries meet the keys' up-projection, head by head.
        let kinds = [weights.key_up.first.kind];
        linear.fill(head_input, latents, [count * heads, unrotated], &kinds, |row, out| {
            out.copy_from_slice(&of_heads(row)[..unrotated]);
        });
        list_rows(head_rows, heads, count);
        for_each_head(*linear, head_input, weights.key_up, head_rows, (heads, count), products);
        let width = latent + rotated;
        linear.pool.rows(&mut absorbed[..count * heads * width], width, |at, out| {
            let (row, head) = (at / heads, at % heads);
            out[..latent].copy_from_slice(&products[(head * count + row) * latent..][..latent]);
            let (turns_not, turns) = of_heads(at).split_at(unrotated);
            out[latent..].copy_from_slice(turns);
            if let Some(adapter) = adapter {
                adapter.correct_query(head, turns_not, &mut out[..latent]);
            }
        });

        let memory = &**memory;
        attention(
            linear.pool,
            &config.attention.shape(),
            linear.optional_vector(weights.sinks),
            &absorbed[..count * heads * width],
            count,
            &|at| AttentionRow { position: rows[at].position, blocks: memory.blocks(rows[at].lane) },
            &memory.view(index),
            workspace,
            &mut latents[..count * heads * latent],
        );

        // What was attended meets the values' up-projection.
        linear.load(head_input, latents, count * heads, latent, &[weights.value_up.first.kind]);
        for_each_head(*linear, head_input, weights.value_up, head_rows, (heads, count), products);
        let width = config.output_width();
        linear.pool.rows(&mut attended[first * width..(first + count) * width], width, |row, out| {
            for (head, out) in out.chunks_exact_mut(value_dim).enumerate() {
                out.copy_from_slice(&products[(head * count + row) * value_dim..][..value_dim]);
                if let Some(adapter) = adapter {
                    adapter.correct_output(head, &latents[(row * heads + head) * latent..][..latent], out);
                }
            }
        });
    }
}

/// The place of each row's head among `[row][head]`, head by head.
fn list_rows(list: &mut Vec<u32>, heads: usize, count: usize) {
    list.clear();
    list.extend((0..heads).flat_map(|head| (0..count).map(move |row| (row * heads + head) as u32)));
}

/// `out[head][row] = matrices[head] * input[row][head]`
fn for_each_head(
    linear: Linear<'_>,
    input: &Activations,
    matrices: PerHead,
    list: &[u32],
    (heads, count): (usize, usize),
    out: &mut [f32],
) {
    let rows = matrices.first.rows;
    let mut outs = out[..heads * count * rows].chunks_exact_mut(count * rows);
    for first in (0..heads).step_by(HEADS_TOGETHER) {
        let together = HEADS_TOGETHER.min(heads - first);
        let mut jobs: [_; HEADS_TOGETHER] = std::array::from_fn(|at| {
            let head = (first + at).min(heads - 1);
            // Behind the last head it stands again, with no rows.
            let listed = if at < together { &list[head * count..(head + 1) * count] } else { &[] };
            let out = if at < together { outs.next().expect("one for each head") } else { &mut [] };
            let weights = linear.matrix(matrices.head(head));
            Job { weights, rows: Selection::Listed(listed), out, out_stride: rows }
        });
        linear.run(input, &mut jobs[..together]);
    }
}
