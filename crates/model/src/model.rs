//! A loaded model: bound weights, resident backbone, pager, lanes and scratch, and the step over them.
//!
//! Loading reads the header, binds and plans (`Blueprint`), then carves memory once (`Model::load`).
//! After that a step allocates nothing. Knows tokens as numbers only.

mod warm;

use std::path::{Path, PathBuf};

use adit_format::Gguf;
use adit_kernels::{Pool, RopeScaling, RopeTable};
use adit_pager::{Backbone, FileSet, IoOptions, Pager, PagerStats};

use crate::config::{Config, MixerConfig, Rope};
use crate::error::ModelError;
use crate::families::Family;
use crate::forward::{Pass, Row};
use crate::guard::{Guard, GuardStats, Slots};
use crate::linear::{Linear, Resident};
use crate::memory::Memory;
use crate::mirrors;
use crate::observe::Observer;
use crate::plan::{FileSizes, Place, Plan, Request};
use crate::scout::{Scout, ScoutReport, Scouts};
use crate::scratch::Scratch;
use crate::up_projection::UpProjectionAdapter;
use crate::weights::{Vector, Weights, file_name};
pub use warm::{ExpertPlace, Heat};

/// As many threads as a worker pool takes; a machine with more processors leaves the rest idle.
pub const THREADS_MAX: usize = Pool::THREADS_MAX;

/// A model file understood but not loaded: its numbers, its weights' places, its open files.
pub struct Blueprint {
    pub gguf: Gguf,
    pub config: Config,
    pub weights: Weights,
    files: FileSet,
}

impl Blueprint {
    /// Opens a model by its file (the first part of a split one).
    pub fn open(path: &Path, io: impl Into<IoOptions>) -> Result<Blueprint, ModelError> {
        Blueprint::from_gguf(Gguf::open(path)?, io)
    }

    pub fn from_gguf(gguf: Gguf, io: impl Into<IoOptions>) -> Result<Blueprint, ModelError> {
        let io = io.into();
        let file = file_name(&gguf);
        // Before anything else: an architecture that adit does not know is refused by its name.
        let architecture = gguf.metadata().require_str("general.architecture")?;
        let family = Family::find(&file, architecture)?;
        let missing = || ModelError::MissingTensor { file: file.clone(), name: "token_embd.weight".into() };
        let vocabulary =
            gguf.tensor("token_embd.weight").ok_or_else(missing)?.dims.get(1).copied().unwrap_or(1);
        let config = Config::read(&file, family, gguf.metadata(), vocabulary as usize, &|name| {
            gguf.tensor(name).is_some()
        })?;
        let weights = Weights::bind(&gguf, &config)?;
        let files = FileSet::open_copies(&mirrors::copies(&gguf, &io.mirrors)?, io)?;
        Ok(Blueprint { gguf, config, weights, files })
    }

    /// The memory sum for this request, within what this machine has.
    pub fn plan(&self, request: &Request) -> Result<Plan, ModelError> {
        self.plan_for(request, Place::Here)
    }

    /// The memory sum for this request.
    pub fn plan_for(&self, request: &Request, place: Place) -> Result<Plan, ModelError> {
        if let Some([head_dim, value_dim]) = self.config.kv_not_in_runs_of(request.kv.block_len()) {
            return Err(ModelError::KvFormat { format: "q8_0", head_dim, value_dim });
        }
        if let Some(exact) = self.config.context_exact.filter(|&exact| request.context > exact) {
            return Err(ModelError::ContextBeyondExact { context: request.context, exact });
        }
        let (files, groups) = (&self.files, &self.weights.groups);
        let sizes = FileSizes {
            header_bytes: self.header_bytes(),
            backbone_bytes: Backbone::bytes_needed(files, &self.weights.extents)
                + self.weights.derived_bytes(),
            slot_bytes: Pager::slot_bytes(files, groups),
            // A bound: tables for as many slots as there are experts.
            overhead_bytes: Pager::overhead_bytes(files, groups, self.weights.experts()),
        };
        Ok(Plan::make(&self.config, &self.weights, sizes, request, place)?)
    }

    /// Bytes before the first tensor of all files. (Padding between tensors takes no memory.)
    fn header_bytes(&self) -> u64 {
        self.headers().iter().map(|file| file.header_bytes).sum()
    }

    fn headers(&self) -> Vec<FileHeader> {
        let whole = |part: &adit_format::Part| FileHeader {
            path: part.path.clone(),
            header_bytes: part.bytes,
            bytes: part.bytes,
        };
        let mut headers: Vec<FileHeader> = self.gguf.parts().iter().map(whole).collect();
        for tensor in self.gguf.tensors() {
            let file = &mut headers[tensor.part];
            file.header_bytes = file.header_bytes.min(tensor.offset);
        }
        headers
    }

    /// Bytes of all routed experts on disk.
    pub fn expert_bytes(&self) -> u64 {
        let of_group = |group: &adit_pager::Group| {
            group.parts.iter().map(|part| part.member_bytes).sum::<u64>() * u64::from(group.members)
        };
        self.weights.groups.iter().map(of_group).sum()
    }

    /// Bytes of all resident weights on disk.
    pub fn backbone_bytes(&self) -> u64 {
        self.weights.extents.iter().map(|extent| extent.bytes).sum()
    }
}

/// Where the time of steps went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepStats {
    pub steps: u64,
    pub rows: u64,
    /// Wall time inside steps, waits for experts included.
    pub step_ns: u64,
}

/// A layer with experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertLayer {
    /// Its place among all layers.
    pub layer: usize,
    pub experts: usize,
    /// Experts that a row uses.
    pub used: usize,
    /// Bytes that are read for one expert, with what alignment adds: the mean, rounded up.
    pub bytes: u64,
}

/// A model ready to compute steps.
pub struct Model {
    config: Config,
    weights: Weights,
    plan: Plan,
    pool: Pool,
    resident: Resident,
    up_adapters: Box<[Option<UpProjectionAdapter>]>,
    rotations: Box<[RopeTable]>,
    pager: Option<Pager>,
    memory: Memory,
    scratch: Scratch,
    scouts: Scouts,
    guard: Guard,
    stats: StepStats,
    observer: Option<Box<dyn Observer>>,
    headers: Vec<FileHeader>,
}

/// What tells a model's file from others, without its tensor data being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    pub path: PathBuf,
    /// Bytes before its first tensor.
    pub header_bytes: u64,
    /// All bytes.
    pub bytes: u64,
}

impl Model {
    /// Carves memory by `plan` and reads the backbone; `progress` is told the bytes read so far.
    pub fn load(
        blueprint: Blueprint,
        plan: Plan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Model, ModelError> {
        let headers = blueprint.headers();
        let Blueprint { config, mut weights, files, gguf } = blueprint;
        let file = file_name(&gguf);
        // The directory has served its purpose; its memory is better used for experts.
        drop(gguf);
        let pool = Pool::new(plan.threads);
        let backbone = Backbone::load(&files, &weights.extents, progress)?;
        let resident = Resident::new(backbone, &weights.derived)?;
        let linear = Linear { pool: &pool, resident: &resident };
        weights.check_token_experts(&file, &config, linear)?;
        let rotations = config.ropes.iter().map(|rope| rope_table(rope, &weights, linear, plan.context));
        let rotations = rotations.collect();
        let memory = Memory::new(&plan.kv, &plan.states, plan.context, plan.lanes)?;
        let scratch = Scratch::new(&config, &weights, plan.step_shape());
        let scouts = Scouts::new(&config, &weights, plan.scouts);
        let groups = std::mem::take(&mut weights.groups);
        let pager = match groups.is_empty() {
            true => None,
            false => Some(Pager::new(files, groups, plan.slots)?),
        };
        let up_adapters = vec![None; config.layers.len()].into();
        let guard = Guard::new(plan.slot_bytes);
        let stats = StepStats::default();
        let observer = None;
        Ok(Model {
            config,
            weights,
            plan,
            pool,
            resident,
            up_adapters,
            rotations,
            pager,
            memory,
            scratch,
            scouts,
            guard,
            stats,
            observer,
            headers,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its files, the first part first.
    pub fn files(&self) -> &[FileHeader] {
        &self.headers
    }

    /// From now on the up-projection of a layer's latent attention is `W + scale * B A`, with `a` of
    /// `[rank][latent]` and `b` of `[heads * (unrotated + value_dim)][rank]`, its rows as in `attn_kv_b`.
    /// What lanes remember was computed without it: truncate them. Error when the layer has none or shapes
    /// differ.
    pub fn adapt_up_projection(
        &mut self,
        layer: usize,
        rank: usize,
        (a, b, scale): (Vec<f32>, Vec<f32>, f32),
    ) -> Result<(), ModelError> {
        let mixer = self.config.layers.get(layer).map(|layer| &layer.mixer);
        let latent = mixer.and_then(MixerConfig::latent).ok_or(ModelError::NoUpProjection { layer })?;
        self.up_adapters[layer] = Some(UpProjectionAdapter::new(latent, rank, a, b, scale)?);
        Ok(())
    }

    /// Positions that `lane` remembers.
    pub fn lane_len(&self, lane: usize) -> usize {
        self.memory.len(lane)
    }

    /// Forgets the positions of `lane` from `len` on; returns how many are left. Where layers carry a state
    /// ([`Config::has_state`]) that is back to the newest snapshot at or before `len`, or to nothing.
    pub fn truncate(&mut self, lane: usize, len: usize) -> usize {
        self.memory.truncate(lane, len)
    }

    /// Remembers the state of `lane` as it is now, for [`Model::truncate`] to go back to; nothing where no
    /// layer carries one or the plan has no room for snapshots.
    pub fn snapshot(&mut self, lane: usize) {
        self.memory.snapshot(lane);
    }

    /// Error when a file that experts are read from was cut, rewritten, replaced or removed since it was
    /// opened. What a dense model needs is in memory.
    pub fn check_files(&self) -> Result<(), ModelError> {
        let checked: Result<(), _> = self.pager.as_ref().map_or(Ok(()), Pager::check_unchanged);
        Ok(checked?)
    }

    pub fn pager_stats(&self) -> PagerStats {
        self.pager.as_ref().map(Pager::stats).unwrap_or_default()
    }

    /// Lets `observer` watch the steps from now on, or nobody; returns who watched until now.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut self.observer, observer)
    }

    /// The layers with experts, in order.
    pub fn expert_layers(&self) -> Vec<ExpertLayer> {
        let Some((pager, experts)) = self.pager.as_ref().zip(self.config.experts.as_ref()) else {
            return Vec::new();
        };
        let routed = self.weights.layers.iter().enumerate().filter_map(|(layer, weights)| {
            let group = weights.feed_forward.routed()?.group;
            let bytes: u64 = (0..experts.count as u32).map(|expert| pager.read_bytes(group, expert)).sum();
            let bytes = bytes.div_ceil(experts.count as u64);
            Some(ExpertLayer { layer, experts: experts.count, used: experts.used, bytes })
        });
        routed.collect()
    }

    /// What each scout's hints have brought and cost; nothing for a dense model.
    pub fn scout_reports(&self) -> [ScoutReport; Scout::ALL.len()] {
        let accounts = self.pager.as_ref().map(Pager::hint_accounts).unwrap_or_default();
        Scout::ALL.map(|scout| ScoutReport { scout, account: accounts[scout as usize] })
    }

    /// Expert slots in use now: those planned, less what the memory guard has given up.
    pub fn slots(&self) -> usize {
        self.pager.as_ref().map_or(0, Pager::slots)
    }

    pub fn guard_stats(&self) -> GuardStats {
        self.guard.stats
    }

    pub fn step_stats(&self) -> StepStats {
        self.stats
    }

    /// Computes one step of at most `plan().chunk` rows. `on_logits(row index, logits)` is called in
    /// order for the rows that want them. On an error no lane has advanced; one that carries a state has gone
    /// back to its newest snapshot.
    pub fn step(&mut self, rows: &[Row], on_logits: &mut dyn FnMut(usize, &[f32])) -> Result<(), ModelError> {
        assert!(
            !rows.is_empty() && rows.len() <= self.plan.chunk,
            "a step has 1 to {} rows",
            self.plan.chunk
        );
        let start = std::time::Instant::now();
        self.admit(rows)?;
        self.mind_memory();
        if let Some(observer) = &mut self.observer {
            observer.begin_step(rows);
        }
        let mut pass = Pass {
            config: &self.config,
            weights: &self.weights,
            linear: Linear { pool: &self.pool, resident: &self.resident },
            up_adapters: &self.up_adapters,
            rotations: &self.rotations,
            memory: &mut self.memory,
            scratch: &mut self.scratch,
            pager: self.pager.as_mut(),
            observer: self.observer.as_deref_mut(),
            scouts: &mut self.scouts,
        };
        let computed = pass.run(rows, on_logits);
        if computed.is_err() && self.config.has_state() {
            rows.iter().for_each(|row| self.memory.fall_back(row.lane));
        }
        computed?;
        for row in rows {
            self.memory.advance(row.lane, row.position);
        }
        self.stats.steps += 1;
        self.stats.rows += rows.len() as u64;
        let step_ns = start.elapsed().as_nanos() as u64;
        self.stats.step_ns += step_ns;
        if let Some(observer) = &mut self.observer {
            observer.end_step(step_ns);
        }
        Ok(())
    }

    /// Gives slots up, or takes them back, as the machine's memory demands.
    fn mind_memory(&mut self) {
        let (Some(pager), Some(experts)) = (&mut self.pager, &self.config.experts) else { return };
        let slots =
            Slots { now: pager.slots(), planned: self.plan.slots, min: experts.used + pager.pinned() };
        if let Some(wanted) = self.guard.look(slots) {
            pager.resize(wanted);
        }
    }

    /// Checks rows against vocabulary and lanes, and gives them blocks.
    fn admit(&mut self, rows: &[Row]) -> Result<(), ModelError> {
        for (index, row) in rows.iter().enumerate() {
            let vocabulary = self.config.vocabulary;
            if row.token as usize >= vocabulary {
                return Err(ModelError::BadToken { row: index, token: row.token, vocabulary });
            }
            let before = rows[..index].iter().rev().find(|other| other.lane == row.lane);
            let expected = before.map_or(self.lane_len(row.lane), |other| other.position + 1);
            assert_eq!(row.position, expected, "rows of a lane continue it without gaps");
            self.memory.reserve(row.lane, row.position)?;
        }
        Ok(())
    }
}

/// A rotation, with whatever frequency factors the file carries for it.
fn rope_table(rope: &Rope, weights: &Weights, linear: Linear<'_>, context: usize) -> RopeTable {
    let factors = &weights.rope_factors;
    let beyond = context > rope.original_context as usize;
    let chosen: Option<Vector> = factors.fixed.or(if beyond { factors.long } else { factors.short });
    let chosen = linear.optional_vector(chosen.filter(|_| rope.factors));
    let plain = RopeScaling {
        freq_scale: rope.scale,
        attn_factor: rope.magnitude,
        original_context: rope.original_context,
        ..RopeScaling::default()
    };
    let scaling = match &rope.yarn {
        Some(yarn) => {
            RopeScaling { ext_factor: 1.0, beta_fast: yarn.beta_fast, beta_slow: yarn.beta_slow, ..plain }
        }
        None => plain,
    };
    RopeTable::new(rope.dimensions, rope.base, &scaling, chosen)
}
