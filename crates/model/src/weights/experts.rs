//! Binding of routed blocks: a layer's experts become the members of a pager group.

use adit_format::TensorType;
use adit_pager::{Group, Part};

use super::binder::{Binder, file_name};
use super::{Dense, Norm, Tensor, TokenExperts, Vector};
use crate::error::ModelError;
use crate::families::{GatePlace, Presence, RouterInput};

/// One matrix of each expert of a layer; its bytes come from the pager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertMatrix {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    /// The part of the pager group that holds it.
    pub part: usize,
    /// Its first row there: gate and up may lie in one part.
    pub first_row: usize,
    pub bias: Option<ExpertBias>,
    /// `experts` factors on the products.
    pub scale: Option<Vector>,
}

/// `rows` f32 values of each expert, in a part of the group from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertBias {
    pub part: usize,
    pub first: usize,
}

/// The expert that every token uses.
#[derive(Debug)]
pub struct SharedExpert {
    pub block: Dense,
    /// One row of `width`: the sigmoid of its product is a factor on the output.
    pub gate: Option<Tensor>,
    /// Where it does not see what the other experts see: its own norm of the residual stream.
    pub norm: Option<Norm>,
    /// A norm of what it gives.
    pub post_norm: Option<Vector>,
}

impl SharedExpert {
    /// The types of the matrices that its input meets.
    pub fn input_kinds(&self) -> [TensorType; 3] {
        let [gate, up] = self.block.input_kinds();
        [gate, up, self.gate.map_or(up, |own| own.kind)]
    }
}

/// Experts of which the router picks some for each row.
#[derive(Debug)]
pub struct Routed {
    /// `experts` rows of `width`.
    pub router: Tensor,
    pub router_bias: Option<Vector>,
    /// Where the router does not see what the experts see.
    pub router_norm: Option<Norm>,
    /// Added to the scores that experts are picked by, not to their weights.
    pub correction: Option<Vector>,
    /// Where experts are looked up by token instead.
    pub by_token: Option<TokenExperts>,
    /// The pager group whose members are this layer's experts.
    pub group: usize,
    pub gate: Option<ExpertMatrix>,
    pub up: ExpertMatrix,
    pub down: ExpertMatrix,
    pub shared: Option<SharedExpert>,
    /// A norm of what the routed experts give together.
    pub post_norm: Option<Vector>,
}

impl Routed {
    /// The types of the matrices that its normalised input meets.
    pub fn input_kinds(&self) -> [TensorType; 6] {
        let (router, up) = (self.router.kind, self.up.kind);
        let gate = self.gate.map_or(up, |gate| gate.kind);
        let [first, second, third] = match &self.shared {
            Some(shared) => shared.input_kinds(),
            None => [router, gate, up],
        };
        [router, gate, up, first, second, third]
    }
}

impl ExpertMatrix {
    /// Whether its product is not all.
    pub fn needs_more(&self) -> bool {
        self.bias.is_some() || self.scale.is_some()
    }
}

impl Binder<'_> {
    pub fn routed(&mut self, layer: usize) -> Result<Routed, ModelError> {
        let config = self.config;
        let traits = &config.family.router;
        let experts = config.experts.as_ref().expect("a routed layer comes with the experts' numbers");
        let (width, inner, count) = (config.width, experts.feed_forward, experts.count);
        let at = |part: &str| format!("blk.{layer}.{part}");
        let router = self.matrix(&at("ffn_gate_inp.weight"), count, width)?;
        let router_norm = match traits.input {
            RouterInput::Scaled => {
                Some(Norm { weight: self.vector(&at("ffn_gate_inp.scale"), width)?, bias: None })
            }
            RouterInput::Block | RouterInput::Layer => None,
        };
        let router_bias = self.optional_vector(traits.bias, &at("ffn_gate_inp.bias"), count)?;
        // Converters of one family leave the suffix off.
        let bare = at("exp_probs_b");
        let correction = match self.gguf.tensor(&bare) {
            Some(_) => bare,
            None => at("exp_probs_b.bias"),
        };
        let by_token = (layer < experts.looked_up).then(|| self.token_experts(layer)).transpose()?;
        let correction = match by_token {
            // What is not picked by scores has nothing to correct.
            Some(_) => {
                self.leave_out(&correction);
                None
            }
            None => self.optional_vector(traits.correction, &correction, count)?,
        };
        if config.family.routed_by_tensors {
            for role in ["gate", "up", "down"] {
                for part in ["weight", "scale", "input_scale"] {
                    self.leave_out(&at(&format!("ffn_{role}.{part}")));
                }
            }
        }
        let mut parts = Vec::new();
        let fused = ["ffn_gate_up_exps.weight", "ffn_gate_up.0.weight", "ffn_gate_up.1.weight"];
        let fused = fused.iter().any(|name| self.gguf.tensor(&at(name)).is_some());
        let (gate, up) = if fused {
            let both = self.expert_matrix(layer, "gate_up", [2 * inner, width], &mut parts)?;
            let bias = both.bias.map(|bias| ExpertBias { first: inner, ..bias });
            let gate = ExpertMatrix { rows: inner, ..both };
            (Some(gate), ExpertMatrix { first_row: inner, bias, ..gate })
        } else {
            let gate = match config.family.gate_place {
                GatePlace::Nowhere => None,
                _ => Some(self.expert_matrix(layer, "gate", [inner, width], &mut parts)?),
            };
            (gate, self.expert_matrix(layer, "up", [inner, width], &mut parts)?)
        };
        let down = self.expert_matrix(layer, "down", [width, inner], &mut parts)?;
        self.groups.push(Group { parts, members: count as u32 });
        let group = self.groups.len() - 1;
        let shared = match experts.shared {
            0 => None,
            shared => Some(self.shared_expert(layer, shared)?),
        };
        let post_norm = self.named_vector(layer, traits.post_norm)?;
        Ok(Routed {
            router,
            router_bias,
            router_norm,
            correction,
            by_token,
            group,
            gate,
            up,
            down,
            shared,
            post_norm,
        })
    }

    fn shared_expert(&mut self, layer: usize, inner: usize) -> Result<SharedExpert, ModelError> {
        let width = self.config.width;
        let traits = &self.config.family.router;
        let name = format!("blk.{layer}.ffn_gate_inp_shexp.weight");
        let has_gate = match traits.shared_gate {
            Presence::Never => false,
            Presence::Optional => self.gguf.tensor(&name).is_some(),
            Presence::Always => true,
        };
        let gate = if has_gate { Some(self.matrix(&name, 1, width)?) } else { None };
        let norm = traits.shared_norm.map(|name| self.norm(&format!("blk.{layer}.{name}"))).transpose()?;
        let post_norm = self.named_vector(layer, traits.shared_post_norm)?;
        Ok(SharedExpert { block: self.dense(layer, traits.shared_suffix, inner)?, gate, norm, post_norm })
    }

    /// A vector of the model's width, where the family has a name for it.
    fn named_vector(&mut self, layer: usize, name: Option<&str>) -> Result<Option<Vector>, ModelError> {
        let width = self.config.width;
        name.map(|name| self.vector(&format!("blk.{layer}.{name}.weight"), width)).transpose()
    }

    /// One matrix of every expert, with what goes with it.
    fn expert_matrix(
        &mut self,
        layer: usize,
        role: &str,
        shape: [usize; 2],
        parts: &mut Vec<Part>,
    ) -> Result<ExpertMatrix, ModelError> {
        let experts = self.config.experts.as_ref().map_or(0, |experts| experts.count);
        let [rows, cols] = shape;
        let stacked = format!("blk.{layer}.ffn_{role}_exps");
        let (kind, weights) = self.expert_weights(layer, role, shape, experts)?;
        let part = parts.len();
        parts.push(weights);
        let name = format!("{stacked}.bias");
        let bias = match self.config.family.router.expert_bias {
            Presence::Never => None,
            Presence::Optional if self.gguf.tensor(&name).is_none() => None,
            Presence::Optional | Presence::Always => {
                let info = self.claim(&name, &[rows as u64, experts as u64])?;
                self.must_be_floats(info)?;
                parts.push(Part::array(info.part as u32, info.offset, info.bytes / experts as u64));
                Some(ExpertBias { part: part + 1, first: 0 })
            }
        };
        let scale = self.scale(&stacked, experts, self.config.family.feed_forward_scales)?;
        Ok(ExpertMatrix { kind, rows, cols, part, first_row: 0, bias, scale })
    }

    /// Where the bytes lie: stacked in one tensor, or each expert's in a tensor of its own, as `adit pack`
    /// and converters of 2023 write them.
    fn expert_weights(
        &mut self,
        layer: usize,
        role: &str,
        [rows, cols]: [usize; 2],
        experts: usize,
    ) -> Result<(TensorType, Part), ModelError> {
        let stacked = format!("blk.{layer}.ffn_{role}_exps.weight");
        let single = |expert: usize| format!("blk.{layer}.ffn_{role}.{expert}.weight");
        let (cols, rows) = (cols as u64, rows as u64);
        // The first one may be the one that is missing.
        let Some(some) = (0..2).map(single).find(|name| self.gguf.tensor(name).is_some()) else {
            let info = self.claim(&stacked, &[cols, rows, experts as u64])?;
            self.must_compute(info)?;
            let part = Part::array(info.part as u32, info.offset, info.bytes / experts as u64);
            return Ok((info.kind, part));
        };
        if self.gguf.tensor(&stacked).is_some() {
            let file = file_name(self.gguf);
            return Err(ModelError::ExpertsTwice { file, name: stacked, other: some });
        }
        let first = self.claim(&single(0), &[cols, rows])?;
        self.must_compute(first)?;
        let mut places = Vec::with_capacity(experts);
        for expert in 0..experts {
            let info = self.claim(&single(expert), &[cols, rows])?;
            if info.kind != first.kind {
                return Err(self.wrong_type(info, first.kind.name()));
            }
            places.push((info.part as u32, info.offset));
        }
        Ok((first.kind, Part::listed(places, first.bytes)))
    }
}
