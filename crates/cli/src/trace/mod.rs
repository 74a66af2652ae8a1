//! `--trace FILE`: what a running model did, step by step, in a file that `adit simulate` reads. The
//! engine's thread puts words into a ring, a thread of its own packs and writes them. The form of the file
//! is described byte by byte in `docs/trace-format.md`.

mod header;
mod packer;
mod reader;
mod recorder;
mod ring;
#[cfg(test)]
mod tests;
mod words;
mod writer;

pub use reader::{Pick, Record, Records, TracedRow};
#[cfg(test)]
pub use tests::TestTrace;
pub use writer::{TraceArgs, Tracing};
