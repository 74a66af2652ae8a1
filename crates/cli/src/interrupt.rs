//! Ctrl-C during long work: the first one stops the work cleanly, a second one before that has happened ends
//! the program, as does one when nothing is being done.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static WATCHED: AtomicBool = AtomicBool::new(false);
static PRESSED: AtomicBool = AtomicBool::new(false);

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

/// Takes Ctrl-C over for the rest of the process; once is enough, more does no harm.
pub fn install() -> Result<()> {
    if INSTALLED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let on_press = || {
        if !WATCHED.load(Ordering::SeqCst) || PRESSED.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_CODE);
        }
    };
    ctrlc::set_handler(on_press).context("cannot take over Ctrl-C")
}

/// Runs `work`, during which [`pressed`] tells whether to stop.
pub fn watched<T>(work: impl FnOnce() -> T) -> T {
    PRESSED.store(false, Ordering::SeqCst);
    WATCHED.store(true, Ordering::SeqCst);
    let result = work();
    WATCHED.store(false, Ordering::SeqCst);
    result
}

pub fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}
