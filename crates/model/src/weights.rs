//! Fixed weight binding: tensor names become typed fields, once, with every shape checked.
//!
//! A weight is a handle: the backend that holds its bytes (today the pager's backbone) resolves it.
//! Routed experts are not weights here but members of a pager group. A tensor that no field claims
//! makes the file refused, because a model with an unknown part would run approximately.

use std::collections::HashSet;

use adit_format::{Gguf, TensorInfo, TensorType};
use adit_pager::{Extent, Group, Part};

use crate::config::{Config, Experts};
use crate::error::ModelError;
use crate::families::Presence;

/// A resident matrix of `rows` outputs by `cols` inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    /// Index of its extent in the backbone.
    pub handle: usize,
}

/// A resident list of `len` f32 values: a norm, a bias, frequency factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vector {
    pub len: usize,
    pub handle: usize,
}

/// A matrix product with its optional bias.
#[derive(Debug, Clone, Copy)]
pub struct Projection {
    pub weight: Tensor,
    pub bias: Option<Vector>,
}

/// The shape of one expert's matrix; its bytes come from the pager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertMatrix {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
}

#[derive(Debug)]
pub enum FeedForward {
    Dense {
        gate: Projection,
        up: Projection,
        down: Projection,
    },
    Routed {
        /// `experts` rows of `width`.
        router: Tensor,
        /// The pager group whose members are this layer's experts; parts 0, 1, 2 = gate, up, down.
        group: usize,
        gate: ExpertMatrix,
        up: ExpertMatrix,
        down: ExpertMatrix,
    },
}

impl FeedForward {
    /// The pager group of a routed block.
    pub fn group(&self) -> Option<usize> {
        match self {
            FeedForward::Dense { .. } => None,
            FeedForward::Routed { group, .. } => Some(*group),
        }
    }
}

#[derive(Debug)]
pub struct Layer {
    pub attention_norm: Vector,
    pub query: Projection,
    pub key: Projection,
    pub value: Projection,
    pub query_norm: Option<Vector>,
    pub key_norm: Option<Vector>,
    pub attention_output: Projection,
    pub post_attention_norm: Option<Vector>,
    pub feed_forward_norm: Vector,
    pub feed_forward: FeedForward,
    pub post_feed_forward_norm: Option<Vector>,
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
    pub output_norm: Vector,
    /// The embedding again where the file ties them.
    pub output: Projection,
    pub rope_factors: RopeFactors,
    pub layers: Vec<Layer>,
    /// What the backbone loads; handles are indices into this list.
    pub extents: Vec<Extent>,
    /// One group per mixture-of-experts layer.
    pub groups: Vec<Group>,
}

impl Weights {
    /// Binds every tensor of `gguf` to its place.
    pub fn bind(gguf: &Gguf, config: &Config) -> Result<Weights, ModelError> {
        let mut binder = Binder::new(gguf, config);
        let width = config.width;
        let embedding = binder.matrix("token_embd.weight", config.vocabulary, width)?;
        let output_norm = binder.vector("output_norm.weight", width)?;
        let weight = match gguf.tensor("output.weight") {
            Some(_) => binder.matrix("output.weight", config.vocabulary, width)?,
            None => embedding,
        };
        let bias = binder.optional_vector(Presence::Optional, "output.bias", config.vocabulary)?;
        let pairs = config.rope.dimensions / 2;
        let rope_factors = RopeFactors {
            fixed: binder.optional_vector(Presence::Optional, "rope_freqs.weight", pairs)?,
            long: binder.optional_vector(Presence::Optional, "rope_factors_long.weight", pairs)?,
            short: binder.optional_vector(Presence::Optional, "rope_factors_short.weight", pairs)?,
        };
        let layers = (0..config.layers).map(|layer| binder.layer(layer)).collect::<Result<Vec<_>, _>>()?;
        binder.refuse_leftovers()?;
        let output = Projection { weight, bias };
        let Binder { extents, groups, .. } = binder;
        Ok(Weights { embedding, output_norm, output, rope_factors, layers, extents, groups })
    }

    /// Routed experts in all layers.
    pub fn experts(&self) -> usize {
        self.groups.iter().map(|group| group.members as usize).sum()
    }
}

/// The file's name for messages.
pub(crate) fn file_name(gguf: &Gguf) -> String {
    gguf.parts().first().map(|part| part.path.display().to_string()).unwrap_or_default()
}

struct Binder<'a> {
    gguf: &'a Gguf,
    config: &'a Config,
    bound: HashSet<&'a str>,
    extents: Vec<Extent>,
    groups: Vec<Group>,
}

impl<'a> Binder<'a> {
    fn new(gguf: &'a Gguf, config: &'a Config) -> Self {
        Binder { gguf, config, bound: HashSet::new(), extents: Vec::new(), groups: Vec::new() }
    }

    fn layer(&mut self, layer: usize) -> Result<Layer, ModelError> {
        let config = self.config;
        let family = config.family;
        let (width, head_dim) = (config.width, config.head_dim);
        let (query, key, value) = (config.query_width(), config.key_width(), config.value_width());
        let at = |part: &str| format!("blk.{layer}.{part}");
        let post_norm = if family.post_norms == Presence::Never { Presence::Never } else { Presence::Always };
        Ok(Layer {
            attention_norm: self.vector(&at("attn_norm.weight"), width)?,
            query: self.projection(&at("attn_q"), query, width, family.qkv_bias)?,
            key: self.projection(&at("attn_k"), key, width, family.qkv_bias)?,
            value: self.projection(&at("attn_v"), value, width, family.qkv_bias)?,
            query_norm: self.optional_vector(family.qk_norm, &at("attn_q_norm.weight"), head_dim)?,
            key_norm: self.optional_vector(family.qk_norm, &at("attn_k_norm.weight"), head_dim)?,
            attention_output: self.projection(
                &at("attn_output"),
                width,
                config.heads * config.value_dim,
                family.other_biases,
            )?,
            post_attention_norm: self.optional_vector(post_norm, &at("post_attention_norm.weight"), width)?,
            feed_forward_norm: self.vector(&at("ffn_norm.weight"), width)?,
            feed_forward: match &config.experts {
                Some(experts) => self.routed(layer, experts)?,
                None => self.dense(layer)?,
            },
            post_feed_forward_norm: self.optional_vector(post_norm, &at("post_ffw_norm.weight"), width)?,
        })
    }

    fn dense(&mut self, layer: usize) -> Result<FeedForward, ModelError> {
        let (width, inner) = (self.config.width, self.config.feed_forward);
        let bias = self.config.family.other_biases;
        Ok(FeedForward::Dense {
            gate: self.projection(&format!("blk.{layer}.ffn_gate"), inner, width, bias)?,
            up: self.projection(&format!("blk.{layer}.ffn_up"), inner, width, bias)?,
            down: self.projection(&format!("blk.{layer}.ffn_down"), width, inner, bias)?,
        })
    }

    fn routed(&mut self, layer: usize, experts: &Experts) -> Result<FeedForward, ModelError> {
        let (width, inner) = (self.config.width, experts.feed_forward);
        let router = self.matrix(&format!("blk.{layer}.ffn_gate_inp.weight"), experts.count, width)?;
        let (gate, gate_part) = self.experts(layer, "gate", inner, width, experts)?;
        let (up, up_part) = self.experts(layer, "up", inner, width, experts)?;
        let (down, down_part) = self.experts(layer, "down", width, inner, experts)?;
        self.groups.push(Group { parts: vec![gate_part, up_part, down_part], members: experts.count as u32 });
        Ok(FeedForward::Routed { router, group: self.groups.len() - 1, gate, up, down })
    }

    /// One matrix of every expert of a layer: stacked in one tensor, or each a tensor of its own, as
    /// `adit pack` and converters of 2023 write them.
    fn experts(
        &mut self,
        layer: usize,
        role: &str,
        rows: usize,
        cols: usize,
        experts: &Experts,
    ) -> Result<(ExpertMatrix, Part), ModelError> {
        let stacked = format!("blk.{layer}.ffn_{role}_exps.weight");
        let single = |expert: usize| format!("blk.{layer}.ffn_{role}.{expert}.weight");
        let (cols_wide, rows_wide) = (cols as u64, rows as u64);
        // The first one may be the one that is missing.
        let Some(some) = (0..2).map(single).find(|name| self.gguf.tensor(name).is_some()) else {
            let info = self.claim(&stacked, &[cols_wide, rows_wide, experts.count as u64])?;
            self.must_compute(info)?;
            let part = Part::array(info.part as u32, info.offset, info.bytes / experts.count as u64);
            return Ok((ExpertMatrix { kind: info.kind, rows, cols }, part));
        };
        if self.gguf.tensor(&stacked).is_some() {
            let file = file_name(self.gguf);
            return Err(ModelError::ExpertsTwice { file, name: stacked, other: some });
        }
        let first = self.claim(&single(0), &[cols_wide, rows_wide])?;
        self.must_compute(first)?;
        let mut places = Vec::with_capacity(experts.count);
        for expert in 0..experts.count {
            let info = self.claim(&single(expert), &[cols_wide, rows_wide])?;
            if info.kind != first.kind {
                return Err(self.wrong_type(info, first.kind.name()));
            }
            places.push((info.part as u32, info.offset));
        }
        Ok((ExpertMatrix { kind: first.kind, rows, cols }, Part::listed(places, first.bytes)))
    }

    fn projection(
        &mut self,
        stem: &str,
        rows: usize,
        cols: usize,
        bias: Presence,
    ) -> Result<Projection, ModelError> {
        let weight = self.matrix(&format!("{stem}.weight"), rows, cols)?;
        Ok(Projection { weight, bias: self.optional_vector(bias, &format!("{stem}.bias"), rows)? })
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Tensor, ModelError> {
        let info = self.claim(name, &[cols as u64, rows as u64])?;
        self.must_compute(info)?;
        let (kind, handle) = (info.kind, self.resident(info));
        Ok(Tensor { kind, rows, cols, handle })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vector, ModelError> {
        let info = self.claim(name, &[len as u64])?;
        // A view as f32 needs the alignment that every writer of GGUF gives (a multiple of 8).
        if info.kind != TensorType::F32 || info.offset % 4 != 0 {
            return Err(self.wrong_type(info, "F32 at a multiple of 4 bytes"));
        }
        let handle = self.resident(info);
        Ok(Vector { len, handle })
    }

    fn optional_vector(
        &mut self,
        presence: Presence,
        name: &str,
        len: usize,
    ) -> Result<Option<Vector>, ModelError> {
        match presence {
            Presence::Never => Ok(None),
            Presence::Optional if self.gguf.tensor(name).is_none() => Ok(None),
            Presence::Optional | Presence::Always => self.vector(name, len).map(Some),
        }
    }

    fn claim(&mut self, name: &str, expected: &[u64]) -> Result<&'a TensorInfo, ModelError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Err(ModelError::MissingTensor { file: file_name(self.gguf), name: name.to_string() });
        };
        // Writers may leave off trailing dimensions of 1, or write them.
        let trimmed = |dims: &[u64]| {
            let len = dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
            dims[..len.min(dims.len())].to_vec()
        };
        if trimmed(&info.dims) != trimmed(expected) {
            return Err(ModelError::WrongShape {
                file: file_name(self.gguf),
                name: name.to_string(),
                found: info.dims.clone(),
                expected: expected.to_vec(),
            });
        }
        self.bound.insert(&info.name);
        Ok(info)
    }

    fn must_compute(&self, info: &TensorInfo) -> Result<(), ModelError> {
        match adit_kernels::activation_format(info.kind) {
            Some(_) => Ok(()),
            None => Err(self.wrong_type(info, "a floating-point or block-quantised type")),
        }
    }

    fn wrong_type(&self, info: &TensorInfo, expected: &'static str) -> ModelError {
        let file = file_name(self.gguf);
        ModelError::WrongType { file, name: info.name.clone(), found: info.kind.name(), expected }
    }

    fn resident(&mut self, info: &TensorInfo) -> usize {
        self.extents.push(Extent { file: info.part as u32, offset: info.offset, bytes: info.bytes });
        self.extents.len() - 1
    }

    fn refuse_leftovers(&self) -> Result<(), ModelError> {
        match self.gguf.tensors().iter().find(|info| !self.bound.contains(info.name.as_str())) {
            None => Ok(()),
            Some(info) => Err(ModelError::UnknownTensor {
                file: file_name(self.gguf),
                name: info.name.clone(),
                architecture: self.config.family.architecture,
            }),
        }
    }
}
