//! The thread that packs a trace and writes it, and the flag that asks for one.
//!
//! The file grows under another name and gets its own when it is whole. Should the disk fill up, the run goes
//! on without the trace, and ends with an error when its answer is out.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use adit_model::{Model, Observer};
use anyhow::{Context, Result};

use super::header::{Header, MAGIC};
use super::packer::Packer;
use super::recorder::Recorder;
use super::ring::Ring;
use super::words::{self, END, END_WORDS};
use crate::failure::Usage;
use crate::progress::note;
use crate::whole_file;

/// Room for several hundred tokens of a large model, or several layers of a long prompt.
const RING_WORDS: usize = 1 << 19;
/// So many words are packed together.
const BLOCK_WORDS: usize = 1 << 15;
/// So long a few words wait for more.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(2);
/// What packing takes: about 300 KiB of tables, the packed bytes on their way, and the stack.
const PACKING_BYTES: u64 = 512 << 10;

/// What a trace takes of the budget: the ring, the words of it that are packed, and packing itself.
pub const TRACE_BYTES: u64 = 2 * 4 * RING_WORDS as u64 + PACKING_BYTES;

/// The flag that asks for a trace.
#[derive(clap::Args)]
pub struct TraceArgs {
    /// Write what every step did to this file: experts picked, their weights, which were in memory, bytes
    /// read and waits (gzip; docs/trace-format.md). `adit simulate` reads it. The file must not exist yet
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl TraceArgs {
    /// Whether the file can be written, asked before the work begins.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.trace else { return Ok(()) };
        if path.is_file() && !path.starts_with("/dev") && !path.starts_with("/proc") {
            let path = path.display();
            return Err(Usage(format!(
                "--trace: {path} exists; give another name, or remove it, since a trace is never replaced"
            ))
            .into());
        }
        whole_file::check(path)
    }

    pub fn path(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// What the trace will take, in bytes.
    pub fn bytes(&self) -> u64 {
        if self.trace.is_some() { TRACE_BYTES } else { 0 }
    }

    /// Begins the trace of `model`, which was read from `file`: whoever is returned must watch it.
    pub fn begin(&self, file: &Path, model: &Model) -> Result<Option<(Tracing, Box<dyn Observer>)>> {
        let Some(path) = &self.trace else { return Ok(None) };
        if model.expert_layers().is_empty() {
            note("--trace: this model has no experts, so there is nothing but steps to trace");
        }
        Tracing::begin(path, &Header::new(file, model)).map(Some)
    }
}

/// A trace that is being written.
pub struct Tracing {
    ring: Arc<Ring>,
    thread: JoinHandle<Result<()>>,
    path: PathBuf,
}

impl Tracing {
    pub fn begin(path: &Path, header: &Header) -> Result<(Tracing, Box<dyn Observer>)> {
        Tracing::with_ring(path, header, RING_WORDS)
    }

    pub(super) fn with_ring(
        path: &Path,
        header: &Header,
        words: usize,
    ) -> Result<(Tracing, Box<dyn Observer>)> {
        let ring = Arc::new(Ring::new(words));
        let begin = [MAGIC, &serde_json::to_vec(header)?, b"\n"].concat();
        let (taken, path) = (ring.clone(), path.to_owned());
        let name = path.clone();
        let block_words = BLOCK_WORDS.min(words / 2);
        let write = move || {
            let written = whole_file::write(&name, |out| write(&taken, &begin, block_words, out));
            taken.abandon();
            written
        };
        let thread = thread::Builder::new().name("trace".into()).spawn(write);
        let thread = thread.context("cannot start a thread for the trace")?;
        let experts = header.expert_layers.iter().map(|layer| layer.experts).max().unwrap_or(0);
        let recorder = Recorder::new(ring.clone(), thread.thread().clone(), block_words, experts);
        Ok((Tracing { ring, thread, path }, Box::new(recorder)))
    }

    /// Waits until the file is whole under its name; tells of steps that are missing in it.
    pub fn end(self) -> Result<()> {
        self.ring.close();
        self.thread.thread().unpark();
        let written = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.context("the answer is complete, its trace is not")?;
        let (steps, dropped) = self.ring.steps();
        if dropped > 0 {
            let path = self.path.display();
            note(&format!(
                "{path} lacks {dropped} of {} steps: they came faster than they could be written",
                steps + dropped
            ));
        }
        Ok(())
    }
}

/// Writes blocks until the ring is closed and empty.
fn write(ring: &Ring, begin: &[u8], block_words: usize, out: &mut BufWriter<File>) -> Result<()> {
    let mut packer = Packer::new();
    packer.write(begin, out)?;
    let mut block = Vec::with_capacity(4 * (ring.len() + END_WORDS));
    let mut is_old = false;
    loop {
        // Before looking what is there: what comes later is not missed.
        let is_closed = ring.is_closed();
        let filled = ring.filled();
        if is_closed || filled >= block_words || (is_old && filled > 0) {
            ring.take(&mut block);
            if is_closed {
                let (steps, dropped) = ring.steps();
                let end = [words::halves(steps), words::halves(dropped)].concat();
                let words = std::iter::once(words::head(END, END_WORDS)).chain(end);
                words.for_each(|word| block.extend_from_slice(&word.to_le_bytes()));
            }
            packer.write(&block, out)?;
            block.clear();
            if is_closed {
                return Ok(());
            }
            is_old = false;
        } else if filled == 0 {
            thread::park();
        } else {
            thread::park_timeout(BLOCK_AGE_MAX);
            is_old = true;
        }
    }
}
