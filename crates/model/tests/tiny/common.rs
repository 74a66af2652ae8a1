//! What model tests share: tiny models on disk, and a run over tokens that keeps all logits.

use std::path::Path;

use adit_model::{Blueprint, IoKind, KvFormat, Model, ModelError, Request, Row, ScoutSet};

/// How one run differs from another; none of it may change a bit of the result.
#[derive(Debug, Clone)]
pub struct Run {
    pub memory: Option<u64>,
    pub threads: usize,
    pub chunk: usize,
    pub io: IoKind,
    pub kv: KvFormat,
    pub scouts: ScoutSet,
}

impl Default for Run {
    fn default() -> Self {
        Run { memory: None, threads: 2, chunk: 7, io: IoKind::Auto, kv: KvFormat::F32, scouts: ScoutSet::ALL }
    }
}

impl Run {
    pub fn load(&self, path: &Path) -> Result<Model, ModelError> {
        let blueprint = Blueprint::open(path, &self.io)?;
        let plan = blueprint.plan(&self.request())?;
        Model::load(blueprint, plan, &mut |_| {})
    }

    pub fn request(&self) -> Request {
        let Run { memory, threads, chunk, kv, scouts, .. } = *self;
        Request {
            memory,
            context: 256,
            lanes: 1,
            threads,
            kv,
            chunk: Some(chunk),
            scouts,
            observer_bytes: 0,
            draft_bytes: 0,
        }
    }

    /// Logits of all positions, one row after the other.
    pub fn logits(&self, path: &Path, tokens: &[u32]) -> Vec<f32> {
        logits_of(&mut self.load(path).expect("a tiny model loads"), self.chunk, tokens)
    }
}

/// Logits of all positions of an empty lane.
pub fn logits_of(model: &mut Model, chunk: usize, tokens: &[u32]) -> Vec<f32> {
    let mut all = Vec::new();
    for (index, part) in tokens.chunks(chunk).enumerate() {
        let rows = rows(part, index * chunk);
        model.step(&rows, &mut |_, logits| all.extend_from_slice(logits)).expect("a step succeeds");
    }
    all
}

pub fn rows(tokens: &[u32], first: usize) -> Vec<Row> {
    let row = |(at, &token)| Row { lane: 0, token, position: first + at, wants_logits: true };
    tokens.iter().enumerate().map(row).collect()
}

/// Token ids that are ordinary text in every tiny vocabulary.
pub fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| 3 + (at * 37 + at * at * 11) % 240).collect()
}
