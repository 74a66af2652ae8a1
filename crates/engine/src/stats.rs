//! Counters of a running engine, under the names that scripts rely on.

use std::time::Duration;

use adit_model::{Model, Scout, ScoutReport, machine};
use serde::Serialize;

use crate::speculation::ProposerStats;

/// Since loading. Token counts and times are kept by the engine around its steps; expert and read
/// counts come from the pager, which documents them where it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stats {
    pub decode_tok_per_s: f64,
    pub prefill_tok_per_s: f64,
    /// Prompt tokens that had to be computed (not those reused from the lane).
    pub prompt_tokens: u64,
    /// Those of them that the lane had held, behind the snapshot of a state that it went back to.
    pub prompt_tokens_again: u64,
    pub generated_tokens: u64,
    pub bytes_read: u64,
    pub expert_hits: u64,
    pub expert_misses: u64,
    pub hints_issued: u64,
    pub hints_used: u64,
    /// Experts read while nobody waited for an answer.
    pub experts_prewarmed: u64,
    /// The same as of hints and more for each source of them.
    pub scouts: [ScoutStats; Scout::ALL.len()],
    /// Time that steps stood still for expert bytes.
    pub io_wait_s: f64,
    /// Time in which a disk had reads under way, the sum over disks (over I/O threads without io_uring).
    pub disk_busy_s: f64,
    /// Time inside steps less that wait.
    pub compute_s: f64,
    /// `VmHWM`: the most this process ever had resident.
    pub peak_rss_bytes: u64,
    pub memory_budget_bytes: u64,
    /// Tokens that prompt lookup proposed, how many of them the model chose itself, the steps that verified
    /// them, and how often lookup was switched off because it cost more than it gained.
    pub lookup_proposed: u64,
    pub lookup_accepted: u64,
    pub lookup_steps: u64,
    pub lookup_switched_off: u64,
    /// Time that plain steps would have taken for the tokens of those steps, less theirs.
    pub lookup_saved_s: f64,
    /// The same of the draft model; its own time is part of what it costs.
    pub draft_proposed: u64,
    pub draft_accepted: u64,
    pub draft_steps: u64,
    pub draft_switched_off: u64,
    pub draft_saved_s: f64,
    /// Expert slots now, as planned, and how often the memory guard gave some up or took some back.
    pub slots: u64,
    pub slots_planned: u64,
    pub guard_shrinks: u64,
    pub guard_grows: u64,
    #[serde(skip)]
    pub(crate) prefill_tokens: u64,
    #[serde(skip)]
    pub(crate) prefill_ns: u64,
    #[serde(skip)]
    pub(crate) decode_tokens: u64,
    #[serde(skip)]
    pub(crate) decode_ns: u64,
}

/// What the hints of one scout have brought and cost. Times are estimates from the disk's speed: `saved_s`
/// was read before it was asked for, `lost_s` was read for nothing while somebody waited, `spent_s` went
/// into foreseeing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ScoutStats {
    pub name: &'static str,
    pub hints_issued: u64,
    pub hints_used: u64,
    pub hints_wasted: u64,
    pub bytes_read: u64,
    pub bytes_wasted: u64,
    /// Hints that found no slot whose expert may leave.
    pub hints_refused: u64,
    pub saved_s: f64,
    pub lost_s: f64,
    pub spent_s: f64,
    /// How often it was switched off for a while because it cost more than it gained.
    pub switched_off: u64,
}

impl From<ScoutReport> for ScoutStats {
    fn from(ScoutReport { scout, account }: ScoutReport) -> ScoutStats {
        let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
        ScoutStats {
            name: scout.name(),
            hints_issued: account.issued,
            hints_used: account.used,
            hints_wasted: account.wasted,
            bytes_read: account.bytes,
            bytes_wasted: account.wasted_bytes,
            hints_refused: account.refused,
            saved_s: seconds(account.saved_ns),
            lost_s: seconds(account.lost_ns),
            spent_s: seconds(account.spent_ns),
            switched_off: account.switched_off,
        }
    }
}

impl Stats {
    /// The counters of a model that runs without an engine: all but those of its tokens.
    pub fn of_model(model: &Model) -> Stats {
        Stats::default().with_model(model)
    }

    /// Fills in what prompt lookup and a draft model have gained and cost.
    pub(crate) fn with_speculation(self, [lookup, draft]: [ProposerStats; 2]) -> Stats {
        Stats {
            lookup_proposed: lookup.proposed,
            lookup_accepted: lookup.accepted,
            lookup_steps: lookup.steps,
            lookup_switched_off: lookup.switched_off,
            lookup_saved_s: lookup.saved_s,
            draft_proposed: draft.proposed,
            draft_accepted: draft.accepted,
            draft_steps: draft.steps,
            draft_switched_off: draft.switched_off,
            draft_saved_s: draft.saved_s,
            ..self
        }
    }

    /// Fills in what the model and the system know.
    pub(crate) fn with_model(mut self, model: &Model) -> Stats {
        let (pager, steps) = (model.pager_stats(), model.step_stats());
        self.decode_tok_per_s = rate(self.decode_tokens, self.decode_ns);
        self.prefill_tok_per_s = rate(self.prefill_tokens, self.prefill_ns);
        self.bytes_read = pager.bytes_read;
        self.expert_hits = pager.hits;
        self.expert_misses = pager.misses;
        self.hints_issued = pager.hints_issued;
        self.hints_used = pager.hints_used;
        self.experts_prewarmed = pager.prewarmed;
        self.scouts = model.scout_reports().map(ScoutStats::from);
        self.io_wait_s = Duration::from_nanos(pager.wait_ns).as_secs_f64();
        self.disk_busy_s = Duration::from_nanos(pager.disk_busy_ns).as_secs_f64();
        self.compute_s = Duration::from_nanos(steps.step_ns.saturating_sub(pager.wait_ns)).as_secs_f64();
        self.peak_rss_bytes = machine::peak_resident_bytes().unwrap_or(0);
        self.memory_budget_bytes = model.plan().budget;
        (self.slots, self.slots_planned) = (model.slots() as u64, model.plan().slots as u64);
        let guard = model.guard_stats();
        (self.guard_shrinks, self.guard_grows) = (guard.shrinks, guard.grows);
        self
    }
}

fn rate(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { count as f64 / Duration::from_nanos(nanoseconds).as_secs_f64() }
}
