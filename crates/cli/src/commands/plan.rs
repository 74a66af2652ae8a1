//! `adit plan MODEL --memory SIZE`: where the memory would go, term by term, and what speed the disk allows.
//! Reads the file's header; and for a model with experts some of them to measure the disk, unless its pace is
//! given or the file has holes where its weights should be.

mod disk;
mod report;
mod routes;

use std::io::Write;

use adit_engine::Tokenizer;
use adit_format::Gguf;
use adit_model::{Blueprint, Place};
use anyhow::Result;
use clap::ValueEnum;

use crate::args::{ContextArgs, MachineArgs, ModelArgs, gb_per_s, positive};
use crate::output::Output;
use crate::probes;
use crate::pull;
use disk::Disk;
use report::{DiskPace, Report};

/// Show where the memory would go, and what speed the disk allows
///
/// --memory may be more than this machine has: the sum is for whatever machine has it. A file needs no
/// weights for that: a header with a hole behind it is enough, such as
/// `head -c 30M MODEL > header.gguf; truncate -s SIZE_OF_MODEL header.gguf`.
///
/// Expected tok/s is 1 / max(disk, compute) for a token: reading its misses, or computing it, whichever takes
/// longer. `at least` is what remains if neither overlaps the other: 1 / (disk + compute).
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
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

    /// What the disk reads, in GB (10^9 bytes) a second, like 3.7 [default: as it is measured now]
    #[arg(long, value_name = "GB/s", value_parser = gb_per_s, allow_negative_numbers = true)]
    disk: Option<f64>,

    /// Milliseconds that a token takes with everything in memory [default: none]
    #[arg(long, value_name = "MS", value_parser = positive, allow_negative_numbers = true)]
    compute: Option<f64>,

    /// How the result is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
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
    let (request, _) = options.request_with_draft(metadata, blueprint.config.context_longest())?;
    let plan = blueprint.plan_for(&request, Place::Anywhere)?;
    let mut out = Output::stdout();
    let mut report = Report::new(&blueprint, &plan);
    let is_text = args.output == Format::Table;
    if is_text {
        report.print_sum(&mut out)?;
        // Measuring takes a while.
        out.flush()?;
    }
    if plan.experts > 0 {
        let pace = match args.disk {
            Some(gb_per_s) => DiskPace::Given(gb_per_s * 1e9),
            None if disk::is_hollow(&blueprint) => DiskPace::Unknown,
            None => DiskPace::Measured(Disk::measure(&blueprint, &plan, &options.io)?),
        };
        report.add_experts(&blueprint, &plan, &pace, args.compute.map(|ms| ms / 1e3));
        if is_text {
            report.print_experts(&pace, &mut out)?;
            if let (DiskPace::Measured(_), Some(probe)) = (&pace, probes::of_path(&path)) {
                writeln!(out, "probed {}: {probe}", probe.age())?;
            }
        }
    }
    if !is_text {
        report.print_json(&mut out)?;
    }
    Ok(out.flush()?)
}
