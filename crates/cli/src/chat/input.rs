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
    /// Ctrl-C: whatever was typed is thrown away.
    Interrupted,
    /// No more will come.
    End,
}

/// What came of asking for one line.
enum Typed {
    /// Without its end.
    Line(String),
    Interrupted,
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
            let typed = self.line(prompt)?;
            self.remember(&typed);
            Ok(typed)
        })?;
        self.keep_history();
        Ok(line)
    }

    /// Asks a yes-or-no question; without a terminal the answer is no.
    pub fn confirm(&mut self, question: &str) -> Result<bool> {
        match self {
            Input::Pipe => Ok(false),
            Input::Terminal { .. } => {
                let typed = self.line(&format!("{question} [y/N] "))?;
                let is_yes = |said: &str| ["y", "yes"].contains(&said.trim().to_lowercase().as_str());
                Ok(matches!(typed, Typed::Line(said) if is_yes(&said)))
            }
        }
    }

    fn line(&mut self, prompt: &str) -> Result<Typed> {
        match self {
            Input::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Typed::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
                Err(ReadlineError::Eof) => Ok(Typed::End),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Input::Pipe => {
                let mut line = String::new();
                let length = io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
                let line = line.strip_suffix('\n').unwrap_or(&line);
                let line = line.strip_suffix('\r').unwrap_or(line);
                Ok(if length == 0 { Typed::End } else { Typed::Line(line.to_owned()) })
            }
        }
    }

    /// Puts a line within reach of the arrow keys.
    fn remember(&mut self, typed: &Typed) {
        if let (Input::Terminal { editor, .. }, Typed::Line(line)) = (self, typed) {
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
fn gather(next: &mut dyn FnMut(&str) -> Result<Typed>) -> Result<Line> {
    let first = match next(FIRST_PROMPT)? {
        Typed::Line(first) => first,
        Typed::Interrupted => return Ok(Line::Interrupted),
        Typed::End => return Ok(Line::End),
    };
    if let Some(command) = first.strip_prefix('/') {
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        return Ok(Line::Command(name.to_owned(), argument.trim().to_owned()));
    }
    let text = match first.trim_start().strip_prefix(BLOCK) {
        Some(start) => block(start, next)?,
        None => continued(first, next)?,
    };
    Ok(match text {
        None => Line::Interrupted,
        Some(text) if text.trim().is_empty() => Line::Nothing,
        Some(text) => Line::Message(text),
    })
}

/// The text up to a line without a trailing backslash; `None` if it was thrown away.
fn continued(first: String, next: &mut dyn FnMut(&str) -> Result<Typed>) -> Result<Option<String>> {
    let mut text = first;
    while let Some(kept) = text.strip_suffix('\\') {
        let more = match next(NEXT_PROMPT)? {
            Typed::Line(more) => more,
            Typed::Interrupted => return Ok(None),
            Typed::End => String::new(),
        };
        text = format!("{kept}\n{more}");
    }
    Ok(Some(text))
}

/// The text up to the closing quotes; `None` if it was thrown away.
fn block(start: &str, next: &mut dyn FnMut(&str) -> Result<Typed>) -> Result<Option<String>> {
    let mut text = start.to_owned();
    loop {
        if let Some(whole) = text.trim_end().strip_suffix(BLOCK) {
            return Ok(Some(whole.trim_matches('\n').to_owned()));
        }
        let more = match next(NEXT_PROMPT)? {
            Typed::Line(more) => more,
            Typed::Interrupted => return Ok(None),
            Typed::End => return Ok(Some(text)),
        };
        text = format!("{text}\n{more}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTRL_C: &str = "\x03";

    fn gathered(lines: &[&str]) -> Vec<Line> {
        let mut lines = lines.iter();
        let mut next = || match lines.next() {
            Some(&CTRL_C) => Typed::Interrupted,
            Some(line) => Typed::Line(line.to_string()),
            None => Typed::End,
        };
        let mut found = Vec::new();
        loop {
            found.push(gather(&mut |_| Ok(next())).unwrap());
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
    fn an_interrupt_throws_the_whole_message_away() {
        let expected = [Line::Interrupted, message("next"), Line::End];
        assert_eq!(gathered(&[CTRL_C, "next"]), expected);
        assert_eq!(gathered(&["one \\", "two \\", CTRL_C, "next"]), expected);
        assert_eq!(gathered(&["\"\"\"", "a", CTRL_C, "next"]), expected);
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
