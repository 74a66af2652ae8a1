//! `adit logits MODEL --tokens 1,7,33 -o FILE.f32`: the raw logits at every position, for comparing with
//! other programs. Needs no vocabulary: tokens are numbers.

use std::io::Write;
use std::path::PathBuf;

use adit_model::{Blueprint, Model, Row};
use anyhow::{Context, Result};
use clap::value_parser;

use crate::args::{MachineArgs, ModelArgs};
use crate::failure::Usage;
use crate::progress::{Progress, note};
use crate::session;
use crate::whole_file;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Token numbers, like 1,7,33
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,

    /// Compute N positions at a time [default: what memory allows]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    chunk: Option<u64>,

    /// Little-endian float32, one row of the vocabulary's length for each token
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    machine: MachineArgs,
}

pub fn run(args: Args) -> Result<()> {
    let context = args.tokens.len();
    // A longer chunk than there are tokens would only take memory.
    let chunk = args.chunk.map(|chunk| chunk.min(context as u64) as usize);
    let options = args.machine.load_options(Some(context), chunk);
    let blueprint = Blueprint::open(&args.model.locate()?, &options.io)?;
    let vocabulary = blueprint.config.vocabulary;
    if let Some(token) = args.tokens.iter().find(|token| **token as usize >= vocabulary) {
        return Err(
            Usage(format!("--tokens: {token} is not below {vocabulary}, the vocabulary's size")).into()
        );
    }
    let plan = blueprint.plan(&options.request(context))?;
    let mut model = session::load_model(blueprint, plan)?;
    whole_file::write(&args.output, |out| compute(&mut model, &args.tokens, out))?;
    note(&format!("{context} rows of {vocabulary} logits in {}", args.output.display()));
    Ok(())
}

fn compute(model: &mut Model, tokens: &[u32], out: &mut impl Write) -> Result<()> {
    let chunk = model.plan().chunk;
    let bar = Progress::tokens("computing", tokens.len() as u64);
    let mut rows = Vec::with_capacity(chunk);
    for (index, part) in tokens.chunks(chunk).enumerate() {
        rows.clear();
        let positions = index * chunk..;
        rows.extend(part.iter().zip(positions).map(|(&token, position)| Row {
            lane: 0,
            token,
            position,
            wants_logits: true,
        }));
        let mut written = Ok(());
        model.step(&rows, &mut |_, logits| {
            if written.is_ok() {
                written = logits.iter().try_for_each(|logit| out.write_all(&logit.to_le_bytes()));
            }
        })?;
        written.context("the disk refused a row")?;
        bar.set((index * chunk + part.len()) as u64);
    }
    Ok(())
}
