//! Flags that several commands share: each flag's name, its help and its effect stand together here.

use std::path::PathBuf;
use std::thread::available_parallelism;

use adit_model::{IoKind, KvFormat, Request};
use anyhow::Result;
use clap::ValueEnum;

use crate::pull;
use crate::size::ByteSize;

/// What a model may be called, wherever one is asked for.
pub const REFERENCE_HELP: &str = "A GGUF file (of a split model its first part), an alias (smollm2, \
    gemma3-270m), hf:OWNER/REPO/FILE or an http(s) URL";

/// More workers than any machine has cores for are a slip of the finger.
const THREADS_MAX: u64 = 4096;
/// The longest context that any model is trained for, with room.
const CONTEXT_MAX: u64 = 1 << 26;

/// Fits most conversations and small machines.
const CONTEXT_USUAL: usize = 4096;

/// The model that a command works on.
#[derive(clap::Args)]
pub struct ModelArgs {
    #[arg(value_name = "MODEL", help = REFERENCE_HELP)]
    model: String,
}

impl ModelArgs {
    /// Its file, pulled into the cache folder first if it is not on this machine.
    pub fn locate(&self) -> Result<PathBuf> {
        pull::locate(&self.model)
    }
}

/// What of the machine a model may use.
#[derive(clap::Args)]
pub struct MachineArgs {
    /// Memory for the whole process, like 1500M or 6GiB [default: what fits without swapping]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,

    /// Worker threads [default: as many as this process may use]
    #[arg(short, long, value_name = "THREADS", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,

    /// How keys and values are kept
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: Kv,

    /// How files are read, for comparing and testing
    #[arg(long, value_name = "KIND", default_value = "auto", hide = true)]
    io: Io,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kv {
    F16,
    F32,
    #[value(name = "q8_0")]
    Q8,
}

#[derive(Clone, Copy, ValueEnum)]
enum Io {
    Auto,
    Uring,
    Plain,
}

impl MachineArgs {
    /// What to plan for one lane of `context` tokens; without a `chunk` the plan chooses.
    pub fn request(&self, context: usize, chunk: Option<usize>) -> Request {
        let threads = self.threads.map(|threads| threads as usize);
        Request {
            memory: self.memory.map(|size| size.0),
            context,
            lanes: 1,
            threads: threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from)),
            kv: match self.kv {
                Kv::F16 => KvFormat::F16,
                Kv::F32 => KvFormat::F32,
                Kv::Q8 => KvFormat::Q8_0,
            },
            chunk,
        }
    }

    pub fn io(&self) -> IoKind {
        match self.io {
            Io::Auto => IoKind::Auto,
            Io::Uring => IoKind::Uring,
            Io::Plain => IoKind::Plain,
        }
    }
}

/// How long a conversation may become.
#[derive(clap::Args)]
pub struct ContextArgs {
    /// Context length in tokens [default: the model's own, at most 4096]
    #[arg(short, long = "ctx", value_name = "CTX", value_parser = clap::value_parser!(u64).range(1..=CONTEXT_MAX))]
    ctx: Option<u64>,
}

impl ContextArgs {
    /// What was asked for, or what a model trained on `trained` tokens usually gets.
    pub fn or_usual(&self, trained: usize) -> usize {
        self.ctx.map_or(trained.min(CONTEXT_USUAL), |tokens| tokens as usize)
    }
}
