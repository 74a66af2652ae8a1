//! The commands, one file each: its flags, and what it does with them.

mod info;
mod pull;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Show what a model file holds
    Info(info::Args),
    /// Bring a model into the cache folder and print its path
    Pull(pull::Args),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Info(args) => info::run(args),
            Command::Pull(args) => pull::run(args),
        }
    }
}
