//! Text that grows at a terminal with one line below it that changes: breaks lines between words, and keeps
//! the cursor where the text goes on. Knows nothing of what the text says.

use std::io::{self, Write};

use console::{Term, measure_text_width, truncate_str};

/// Back to the first column, and erase from there to the end of the screen.
const ERASE: &str = "\r\x1b[J";
const UP: &str = "\x1b[A";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

const COLUMNS_USUAL: usize = 80;
const TAB: &str = "    ";

#[derive(Default)]
pub struct Pane {
    /// The last line of the text, not yet ended; never wider than the terminal.
    line: String,
}

impl Pane {
    /// Adds `text`, with `below` under it.
    pub fn show(&mut self, out: &mut impl Write, text: &str, below: &str) -> io::Result<()> {
        self.show_within(out, text, below, columns())
    }

    fn show_within(
        &mut self,
        out: &mut impl Write,
        text: &str,
        below: &str,
        columns: usize,
    ) -> io::Result<()> {
        write!(out, "{ERASE}")?;
        for c in text.chars() {
            match c {
                '\n' => writeln!(out, "{}", std::mem::take(&mut self.line))?,
                '\t' => self.line.push_str(TAB),
                c => self.line.push(c),
            }
            while measure_text_width(&self.line) >= columns {
                let rest = self.split_off();
                writeln!(out, "{}", self.line)?;
                self.line = rest;
            }
        }
        let below = truncate_str(below, columns - 1, "");
        write!(out, "{}\n{DIM}{below}{PLAIN}{UP}\r", self.line)?;
        match measure_text_width(&self.line) {
            0 => Ok(()),
            width => write!(out, "\x1b[{width}C"),
        }
    }

    /// Ends the text and leaves `below` standing.
    pub fn end(&mut self, out: &mut impl Write, below: &str) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let below = truncate_str(below, columns() - 1, "");
        writeln!(out, "{ERASE}{line}\n{DIM}{below}{PLAIN}")
    }

    /// Takes what does not fit off the end of the line: its last word, or of a single word the last
    /// character.
    fn split_off(&mut self) -> String {
        match self.line.rfind(' ') {
            Some(blank) if !self.line[..blank].trim().is_empty() => {
                let rest = self.line[blank + 1..].to_owned();
                self.line.truncate(blank);
                rest
            }
            _ => self.line.pop().map(String::from).unwrap_or_default(),
        }
    }
}

fn columns() -> usize {
    let columns = Term::stdout().size_checked().map_or(COLUMNS_USUAL, |(_, columns)| usize::from(columns));
    columns.max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands on a terminal of ten columns after these pieces, the line below left out.
    fn shown(pieces: &[&str]) -> Vec<String> {
        let mut pane = Pane::default();
        let mut lines = Vec::new();
        for piece in pieces {
            let mut out = Vec::new();
            pane.show_within(&mut out, piece, "below", 10).unwrap();
            let text = String::from_utf8(out).unwrap();
            let text = text.strip_prefix(ERASE).unwrap();
            let (text, _) = text.split_once(&format!("\n{DIM}")).unwrap();
            lines.pop();
            lines.extend(text.split('\n').map(str::to_owned));
        }
        lines
    }

    #[test]
    fn lines_break_between_words_wherever_the_pieces_are_cut() {
        let expected = ["one two", "three", "four"];
        assert_eq!(shown(&["one two three four"]), expected);
        assert_eq!(shown(&["one", " tw", "o th", "ree ", "four"]), expected);
    }

    #[test]
    fn a_word_wider_than_the_terminal_breaks_anywhere() {
        assert_eq!(shown(&["abcdefghijklmno"]), ["abcdefghi", "jklmno"]);
        assert_eq!(
            shown(&["\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}"]),
            ["\u{6f22}\u{5b57}\u{6f22}\u{5b57}", "\u{6f22}\u{5b57}"]
        );
    }

    #[test]
    fn line_ends_of_the_text_are_kept() {
        assert_eq!(shown(&["a\n\nb", "c\n"]), ["a", "", "bc", ""]);
    }
}
