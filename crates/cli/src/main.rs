//! The binary `adit`: argv -> [`Cli`] -> one command -> exit code. Each command is one file in `commands`;
//! what several share (sizes, stdout, the model cache) lies beside it. Knows nothing of tensors.

mod args;
mod chat;
mod commands;
mod failure;
mod heat;
mod interrupt;
mod output;
mod probes;
mod progress;
mod pull;
mod session;
mod simulation;
mod size;
mod trace;
mod whole_file;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// Runs open language models that are larger than memory.
#[derive(Parser)]
#[command(name = "adit", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    let asked = adit_kernels::Isa::from_environment().map_err(|why| failure::Usage(why).into());
    match asked.and_then(|_| cli.command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
