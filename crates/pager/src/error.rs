//! What can go wrong between a disk and a slot, in words for the person at the terminal.

use std::{fmt, io, path::PathBuf, time::Duration};

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
        "{}: reading {bytes} bytes at offset {offset} failed {attempts} times: {cause}{}",
        path.display(),
        change.as_ref().map(|change| format!("; {change}")).unwrap_or_default()
    )]
    Read {
        path: PathBuf,
        offset: u64,
        bytes: u64,
        attempts: u32,
        cause: ReadCause,
        /// What had become of the file by then, if it was not as it was when it was opened.
        change: Option<FileChange>,
    },

    #[error(
        "{place} has not been answered for {limit:?}, and nothing else either; is the disk still there? \
         Start again when it answers"
    )]
    Stalled {
        /// Of the read that has been under way for longest.
        place: Place,
        /// How long nothing was answered.
        limit: Duration,
    },

    #[error("{}: {change}; start again with a file that stays as it is", path.display())]
    FileChanged { path: PathBuf, change: FileChange },

    #[error(
        "{} is not the same as {}: {difference}; a mirror is a copy of the same files",
        path.display(),
        first.display()
    )]
    OtherMirror { path: PathBuf, first: PathBuf, difference: String },

    #[error("the system refused {bytes} bytes of memory: {source}; give a smaller --memory")]
    Memory { bytes: u64, source: io::Error },

    #[error("{backend} cannot be used here: {source}; use the automatic choice of I/O")]
    Unavailable { backend: &'static str, source: io::Error },

    #[error("no slot to read into: {groups} streamed groups need at least one slot; give more --memory")]
    NoSlots { groups: usize },

    #[error("the I/O thread ended unexpectedly; the model must be loaded again")]
    ReaderDied,
}

/// What is waited for: a file and an offset, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(pub Option<(PathBuf, u64)>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((path, offset)) => write!(f, "{}: the read at offset {offset}", path.display()),
            None => f.write_str("a read that waits for the disk"),
        }
    }
}

/// How a file differs from what it was when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Its name leads nowhere any more.
    Gone { error: String },
    /// Its name leads to another file.
    Replaced,
    /// In bytes.
    Resized { opened: u64, now: u64 },
    /// It was written to.
    Rewritten,
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("while it was in use ")?;
        match self {
            FileChange::Gone { error } => write!(f, "the file or its disk was removed ({error})"),
            FileChange::Replaced => f.write_str("the file was replaced by another one"),
            FileChange::Resized { opened, now } if now < opened => {
                write!(f, "the file was truncated: it had {opened} bytes when it was opened, now {now}")
            }
            FileChange::Resized { opened, now } => {
                write!(f, "the file grew: it had {opened} bytes when it was opened, now {now}")
            }
            FileChange::Rewritten => f.write_str("the file was written to"),
        }
    }
}

/// Why one read failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCause {
    /// The file ended before the wanted bytes: it was truncated or replaced since it was opened.
    EndOfFile,
    /// The operating system's error number.
    Os(i32),
}

/// The numbers of a device that fails, is not there, or is no more; the same on every Unix.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;

impl ReadCause {
    /// For an `io::Error` without a number (none of our system calls makes one) this says EIO.
    pub(crate) fn from_io(error: &io::Error) -> ReadCause {
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
            ReadCause::Os(number @ (EIO | ENXIO | ENODEV)) => {
                let error = io::Error::from_raw_os_error(*number);
                write!(f, "{error}: the disk is failing, or was removed")
            }
            ReadCause::Os(number) => io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}
