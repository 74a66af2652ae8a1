//! What can go wrong between a disk and a slot, in words for the person at the terminal.

use std::{fmt, io, path::PathBuf};

/// Every failure of this crate. None leaves wrong bytes behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },

    #[error(
        "{}: {bytes} bytes at offset {offset} were asked for, but the file ends at {file_bytes}; \
         it is probably a part of a download: fetch it again",
        path.display()
    )]
    OutsideFile { path: PathBuf, offset: u64, bytes: u64, file_bytes: u64 },

    #[error(
        "{}: reading {bytes} bytes at offset {offset} failed {attempts} times: {cause}",
        path.display()
    )]
    Read { path: PathBuf, offset: u64, bytes: u64, attempts: u32, cause: ReadCause },

    #[error(
        "{}: the file changed while it was in use (it had {expected} bytes when it was opened, now {found}); \
         start again with a file that stays as it is",
        path.display()
    )]
    FileChanged { path: PathBuf, expected: u64, found: String },

    #[error("the system refused {bytes} bytes of memory: {source}; give a smaller --memory")]
    Memory { bytes: u64, source: io::Error },

    #[error("{backend} cannot be used here: {source}; use the automatic choice of I/O")]
    Unavailable { backend: &'static str, source: io::Error },

    #[error("no slot to read into: {groups} streamed groups need at least one slot; give more --memory")]
    NoSlots { groups: usize },

    #[error("the I/O thread ended unexpectedly; the model must be loaded again")]
    ReaderDied,
}

/// Why one read failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCause {
    /// The file ended before the wanted bytes: it was truncated or replaced since it was opened.
    EndOfFile,
    /// The operating system's error number.
    Os(i32),
}

impl ReadCause {
    /// For an `io::Error` without a number (none of our system calls makes one) this says EIO.
    pub(crate) fn from_io(error: &io::Error) -> ReadCause {
        const EIO: i32 = 5;
        ReadCause::Os(error.raw_os_error().filter(|&number| number != 0).unwrap_or(EIO))
    }

    /// One word, so that it crosses threads in an atomic. Error numbers are never 0.
    pub(crate) fn to_bits(self) -> u32 {
        match self {
            ReadCause::EndOfFile => 0,
            ReadCause::Os(number) => number as u32,
        }
    }

    pub(crate) fn from_bits(bits: u32) -> ReadCause {
        if bits == 0 { ReadCause::EndOfFile } else { ReadCause::Os(bits as i32) }
    }
}

impl fmt::Display for ReadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadCause::EndOfFile => {
                f.write_str("the file ended before them: it was truncated or replaced since it was opened")
            }
            ReadCause::Os(number) => io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}
