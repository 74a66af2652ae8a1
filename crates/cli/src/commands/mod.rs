//! The commands, one file each: its flags, and what it does with them.

mod forge;
mod info;
mod pull;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Make one model out of another
    Forge(forge::Args),
    /// Show what a model file holds
    Info(info::Args),
    /// Bring a model into the cache folder and print its path
    Pull(pull::Args),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Forge(args) => forge::run(args),
            Command::Info(args) => info::run(args),
            Command::Pull(args) => pull::run(args),
        }
    }
}
