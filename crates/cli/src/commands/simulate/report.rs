//! What a simulation found, case by case: as a table, or as one JSON object.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::Size;
use crate::output::Output;
use crate::simulation::{Kind, Outcomes, Phase, Trace, simulate};
use crate::size::ByteSize;

/// Where the disk's pace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskSource {
    Given,
    Probed,
    Assumed,
}

/// What turns bytes into time.
#[derive(Clone, Copy)]
pub struct Speed {
    pub disk_gb_per_s: f64,
    pub disk_source: DiskSource,
    /// Of one token; `None` where nobody knows.
    pub compute_s: Option<f64>,
}

impl Speed {
    /// Tokens a second when reading hides behind computing, and when neither hides behind the other.
    fn rates(&self, bytes_per_token: f64) -> [Option<f64>; 2] {
        let disk = bytes_per_token / 1e9 / self.disk_gb_per_s;
        let compute = self.compute_s.unwrap_or(0.0);
        [disk.max(compute), disk + compute].map(|seconds| (seconds > 0.0).then(|| 1.0 / seconds))
    }
}

/// One trace with one number of slots. Figures are about decoding, or about the prompt in a trace that holds
/// nothing else.
#[derive(Serialize)]
pub struct Case {
    trace: String,
    layers: usize,
    experts: usize,
    tokens: u64,
    /// Tokens of prompts, in steps of several rows: they pass through the slots but are not counted.
    prefill_tokens: u64,
    /// Experts that the token with the most uses.
    token_cycle: usize,
    slots: usize,
    /// Slots as a share of all experts.
    residency: f64,
    memory_bytes: Option<u64>,
    /// What was assumed about the memory.
    assumed: Option<String>,
    disk_gb_per_s: f64,
    disk_source: DiskSource,
    /// Milliseconds of arithmetic for a token; null where nobody knows.
    compute_ms: Option<f64>,
    /// Why the trace may be less than what happened.
    remark: Option<String>,
    policies: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    policy: &'static str,
    hit_rate: f64,
    misses_per_token: f64,
    /// Null where the trace gives no sizes. GB are 10^9 bytes.
    gb_per_token: Option<f64>,
    /// GB that the prompts read, all together; null as above.
    prefill_gb: Option<f64>,
    /// 1 / max(disk, compute); null as above.
    expected_tok_per_s: Option<f64>,
    /// 1 / (disk + compute).
    pessimistic_tok_per_s: Option<f64>,
    /// Share of the gap between the hit rates of LRU and the optimum; null where there is none.
    gap_closed: Option<f64>,
}

impl Case {
    pub fn new(name: &str, trace: &Trace, size: &Size, kinds: &[Kind], speed: Speed) -> Case {
        let slots = size.slots;
        let lru = simulate(trace, slots, Kind::Lru);
        let optimum = simulate(trace, slots, Kind::Optimum);
        let line = |&kind: &Kind| {
            let outcomes = match kind {
                Kind::Lru => lru,
                Kind::Optimum => optimum,
                _ => simulate(trace, slots, kind),
            };
            Line::new(kind, outcomes, trace, (lru, optimum), speed)
        };
        let counted = trace.counted();
        Case {
            trace: name.to_owned(),
            layers: trace.layers,
            experts: trace.members(),
            tokens: trace.tokens(counted),
            prefill_tokens: if counted == Phase::Decode { trace.tokens(Phase::Prefill) } else { 0 },
            token_cycle: trace.token_cycle(),
            slots,
            residency: slots as f64 / trace.members() as f64,
            memory_bytes: size.memory_bytes,
            assumed: size.assumed.clone(),
            disk_gb_per_s: speed.disk_gb_per_s,
            disk_source: speed.disk_source,
            compute_ms: speed.compute_s.map(|seconds| seconds * 1e3),
            remark: trace.remark.clone(),
            policies: kinds.iter().map(line).collect(),
        }
    }

    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let Case { trace, layers, experts, tokens, token_cycle, slots, .. } = self;
        let percent = 100.0 * self.residency;
        writeln!(out, "{trace}: {tokens} tokens, {layers} layers, {experts} experts, {token_cycle} a token")?;
        if self.prefill_tokens > 0 {
            writeln!(out, "after {} tokens of prompts, which are not counted", self.prefill_tokens)?;
        }
        if let Some(remark) = &self.remark {
            writeln!(out, "{remark}")?;
        }
        if let (Some(bytes), Some(assumed)) = (self.memory_bytes, &self.assumed) {
            writeln!(out, "{} of memory: {assumed}", ByteSize(bytes))?;
        }
        writeln!(out, "{slots} slots hold {percent:.1} %")?;
        if self.policies.iter().any(|line| line.gb_per_token.is_some()) {
            let given = match self.disk_source {
                DiskSource::Given => "",
                DiskSource::Probed => " (as adit probe measured)",
                DiskSource::Assumed => " (assumed; --disk or adit probe tell better)",
            };
            let compute = match self.compute_ms {
                Some(ms) => format!("computing a token takes {ms:.2} ms"),
                None => "the time for computing is not known; --compute gives it".to_owned(),
            };
            writeln!(out, "the disk reads {:.2} GB/s{given}, {compute}", self.disk_gb_per_s)?;
        }
        let titles = ["hits", "misses/token", "GB/token", "tok/s", "at least", "gap closed"];
        let [hits, misses, gb, rate, least, gap] = titles;
        writeln!(out, "  {:<9}{hits:>8}{misses:>14}{gb:>11}{rate:>9}{least:>10}{gap:>12}", "policy")?;
        self.policies.iter().try_for_each(|line| line.print(out))?;
        writeln!(out)
    }
}

impl Line {
    fn new(
        kind: Kind,
        outcomes: Outcomes,
        trace: &Trace,
        (lru, optimum): (Outcomes, Outcomes),
        speed: Speed,
    ) -> Line {
        let counted = trace.counted();
        let (outcome, lru, optimum) = (outcomes.of(counted), lru.of(counted), optimum.of(counted));
        let tokens = (trace.tokens(counted) as f64).max(1.0);
        let is_sized = !trace.expert_bytes.is_empty();
        let bytes_per_token = outcome.bytes as f64 / tokens;
        let [expected, pessimistic] = if is_sized { speed.rates(bytes_per_token) } else { [None, None] };
        let gained = outcome.hits as f64 - lru.hits as f64;
        Line {
            policy: kind.name(),
            hit_rate: outcome.hit_rate(),
            misses_per_token: outcome.misses as f64 / tokens,
            gb_per_token: is_sized.then_some(bytes_per_token / 1e9),
            prefill_gb: is_sized.then_some(outcomes.prefill.bytes as f64 / 1e9),
            expected_tok_per_s: expected,
            pessimistic_tok_per_s: pessimistic,
            gap_closed: (optimum.hits > lru.hits).then(|| gained / (optimum.hits - lru.hits) as f64),
        }
    }

    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let digits = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let closed = self.gap_closed.map_or("-".to_owned(), |closed| format!("{:.1} %", 100.0 * closed));
        let (hits, misses) = (format!("{:.1} %", 100.0 * self.hit_rate), self.misses_per_token);
        let gb = digits(self.gb_per_token, 3);
        let (rate, least) = (digits(self.expected_tok_per_s, 2), digits(self.pessimistic_tok_per_s, 2));
        writeln!(out, "  {:<9}{hits:>8}{misses:>14.1}{gb:>11}{rate:>9}{least:>10}{closed:>12}", self.policy)
    }
}

pub fn print_json(cases: &[Case]) -> Result<()> {
    let mut out = Output::stdout();
    serde_json::to_writer(&mut out, &serde_json::json!({ "cases": cases }))?;
    writeln!(out)?;
    Ok(out.flush()?)
}

pub fn print_table(cases: &[Case]) -> Result<()> {
    let mut out = Output::stdout();
    cases.iter().try_for_each(|case| case.print(&mut out))?;
    Ok(out.flush()?)
}
