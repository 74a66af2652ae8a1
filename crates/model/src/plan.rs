//! The memory plan: one sum, one reason per term, made before anything large is allocated.
//!
//! `--memory` is the whole process. What backbone, keys and values, scratch and the program itself
//! leave becomes expert slots. A plan that cannot work is refused with the numbers and the way out.

use std::fmt;

use adit_kernels::KvFormat;

use crate::config::Config;
use crate::machine;
use crate::memory::KvShape;
use crate::scout::{ScoutSet, Scouts};
use crate::scratch::{Scratch, StepShape};
use crate::states::{SNAPSHOTS_MAX, StateShape};
use crate::weights::Weights;

/// Allowance for what cannot be counted beforehand: program pages not yet touched, thread stacks, the
/// allocator's rounding, the I/O ring and the text of a conversation.
const RESERVE_BYTES: u64 = 12 << 20;
/// The program without a vocabulary, and what a vocabulary takes per byte of file header: measured with
/// vocabularies of 49,000 to 262,000 tokens, rounded up. An estimate, so that the same request gets the
/// same plan every time; where the process has taken more already, that counts.
const PROGRAM_BYTES: u64 = 11 << 20;
const PROGRAM_BYTES_PER_HEADER_BYTE: f64 = 2.25;
/// Prefill chunk when memory is no concern: large enough that each weight is used many times per read.
const CHUNK_MAX: usize = 512;
/// Below this chunk, prefill slows down before slots gain much.
const CHUNK_COMFORT_MIN: usize = 16;
/// Share of what is left for scratch and slots that scratch may take without being asked.
const SCRATCH_SHARE: u64 = 8;
/// Share of what the least does not need that snapshots of states may take.
const SNAPSHOTS_SHARE: u64 = 8;
/// Share of available memory that is used when nobody names a budget.
const UNASKED_SHARE_PERCENT: u64 = 85;
/// Share of available memory that a named budget may reach. The rest is for what the kernel books on a
/// process without showing it as resident: page tables, the ring, page cache of files being opened.
const ASKED_SHARE_PERCENT: u64 = 96;

/// Where the model shall run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On this machine, which may have less than is asked for.
    Here,
    /// On one that has what is asked for.
    Anywhere,
}

/// What the user asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whole-process budget; `None` means all that fits without swapping.
    pub memory: Option<u64>,
    pub context: usize,
    pub lanes: usize,
    pub threads: usize,
    pub kv: KvFormat,
    /// Prefill chunk in rows; `None` chooses from memory.
    pub chunk: Option<usize>,
    /// What an observer of the steps takes.
    pub observer_bytes: u64,
    /// What a draft model beside this one takes of the budget; 0 for none.
    pub draft_bytes: u64,
    /// Who may make hints.
    pub scouts: ScoutSet,
}

/// Sizes that the opened files tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSizes {
    /// Metadata and directories: what the vocabulary's size grows with.
    pub header_bytes: u64,
    pub backbone_bytes: u64,
    /// One expert slot; 0 for a dense model.
    pub slot_bytes: u64,
    /// Tables, counters and ring, whatever the number of slots.
    pub overhead_bytes: u64,
}

/// Where a budget comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetSource {
    Asked,
    /// Less than was asked for, because the machine or its control group has no more.
    Cut,
    /// As asked for, although this machine has only so many bytes.
    Elsewhere {
        here: u64,
    },
    /// Nobody asked: everything resident, or what is available.
    Available,
}

impl fmt::Display for BudgetSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetSource::Asked => out.write_str("given with --memory"),
            BudgetSource::Cut => {
                out.write_str("less than --memory: the machine or its control group has no more")
            }
            BudgetSource::Elsewhere { here } => {
                write!(out, "given with --memory; here a run gets at most {}", Bytes(*here))
            }
            BudgetSource::Available => out.write_str("what fits without swapping"),
        }
    }
}

/// One term of the sum.
#[derive(Debug, Clone)]
pub struct Term {
    pub name: &'static str,
    pub bytes: u64,
    pub reason: String,
}

/// How a budget is divided between the prefill chunk and slots: all that this needs to know of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// Everything but scratch and slots.
    pub fixed_bytes: u64,
    pub slot_bytes: u64,
    /// Routed experts of the whole model.
    pub experts: usize,
    /// Experts of one layer that a row uses.
    pub used: usize,
    /// Chunks that may be chosen, the largest first, each with its scratch.
    pub scratch_bytes: Vec<(usize, u64)>,
}

impl Division {
    /// The largest chunk that leaves most of the rest to slots, and those slots. `None` if the budget does
    /// not suffice.
    pub fn choose(&self, budget: u64) -> Option<(usize, usize)> {
        let (&smallest, others) = self.scratch_bytes.split_last()?;
        for &(chunk, scratch) in others {
            let affordable = chunk <= CHUNK_COMFORT_MIN
                || scratch <= budget.saturating_sub(self.fixed_bytes) / SCRATCH_SHARE
                || self.slots(budget, scratch) == Some(self.experts);
            if affordable && let Some(slots) = self.slots(budget, scratch) {
                return Some((chunk, slots));
            }
        }
        self.slots(budget, smallest.1).map(|slots| (smallest.0, slots))
    }

    /// Slots beside this scratch; `None` if one token's experts of a layer do not fit.
    fn slots(&self, budget: u64, scratch: u64) -> Option<usize> {
        let left = budget.checked_sub(self.fixed_bytes.checked_add(scratch)?)?;
        if self.experts == 0 {
            return Some(0);
        }
        let slots = ((left / self.slot_bytes.max(1)) as usize).min(self.experts);
        (slots >= self.used).then_some(slots)
    }
}

/// How memory is carved.
#[derive(Debug, Clone)]
pub struct Plan {
    pub terms: Vec<Term>,
    pub budget: u64,
    pub budget_source: BudgetSource,
    pub slots: usize,
    pub slot_bytes: u64,
    /// How another budget would be divided.
    pub division: Division,
    /// Routed experts of the whole model.
    pub experts: usize,
    /// MoE layers x experts per token: the slots that one token touches.
    pub token_cycle: usize,
    pub context: usize,
    pub lanes: usize,
    pub threads: usize,
    pub chunk: usize,
    pub kv: KvShape,
    pub states: StateShape,
    pub scouts: ScoutSet,
}

/// A budget that cannot work; says the way out first, then why, in one line.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{budget} of memory is not enough: raise --memory to {needed_mib}MiB{advice}; \
     with a context of {context} tokens this model needs {sum}"
)]
pub struct PlanError {
    budget: Bytes,
    needed_mib: u64,
    context: usize,
    sum: String,
    advice: String,
}

impl PlanError {
    /// A budget that would be accepted: the smallest, rounded up to whole MiB.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_mib << 20
    }
}

/// Bytes printed as MiB or GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 10 << 20 => write!(out, "{:.2} MiB", bytes as f64 / (1u64 << 20) as f64),
            bytes if bytes < 1 << 30 => write!(out, "{:.1} MiB", bytes as f64 / (1u64 << 20) as f64),
            bytes => write!(out, "{:.2} GiB", bytes as f64 / (1u64 << 30) as f64),
        }
    }
}

impl Plan {
    /// Carves the budget, or says what is missing.
    pub fn make(
        config: &Config,
        weights: &Weights,
        sizes: FileSizes,
        request: &Request,
        place: Place,
    ) -> Result<Plan, PlanError> {
        let experts = weights.experts();
        let used = config.experts.as_ref().map_or(0, |experts| experts.used);
        let kv = KvShape::new(config, request.kv, request.context, request.lanes);
        let vocabulary = (sizes.header_bytes as f64 * PROGRAM_BYTES_PER_HEADER_BYTE) as u64;
        let program = machine::peak_resident_bytes().unwrap_or(0).max(PROGRAM_BYTES + vocabulary);
        let mut states = StateShape::new(config, request.lanes);
        let mut fixed = fixed_terms(config, weights, sizes, request, (program, &kv, &states));
        let fixed_bytes: u64 = fixed.iter().map(|term| term.bytes).sum();
        let mut needs =
            Needs { config, weights, request, fixed_bytes, slot_bytes: sizes.slot_bytes, experts, used };
        let everything = needs.total(needs.scratch(request.chunk.unwrap_or(CHUNK_MAX)), experts);
        let with_snapshots = everything + states.snapshot_bytes(SNAPSHOTS_MAX);
        let (budget, budget_source) = budget(request.memory, program, with_snapshots, place);
        states.snapshots = snapshots(budget, needs.least(), everything, states.snapshot_bytes(1));
        if states.snapshots > 0 {
            let reason = format!("{} a lane: where a conversation goes on from", states.snapshots);
            let snapshots = term("snapshots", states.snapshot_bytes(states.snapshots), reason);
            needs.fixed_bytes += snapshots.bytes;
            fixed.push(snapshots);
        }
        let division = needs.division();
        let Some((chunk, slots)) = division.choose(budget) else {
            return Err(needs.refusal(budget, fixed, request));
        };
        let mut terms = fixed;
        terms.push(term("scratch", needs.scratch(chunk), format!("a step of {chunk} rows")));
        if experts > 0 {
            let reason = format!("{slots} of {experts} experts x {}", Bytes(sizes.slot_bytes));
            terms.push(term("slots", slots as u64 * sizes.slot_bytes, reason));
        }
        Ok(Plan {
            terms,
            budget,
            budget_source,
            slots,
            slot_bytes: sizes.slot_bytes,
            division,
            experts,
            token_cycle: weights.groups.len() * used,
            context: request.context,
            lanes: request.lanes,
            threads: request.threads,
            chunk,
            kv,
            states,
            scouts: request.scouts,
        })
    }

    /// What the process will take at most, by this plan.
    pub fn total_bytes(&self) -> u64 {
        self.terms.iter().map(|term| term.bytes).sum()
    }

    pub fn step_shape(&self) -> StepShape {
        StepShape { rows: self.chunk, context: self.context, threads: self.threads }
    }
}

/// What may be used, of a process that has taken `program` bytes and could use `everything`.
fn budget(asked: Option<u64>, program: u64, everything: u64, place: Place) -> (u64, BudgetSource) {
    // What the process has already taken is part of the budget, and no longer available.
    let room = |percent| {
        let available = machine::available_bytes();
        available.map_or(u64::MAX, |available| program.saturating_add(available / 100 * percent))
    };
    match asked {
        Some(asked) if asked <= room(ASKED_SHARE_PERCENT) => (asked, BudgetSource::Asked),
        Some(asked) => match (place, room(ASKED_SHARE_PERCENT)) {
            (Place::Here, here) => (here, BudgetSource::Cut),
            (Place::Anywhere, here) => (asked, BudgetSource::Elsewhere { here }),
        },
        None => (everything.min(room(UNASKED_SHARE_PERCENT)), BudgetSource::Available),
    }
}

fn term(name: &'static str, bytes: u64, reason: String) -> Term {
    Term { name, bytes, reason }
}

/// Snapshots of each lane's state, `bytes` being one of every lane: they may take what nobody else needs, or
/// a share of what more slots and rows would like to have.
fn snapshots(budget: u64, least: u64, everything: u64, bytes: u64) -> usize {
    let room = budget.saturating_sub(everything).max(budget.saturating_sub(least) / SNAPSHOTS_SHARE);
    room.checked_div(bytes).unwrap_or(0).min(SNAPSHOTS_MAX as u64) as usize
}

/// The terms that no division of the budget changes.
fn fixed_terms(
    config: &Config,
    weights: &Weights,
    sizes: FileSizes,
    request: &Request,
    (program, kv, states): (u64, &KvShape, &StateShape),
) -> Vec<Term> {
    let mut fixed = vec![
        term("program", program, "code, vocabulary, tokeniser, file directory".into()),
        term("reserve", RESERVE_BYTES, "stacks, allocator rounding, I/O ring, text".into()),
        term("backbone", sizes.backbone_bytes, format!("{} weights every token uses", weights.extents.len())),
        term(
            "kv",
            kv.bytes() as u64,
            format!(
                "{} tokens x {} lane(s) x {} bytes in {} layers",
                request.context,
                request.lanes,
                kv.position_bytes(),
                kv.layers()
            ),
        ),
        term(
            "tables",
            sizes.overhead_bytes + Scouts::heap_bytes(config) as u64,
            "pager counters, request queue, slot states, what scouts remember".into(),
        ),
    ];
    if config.has_state() {
        fixed.push(states_term(states));
    }
    if request.observer_bytes > 0 {
        let reason = "what a trace keeps before it is written".into();
        fixed.push(term("trace", request.observer_bytes, reason));
    }
    if request.draft_bytes > 0 {
        let reason = "the draft model: weights, keys and values, scratch".into();
        fixed.push(term("draft", request.draft_bytes, reason));
    }
    fixed
}

fn states_term(states: &StateShape) -> Term {
    let (layers, bytes) = (states.recurrent_layers(), Bytes(states.lane_bytes() as u64));
    let reason = format!("{} lane(s) x {bytes} in {layers} recurrent layers", states.lanes);
    term("states", states.snapshot_bytes(1), reason)
}

/// The numbers that the choice of chunk and slots weighs.
struct Needs<'a> {
    config: &'a Config,
    weights: &'a Weights,
    request: &'a Request,
    fixed_bytes: u64,
    slot_bytes: u64,
    experts: usize,
    used: usize,
}

impl Needs<'_> {
    fn scratch(&self, chunk: usize) -> u64 {
        let shape = StepShape { rows: chunk, context: self.request.context, threads: self.request.threads };
        Scratch::bytes(self.config, self.weights, shape) as u64
    }

    fn total(&self, scratch: u64, slots: usize) -> u64 {
        self.fixed_bytes + scratch + slots as u64 * self.slot_bytes
    }

    /// What the smallest step takes, with one token's experts of a layer.
    fn least(&self) -> u64 {
        self.total(self.scratch(self.request.chunk.unwrap_or(1)), self.used)
    }

    /// The numbers that divide any budget, with the scratch of each chunk that comes into question.
    fn division(&self) -> Division {
        let largest = CHUNK_MAX.min(self.request.context.next_power_of_two());
        let halves = std::iter::successors(Some(largest), |&chunk| (chunk > 1).then_some(chunk / 2));
        let chunks = match self.request.chunk {
            Some(chunk) => vec![chunk],
            None => halves.collect(),
        };
        Division {
            fixed_bytes: self.fixed_bytes,
            slot_bytes: self.slot_bytes,
            experts: self.experts,
            used: self.used,
            scratch_bytes: chunks.into_iter().map(|chunk| (chunk, self.scratch(chunk))).collect(),
        }
    }

    fn refusal(&self, budget: u64, fixed: Vec<Term>, request: &Request) -> PlanError {
        let chunk = request.chunk.unwrap_or(1);
        let scratch = self.scratch(chunk);
        let mut sizes: Vec<_> = fixed.iter().map(|term| (term.name, term.bytes)).collect();
        sizes.push(("scratch", scratch));
        if self.experts > 0 {
            sizes.push(("slots", self.used as u64 * self.slot_bytes));
        }
        let sizes = sizes.into_iter().map(|(name, bytes)| format!("{name} {}", Bytes(bytes)));
        let mut advice = String::new();
        if request.context > 512 {
            advice += ", or give a shorter context with -c";
        }
        let runs = KvFormat::Q8_0.block_len();
        let fit_runs = self.config.kv_not_in_runs_of(runs).is_none();
        if request.kv != KvFormat::Q8_0 && fit_runs {
            advice += ", or --kv q8_0";
        }
        PlanError {
            budget: Bytes(budget),
            needed_mib: self.least().div_ceil(1 << 20),
            context: request.context,
            sum: sizes.collect::<Vec<_>>().join(" + "),
            advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_give_way_to_slots_where_memory_is_tight() {
        let (least, everything) = (1000, 5000);
        assert_eq!(snapshots(least, least, everything, 50), 0);
        assert_eq!(snapshots(least + 2 * 50 * SNAPSHOTS_SHARE, least, everything, 50), 2);
        assert_eq!(snapshots(everything, least, everything, 1000), 0);
        assert_eq!(snapshots(everything + 1500, least, everything, 1000), 1);
        assert_eq!(snapshots(everything + 9000, least, everything, 1000), SNAPSHOTS_MAX);
        assert_eq!(snapshots(everything + 9000, least, everything, 0), 0, "a model without states");
    }
}
