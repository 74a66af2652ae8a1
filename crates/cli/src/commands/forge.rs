//! `adit forge RECIPE ...`: makes one model out of another.

use std::ops::ControlFlow;
use std::path::PathBuf;

use adit_format::FormatError;
use adit_format::writer::Existing;
use adit_foundry::{EXPERTS_MAX, FoundryError, Report, Upcycle, upcycle};
use anyhow::{Error, Result, anyhow};
use clap::{Subcommand, value_parser};

use crate::args::ModelArgs;
use crate::failure::Usage;
use crate::interrupt;
use crate::progress::{Progress, note};
use crate::size::ByteSize;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    recipe: Recipe,
}

#[derive(Subcommand)]
enum Recipe {
    /// Make a mixture of experts from a dense llama model: every expert a slightly changed copy
    Upcycle(UpcycleArgs),
}

#[derive(clap::Args)]
struct UpcycleArgs {
    #[command(flatten)]
    input: ModelArgs,

    /// The file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Experts in each layer
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = value_parser!(u32).range(2..=i64::from(EXPERTS_MAX)))]
    experts: u32,

    /// Experts that a token uses in each layer
    #[arg(long, value_name = "K", default_value = "2")]
    #[arg(value_parser = value_parser!(u32).range(1..))]
    top_k: u32,

    /// The same seed makes the same model
    #[arg(long, value_name = "SEED", default_value = "1")]
    seed: u64,

    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args) -> Result<()> {
    match args.recipe {
        Recipe::Upcycle(args) => run_upcycle(&args),
    }
}

fn run_upcycle(args: &UpcycleArgs) -> Result<()> {
    if args.top_k > args.experts {
        let UpcycleArgs { experts, top_k, .. } = args;
        return Err(Usage(format!("--top-k {top_k} is more than there are experts ({experts})")).into());
    }
    let input = args.input.locate()?;
    let job = Upcycle {
        input: &input,
        output: &args.output,
        experts: args.experts,
        top_k: args.top_k,
        seed: args.seed,
        existing: if args.force { Existing::Replace } else { Existing::Refuse },
    };
    let report = make(&job).map_err(name_the_flag)?;
    note(&format!(
        "{}: {}, {} layers x {} experts of {}, {} used by a token",
        args.output.display(),
        ByteSize(report.output_bytes),
        report.layers,
        report.experts,
        ByteSize(report.expert_bytes),
        report.top_k
    ));
    Ok(())
}

/// The foundry knows of no flags; who meets a file in the way wants to know the one that helps.
fn name_the_flag(error: Error) -> Error {
    match error.downcast_ref() {
        Some(FoundryError::Format(FormatError::Exists { path })) => {
            anyhow!("{}: already exists; --force replaces it, or choose another name", path.display())
        }
        _ => error,
    }
}

/// Makes the model with a bar; Ctrl-C leaves nothing behind.
pub fn make(job: &Upcycle<'_>) -> Result<Report> {
    interrupt::install()?;
    let mut bar: Option<Progress> = None;
    let report = interrupt::watched(|| {
        upcycle(job, &mut |done, total| {
            bar.get_or_insert_with(|| Progress::bytes("forging", Some(total))).set(done);
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    Ok(report?)
}
