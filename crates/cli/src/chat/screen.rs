//! Where an answer appears: plain text as it comes, or at a terminal with a line of live figures below it.

use std::io::{self, IsTerminal, Write};

use adit_engine::Engine;
use adit_model::Model;

use super::gauge::Gauge;
use super::pane::Pane;
use crate::output::Output;
use crate::progress::note;
use crate::size::ByteSize;

pub struct Screen {
    out: Output,
    /// Control characters in an answer could steer a terminal; a file shall have them as they are.
    is_terminal: bool,
    ends_with_newline: bool,
    gauge: Option<Gauge>,
    pane: Pane,
    figures: String,
}

impl Screen {
    pub fn stdout() -> Screen {
        Screen {
            out: Output::stdout(),
            is_terminal: io::stdout().is_terminal(),
            ends_with_newline: true,
            gauge: None,
            pane: Pane::default(),
            figures: String::new(),
        }
    }

    /// Shows the figures of a model of this size with each answer.
    pub fn with_figures(self, model_bytes: u64) -> Screen {
        Screen { gauge: Some(Gauge::new(model_bytes)), ..self }
    }

    /// Shows text as soon as it is known.
    pub fn show(&mut self, text: &str, model: &Model) -> io::Result<()> {
        if let Some(gauge) = &mut self.gauge {
            self.figures = gauge.tick(model);
            if self.is_terminal {
                self.pane.show(&mut self.out, &tame(text), &self.figures)?;
                return self.out.flush();
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        match self.is_terminal {
            true => self.out.write_all(tame(text).as_bytes())?,
            false => self.out.write_all(text.as_bytes())?,
        }
        self.ends_with_newline = text.ends_with('\n');
        self.out.flush()
    }

    /// Ends the answer's last line.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(gauge) = &mut self.gauge {
            gauge.reset();
        }
        // Empty when not even a first token came.
        let figures = std::mem::take(&mut self.figures);
        if !figures.is_empty() && self.is_terminal {
            self.pane.end(&mut self.out, &figures)?;
            return self.out.flush();
        }
        if !std::mem::replace(&mut self.ends_with_newline, true) {
            writeln!(self.out)?;
        }
        self.out.flush()?;
        if !figures.is_empty() {
            note(&figures);
        }
        Ok(())
    }
}

/// Without what could steer a terminal.
fn tame(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || ['\n', '\t'].contains(c)).collect()
}

/// What the answers so far have cost.
pub fn summary(engine: &Engine) -> String {
    let stats = engine.stats();
    let (peak, budget) = (ByteSize(stats.peak_rss_bytes), ByteSize(stats.memory_budget_bytes));
    let mut lines = vec![
        format!("prompt   {} tokens, {:.1} tok/s", stats.prompt_tokens, stats.prefill_tok_per_s),
        format!("answers  {} tokens, {:.1} tok/s", stats.generated_tokens, stats.decode_tok_per_s),
        format!("memory   {peak} at most, budget {budget}"),
    ];
    let asked = stats.expert_hits + stats.expert_misses;
    if asked > 0 {
        let hits = 100.0 * stats.expert_hits as f64 / asked as f64;
        let read = ByteSize(stats.bytes_read);
        lines.push(format!(
            "experts  {hits:.1} % found in memory, {read} read, {:.2} s waited",
            stats.io_wait_s
        ));
    }
    let guesses = [
        ("lookup", stats.lookup_accepted, stats.lookup_proposed, stats.lookup_switched_off),
        ("draft", stats.draft_accepted, stats.draft_proposed, stats.draft_switched_off),
    ];
    for (name, accepted, proposed, off) in guesses.into_iter().filter(|(_, _, proposed, _)| *proposed > 0) {
        lines.push(format!("{name:<8} {accepted} of {proposed} guesses right, switched off {off} times"));
    }
    lines.join("\n")
}
