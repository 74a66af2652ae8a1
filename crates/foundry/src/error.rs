//! Why a recipe did not make a model.

use std::io;
use std::path::PathBuf;

use adit_format::FormatError;
use adit_pager::PagerError;

#[derive(Debug, thiserror::Error)]
pub enum FoundryError {
    #[error(transparent)]
    Format(#[from] FormatError),

    #[error(transparent)]
    Pager(#[from] PagerError),

    /// The recipe does not apply to this input or cannot work with these settings.
    #[error("{path}: {problem}")]
    Refused { path: PathBuf, problem: String },

    #[error("{path}: cannot read {bytes} bytes at byte {offset}: {source}")]
    Read { path: PathBuf, offset: u64, bytes: usize, source: io::Error },

    #[error(
        "{path}: the new model needs {needed} bytes, but its disk has {free} free; free some, or ask for less"
    )]
    Space { path: PathBuf, needed: u64, free: u64 },

    #[error("{path}: stopped before the new model was whole; nothing was kept")]
    Stopped { path: PathBuf },

    #[error("{path}: cannot {action} the unfinished file: {source}")]
    Partial { path: PathBuf, action: &'static str, source: io::Error },

    #[error(
        "{path}: {}{done} bytes are written and {missing} are missing; the same command goes on with what is \
         there, and deleting the file gives it up: {source}",
        if is_full(source) { "the disk is full, free some of it first: " } else { "cannot write on: " }
    )]
    Write { path: PathBuf, done: u64, missing: u64, source: io::Error },

    #[error(
        "{path}: this unfinished file belongs to other work (another source, form or order of experts); \
         delete it, or choose another name"
    )]
    OtherPartial { path: PathBuf },

    #[error(
        "{path}: stopped; {done} of {total} bytes are written. The same command goes on with them, and \
         deleting the file gives them up"
    )]
    Paused { path: PathBuf, done: u64, total: u64 },

    #[error(
        "{path}: tensor {tensor} was read back otherwise than it was written, at byte {offset}; the disk or \
         the memory of this machine is at fault. Check them; the same command writes again what is wrong"
    )]
    Damaged { path: PathBuf, tensor: String, offset: u64 },

    #[error("{path}: the file changed while it was read; start again with a file that stays as it is")]
    SourceChanged { path: PathBuf },
}

/// Also where a quota or the file system's longest file is reached.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
