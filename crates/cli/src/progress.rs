//! Progress on stderr: a bar when a person watches, nothing when stderr is a file or a pipe.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One piece of work measured in bytes, or not measurable at all.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `total` bytes; without a total it counts up.
    pub fn bytes(label: &str, total: Option<u64>) -> Progress {
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let template = match total {
            Some(_) => "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
            None => "{msg} {decimal_bytes} {decimal_bytes_per_sec}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is ours"));
        Progress(bar.with_message(label.to_owned()))
    }

    /// A bar of `total` tokens. It appears when the first of them are done, so it cannot tell their rate.
    pub fn tokens(label: &str, total: u64) -> Progress {
        Progress::counted(label, total, "tokens")
    }

    /// A bar of `total` things.
    pub fn counted(label: &str, total: u64, unit: &str) -> Progress {
        let template = format!("{{msg}} {{wide_bar}} {{pos}}/{{len}} {unit}");
        let style = ProgressStyle::with_template(&template).expect("the template is ours");
        Progress(ProgressBar::new(total).with_style(style).with_message(label.to_owned()))
    }

    /// A sign of life for work whose length nobody knows.
    pub fn spinner(label: &str) -> Progress {
        let bar = ProgressBar::new_spinner().with_message(label.to_owned());
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Progress(bar)
    }

    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line for the person at the terminal; results never go this way.
pub fn note(message: &str) {
    let _ = writeln!(std::io::stderr(), "{message}"); // With stderr gone nobody needs to be told.
}
