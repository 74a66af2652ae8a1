//! Fixed weight binding: tensor names become typed fields, once, with every shape checked.
//!
//! A weight is a handle: the backend that holds its bytes (today the pager's backbone) resolves it.
//! Routed experts are not weights here but members of a pager group. A tensor that no field claims
//! makes the file refused, because a model with an unknown part would run approximately.

mod binder;
mod derived;
mod experts;
mod latent;
mod token_experts;

use adit_format::{Gguf, TensorType};
use adit_pager::{Extent, Group};

use crate::config::{AttentionConfig, Config, FeedForwardConfig, LayerConfig, MixerConfig};
use crate::error::ModelError;
use crate::families::{GatePlace, Presence};
use crate::recurrent::Recurrent;
use crate::streams::Connection;
pub(crate) use binder::{Binder, file_name};
pub use derived::Derived;
pub use experts::{ExpertMatrix, Routed, SharedExpert};
pub use token_experts::TokenExperts;

/// A resident matrix of `rows` outputs by `cols` inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    /// Index of its extent in the backbone.
    pub handle: usize,
    /// Its first row there: one tensor of a file may hold several matrices.
    pub first_row: usize,
}

/// A resident list of `len` f32 values: a norm, a bias, frequency factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vector {
    pub len: usize,
    pub handle: usize,
    /// Its first value in the extent.
    pub first: usize,
}

/// A norm of the residual stream, `width` values each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Norm {
    pub weight: Vector,
    pub bias: Option<Vector>,
}

/// A matrix product, times an optional factor, plus an optional bias.
#[derive(Debug, Clone, Copy)]
pub struct Projection {
    pub weight: Tensor,
    /// One value.
    pub scale: Option<Vector>,
    /// Whether the factor is on the bias too.
    pub scale_last: bool,
    pub bias: Option<Vector>,
}

/// Plain attention.
#[derive(Debug)]
pub struct Attention {
    pub query: Projection,
    pub key: Projection,
    pub value: Projection,
    /// As long as one head, or as all heads.
    pub query_norm: Option<Vector>,
    pub key_norm: Option<Vector>,
    /// `heads` logits.
    pub sinks: Option<Vector>,
    /// One row a head, or one for each of its values: the gate on what was attended.
    pub gate: Option<Projection>,
    pub output: Projection,
}

/// The part of a layer in which positions see each other.
#[derive(Debug)]
pub enum Mixer {
    /// The layer has none.
    Absent,
    Attention(Box<Attention>),
    Latent(Box<Latent>),
    Recurrent(Box<Recurrent>),
}

/// How the queries of latent attention are made.
#[derive(Debug)]
pub enum LatentQuery {
    Direct(Projection),
    /// `up(norm(down(x)))`
    LowRank {
        down: Projection,
        norm: Vector,
        up: Projection,
    },
}

/// Latent attention in its absorbed form.
#[derive(Debug)]
pub struct Latent {
    pub query: LatentQuery,
    /// Makes the latent and the rotated key.
    pub compress: Projection,
    pub latent_norm: Vector,
    /// A norm of the key that turns.
    pub rotated_norm: Option<Vector>,
    /// `heads` logits.
    pub sinks: Option<Vector>,
    /// One row a head, or one for each of its values: the gate on its output.
    pub gate: Option<Projection>,
    /// Takes the part of a query that does not turn to a query of latents.
    pub key_up: PerHead,
    /// Whether it is among what is made at load.
    pub key_up_is_derived: bool,
    /// Takes what was attended of latents to a head's output.
    pub value_up: PerHead,
    pub output: Projection,
}

/// A matrix for each head, in one tensor.
#[derive(Debug, Clone, Copy)]
pub struct PerHead {
    /// The first head's.
    pub first: Tensor,
    /// Rows from one head's first row to the next one's.
    pub stride: usize,
}

impl PerHead {
    pub fn head(&self, head: usize) -> Tensor {
        Tensor { first_row: self.first.first_row + head * self.stride, ..self.first }
    }
}

/// What a matrix multiplies: each kind of input is prepared by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A block's input.
    Block,
    /// The inner values of a feed-forward block.
    Inner,
    /// One head's values.
    Head,
}

impl Projection {
    /// The projections whose rows are stacked in it, of so many rows each.
    fn split<const N: usize>(self, rows: [usize; N]) -> [Projection; N] {
        let mut first = 0;
        rows.map(|rows| {
            let weight = Tensor { rows, first_row: self.weight.first_row + first, ..self.weight };
            let bias = self.bias.map(|bias| Vector { len: rows, first: bias.first + first, ..bias });
            first += rows;
            Projection { weight, bias, ..self }
        })
    }
}

impl From<Tensor> for Projection {
    fn from(weight: Tensor) -> Projection {
        Projection { weight, scale: None, scale_last: false, bias: None }
    }
}

impl Mixer {
    /// The types of the matrices that its normalised input meets.
    pub fn input_kinds(&self) -> [TensorType; INPUTS_MAX] {
        match self {
            Mixer::Attention(attention) => {
                let Attention { query, key, value, gate, .. } = &**attention;
                let gate = gate.as_ref().unwrap_or(query);
                kinds_of(&[query, key, value, gate].map(|projection| projection.weight))
            }
            Mixer::Latent(latent) => {
                let (LatentQuery::Direct(query) | LatentQuery::LowRank { down: query, .. }) = &latent.query;
                let gate = latent.gate.as_ref().unwrap_or(query);
                kinds_of(&[query, &latent.compress, gate].map(|projection| projection.weight))
            }
            Mixer::Recurrent(recurrent) => recurrent.input_kinds(),
            Mixer::Absent => unreachable!("nothing is computed of it"),
        }
    }

    /// The matrices and what they multiply.
    fn for_each_kind(&self, of: &mut impl FnMut(TensorType, Input)) {
        if let Mixer::Absent = self {
            return;
        }
        self.input_kinds().into_iter().for_each(|kind| of(kind, Input::Block));
        match self {
            Mixer::Absent => {}
            Mixer::Attention(attention) => of(attention.output.weight.kind, Input::Block),
            Mixer::Latent(latent) => {
                of(latent.output.weight.kind, Input::Block);
                if let LatentQuery::LowRank { up, .. } = &latent.query {
                    of(up.weight.kind, Input::Block);
                }
                of(latent.key_up.first.kind, Input::Head);
                of(latent.value_up.first.kind, Input::Head);
            }
            Mixer::Recurrent(recurrent) => {
                recurrent.for_each_later_matrix(|matrix| of(matrix.kind, Input::Block));
            }
        }
    }
}

/// Matrices of one mixer that meet the same input, at most.
pub(crate) const INPUTS_MAX: usize = 8;

/// The types of some matrices; where there are fewer, the first stands for the rest.
pub(crate) fn kinds_of(matrices: &[Tensor]) -> [TensorType; INPUTS_MAX] {
    std::array::from_fn(|at| matrices.get(at).unwrap_or(&matrices[0]).kind)
}

/// `down(activation(gate(x)) * up(x))`, or `down(activation(up(x)))` without a gate
#[derive(Debug, Clone, Copy)]
pub struct Dense {
    pub gate: Option<Projection>,
    pub up: Projection,
    pub down: Projection,
}

impl Dense {
    /// The types of the matrices that its input meets.
    pub fn input_kinds(&self) -> [TensorType; 2] {
        [self.gate.as_ref().unwrap_or(&self.up), &self.up].map(|projection| projection.weight.kind)
    }
}

/// The part of a layer in which each position is alone.
#[derive(Debug)]
pub enum FeedForward {
    /// The layer has none.
    Absent,
    Dense(Box<Dense>),
    Routed(Box<Routed>),
}

impl FeedForward {
    pub fn routed(&self) -> Option<&Routed> {
        match self {
            FeedForward::Absent | FeedForward::Dense(_) => None,
            FeedForward::Routed(routed) => Some(routed),
        }
    }
}

#[derive(Debug)]
pub struct Layer {
    /// How the mixer reads and writes several residual streams.
    pub mixer_streams: Option<Connection>,
    pub mixer_norm: Option<Norm>,
    pub mixer: Mixer,
    pub post_mixer_norm: Option<Vector>,
    pub feed_forward_streams: Option<Connection>,
    pub feed_forward_norm: Option<Norm>,
    pub feed_forward: FeedForward,
    pub post_feed_forward_norm: Option<Vector>,
    /// One value: a factor on the residual stream behind the layer.
    pub scale: Option<Vector>,
}

/// Rotation frequency factors that the file carries as tensors.
#[derive(Debug, Default)]
pub struct RopeFactors {
    /// Llama 3: `rope_freqs.weight`.
    pub fixed: Option<Vector>,
    /// Long-rope: one set for contexts beyond the original length, one for those within.
    pub long: Option<Vector>,
    pub short: Option<Vector>,
}

/// Every weight of a model, bound, and where its bytes lie in the files.
#[derive(Debug)]
pub struct Weights {
    pub embedding: Tensor,
    /// How several residual streams become one before the last norm.
    pub output_streams: Option<Connection>,
    pub output_norm: Norm,
    /// The embedding again where the file ties them.
    pub output: Projection,
    pub rope_factors: RopeFactors,
    pub layers: Vec<Layer>,
    /// What the backbone loads; handles are indices into this list, and behind it into `derived`.
    pub extents: Vec<Extent>,
    /// What is made of them at load.
    pub derived: Vec<Derived>,
    /// One group per mixture-of-experts layer.
    pub groups: Vec<Group>,
}

impl Weights {
    /// Binds every tensor of `gguf` to its place.
    pub fn bind(gguf: &Gguf, config: &Config) -> Result<Weights, ModelError> {
        let mut binder = Binder::new(gguf, config);
        let width = config.width;
        let embedding = binder.matrix("token_embd.weight", config.vocabulary, width)?;
        let streams = config.streams.filter(|_| config.family.output_streams);
        let output_streams = streams
            .map(|streams| Connection::bind(&mut binder, "output_hc", &streams, [streams.count, 1]))
            .transpose()?;
        let output_norm = binder.norm(config.family.output_norm)?;
        let weight = match gguf.tensor("output.weight") {
            Some(_) => binder.matrix("output.weight", config.vocabulary, width)?,
            None => embedding,
        };
        let bias = binder.optional_vector(config.family.logit_bias, "output.bias", config.vocabulary)?;
        let scale = binder.scale("output", 1, true)?;
        let pairs = config.ropes[0].dimensions / 2;
        let rope_factors = RopeFactors {
            fixed: binder.optional_vector(Presence::Optional, "rope_freqs.weight", pairs)?,
            long: binder.optional_vector(Presence::Optional, "rope_factors_long.weight", pairs)?,
            short: binder.optional_vector(Presence::Optional, "rope_factors_short.weight", pairs)?,
        };
        let layers = (0..config.layers.len()).map(|layer| binder.layer(layer));
        let mut layers = layers.collect::<Result<Vec<_>, _>>()?;
        for extra in 0..config.extra_layers {
            binder.leave_out_layer(config.layers.len() + extra);
        }
        binder.leave_out_unused();
        binder.refuse_leftovers()?;
        let output = Projection { weight, scale, scale_last: false, bias };
        let Binder { extents, derived, groups, .. } = binder;
        derived::number(&mut layers, extents.len());
        Ok(Weights {
            embedding,
            output_streams,
            output_norm,
            output,
            rope_factors,
            layers,
            extents,
            derived,
            groups,
        })
    }

    /// Routed experts in all layers.
    pub fn experts(&self) -> usize {
        self.groups.iter().map(|group| group.members as usize).sum()
    }

    /// Bytes of what is made at load.
    pub fn derived_bytes(&self) -> u64 {
        self.derived.iter().map(|derived| derived.bytes() as u64).sum()
    }

    /// Calls `of` with the type of every matrix and what it multiplies.
    pub fn for_each_kind(&self, mut of: impl FnMut(TensorType, Input)) {
        of(self.output.weight.kind, Input::Block);
        let connections = |layer: &Layer| [layer.mixer_streams, layer.feed_forward_streams];
        let connections = self.layers.iter().flat_map(connections).chain([self.output_streams]);
        connections.flatten().for_each(|connection| of(connection.matrix.kind, Input::Block));
        for layer in &self.layers {
            layer.mixer.for_each_kind(&mut of);
            let mut dense = |block: &Dense| {
                block.input_kinds().into_iter().for_each(|kind| of(kind, Input::Block));
                of(block.down.weight.kind, Input::Inner);
            };
            match &layer.feed_forward {
                FeedForward::Absent => {}
                FeedForward::Dense(block) => dense(block),
                FeedForward::Routed(routed) => {
                    if let Some(shared) = &routed.shared {
                        dense(&shared.block);
                    }
                    routed.input_kinds().into_iter().for_each(|kind| of(kind, Input::Block));
                    of(routed.down.kind, Input::Inner);
                }
            }
        }
    }
}

impl Binder<'_> {
    fn layer(&mut self, layer: usize) -> Result<Layer, ModelError> {
        let config = self.config;
        let (family, width) = (config.family, config.width);
        let LayerConfig { mixer, feed_forward, .. } = &config.layers[layer];
        let at = |part: &str| format!("blk.{layer}.{part}");
        let mixer_norm = family.mixer_norm.filter(|_| *mixer != MixerConfig::Absent);
        let mixer_norm = mixer_norm.map(|name| self.norm(&at(name))).transpose()?;
        let feed_forward_norm = match feed_forward {
            FeedForwardConfig::Dense { .. } => family.router.shared_norm.or(family.feed_forward_norm),
            FeedForwardConfig::Routed => family.feed_forward_norm,
            FeedForwardConfig::Absent => None,
        };
        let feed_forward_norm = match feed_forward_norm {
            same if same == family.mixer_norm && mixer_norm.is_some() => mixer_norm,
            name => name.map(|name| self.norm(&at(name))).transpose()?,
        };
        let mut connection = |part: &str| {
            let streams = config.streams.as_ref();
            streams.map(|streams| Connection::bind(self, &at(part), streams, streams.shares())).transpose()
        };
        Ok(Layer {
            mixer_streams: connection("hc_attn")?,
            feed_forward_streams: connection("hc_ffn")?,
            mixer_norm,
            mixer: match mixer {
                MixerConfig::Absent => Mixer::Absent,
                MixerConfig::Attention(attention) => {
                    Mixer::Attention(Box::new(self.attention(layer, attention)?))
                }
                MixerConfig::Latent(latent) => Mixer::Latent(Box::new(self.latent(layer, latent)?)),
                MixerConfig::Recurrent(config) => {
                    Mixer::Recurrent(Box::new(Recurrent::bind(self, layer, config)?))
                }
            },
            post_mixer_norm: self.optional_vector(
                family.post_norms,
                &at(&format!("{}.weight", family.post_mixer_norm)),
                width,
            )?,
            feed_forward_norm,
            feed_forward: match feed_forward {
                FeedForwardConfig::Absent => FeedForward::Absent,
                FeedForwardConfig::Routed => FeedForward::Routed(Box::new(self.routed(layer)?)),
                FeedForwardConfig::Dense { inner } => {
                    FeedForward::Dense(Box::new(self.dense(layer, "", *inner)?))
                }
            },
            post_feed_forward_norm: {
                let names = family.post_feed_forward_norm.iter().map(|name| at(&format!("{name}.weight")));
                let names: Vec<String> = names.collect();
                let name = names.iter().find(|name| self.gguf.tensor(name).is_some()).unwrap_or(&names[0]);
                self.optional_vector(family.post_norms, name, width)?
            },
            scale: self.optional_vector(family.layer_scale, &at("layer_output_scale.weight"), 1)?,
        })
    }

    fn attention(&mut self, layer: usize, config: &AttentionConfig) -> Result<Attention, ModelError> {
        let (width, traits) = (self.config.width, &self.config.family.attention);
        let (queries, keys, values) = (config.query_width(), config.key_width(), config.value_width());
        let query_rows = if traits.gate_in_query { 2 * queries } else { queries };
        let at = |part: &str| format!("blk.{layer}.{part}");
        let stems = ["attn_q", "attn_k", "attn_v"].map(at);
        let parts = [(&*stems[0], query_rows), (&*stems[1], keys), (&*stems[2], values)];
        let has = |stem: &str| self.gguf.tensor(&at(&format!("{stem}.weight"))).is_some();
        let projections = match traits.keys_as_values && !has("attn_v") && !has("attn_qkv") {
            true => {
                let [query, key] =
                    self.stacked(&at("attn_qkv"), [parts[0], parts[1]], width, traits.qkv_bias)?;
                [query, key, key]
            }
            false => self.stacked(&at("attn_qkv"), parts, width, traits.qkv_bias)?,
        };
        let [query, key, value] = projections.map(|projection| Projection {
            scale: projection.scale.filter(|_| traits.qkv_scales),
            ..projection
        });
        let head = config.head_dim;
        Ok(Attention {
            query,
            key,
            value,
            query_norm: self.head_norm(traits.qk_norm, &at("attn_q_norm.weight"), head, queries)?,
            key_norm: self.head_norm(traits.qk_norm, &at("attn_k_norm.weight"), head, keys)?,
            sinks: self.optional_vector(traits.sinks, &at("attn_sinks.weight"), config.heads)?,
            gate: self.attention_gate(
                traits.gate,
                &at("attn_gate"),
                [config.heads, config.attended_width()],
            )?,
            output: self.projection(
                &at("attn_output"),
                width,
                config.attended_width(),
                traits.output_bias,
            )?,
        })
    }

    /// A gate of as many rows as heads or, where the tensor is longer, as their values.
    fn attention_gate(
        &mut self,
        presence: Presence,
        stem: &str,
        [heads, values]: [usize; 2],
    ) -> Result<Option<Projection>, ModelError> {
        let tensor = self.gguf.tensor(&format!("{stem}.weight"));
        let per_head = tensor.is_some_and(|info| info.dims.iter().skip(1).product::<u64>() == heads as u64);
        let rows = if per_head { heads } else { values };
        match (presence, tensor) {
            (Presence::Never, _) | (Presence::Optional, None) => Ok(None),
            _ => {
                // As elsewhere, a factor on this product changes nothing.
                self.scale(stem, 1, false)?;
                let weight = self.matrix(&format!("{stem}.weight"), rows, self.config.width)?;
                Ok(Some(weight.into()))
            }
        }
    }

    /// The feed-forward block `suffix` ("" or "_shexp") of a layer.
    fn dense(&mut self, layer: usize, suffix: &str, inner: usize) -> Result<Dense, ModelError> {
        let width = self.config.width;
        let stem = |role: &str| format!("blk.{layer}.ffn_{role}{suffix}");
        let (gate, up) = match self.config.family.gate_place {
            GatePlace::Own => {
                let gate = self.feed_forward_projection(&stem("gate"), inner, width)?;
                (Some(gate), self.feed_forward_projection(&stem("up"), inner, width)?)
            }
            GatePlace::InUp => {
                let both = self.feed_forward_projection(&stem("up"), 2 * inner, width)?;
                let [gate, up] = both.split([inner, inner]);
                (Some(gate), up)
            }
            GatePlace::Nowhere => (None, self.feed_forward_projection(&stem("up"), inner, width)?),
        };
        Ok(Dense { gate, up, down: self.feed_forward_projection(&stem("down"), width, inner)? })
    }
}
