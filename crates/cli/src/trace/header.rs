//! What a trace says of the model and the machine before its first step: a line that names the form, and one
//! JSON object.

use std::path::Path;

use adit_model::{Division, Model};
use serde::{Deserialize, Serialize};

/// The first line of a trace, once unpacked.
pub const MAGIC: &[u8] = b"# adit trace v1\n";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the adit that wrote it.
    pub adit: String,
    /// Name of the model's file.
    pub model: String,
    pub architecture: String,
    /// All layers, those without experts included.
    pub layers: usize,
    pub threads: usize,
    /// What the run was given, in bytes.
    pub budget_bytes: u64,
    /// Experts that its memory held, all of one size: that of the largest.
    pub slots: usize,
    /// Rows of a step, at most.
    pub chunk: usize,
    pub sources: Vec<String>,
    /// The layers with experts; records count these only.
    pub expert_layers: Vec<Layer>,
    pub plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its place among all layers.
    pub layer: usize,
    pub experts: usize,
    /// Experts that a row uses.
    pub used: usize,
    /// Bytes that are read for one expert, with what alignment adds.
    pub bytes: u64,
}

/// How any budget would be divided into the prefill chunk and slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Program, backbone, keys and values, tables: everything but scratch and slots.
    pub fixed_bytes: u64,
    pub backbone_bytes: u64,
    pub slot_bytes: u64,
    /// Rows of a step, the most first, and the scratch that they take.
    pub scratch_bytes: Vec<(usize, u64)>,
}

impl Header {
    pub fn new(file: &Path, model: &Model) -> Header {
        let (plan, config) = (model.plan(), model.config());
        let term = |name: &str| plan.terms.iter().find(|term| term.name == name).map_or(0, |term| term.bytes);
        Header {
            adit: env!("CARGO_PKG_VERSION").to_owned(),
            model: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            architecture: config.family.architecture.to_owned(),
            layers: config.layers.len(),
            threads: plan.threads,
            budget_bytes: plan.budget,
            slots: plan.slots,
            chunk: plan.chunk,
            sources: adit_model::Scout::ALL.iter().map(|scout| scout.name().to_owned()).collect(),
            expert_layers: model
                .expert_layers()
                .iter()
                .map(|layer| Layer {
                    layer: layer.layer,
                    experts: layer.experts,
                    used: layer.used,
                    bytes: layer.bytes,
                })
                .collect(),
            plan: Plan {
                // Without what only a run that is traced needs.
                fixed_bytes: plan.division.fixed_bytes - term("trace"),
                backbone_bytes: term("backbone"),
                slot_bytes: plan.division.slot_bytes,
                scratch_bytes: plan.division.scratch_bytes.clone(),
            },
        }
    }

    /// How the run that was traced would have divided another budget.
    pub fn division(&self) -> Division {
        Division {
            fixed_bytes: self.plan.fixed_bytes,
            slot_bytes: self.plan.slot_bytes,
            experts: self.expert_layers.iter().fold(0, |sum: usize, layer| sum.saturating_add(layer.experts)),
            used: self.expert_layers.iter().map(|layer| layer.used).max().unwrap_or(0),
            scratch_bytes: self.plan.scratch_bytes.clone(),
        }
    }
}
