//! Hyperparameters: the numbers of a model, read once from the metadata and checked.
//!
//! What layers have in common is written here for every layer; a family then changes what differs (see
//! `families`). Knows nothing of tensors.

use adit_format::Metadata;
use adit_kernels::{AttentionShape, Values};

use crate::error::ModelError;
use crate::families::{Activation, Family, Gating, NormKind, Normalise, Presence, RopeStyle};
use crate::keys::{EXPERTS_MAX, HEADS_MAX, Keys, LAYERS_MAX, WIDTH_MAX};
use crate::recurrent::RecurrentConfig;

/// How one kind of layer rotates its queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of frequencies.
    pub base: f32,
    /// Position multiplier: 1 / scaling factor (linear and YaRN).
    pub scale: f32,
    /// Leading values of a head that rotate.
    pub dimensions: usize,
    pub yarn: Option<Yarn>,
    /// Extra factor on the rotated values (`rope.scaling.attn_factor`).
    pub magnitude: f32,
    /// Context length the model was first trained at; YaRN and long-rope compare against it.
    pub original_context: u32,
    /// Whether the file's frequency factors apply.
    pub factors: bool,
}

impl Rope {
    /// The same without scaling and without the file's factors.
    pub fn unscaled(&self) -> Rope {
        Rope { scale: 1.0, yarn: None, magnitude: 1.0, factors: false, ..self.clone() }
    }
}

/// YaRN interpolation (arXiv:2309.00071), present when `rope.scaling.type` is `yarn`.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    pub beta_fast: f32,
    pub beta_slow: f32,
}

/// The routed feed-forward part of a mixture-of-experts model.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    pub count: usize,
    /// Experts a token uses in one layer (top-k).
    pub used: usize,
    /// Inner width of one expert.
    pub feed_forward: usize,
    /// Inner width of the expert that every token uses besides; 0 for none.
    pub shared: usize,
    pub gating: Gating,
    /// Whether the weights of the picked are divided by their sum.
    pub normalise: bool,
    /// Factor on the gate weights; 1 where the file names none.
    pub weights_scale: f32,
    /// Layers, from the first on, whose experts are looked up by token.
    pub looked_up: usize,
    /// Factor on the sum of all experts, the shared one with them.
    pub sum_scale: f32,
    pub groups: Option<ExpertGroups>,
}

/// Group-limited routing (DeepSeek-V3): experts are picked from the best groups only, a group's score being
/// the sum of its two best experts' scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups of equally many experts.
    pub count: usize,
    /// Groups that may be picked from.
    pub used: usize,
}

/// Attention over stored keys and values.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    pub heads: usize,
    pub kv_heads: usize,
    /// Values in one query or key head.
    pub head_dim: usize,
    /// Values in one value head.
    pub value_dim: usize,
    /// Where they are stored.
    pub values: Values,
    /// Factor on the query-key products.
    pub scale: f32,
    /// Queries, keys and values lie between its negative and it.
    pub clamp: Option<f32>,
    /// Whether heads of queries and keys are divided by their root mean square behind the rotation.
    pub rms_after_rope: bool,
    /// Whether heads of values are divided by their root mean square.
    pub value_norm: bool,
    /// Factor on the output.
    pub output_scale: f32,
    /// Attend to this many latest positions only.
    pub window: Option<usize>,
    /// Attend to no positions before the last multiple of this one.
    pub chunk: Option<usize>,
    /// `cap * tanh(score / cap)` on the scores.
    pub soft_cap: Option<f32>,
    /// Which of `Config::ropes` turns queries and keys; `None` for a layer without positions.
    pub rope: Option<usize>,
    pub temperature: Option<Temperature>,
}

impl AttentionConfig {
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    pub fn value_width(&self) -> usize {
        self.kv_heads * self.value_dim
    }

    pub fn attended_width(&self) -> usize {
        self.heads * self.value_dim
    }

    /// What the attention kernel needs to know.
    pub fn shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            values: self.values,
            scale: self.scale,
            window: self.window,
            chunk: self.chunk,
            soft_cap: self.soft_cap,
        }
    }
}

/// Factor on queries that grows with the position: `1 + scale * ln(1 + floor((position + offset) / length))`
/// (Llama 4, Mistral Large 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    pub scale: f32,
    pub length: usize,
    pub offset: usize,
}

impl Temperature {
    pub fn at(self, position: usize) -> f32 {
        1.0 + self.scale * (((position + self.offset) / self.length + 1) as f32).ln()
    }
}

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), in its absorbed form: what is
/// stored of a position is its latent and one rotated key; heads differ in their queries only.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentConfig {
    /// The attention that heads of latents are in: one stored head of `latent + rotated` values, of which the
    /// first `latent` are the value too.
    pub attention: AttentionConfig,
    /// Values of the latent (`kv_lora_rank`).
    pub latent: usize,
    /// Values of a query head that turn with the position, and of the key that all heads share.
    pub rotated: usize,
    /// Values of a query head that do not turn.
    pub unrotated: usize,
    /// Values in one head's output.
    pub value_dim: usize,
    /// Values between the two matrices that make queries; 0 where one makes them.
    pub query_rank: usize,
}

impl LatentConfig {
    /// Values of all query heads before they are absorbed.
    pub fn query_width(&self) -> usize {
        self.attention.heads * (self.unrotated + self.rotated)
    }

    pub fn output_width(&self) -> usize {
        self.attention.heads * self.value_dim
    }

    /// Values that would be stored of a position if each head had a key and a value of its own.
    pub fn full_heads_values(&self) -> usize {
        self.query_width() + self.output_width()
    }
}

/// The part of a layer in which positions see each other.
#[derive(Debug, Clone, PartialEq)]
pub enum MixerConfig {
    /// The layer has none.
    Absent,
    Attention(AttentionConfig),
    Latent(LatentConfig),
    /// What was before is in a state that each position changes.
    Recurrent(RecurrentConfig),
}

impl MixerConfig {
    /// The attention over what is stored of each position, if there is one.
    pub fn attention(&self) -> Option<&AttentionConfig> {
        match self {
            MixerConfig::Attention(attention) => Some(attention),
            MixerConfig::Latent(latent) => Some(&latent.attention),
            MixerConfig::Recurrent(_) | MixerConfig::Absent => None,
        }
    }

    /// Values of all query heads as their projection makes them.
    pub fn query_width(&self) -> usize {
        match self {
            MixerConfig::Attention(attention) => attention.query_width(),
            MixerConfig::Latent(latent) => latent.query_width(),
            MixerConfig::Recurrent(_) | MixerConfig::Absent => 0,
        }
    }

    /// Values that the output projection takes.
    pub fn output_width(&self) -> usize {
        match self {
            MixerConfig::Attention(attention) => attention.attended_width(),
            MixerConfig::Latent(latent) => latent.output_width(),
            MixerConfig::Recurrent(recurrent) => recurrent.output_width(),
            MixerConfig::Absent => 0,
        }
    }

    pub fn latent(&self) -> Option<&LatentConfig> {
        match self {
            MixerConfig::Latent(latent) => Some(latent),
            MixerConfig::Attention(_) | MixerConfig::Recurrent(_) | MixerConfig::Absent => None,
        }
    }

    pub fn recurrent(&self) -> Option<&RecurrentConfig> {
        match self {
            MixerConfig::Recurrent(recurrent) => Some(recurrent),
            MixerConfig::Attention(_) | MixerConfig::Latent(_) | MixerConfig::Absent => None,
        }
    }
}

/// The part of a layer in which each position is alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedForwardConfig {
    /// The layer has none.
    Absent,
    /// One block of this inner width.
    Dense { inner: usize },
    /// Experts, as `Config::experts` describes them.
    Routed,
}

/// Residual streams, where there are several (see `streams`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamsConfig {
    pub count: usize,
    /// Added to shares in gathering and, in mixing, to sums.
    pub epsilon: f32,
    /// A stream's share of a block's output is a sigmoid times this, plus `output_epsilon`.
    pub magnitude: f32,
    pub output_epsilon: f32,
    pub mixing: Mixing,
}

/// What a stream takes of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixing {
    None,
    /// Shares that so many normalisations have made nearly doubly stochastic.
    Sinkhorn {
        iterations: usize,
    },
}

/// One layer: a mixer, then a feed-forward block.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    pub mixer: MixerConfig,
    pub feed_forward: FeedForwardConfig,
    /// Of a dense block, the shared expert with it.
    pub activation: Activation,
    pub expert_activation: Activation,
}

/// Everything about a model's shape that is not in its tensors.
#[derive(Debug, Clone)]
pub struct Config {
    pub family: &'static Family,
    pub layers: Vec<LayerConfig>,
    /// Layers behind those, for predicting tokens ahead (multi-token prediction); not computed.
    pub extra_layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    pub vocabulary: usize,
    /// Context length the model was trained for.
    pub context_trained: usize,
    /// Longest context in which attention to all positions is what the model does.
    pub context_exact: Option<usize>,
    pub norm: NormKind,
    pub norm_epsilon: f32,
    /// Factor on token embeddings.
    pub embedding_scale: f32,
    /// Factor on what a block adds to the residual stream.
    pub residual_scale: f32,
    /// Factor on the final logits.
    pub logit_scale: f32,
    /// `cap * tanh(logit / cap)` on the final logits.
    pub logit_soft_cap: Option<f32>,
    /// Residual streams, if there is more than one.
    pub streams: Option<StreamsConfig>,
    pub rope_style: RopeStyle,
    /// The rotations that layers use, by number.
    pub ropes: Vec<Rope>,
    pub experts: Option<Experts>,
}

impl Config {
    /// Reads the metadata of a model whose tensors include a vocabulary of `vocabulary` rows; `has_tensor`
    /// tells of any name whether the file has such a tensor.
    pub fn read(
        file: &str,
        family: &'static Family,
        metadata: &Metadata,
        vocabulary: usize,
        has_tensor: &dyn Fn(&str) -> bool,
    ) -> Result<Config, ModelError> {
        let keys = Keys { file, architecture: family.architecture, metadata, has_tensor };

        let width = keys.size("embedding_length", WIDTH_MAX)?;
        let (layers, extra_layers) = layer_counts(&keys)?;
        let attentions = attentions(&keys, width, layers)?;
        let head_dim = attentions[0].head_dim;
        let experts = experts(&keys, family)?;
        let dense = keys.per_layer("feed_forward_length", WIDTH_MAX, layers)?.unwrap_or(vec![0; layers]);
        let leading_dense = match family.leading_dense {
            true => keys.optional_size("leading_dense_block_count", LAYERS_MAX)?.unwrap_or(0),
            false => 0,
        };
        let is_routed = |layer: usize| match family.routed_by_tensors {
            true => has_tensor(&format!("blk.{layer}.ffn_gate_inp.weight")),
            false => layer >= leading_dense,
        };
        let feed_forward = |layer: usize| match &experts {
            Some(_) if is_routed(layer) => FeedForwardConfig::Routed,
            _ => FeedForwardConfig::Dense { inner: dense[layer] },
        };
        let layer = |layer: usize| LayerConfig {
            mixer: MixerConfig::Attention(attentions[layer].clone()),
            feed_forward: feed_forward(layer),
            activation: family.activation,
            expert_activation: family.activation,
        };
        let (norm, norm_epsilon) = keys.norm(family.norm)?;
        let mut config = Config {
            family,
            layers: (0..layers).map(layer).collect(),
            extra_layers,
            width,
            vocabulary,
            context_trained: keys.size("context_length", u32::MAX)?,
            context_exact: None,
            norm,
            norm_epsilon,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            logit_soft_cap: None,
            streams: None,
            rope_style: family.rope_style,
            ropes: vec![keys.rope(head_dim, family.yarn_log_multiplier)?],
            experts,
        };
        (family.details)(&keys, &mut config)?;
        config.check(&keys)?;
        Ok(config)
    }

    /// What binding and the forward pass rely on.
    fn check(&self, keys: &Keys<'_>) -> Result<(), ModelError> {
        for attention in self.layers.iter().filter_map(|layer| layer.mixer.attention()) {
            let (heads, kv_heads) = (attention.heads, attention.kv_heads);
            if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
                return Err(keys.bad(
                    "attention.head_count",
                    heads,
                    &format!("a multiple of {kv_heads} kv heads"),
                ));
            }
        }
        Ok(())
    }

    /// The plain attention of each layer, for families to change.
    pub fn attentions(&mut self) -> impl Iterator<Item = &mut AttentionConfig> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
            MixerConfig::Attention(attention) => Some(attention),
            MixerConfig::Latent(_) | MixerConfig::Recurrent(_) | MixerConfig::Absent => None,
        })
    }

    /// Puts a mixer that carries a state in place of attention in the layers of which `is_recurrent` is true,
    /// told their number and attention.
    pub fn set_recurrent(
        &mut self,
        recurrent: &RecurrentConfig,
        is_recurrent: impl Fn(usize, &AttentionConfig) -> bool,
    ) {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if layer.mixer.attention().is_some_and(|attention| is_recurrent(index, attention)) {
                layer.mixer = MixerConfig::Recurrent(recurrent.clone());
            }
        }
    }

    /// Adds a rotation; returns its number.
    pub fn add_rope(&mut self, rope: Rope) -> usize {
        self.ropes.push(rope);
        self.ropes.len() - 1
    }

    /// The largest value of something over all layers' mixers.
    pub fn largest_of_mixers(&self, of: impl Fn(&MixerConfig) -> usize) -> usize {
        self.layers.iter().map(|layer| of(&layer.mixer)).max().unwrap_or(0)
    }

    /// Longest context that the model was trained for and that is computed as it was.
    pub fn context_longest(&self) -> usize {
        self.context_exact.map_or(self.context_trained, |exact| exact.min(self.context_trained))
    }

    /// Whether what came before is, in some layer, in a state that cannot be taken back position by position.
    pub fn has_state(&self) -> bool {
        self.layers.iter().any(|layer| layer.mixer.recurrent().is_some())
    }

    /// Key and value size of a layer whose heads cannot be stored in runs of `len` values, if there is one.
    pub fn kv_not_in_runs_of(&self, len: usize) -> Option<[usize; 2]> {
        self.layers.iter().find_map(|layer| {
            let &AttentionConfig { head_dim, value_dim, .. } = layer.mixer.attention()?;
            let fits = head_dim.is_multiple_of(len) && value_dim.is_multiple_of(len);
            (!fits).then_some([head_dim, value_dim])
        })
    }

    /// The largest inner width of a feed-forward block, shared expert or expert.
    pub fn largest_inner(&self) -> usize {
        let dense = self.layers.iter().map(|layer| match layer.feed_forward {
            FeedForwardConfig::Dense { inner } => inner,
            FeedForwardConfig::Routed | FeedForwardConfig::Absent => 0,
        });
        let experts = self.experts.iter().map(|experts| experts.feed_forward.max(experts.shared));
        dense.chain(experts).max().unwrap_or(0)
    }
}

/// Layers that are computed, and those behind them for multi-token prediction.
fn layer_counts(keys: &Keys<'_>) -> Result<(usize, usize), ModelError> {
    const EXTRA: &str = "nextn_predict_layers";
    let all = keys.size("block_count", LAYERS_MAX)?;
    let extra = keys.optional_size(EXTRA, LAYERS_MAX)?.unwrap_or(0);
    if extra >= all {
        return Err(keys.bad(EXTRA, extra, &format!("fewer than block_count, {all}")));
    }
    Ok((all - extra, extra))
}

/// Plain attention in each layer.
fn attentions(keys: &Keys<'_>, width: usize, layers: usize) -> Result<Vec<AttentionConfig>, ModelError> {
    let heads = keys.per_layer("attention.head_count", HEADS_MAX, layers)?;
    let Some(heads) = heads else { return Err(keys.missing("attention.head_count", HEADS_MAX)) };
    let kv_heads = keys.per_layer("attention.head_count_kv", HEADS_MAX, layers)?;
    let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
    let most_heads = heads.iter().copied().max().unwrap_or(0);
    if most_heads == 0 {
        return Err(keys.bad("attention.head_count", 0, "at least 1 in some layer"));
    }
    let head_dim = keys.size_or("attention.key_length", WIDTH_MAX, width / most_heads)?;
    let value_dim = keys.size_or("attention.value_length", WIDTH_MAX, width / most_heads)?;
    if head_dim == 0 || value_dim == 0 {
        return Err(keys.bad("attention.key_length", 0, "at least 1 value in a head"));
    }
    let attention = |layer: usize| AttentionConfig {
        heads: heads[layer],
        kv_heads: kv_heads[layer],
        head_dim,
        value_dim,
        values: Values::Own,
        scale: 1.0 / (head_dim as f32).sqrt(),
        clamp: None,
        rms_after_rope: false,
        value_norm: false,
        output_scale: 1.0,
        window: None,
        chunk: None,
        soft_cap: None,
        rope: Some(0),
        temperature: None,
    };
    Ok((0..layers).map(attention).collect())
}

fn experts(keys: &Keys<'_>, family: &Family) -> Result<Option<Experts>, ModelError> {
    let count = keys.size_or("expert_count", EXPERTS_MAX, 0)?;
    match family.experts {
        // A number alone, without a router, is nothing that could run otherwise.
        Presence::Never if (keys.has_tensor)("blk.0.ffn_gate_inp.weight") => {
            return Err(keys.bad("expert_count", count, "0 or absent: this family has no experts"));
        }
        Presence::Never => return Ok(None),
        Presence::Always if count == 0 => return Err(keys.missing("expert_count", EXPERTS_MAX)),
        _ if count == 0 => return Ok(None),
        _ => {}
    }
    let used = keys.size("expert_used_count", EXPERTS_MAX)?;
    if used > count {
        return Err(keys.bad("expert_used_count", used, &format!("at most expert_count, {count}")));
    }
    let router = &family.router;
    let dense = keys.optional_size("feed_forward_length", WIDTH_MAX).ok().flatten().unwrap_or(0);
    let feed_forward = keys.size_or("expert_feed_forward_length", WIDTH_MAX, dense)?;
    let shared = if router.shared { shared_width(keys, feed_forward)? } else { 0 };
    let gating = match keys.optional_size("expert_gating_func", u32::MAX)? {
        None | Some(0) => router.gating,
        Some(number) if !router.gating_varies && Gating::of_number(number) != Some(router.gating) => {
            return Err(keys.bad("expert_gating_func", number, "absent: this family has one gate only"));
        }
        Some(number) => Gating::of_number(number)
            .ok_or_else(|| keys.bad("expert_gating_func", number, "1 (softmax), 2 (sigmoid), 3 or 4"))?,
    };
    let normalise = match router.normalise {
        Normalise::Always => true,
        Normalise::Never => false,
        Normalise::AsFileSays => keys.metadata.bool(&keys.name("expert_weights_norm"))?.unwrap_or(false),
    };
    let weights_scale = match keys.optional_float("expert_weights_scale")? {
        Some(scale) if scale != 0.0 => scale,
        _ => 1.0,
    };
    let groups = expert_groups(keys, count, used)?;
    let sum_scale = 1.0;
    Ok(Some(Experts {
        count,
        used,
        feed_forward,
        shared,
        gating,
        normalise,
        weights_scale,
        looked_up: 0,
        sum_scale,
        groups,
    }))
}

/// The inner width of all shared experts together: they are stored as one.
fn shared_width(keys: &Keys<'_>, feed_forward: usize) -> Result<usize, ModelError> {
    let one = keys.size_or("expert_shared_feed_forward_length", WIDTH_MAX, 0)?;
    match (one, keys.optional_size("expert_shared_count", EXPERTS_MAX)?) {
        (0, count) => Ok(feed_forward.saturating_mul(count.unwrap_or(0))),
        (one, _) => Ok(one),
    }
}

fn expert_groups(keys: &Keys<'_>, experts: usize, picked: usize) -> Result<Option<ExpertGroups>, ModelError> {
    const COUNT: &str = "expert_group_count";
    const USED: &str = "expert_group_used_count";
    let count = keys.optional_size(COUNT, EXPERTS_MAX)?.unwrap_or(0);
    if count <= 1 {
        return Ok(None);
    }
    let used = keys.optional_size(USED, EXPERTS_MAX)?.unwrap_or(0);
    if !experts.is_multiple_of(count) {
        return Err(keys.bad(COUNT, count, &format!("a divisor of expert_count, {experts}")));
    }
    if used == 0 || used > count || used * (experts / count) < picked {
        return Err(keys.bad(
            USED,
            used,
            &format!("1 to {count} groups that hold {picked} experts or more together"),
        ));
    }
    Ok(Some(ExpertGroups { count, used }))
}
