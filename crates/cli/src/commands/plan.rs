//! `adit plan MODEL --memory SIZE`: where the memory would go, term by term, and what speed the disk allows.
//! Reads the file's header, and for a model with experts some of them, to measure the disk.

use std::io::Write;
use std::time::{Duration, Instant};

use adit_engine::Tokenizer;
use adit_format::Gguf;
use adit_model::{Blueprint, Bytes, Plan};
use adit_pager::{FileSet, IoKind, Pager, PagerError};
use anyhow::Result;

use crate::args::{ContextArgs, MachineArgs, ModelArgs};
use crate::output::Output;
use crate::size::ByteSize;

/// Long enough for a disk to show its pace, short enough to wait for.
const MEASURE_TIME: Duration = Duration::from_millis(500);
const MEASURE_BYTES_MAX: u64 = 1 << 30;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    machine: MachineArgs,

    #[command(flatten)]
    context: ContextArgs,
}

pub fn run(args: Args) -> Result<()> {
    let options = args.machine.load_options(args.context.tokens(), None);
    let gguf = Gguf::open(&args.model.locate()?)?;
    // Whoever runs the model keeps its vocabulary, so the sum must count it; a file without one can be
    // planned all the same.
    let _vocabulary = Tokenizer::from_metadata(gguf.metadata());
    let blueprint = Blueprint::from_gguf(gguf, &options.io)?;
    args.context.tell_if_beyond(blueprint.config.context_trained);
    let plan = blueprint.plan(&options.request(blueprint.config.context_trained))?;
    let mut out = Output::stdout();
    print_sum(&plan, &mut out)?;
    if plan.experts > 0 {
        print_slots(&plan, &mut out)?;
        out.flush()?;
        let disk = Disk::measure(&blueprint, &plan, &options.io)?;
        print_speed(&blueprint, &plan, &disk, &mut out)?;
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
    bytes_per_s: f64,
    backend: &'static str,
    is_direct: bool,
}

impl Disk {
    fn measure(blueprint: &Blueprint, plan: &Plan, io: &IoKind) -> Result<Disk> {
        let paths: Vec<_> = blueprint.gguf.parts().iter().map(|part| part.path.clone()).collect();
        let files = FileSet::open(&paths, io)?;
        let (backend, is_direct) = (files.backend(), files.is_direct());
        let groups = blueprint.weights.groups.clone();
        let members: Vec<u32> = groups.iter().map(|group| group.members).collect();
        let batch = plan.token_cycle / groups.len();
        let mut pager = Pager::new(files, groups, batch)?;
        let start = Instant::now();
        let mut visits = 0;
        while start.elapsed() < MEASURE_TIME && pager.stats().bytes_read < MEASURE_BYTES_MAX {
            // Far apart in the file and never twice in a row, so that no cache can help.
            let group = visits * 7 % members.len();
            let wanted = (0..batch as u32).map(|nth| (visits as u32 * 13 + nth) % members[group]);
            let wanted: Vec<u32> = wanted.collect();
            pager.stream(group, &wanted, |_, _| Ok::<(), PagerError>(()))?;
            visits += 1;
        }
        let bytes_per_s = pager.stats().bytes_read as f64 / start.elapsed().as_secs_f64();
        Ok(Disk { bytes_per_s, backend, is_direct })
    }
}

fn print_speed(blueprint: &Blueprint, plan: &Plan, disk: &Disk, out: &mut Output) -> std::io::Result<()> {
    let cycle_bytes = blueprint.expert_bytes() as f64 / plan.experts as f64 * plan.token_cycle as f64;
    let how = if disk.is_direct { "past the page cache" } else { "through the page cache" };
    writeln!(
        out,
        "disk: {}/s in reads of one expert ({}, {how})",
        ByteSize(disk.bytes_per_s as u64),
        disk.backend
    )?;
    if plan.slots >= plan.experts {
        return writeln!(
            out,
            "speed: every expert stays in memory, so the disk does not matter after the first use"
        );
    }
    // Uniform routing is the worst case: a token finds in memory what share of the experts is there.
    let uniform = cycle_bytes * (1.0 - plan.slots as f64 / plan.experts as f64);
    let speed = |bytes: f64| disk.bytes_per_s / bytes;
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
