//! `adit simulate TRACE...`: what cache policies would do with recorded routes, on a pool for the whole
//! model that is empty at first. Reads traces only; needs no model.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Usage;
use crate::output::Output;
use crate::simulation::{Kind, Outcome, Trace, simulate};

/// What is simulated when nothing is asked for, beside half a token cycle.
const SHARES: [f64; 3] = [0.06, 0.12, 0.25];

#[derive(clap::Args)]
pub struct Args {
    /// Route traces (CSV) or traces with one JSON object a token, packed with gzip or not
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// Experts that memory holds; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    slots: Vec<u32>,

    /// Share of all experts that memory holds, like 0.12; several with commas [default: half of what one
    /// token uses, 0.06, 0.12 and 0.25]
    #[arg(long, value_name = "F", value_delimiter = ',', conflicts_with = "slots")]
    #[arg(value_parser = share, allow_negative_numbers = true)]
    residency: Vec<f64>,

    /// Policies, with commas [default: all]
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<Kind>,

    /// How the result is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

fn share(text: &str) -> Result<f64, String> {
    let valid = |share: &f64| *share > 0.0 && *share <= 1.0;
    text.parse().ok().filter(valid).ok_or_else(|| "a share is a number above 0, up to 1".to_owned())
}

/// One trace with one number of slots.
#[derive(Serialize)]
struct Case {
    trace: String,
    layers: usize,
    experts: usize,
    tokens: usize,
    /// Experts that the token with the most uses.
    token_cycle: usize,
    slots: usize,
    /// Slots as a share of all experts.
    residency: f64,
    policies: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    policy: &'static str,
    hit_rate: f64,
    misses_per_token: f64,
    /// Null where the trace gives no sizes. GB are 10^9 bytes.
    gb_per_token: Option<f64>,
    /// Share of the gap between the hit rates of LRU and the optimum; null where there is none.
    gap_closed: Option<f64>,
}

pub fn run(args: Args) -> Result<()> {
    let kinds = if args.policy.is_empty() { Kind::value_variants() } else { &args.policy };
    // Every trace is read before anything is printed: a bad one is an error, not half of an answer.
    let traces = args.traces.iter().map(|path| Ok((path.display().to_string(), Trace::read(path)?)));
    let traces = traces.collect::<Result<Vec<_>>>()?;
    let mut cases = Vec::new();
    for (name, trace) in &traces {
        for slots in args.slots(trace)? {
            cases.push(case(name, trace, slots, kinds));
        }
    }
    let mut out = Output::stdout();
    match args.output {
        Format::Json => {
            serde_json::to_writer(&mut out, &serde_json::json!({ "cases": cases }))?;
            writeln!(out)?;
        }
        Format::Table => cases.iter().try_for_each(|case| print(case, &mut out))?,
    }
    Ok(out.flush()?)
}

impl Args {
    fn slots(&self, trace: &Trace) -> Result<Vec<usize>> {
        let members = trace.members();
        let of_share = |share: &f64| ((members as f64 * share).round() as usize).max(1);
        if let Some(&slots) = self.slots.iter().find(|&&slots| slots as usize > members) {
            bail!(Usage(format!("--slots {slots}: the trace's model has only {members} experts")));
        }
        Ok(match (self.slots.is_empty(), self.residency.is_empty()) {
            (false, _) => self.slots.iter().map(|&slots| slots as usize).collect(),
            (true, false) => self.residency.iter().map(of_share).collect(),
            (true, true) => {
                let half = (trace.token_cycle() / 2).max(1);
                std::iter::once(half).chain(SHARES.iter().map(of_share)).collect()
            }
        })
    }
}

fn case(name: &str, trace: &Trace, slots: usize, kinds: &[Kind]) -> Case {
    let lru = simulate(trace, slots, Kind::Lru);
    let optimum = simulate(trace, slots, Kind::Optimum);
    let line = |&kind: &Kind| {
        let outcome = match kind {
            Kind::Lru => lru,
            Kind::Optimum => optimum,
            _ => simulate(trace, slots, kind),
        };
        Line::new(kind, outcome, trace, optimum.hits - lru.hits, outcome.hits as f64 - lru.hits as f64)
    };
    Case {
        trace: name.to_owned(),
        layers: trace.layers,
        experts: trace.members(),
        tokens: trace.tokens,
        token_cycle: trace.token_cycle(),
        slots,
        residency: slots as f64 / trace.members() as f64,
        policies: kinds.iter().map(line).collect(),
    }
}

impl Line {
    /// `gap` and `gained` in hits: what the optimum and what this policy have beyond LRU.
    fn new(kind: Kind, outcome: Outcome, trace: &Trace, gap: usize, gained: f64) -> Line {
        let tokens = trace.tokens as f64;
        Line {
            policy: kind.name(),
            hit_rate: outcome.hit_rate(),
            misses_per_token: outcome.misses as f64 / tokens,
            gb_per_token: (!trace.expert_bytes.is_empty()).then(|| outcome.bytes as f64 / 1e9 / tokens),
            gap_closed: (gap > 0).then(|| gained / gap as f64),
        }
    }
}

fn print(case: &Case, out: &mut Output) -> std::io::Result<()> {
    let Case { trace, layers, experts, tokens, token_cycle, slots, .. } = case;
    let percent = 100.0 * case.residency;
    writeln!(out, "{trace}: {tokens} tokens, {layers} layers, {experts} experts, {token_cycle} a token")?;
    writeln!(out, "{slots} slots hold {percent:.1} %")?;
    writeln!(
        out,
        "  {:<9}{:>8}{:>14}{:>12}{:>12}",
        "policy", "hits", "misses/token", "GB/token", "gap closed"
    )?;
    for line in &case.policies {
        let gb = line.gb_per_token.map_or("-".to_owned(), |gb| format!("{gb:.3}"));
        let closed = line.gap_closed.map_or("-".to_owned(), |closed| format!("{:.1} %", 100.0 * closed));
        let (hits, misses) = (format!("{:.1} %", 100.0 * line.hit_rate), line.misses_per_token);
        writeln!(out, "  {:<9}{hits:>8}{misses:>14.1}{gb:>12}{closed:>12}", line.policy)?;
    }
    writeln!(out)
}
