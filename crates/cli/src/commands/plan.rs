//! `adit plan MODEL --memory SIZE`: where the memory would go, term by term, and what speed the disk allows.
//! Reads the file's header, and for a model with experts some of them, to measure the disk.

use std::io::Write;
use std::time::{Duration, Instant};

use adit_engine::Tokenizer;
use adit_format::Gguf;
use adit_model::{Blueprint, Bytes, Plan};
use adit_pager::{FileSet, Group, IoOptions, Pager, PagerError};
use anyhow::Result;

use crate::args::{ContextArgs, MachineArgs, ModelArgs};
use crate::output::Output;
use crate::probes;
use crate::pull;
use crate::size::ByteSize;

/// Long enough for a disk to show its pace, short enough to wait for.
const MEASURE_TIME: Duration = Duration::from_millis(500);
const MEASURE_BYTES_MAX: u64 = 1 << 30;
/// A prompt asks for nearly all experts of a layer together; with more than this a disk gives no more.
const PROMPT_EXPERTS: usize = 16;
/// Larger experts keep a disk busy by themselves.
const PROMPT_BYTES_MAX: u64 = 64 << 20;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    machine: MachineArgs,

    #[command(flatten)]
    context: ContextArgs,

    /// A draft model that shall run beside it, as for adit run
    #[arg(long, visible_alias = "model-draft", value_name = "MODEL")]
    draft: Option<String>,
}

pub fn run(args: Args) -> Result<()> {
    let mut options = args.machine.load_options(args.context.tokens(), None);
    options.speculation.draft = args.draft.as_deref().map(pull::locate).transpose()?;
    let path = args.model.locate()?;
    let gguf = Gguf::open(&path)?;
    // Whoever runs the model keeps its vocabulary, so the sum must count it; a file without one can be
    // planned all the same.
    let _vocabulary = Tokenizer::from_metadata(gguf.metadata());
    let blueprint = Blueprint::from_gguf(gguf, &options.io)?;
    args.context.tell_if_beyond(blueprint.config.context_trained);
    let metadata = blueprint.gguf.metadata();
    let (request, _) = options.request_with_draft(metadata, blueprint.config.context_trained)?;
    let plan = blueprint.plan(&request)?;
    let mut out = Output::stdout();
    print_sum(&plan, &mut out)?;
    if plan.experts > 0 {
        print_slots(&plan, &mut out)?;
        out.flush()?;
        let disk = Disk::measure(&blueprint, &plan, &options.io)?;
        print_speed(&blueprint, &plan, &disk, &mut out)?;
        if let Some(probe) = probes::of_path(&path) {
            writeln!(out, "probed {}: {probe}", probe.age())?;
        }
    }
    Ok(out.flush()?)
}

fn print_sum(plan: &Plan, out: &mut Output) -> std::io::Result<()> {
    for term in &plan.terms {
        writeln!(out, "{:<10}{:>12}  {}", term.name, Bytes(term.bytes).to_string(), term.reason)?;
    }
    writeln!(out, "{:<10}{:>12}", "sum", Bytes(plan.total_bytes()).to_string())?;
    writeln!(out, "{:<10}{:>12}  {}", "budget", Bytes(plan.budget).to_string(), plan.budget_source)
}

fn print_slots(plan: &Plan, out: &mut Output) -> std::io::Result<()> {
    let cycles = plan.slots as f64 / plan.token_cycle as f64;
    writeln!(
        out,
        "\n{} slots hold {:.0} % of {} experts: {cycles:.1} token cycles of {} experts",
        plan.slots,
        percent(plan.slots, plan.experts),
        plan.experts,
        plan.token_cycle,
    )
}

/// What the disk that holds the experts gives, read as the engine reads them.
struct Disk {
    /// Experts that a token asks for together: those of one layer.
    token_experts: usize,
    token_bytes_per_s: f64,
    /// The same with more experts asked for together, as by a prompt; `None` where a token asks for as many.
    prompt: Option<(usize, f64)>,
    backend: &'static str,
    is_direct: bool,
}

impl Disk {
    fn measure(blueprint: &Blueprint, plan: &Plan, io: &IoOptions) -> Result<Disk> {
        let paths: Vec<_> = blueprint.gguf.parts().iter().map(|part| part.path.clone()).collect();
        let files = FileSet::open(&paths, io)?;
        let groups = &blueprint.weights.groups;
        let token_experts = plan.token_cycle / groups.len();
        // Half of a layer, so that two batches of one layer need not overlap; and no more than is planned.
        let half = groups.iter().map(|group| group.members as usize / 2).min().unwrap_or(0);
        let affordable = (PROMPT_BYTES_MAX / plan.slot_bytes) as usize;
        let many = PROMPT_EXPERTS.min(half).min(affordable).min(plan.slots);
        let prompt = match many > token_experts {
            true => Some((many, pace(&files, groups, many)?)),
            false => None,
        };
        Ok(Disk {
            token_experts,
            token_bytes_per_s: pace(&files, groups, token_experts)?,
            prompt,
            backend: files.backend(),
            is_direct: files.is_direct(),
        })
    }
}

/// Bytes a second, layer after layer as in a step, with `batch` experts of a layer asked for together.
fn pace(files: &FileSet, groups: &[Group], batch: usize) -> Result<f64, PagerError> {
    // With as many slots as a batch has experts, a batch finds nothing of the one before it.
    let mut pager = Pager::new(files.clone(), groups.to_vec(), batch)?;
    let mut wanted = Vec::with_capacity(batch);
    let mut read = |visit: usize| {
        let (cycle, group) = (visit / groups.len(), visit % groups.len());
        let members = groups[group].members as usize;
        let first = cycle * batch + group * 5; // Another place in each layer.
        wanted.clear();
        wanted.extend((first..first + batch).map(|nth| (nth % members) as u32));
        pager.stream(group, &wanted, |_| Ok::<(), PagerError>(()))?;
        Ok::<u64, PagerError>(pager.stats().bytes_read)
    };
    // The first batch meets a disk that slept and memory that was never touched.
    let before = read(0)?;
    let start = Instant::now();
    let mut visits = 1;
    loop {
        let bytes = read(visits)? - before;
        let elapsed = start.elapsed();
        if elapsed >= MEASURE_TIME || bytes >= MEASURE_BYTES_MAX {
            return Ok(bytes as f64 / elapsed.as_secs_f64());
        }
        visits += 1;
    }
}

fn print_speed(blueprint: &Blueprint, plan: &Plan, disk: &Disk, out: &mut Output) -> std::io::Result<()> {
    let cycle_bytes = blueprint.expert_bytes() as f64 / plan.experts as f64 * plan.token_cycle as f64;
    let how = if disk.is_direct { "past the page cache" } else { "through the page cache" };
    let rate = |bytes_per_s: f64| ByteSize(bytes_per_s as u64);
    write!(
        out,
        "disk: {}/s reading {} of a layer's experts at a time, as a token does",
        rate(disk.token_bytes_per_s),
        disk.token_experts
    )?;
    if let Some((experts, bytes_per_s)) = disk.prompt {
        write!(out, ",\n      {}/s reading {experts}, as a prompt does", rate(bytes_per_s))?;
    }
    writeln!(out, " ({}, {how})", disk.backend)?;
    if plan.slots >= plan.experts {
        return writeln!(
            out,
            "speed: every expert stays in memory, so the disk does not matter after the first use"
        );
    }
    // Uniform routing is the worst case: a token finds in memory what share of the experts is there.
    let uniform = cycle_bytes * (1.0 - plan.slots as f64 / plan.experts as f64);
    let speed = |bytes: f64| disk.token_bytes_per_s / bytes;
    let (uniform, mostly_hits) = (speed(uniform), speed(uniform.min(cycle_bytes * 0.1)));
    let cycle = ByteSize(cycle_bytes as u64);
    writeln!(
        out,
        "speed: a token uses {cycle} of experts, so the disk allows {uniform:.1} tok/s if routing is"
    )?;
    writeln!(out, "       uniform and {mostly_hits:.1} at a hit rate of 90 %, if arithmetic keeps up")
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}
