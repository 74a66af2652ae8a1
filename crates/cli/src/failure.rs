//! Owns what the process says and returns when something goes wrong: 2 for wrong usage, 1 for a failure,
//! one clear line on stderr, and silence when the reader of stdout has left.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::output::OutputClosed;

/// A command line that parses but cannot be meant; exits with 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Reports `error` and picks the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_closed_output) {
        return ExitCode::SUCCESS;
    }
    print_line(&one_line(&told(error)));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

/// Reports what clap found: help and version go to stdout in full, a mistake becomes one line.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            let _ = error.print(); // A reader that has left is no failure.
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let said = text.split("\n\n").filter(|part| !part.starts_with("For more information"));
            print_line(&said.map(one_line).collect::<Vec<_>>().join("; "));
            ExitCode::from(2)
        }
    }
}

/// The causes from the outermost in. Libraries whose messages already tell their cause are not told twice.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| cause.to_string()) {
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Whatever it holds, an error is one line: scripts read it line by line, people read one.
fn one_line(text: &str) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        if !joined.is_empty() {
            joined.push_str(if joined.ends_with([':', ';', ',']) { " " } else { "; " });
        }
        joined.push_str(&words.join(" "));
    }
    joined
}

fn print_line(message: &str) {
    let _ = writeln!(std::io::stderr(), "error: {message}"); // With stderr gone nobody can be told.
}

fn is_closed_output(cause: &(dyn std::error::Error + 'static)) -> bool {
    let io = cause.downcast_ref::<std::io::Error>();
    cause.is::<OutputClosed>() || io.and_then(|e| e.get_ref()).is_some_and(|inner| inner.is::<OutputClosed>())
}
