//! What a person types: a line editor with history at a terminal, plain lines from a pipe. Joins lines that
//! belong together; knows no command by name.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::pull::cache_folder;

const FIRST_PROMPT: &str = "> ";
const NEXT_PROMPT: &str = ". ";
const HISTORY_LINES_MAX: usize = 1000;
const BLOCK: &str = "\"\"\"";

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Message(String),
    /// `/name argument`
    Command(String, String),
    Nothing,
    /// No more will come.
    End,
}

pub enum Input {
    Terminal { editor: Box<Editor<(), FileHistory>>, history: Option<PathBuf> },
    Pipe,
}

impl Input {
    pub fn open() -> Result<Input> {
        if !io::stdin().is_terminal() {
            return Ok(Input::Pipe);
        }
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .context("cannot set up the history")?
            .build();
        let mut editor = Editor::with_config(config).context("cannot use the terminal")?;
        // Without a place for it the history lasts as long as the conversation.
        let history = cache_folder().ok().map(|folder| folder.join("history.txt"));
        // The first conversation has none.
        let _ = history.as_ref().map(|history| editor.load_history(history));
        Ok(Input::Terminal { editor: Box::new(editor), history })
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// The next message or command.
    pub fn read(&mut self) -> Result<Line> {
        let line = gather(&mut |prompt| {
            let line = self.line(prompt)?;
            self.remember(line.as_deref());
            Ok(line)
        })?;
        self.keep_history();
        Ok(line)
    }

    /// Asks a yes-or-no question; without a terminal the answer is no.
    pub fn confirm(&mut self, question: &str) -> Result<bool> {
        match self {
            Input::Pipe => Ok(false),
            Input::Terminal { .. } => {
                let said = self.line(&format!("{question} [y/N] "))?;
                Ok(said.is_some_and(|said| ["y", "yes"].contains(&said.trim().to_lowercase().as_str())))
            }
        }
    }

    /// One line without its end; `None` when there are no more.
    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self {
            Input::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Some(line)),
                // Ctrl-C at the prompt throws away what was typed.
                Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Input::Pipe => {
                let mut line = String::new();
                let length = io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
                let line = line.strip_suffix('\n').unwrap_or(&line);
                Ok((length > 0).then(|| line.strip_suffix('\r').unwrap_or(line).to_owned()))
            }
        }
    }

    /// Puts a line within reach of the arrow keys.
    fn remember(&mut self, line: Option<&str>) {
        if let (Input::Terminal { editor, .. }, Some(line)) = (self, line) {
            // Not remembering it is no reason to stop talking.
            let _ = editor.add_history_entry(line);
        }
    }

    fn keep_history(&mut self) {
        if let Input::Terminal { editor, history: Some(history) } = self {
            // A history that cannot be kept is no reason to stop talking.
            let _ = history.parent().map(fs::create_dir_all);
            let _ = editor.save_history(history);
        }
    }
}

/// Joins the lines that make one message: those after a trailing backslash, and those between `"""`.
fn gather(next: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<Line> {
    let Some(first) = next(FIRST_PROMPT)? else { return Ok(Line::End) };
    if let Some(command) = first.strip_prefix('/') {
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        return Ok(Line::Command(name.to_owned(), argument.trim().to_owned()));
    }
    let text = match first.trim_start().strip_prefix(BLOCK) {
        Some(start) => block(start, next)?,
        None => continued(first, next)?,
    };
    Ok(if text.trim().is_empty() { Line::Nothing } else { Line::Message(text) })
}

fn continued(first: String, next: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<String> {
    let mut text = first;
    while let Some(kept) = text.strip_suffix('\\') {
        let more = next(NEXT_PROMPT)?.unwrap_or_default();
        text = format!("{kept}\n{more}");
    }
    Ok(text)
}

fn block(start: &str, next: &mut dyn FnMut(&str) -> Result<Option<String>>) -> Result<String> {
    let mut text = start.to_owned();
    loop {
        if let Some(whole) = text.trim_end().strip_suffix(BLOCK) {
            return Ok(whole.trim_matches('\n').to_owned());
        }
        let Some(more) = next(NEXT_PROMPT)? else { return Ok(text) };
        text = format!("{text}\n{more}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(lines: &[&str]) -> Vec<Line> {
        let mut lines = lines.iter().map(|line| line.to_string());
        let mut found = Vec::new();
        loop {
            found.push(gather(&mut |_| Ok(lines.next())).unwrap());
            if found.last() == Some(&Line::End) {
                return found;
            }
        }
    }

    fn message(text: &str) -> Line {
        Line::Message(text.to_owned())
    }

    #[test]
    fn a_backslash_joins_lines_and_quotes_hold_a_block() {
        assert_eq!(
            gathered(&["one \\", "two", "three"]),
            [message("one \ntwo"), message("three"), Line::End]
        );
        assert_eq!(
            gathered(&["\"\"\"", "a", "", "b\\", "\"\"\"", "c"]),
            [message("a\n\nb\\"), message("c"), Line::End]
        );
        assert_eq!(gathered(&["\"\"\"a\"\"\""]), [message("a"), Line::End]);
    }

    #[test]
    fn an_unfinished_text_ends_with_the_input() {
        assert_eq!(gathered(&["\"\"\"a", "b"]), [message("a\nb"), Line::End]);
        assert_eq!(gathered(&["a\\"]), [message("a\n"), Line::End]);
    }

    #[test]
    fn a_slash_begins_a_command_and_blank_lines_say_nothing() {
        let command = |name: &str, argument: &str| Line::Command(name.to_owned(), argument.to_owned());
        assert_eq!(
            gathered(&["/save  my file.json ", "  ", "/stats"]),
            [command("save", "my file.json"), Line::Nothing, command("stats", ""), Line::End]
        );
    }
}
