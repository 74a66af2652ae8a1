//! `adit pull REF`: brings a model into the cache folder. stdout holds the path and nothing else, so that
//! scripts can use it; what happened on the way goes to stderr.

use std::io::Write;

use anyhow::Result;

use crate::args::REFERENCE_HELP;
use crate::output::Output;
use crate::pull::{self, Digest};

#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "REF", help = REFERENCE_HELP)]
    reference: String,

    /// The SHA-256 that the file must have, 64 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    sha256: Option<Digest>,
}

pub fn run(args: Args) -> Result<()> {
    let path = pull::pull(&args.reference, args.sha256)?;
    let mut out = Output::stdout();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}
