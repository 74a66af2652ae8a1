//! The commands, one file each: its flags, and what it does with them.

mod bench;
mod demo;
mod forge;
mod info;
mod logits;
mod pack;
mod perplexity;
mod plan;
mod probe;
mod pull;
mod run;
mod simulate;
mod tokenize;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Watch a model run that is five times larger than its memory
    Demo(demo::Args),
    /// Chat with a model, or get one answer
    Run(run::Args),
    /// Bring a model into the cache folder and print its path
    Pull(pull::Args),
    /// Show what a model file holds
    Info(info::Args),
    /// Show where the memory would go, and what speed the disk allows
    Plan(plan::Args),
    /// Measure a disk, and remember how it is read best
    Probe(probe::Args),
    /// Measure prefill and decoding, as llama-bench does
    Bench(bench::Args),
    /// Measure how well a model foresees a text, as llama-perplexity does
    Perplexity(perplexity::Args),
    /// Write the raw logits of some tokens to a file
    Logits(logits::Args),
    /// Print the token numbers of a text
    Tokenize(tokenize::Args),
    /// See what cache policies would do with recorded routes
    Simulate(simulate::Args),
    /// Write a model anew so that each expert is one read, or back
    Pack(pack::Args),
    /// Make one model out of another
    Forge(forge::Args),
}

impl Command {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Demo(args) => demo::run(args),
            Command::Run(args) => run::run(args),
            Command::Pull(args) => pull::run(args),
            Command::Info(args) => info::run(args),
            Command::Plan(args) => plan::run(args),
            Command::Probe(args) => probe::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Perplexity(args) => perplexity::run(args),
            Command::Logits(args) => logits::run(args),
            Command::Tokenize(args) => tokenize::run(args),
            Command::Simulate(args) => simulate::run(args),
            Command::Pack(args) => pack::run(args),
            Command::Forge(args) => forge::run(args),
        }
    }
}
