//! Flags that several commands share: each flag's name, its help and its effect stand together here.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use adit_engine::{GUESSES_MAX, LoadOptions, SamplerOptions, SpeculationOptions, THREADS_MAX, When};
use adit_model::{IoKind, IoOptions, KvFormat, Scout, ScoutSet};
use anyhow::{Context, Result, bail};
use clap::{ValueEnum, value_parser};

use crate::failure::Usage;
use crate::probes;
use crate::progress::note;
use crate::pull;
use crate::size::ByteSize;

/// What a model may be called, wherever one is asked for.
pub const REFERENCE_HELP: &str = "A GGUF file (of a split model its first part), an alias (smollm2, \
    gemma3-270m), hf:OWNER/REPO/FILE or an http(s) URL";

/// The longest context that any model is trained for, with room.
const CONTEXT_MAX: u64 = 1 << 26;

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

/// A text, written on the command line or in a file.
#[derive(clap::Args)]
pub struct TextArgs {
    /// The text itself
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// A file that holds the text; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl TextArgs {
    pub fn given(&self) -> Result<Option<String>> {
        match (&self.prompt, &self.file) {
            (Some(text), _) => Ok(Some(text.clone())),
            (None, Some(path)) => read_text(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    pub fn required(&self) -> Result<String> {
        Ok(self.given()?.ok_or_else(|| Usage("there is no text; give -p TEXT or -f FILE".into()))?)
    }
}

/// More than any context holds or anybody waits for; a device that never ends stops here.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// A whole text file, or standard input for `-`.
pub fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text),
        _ => {
            std::fs::File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text))
        }
    };
    read.with_context(|| format!("cannot read {} as text", path.display()))?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        bail!("{} has more than {}, the longest text that is read", path.display(), ByteSize(TEXT_BYTES_MAX));
    }
    Ok(text)
}

/// What of the machine a model may use.
#[derive(clap::Args)]
pub struct MachineArgs {
    /// Memory for the whole process, like 1500M or 6GiB [default: what fits without swapping]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,

    /// Worker threads [default: as many as this process may use]
    #[arg(short, long, value_name = "THREADS")]
    #[arg(value_parser = value_parser!(u64).range(1..=THREADS_MAX as u64), allow_negative_numbers = true)]
    threads: Option<u64>,

    /// How keys and values are kept
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: Kv,

    /// Who may have experts read before they are needed: all, none, or of next (the next layer's gate), next2
    /// (the one after it) and token (what a token used before) some, with commas
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = scouts)]
    scouts: ScoutSet,

    /// How files are read: auto as `adit probe` found best, buffered where direct reads are slow
    #[arg(long, value_name = "KIND", default_value = "auto")]
    io: Io,

    /// First file of a copy of the model on another disk, to read from as well (repeatable)
    #[arg(long, value_name = "PATH")]
    mirror: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kv {
    F16,
    Bf16,
    F32,
    #[value(name = "q8_0")]
    Q8,
}

#[derive(Clone, Copy, ValueEnum)]
enum Io {
    Auto,
    /// io_uring or an error
    Uring,
    /// Plain positioned reads
    Plain,
    /// Through the page cache
    Buffered,
}

impl MachineArgs {
    pub fn threads(&self) -> usize {
        self.threads.map_or(LoadOptions::default().threads, |threads| threads as usize)
    }

    /// `context` and `chunk` in tokens; `None` leaves them to the engine.
    pub fn load_options(&self, context: Option<usize>, chunk: Option<usize>) -> LoadOptions {
        LoadOptions {
            memory: self.memory.map(|size| size.0),
            context,
            threads: self.threads(),
            kv: match self.kv {
                Kv::F16 => KvFormat::F16,
                Kv::Bf16 => KvFormat::Bf16,
                Kv::F32 => KvFormat::F32,
                Kv::Q8 => KvFormat::Q8_0,
            },
            chunk,
            speculation: SpeculationOptions::off(),
            scouts: self.scouts,
            io: IoOptions {
                kind: match self.io {
                    Io::Auto | Io::Buffered => IoKind::Auto,
                    Io::Uring => IoKind::Uring,
                    Io::Plain => IoKind::Plain,
                },
                disks: probes::known().into_iter().map(|probe| (probe.device, probe.choice())).collect(),
                direct: matches!(self.io, Io::Buffered).then_some(false),
                mirrors: self.mirror.clone(),
                ..IoOptions::default()
            },
            observer_bytes: 0,
        }
    }
}

/// Which guesses at the next tokens are made. All are verified: the answer is the same with and without.
#[derive(clap::Args)]
pub struct SpeculationArgs {
    /// A small model with the same vocabulary that guesses the next tokens, within the same memory
    ///
    /// It is used while that gains time, and switched off for a while when it does not.
    #[arg(long, visible_alias = "model-draft", value_name = "MODEL", conflicts_with = "trace")]
    draft: Option<String>,

    /// Guess what followed earlier in prompt and answer: auto while that gains time, on always, or off
    /// (as it is with --trace)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    lookup: Lookup,

    /// Tokens guessed for one step at most
    #[arg(long, value_name = "N", default_value_t = GUESSES_MAX as u64)]
    #[arg(value_parser = value_parser!(u64).range(1..=GUESSES_MAX as u64), allow_negative_numbers = true)]
    draft_max: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Lookup {
    On,
    Off,
    Auto,
}

impl SpeculationArgs {
    /// The options, the draft model being pulled first if it is not on this machine.
    pub fn options(&self) -> Result<SpeculationOptions> {
        Ok(SpeculationOptions {
            lookup: match self.lookup {
                Lookup::On => When::Always,
                Lookup::Off => When::Never,
                Lookup::Auto => When::Auto,
            },
            draft: self.draft.as_deref().map(pull::locate).transpose()?,
            draft_when: When::Auto,
            guesses_max: self.draft_max as usize,
        })
    }
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    let valid = |value: &f64| *value > 0.0 && *value <= 1e9;
    text.parse().ok().filter(valid).ok_or_else(|| "a number above 0 is needed".to_owned())
}

/// What a disk reads in 10^9 bytes a second: `3.7`, or `3.7GB/s`.
pub fn gb_per_s(text: &str) -> Result<f64, String> {
    positive(text.strip_suffix("GB/s").unwrap_or(text).trim_end())
}

fn scouts(text: &str) -> Result<ScoutSet, String> {
    match text {
        "all" => return Ok(ScoutSet::ALL),
        "none" => return Ok(ScoutSet::NONE),
        _ => {}
    }
    text.split(',').try_fold(ScoutSet::NONE, |set, name| {
        let scout = Scout::ALL.into_iter().find(|scout| scout.name() == name);
        let scout =
            scout.ok_or_else(|| "a list of next, next2 and token is needed, or all, or none".to_owned())?;
        Ok(set.with(scout))
    })
}

/// How long a conversation may become.
#[derive(clap::Args)]
pub struct ContextArgs {
    /// Context length in tokens [default: the model's own, at most 4096]
    #[arg(short, long = "ctx", value_name = "CTX")]
    #[arg(value_parser = value_parser!(u64).range(1..=CONTEXT_MAX), allow_negative_numbers = true)]
    ctx: Option<u64>,
}

impl ContextArgs {
    pub fn tokens(&self) -> Option<usize> {
        self.ctx.map(|tokens| tokens as usize)
    }

    /// Tells of a context that was asked for and is longer than what the model was trained for. It is
    /// allowed: some models bear a little more.
    pub fn tell_if_beyond(&self, trained: usize) {
        if let Some(asked) = self.tokens().filter(|asked| *asked > trained) {
            note(&format!(
                "-c {asked} is longer than the {trained} tokens this model was trained for: answers may \
                 degrade beyond them"
            ));
        }
    }
}

/// How long an answer may become.
#[derive(clap::Args)]
pub struct LengthArgs {
    /// Tokens of an answer at most, -1 for no limit [default: until the model ends or the context is full]
    #[arg(short = 'n', long, value_name = "N", value_parser = length, allow_negative_numbers = true)]
    tokens: Option<usize>,
}

impl LengthArgs {
    pub fn tokens_max(&self) -> usize {
        self.tokens.unwrap_or(usize::MAX)
    }
}

/// How the next token is chosen.
#[derive(clap::Args)]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = temperature)]
    #[arg(allow_negative_numbers = true)]
    temp: f32,

    /// Choose among the K likeliest tokens; 0 for all
    #[arg(long, value_name = "K", default_value = "40", value_parser = whole::<u32>)]
    #[arg(allow_negative_numbers = true)]
    top_k: u32,

    /// Choose among the likeliest tokens that together reach probability P
    #[arg(long, value_name = "P", default_value = "0.95", value_parser = probability)]
    #[arg(allow_negative_numbers = true)]
    top_p: f32,

    /// Leave out tokens less likely than P times the likeliest
    #[arg(long, value_name = "P", default_value = "0.05", value_parser = probability)]
    #[arg(allow_negative_numbers = true)]
    min_p: f32,

    /// The same seed gives the same answer [default: another one each time]
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
}

impl SamplingArgs {
    pub fn options(&self) -> SamplerOptions {
        SamplerOptions {
            temperature: self.temp,
            top_k: self.top_k as usize,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed.unwrap_or_else(unlike_last_time),
        }
    }
}

/// A seed nobody chose: the clock is enough to make two runs differ.
fn unlike_last_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// llama.cpp writes "no limit" as -1, and so do many scripts.
fn length(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "a length is a whole number of tokens, or -1 for no limit".to_owned()),
    }
}

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to 2^{} - 1 is needed", 8 * size_of::<T>()))
}

fn temperature(text: &str) -> Result<f32, String> {
    let valid = |value: &f32| (0.0..=100.0).contains(value);
    text.parse().ok().filter(valid).ok_or_else(|| "a temperature is a number from 0 to 100".to_owned())
}

fn probability(text: &str) -> Result<f32, String> {
    let valid = |value: &f32| (0.0..=1.0).contains(value);
    text.parse().ok().filter(valid).ok_or_else(|| "a probability is a number from 0 to 1".to_owned())
}
