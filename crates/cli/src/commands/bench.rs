//! `adit bench MODEL`: the work of llama-bench, so that its figures can be put side by side: a prompt of
//! random tokens, then single tokens, each several times and from an empty context or from one of some depth.
//! `adit bench --kernels` measures products alone instead, without a model.

mod kernels;
mod report;
mod streaming;

use std::io::Write;
use std::time::Instant;

use adit_engine::Stats;
use adit_model::{Blueprint, Model, Row};
use anyhow::Result;
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use crate::args::{MachineArgs, ModelArgs};
use crate::failure::Usage;
use crate::output::Output;
use crate::session;
use crate::size::ByteSize;
use crate::trace::{TraceArgs, Tracing};
use kernels::KernelArgs;
use streaming::{Counted, Streaming};

#[derive(clap::Args)]
#[command(override_usage = "adit bench [OPTIONS] MODEL\n       adit bench --kernels [OPTIONS]")]
pub struct Args {
    #[command(flatten)]
    model: Option<ModelArgs>,

    /// Measure products of each weight format alone, against the best that memory and arithmetic can do
    ///
    /// Weights come from memory, activations are quantised beforehand. Counted are bytes of weights, and two
    /// operations for each weight and row of activations. The two roofs are measured in the same run: memory
    /// is read between the repetitions, in the way that was the fastest, and for each format bytes or floats
    /// are multiplied and added in registers. The lower one at a product's intensity binds it. With -o json
    /// a list `results` has for each kind of product: isa, format, bits_per_weight, weight_rows, cols, rows,
    /// seconds (of one product), weight_bytes, ops, gb_per_s, memory_gb_per_s (roof), memory_share,
    /// gop_per_s, peak_gop_per_s (roof), peak_share, bound (memory, integers or floats), bound_share.
    #[arg(long, conflicts_with_all = MODEL_FLAGS)]
    kernels: bool,

    #[command(flatten)]
    kernel: KernelArgs,

    /// Tokens of the prompt; 0 leaves this test out
    #[arg(short, long, value_name = "N", default_value = "512")]
    #[arg(value_parser = value_parser!(u32).range(..=TOKENS_MAX))]
    prompt: u32,

    /// Tokens to generate; 0 leaves this test out
    #[arg(short = 'n', long, value_name = "N", default_value = "128")]
    #[arg(value_parser = value_parser!(u32).range(..=TOKENS_MAX))]
    generate: u32,

    /// Tokens that the context holds already when a test begins
    #[arg(short, long, value_name = "N", default_value = "0")]
    #[arg(value_parser = value_parser!(u32).range(..=TOKENS_MAX))]
    depth: u32,

    /// Repetitions [default: 3, with --kernels 5]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,

    /// How to print the results
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,

    #[command(flatten)]
    machine: MachineArgs,

    #[command(flatten)]
    trace: TraceArgs,
}

/// Flags that mean something with a model only.
const MODEL_FLAGS: [&str; 9] =
    ["model", "prompt", "generate", "depth", "memory", "kv", "io", "mirror", "trace"];

const TOKENS_MAX: i64 = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    /// With --kernels only: a table for a page, one line for each format and matrix
    Markdown,
}

/// One object for all that was measured. In the counters the rates are the medians of the samples, tokens
/// are those of one repetition, and reads, experts and times are of all repetitions without the warm-up.
#[derive(Serialize)]
struct Report {
    model: String,
    architecture: &'static str,
    model_bytes: u64,
    parameters: u64,
    threads: usize,
    /// Tokens in the context before each test.
    depth: u32,
    repetitions: u32,
    prefill_samples: Vec<f64>,
    decode_samples: Vec<f64>,
    /// Where a token's time went, what it read, at which pace; null where all experts are in memory.
    prefill_streaming: Option<Streaming>,
    decode_streaming: Option<Streaming>,
    #[serde(flatten)]
    stats: Stats,
}

pub fn run(args: Args) -> Result<()> {
    if args.kernels {
        let repetitions = args.repetitions.unwrap_or(5);
        return kernels::run(&args.kernel, args.machine.threads(), repetitions, args.output);
    }
    let Some(model) = &args.model else {
        return Err(Usage("there is nothing to measure; give a MODEL, or --kernels".into()).into());
    };
    if args.output == Format::Markdown {
        return Err(Usage("-o markdown goes with --kernels; for a model use table or json".into()).into());
    }
    let repetitions = args.repetitions.unwrap_or(3);
    let (longest, depth) = (args.prompt.max(args.generate) as usize, args.depth as usize);
    if longest == 0 {
        return Err(Usage("-p 0 and -n 0 together leave nothing to measure".into()).into());
    }
    args.trace.check()?;
    let context = depth + longest;
    let path = model.locate()?;
    let mut options = args.machine.load_options(Some(context), None);
    options.observer_bytes = args.trace.bytes();
    let blueprint = Blueprint::open(&path, &options.io)?;
    let model_bytes = blueprint.gguf.bytes();
    let parameters = blueprint.gguf.tensors().iter().map(|tensor| tensor.dims.iter().product::<u64>()).sum();
    let plan = blueprint.plan(&options.request(context))?;
    let route = streaming::route(&blueprint, &plan, args.rows(plan.chunk, repetitions));
    options.observer_bytes += route.as_ref().map_or(0, |route| route.bytes());
    let plan = blueprint.plan(&options.request(context))?;
    let mut model = session::load_model(blueprint, plan)?;
    let (tracing, observer) = args.trace.begin(&path, &model)?.unzip();
    streaming::watch(&mut model, route, observer);
    let rows = Vec::with_capacity(model.plan().chunk);
    let mut bench =
        Bench { rows, measured: Stats::default(), counted: Counted::default(), model, random: 1, depth };
    bench.fill(0, depth, false)?;
    bench.model.snapshot(0);
    bench.measured = Stats::of_model(&bench.model);
    let prefill_samples = bench.repeat(repetitions, args.prompt, Bench::prefill)?;
    let prefill = std::mem::take(&mut bench.counted);
    let decode_samples = bench.repeat(repetitions, args.generate, Bench::decode)?;
    let tests = [prefill, std::mem::take(&mut bench.counted)];
    let tests = streaming::tell(&mut bench.model, tests);
    let mut stats = bench.measured;
    stats.prompt_tokens = args.prompt.into();
    stats.generated_tokens = args.generate.into();
    stats.prefill_tok_per_s = median(&prefill_samples);
    stats.decode_tok_per_s = median(&decode_samples);
    let mut report = Report {
        model: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        architecture: bench.model.config().family.architecture,
        model_bytes,
        parameters,
        threads: bench.model.plan().threads,
        depth: args.depth,
        repetitions,
        prefill_samples,
        decode_samples,
        prefill_streaming: None,
        decode_streaming: None,
        stats,
    };
    // The disk alone, when the model has let go of it and of its memory.
    drop(bench);
    [report.prefill_streaming, report.decode_streaming] =
        streaming::against_disk(&path, &options.io.kind, tests);
    report.print(args.output)?;
    tracing.map_or(Ok(()), Tracing::end)
}

impl Args {
    /// Rows of all steps, in order.
    fn rows(&self, chunk: usize, repetitions: u32) -> impl Iterator<Item = usize> {
        let times = repetitions as usize + 1;
        let depth = streaming::rows(self.depth as usize, chunk, 1);
        let prompt = streaming::rows(self.prompt as usize, chunk, times);
        depth.chain(prompt).chain(streaming::rows(self.generate as usize, 1, times))
    }
}

struct Bench {
    model: Model,
    rows: Vec<Row>,
    random: u64,
    /// Tokens that the context holds before each test.
    depth: usize,
    /// Counters of the repetitions so far.
    measured: Stats,
    /// Counters of the last test alone.
    counted: Counted,
}

impl Bench {
    /// Rates of `repetitions` runs after one that warms up and is not counted; none for a test of no tokens.
    fn repeat(
        &mut self,
        repetitions: u32,
        tokens: u32,
        run: impl Fn(&mut Bench, usize) -> Result<f64>,
    ) -> Result<Vec<f64>> {
        self.counted = Counted::default();
        if tokens == 0 {
            return Ok(Vec::new());
        }
        run(self, tokens as usize)?;
        let before = Stats::of_model(&self.model);
        let first_step = self.model.step_stats().steps as usize;
        let samples = (0..repetitions).map(|_| run(self, tokens as usize)).collect();
        let after = Stats::of_model(&self.model);
        self.counted = Counted {
            steps: first_step..self.model.step_stats().steps as usize,
            tokens: u64::from(repetitions) * u64::from(tokens),
            before,
            after,
        };
        // Less what was counted since the earlier tests' repetitions and before these.
        let (earlier, mut sum) = (self.measured, after);
        sum.bytes_read -= before.bytes_read - earlier.bytes_read;
        sum.expert_hits -= before.expert_hits - earlier.expert_hits;
        sum.expert_misses -= before.expert_misses - earlier.expert_misses;
        sum.io_wait_s -= before.io_wait_s - earlier.io_wait_s;
        sum.disk_busy_s -= before.disk_busy_s - earlier.disk_busy_s;
        sum.compute_s -= before.compute_s - earlier.compute_s;
        self.measured = sum;
        samples
    }

    /// Tokens a second of a prompt; only its last position gives logits.
    fn prefill(&mut self, tokens: usize) -> Result<f64> {
        self.go_back()?;
        let start = Instant::now();
        self.fill(self.depth, self.depth + tokens, true)?;
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    }

    /// The context holds its `depth` tokens again; of a state without a snapshot they are computed anew.
    fn go_back(&mut self) -> Result<()> {
        let held = self.model.truncate(0, self.depth);
        self.fill(held, self.depth, false)
    }

    /// Computes positions `first..end` in chunks.
    fn fill(&mut self, first: usize, end: usize, wants_logits: bool) -> Result<()> {
        let chunk = self.model.plan().chunk;
        for first in (first..end).step_by(chunk) {
            let next = (first + chunk).min(end);
            self.step(first, next, wants_logits && next == end)?;
        }
        Ok(())
    }

    /// Tokens a second one by one, each with logits.
    fn decode(&mut self, tokens: usize) -> Result<f64> {
        self.go_back()?;
        let start = Instant::now();
        for position in self.depth..self.depth + tokens {
            self.step(position, position + 1, true)?;
        }
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    }

    fn step(&mut self, first: usize, end: usize, wants_logits: bool) -> Result<()> {
        self.rows.clear();
        for position in first..end {
            let token = self.random_token();
            let wants_logits = wants_logits && position + 1 == end;
            self.rows.push(Row { lane: 0, token, position, wants_logits });
        }
        Ok(self.model.step(&self.rows, &mut |_, _| {})?)
    }

    /// The multiplicative congruential generator of L'Ecuyer (1999), table 4: same tokens on every machine.
    fn random_token(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_181_783_497_276_652_981);
        ((self.random >> 33) % self.model.config().vocabulary as u64) as u32
    }
}

impl Report {
    fn print(&self, format: Format) -> Result<()> {
        let mut out = Output::stdout();
        match format {
            Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(self)?)?,
            Format::Table | Format::Markdown => self.print_table(&mut out)?,
        }
        Ok(out.flush()?)
    }

    fn print_table(&self, out: &mut Output) -> std::io::Result<()> {
        writeln!(out, "| model | size | params | threads | test | t/s |")?;
        writeln!(out, "| --- | ---: | ---: | ---: | ---: | ---: |")?;
        let size = ByteSize(self.model_bytes);
        let parameters = format!("{:.2} M", self.parameters as f64 / 1e6);
        let tests = [
            ("pp", self.stats.prompt_tokens, &self.prefill_samples),
            ("tg", self.stats.generated_tokens, &self.decode_samples),
        ];
        for (test, tokens, samples) in tests.into_iter().filter(|(_, tokens, _)| *tokens > 0) {
            let rate = format!("{:.2} ± {:.2}", median(samples), deviation(samples));
            let (model, threads) = (&self.model, self.threads);
            let at = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
            writeln!(out, "| {model} | {size} | {parameters} | {threads} | {test}{tokens}{at} | {rate} |")?;
        }
        for (test, streaming) in [("pp", self.prefill_streaming), ("tg", self.decode_streaming)] {
            streaming.map_or(Ok(()), |streaming| streaming.print(test, out))?;
        }
        Ok(())
    }
}

/// The middle of the samples; 0 for none.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Standard deviation of the samples; 0 for a single one.
fn deviation(samples: &[f64]) -> f64 {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    if samples.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(deviation(&[5.0]), 0.0);
        assert_eq!(deviation(&[1.0, 3.0]), 2f64.sqrt());
    }
}
