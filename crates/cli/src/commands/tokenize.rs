//! `adit tokenize MODEL -f FILE`: the token numbers of a text. Needs a file's vocabulary, not its weights.

use std::io::Write;

use adit_engine::Tokenizer;
use adit_format::Gguf;
use anyhow::Result;

use crate::args::{ModelArgs, TextArgs};
use crate::output::Output;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    text: TextArgs,

    /// Add the tokens that the model wants at the beginning and the end of a text
    #[arg(long)]
    add_special: bool,

    /// Read the names of control tokens in the text as those tokens
    #[arg(long)]
    parse_special: bool,
}

pub fn run(args: Args) -> Result<()> {
    let gguf = Gguf::open(&args.model.locate()?)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let text = args.text.required()?;
    let tokens = tokenizer.encode(&text, args.add_special, args.parse_special)?;
    let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let mut out = Output::stdout();
    writeln!(out, "{}", numbers.join(","))?;
    Ok(out.flush()?)
}
