//! `adit demo`: a model several times larger than the memory it is given, on any machine. Pulls a small dense
//! model, makes a mixture of experts of it once, and talks with that within the budget.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use adit_engine::SamplerOptions;
use adit_format::writer::Existing;
use adit_foundry::Upcycle;
use anyhow::Result;

use super::forge;
use crate::args::MachineArgs;
use crate::chat::{self, Conversation, Manner, Screen};
use crate::progress::note;
use crate::pull::{self, cache_folder};
use crate::session;
use crate::size::ByteSize;

const DENSE_MODEL: &str = "smollm2";
/// Makes a file of 1.6 GB, five times the budget.
const EXPERTS: u32 = 32;
const TOP_K: u32 = 2;
const SEED: u64 = 1;
const BUDGET_BYTES: u64 = 320_000_000;
/// The shared flag's help names another default.
const MEMORY_HELP: &str = "Memory for the whole process, like 1500M or 6GiB [default: 320M]";
const CONTEXT_TOKENS: usize = 2048;
const QUESTION: &str = "Why is the sky blue?";
const ANSWER_TOKENS_MAX: usize = 400;

#[derive(clap::Args)]
#[command(mut_arg("memory", |memory| memory.help(MEMORY_HELP)))]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,

    /// Ask this one question instead of starting a conversation
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
}

pub fn run(args: Args) -> Result<()> {
    let dense = pull::locate(DENSE_MODEL)?;
    let path = mixture(&dense)?;
    let model_bytes = path.metadata()?.len();
    let mut options = args.machine.load_options(Some(CONTEXT_TOKENS), None);
    let budget = *options.memory.get_or_insert(BUDGET_BYTES);
    note(&format!(
        "{} ({}) is {:.1} times the budget of {}: its experts stay on the disk until a token needs them",
        path.display(),
        ByteSize(model_bytes),
        model_bytes as f64 / budget as f64,
        ByteSize(budget)
    ));
    let mut engine = session::load(&path, &options)?;
    let mut chat = Conversation::new(&engine, false)?;
    let manner = Manner { sampling: SamplerOptions::greedy(), tokens_max: ANSWER_TOKENS_MAX };
    let mut screen = Screen::stdout().with_figures(model_bytes);
    let question = args.prompt.or_else(|| (!io::stdin().is_terminal()).then(|| QUESTION.to_owned()));
    match question {
        Some(question) => {
            note(&format!("> {question}"));
            chat.ask(question);
            chat::answer(&mut engine, &mut chat, &manner, &mut screen)?;
        }
        None => {
            note(&format!("ask it something, for example: {QUESTION}"));
            chat::talk(&mut engine, &mut chat, manner, &mut screen)?;
        }
    }
    let stats = engine.stats();
    let (peak, budget) = (ByteSize(stats.peak_rss_bytes), ByteSize(stats.memory_budget_bytes));
    note(&format!("peak resident size {peak}, budget {budget}"));
    Ok(())
}

/// The mixture made of `dense`, from the cache folder if an earlier run made it. It appears there when it is
/// whole, so one that is there is good.
fn mixture(dense: &Path) -> Result<PathBuf> {
    let output =
        cache_folder()?.join("demo").join(format!("{DENSE_MODEL}-{EXPERTS}x{TOP_K}-seed{SEED}.gguf"));
    if output.is_file() {
        return Ok(output);
    }
    pull::make_parent(&output)?;
    note(&format!("making {EXPERTS} experts of each layer of {DENSE_MODEL}, once"));
    let existing = Existing::Replace;
    forge::make(&Upcycle {
        input: dense,
        output: &output,
        experts: EXPERTS,
        top_k: TOP_K,
        seed: SEED,
        existing,
    })?;
    Ok(output)
}
