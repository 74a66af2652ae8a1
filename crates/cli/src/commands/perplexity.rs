//! `adit perplexity MODEL -f FILE`: how well a model foresees a text, scored as llama.cpp's
//! `llama-perplexity` does, so that the two figures can be compared.
//!
//! The text is cut into chunks of `-c` tokens, each computed from an empty context, its first token replaced
//! by the begin token where the model has one. Only the second half of a chunk counts: before that the model
//! has seen too little. An incomplete last chunk is left out.

use std::io::Write;
use std::path::{Path, PathBuf};

use adit_engine::Tokenizer;
use adit_format::Gguf;
use anyhow::{Result, bail};
use clap::value_parser;

use crate::args::{MachineArgs, ModelArgs, read_text};
use crate::output::Output;
use crate::progress::Progress;
use crate::session;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// The text; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// Tokens in a chunk
    #[arg(short, long = "ctx", value_name = "CTX", default_value = "512")]
    #[arg(value_parser = value_parser!(u32).range(4..))]
    ctx: u32,

    #[command(flatten)]
    machine: MachineArgs,
}

pub fn run(args: Args) -> Result<()> {
    let chunk_tokens = args.ctx as usize;
    let model = args.model.locate()?;
    // Before the model is loaded: its plan then counts what a long text takes.
    let text = Text::read(&args.file, &model)?;
    let chunks = text.tokens.len() / chunk_tokens;
    if chunks == 0 {
        bail!(
            "the text has {} tokens, one chunk needs {chunk_tokens}; give a longer text or a smaller -c",
            text.tokens.len()
        );
    }
    let mut engine = session::load(&model, &args.machine.load_options(Some(chunk_tokens), None))?;
    let mut score = Score::default();
    let bar = Progress::tokens("scoring", (chunks * chunk_tokens) as u64);
    for (index, chunk) in text.tokens.chunks_exact(chunk_tokens).enumerate() {
        let mut seen = chunk.to_vec();
        seen[0] = text.begin.unwrap_or(seen[0]);
        engine.logits(&seen, chunk_tokens / 2..chunk_tokens - 1, &mut |position, logits| {
            score.add(logits, chunk[position + 1]);
        })?;
        bar.set(((index + 1) * chunk_tokens) as u64);
    }
    drop(bar);
    let (perplexity, uncertainty) = score.estimate();
    let mut out = Output::stdout();
    writeln!(out, "Final estimate: PPL = {perplexity:.4} +/- {uncertainty:.5}")?;
    Ok(out.flush()?)
}

/// What is to be scored.
struct Text {
    tokens: Vec<u32>,
    /// The token that each chunk begins with, whatever the text has there.
    begin: Option<u32>,
}

impl Text {
    fn read(file: &Path, model: &Path) -> Result<Text> {
        let mut text = read_text(file)?;
        // llama.cpp drops one line end behind the text of a file.
        if text.ends_with('\n') {
            text.pop();
        }
        let tokenizer = Tokenizer::from_metadata(Gguf::open(model)?.metadata())?;
        let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        Ok(Text { tokens: tokenizer.encode(&text, true, false)?, begin })
    }
}

/// Sums over the scored positions of the negative logarithm of the probability of what came.
#[derive(Default)]
struct Score {
    count: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Score {
    fn add(&mut self, logits: &[f32], came: u32) {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|logit| f64::from((logit - most).exp())).sum();
        let surprise = total.ln() - f64::from(logits[came as usize] - most);
        self.count += 1;
        self.sum += surprise;
        self.sum_of_squares += surprise * surprise;
    }

    /// The perplexity and its standard error.
    fn estimate(&self) -> (f64, f64) {
        let count = self.count as f64;
        let mean = self.sum / count;
        let variance = self.sum_of_squares / count - mean * mean;
        let error = if self.count > 1 { (variance.max(0.0) / (count - 1.0)).sqrt() } else { 0.0 };
        (mean.exp(), error * mean.exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_knows_nothing_has_the_vocabulary_as_perplexity() {
        let mut score = Score::default();
        for came in [0, 3, 9] {
            score.add(&[1.5; 10], came);
        }
        let (perplexity, error) = score.estimate();
        assert!((perplexity - 10.0).abs() < 1e-9 && error.abs() < 1e-6, "{perplexity} {error}");
    }

    #[test]
    fn the_error_follows_from_the_spread() {
        // Surprises ln 2 and ln 4: mean ln 2.83, and half of ln 2 to either side.
        let mut score = Score::default();
        score.add(&[0.0, 0.0], 0);
        score.add(&[0.0; 4], 0);
        let (perplexity, error) = score.estimate();
        let expected = 8f64.sqrt();
        assert!((perplexity - expected).abs() < 1e-9, "{perplexity}");
        assert!((error - 0.5 * 2f64.ln() * expected).abs() < 1e-6, "{error}");
    }
}
