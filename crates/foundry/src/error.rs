//! Why a recipe did not make a model.

use std::io;
use std::path::PathBuf;

use adit_format::FormatError;

#[derive(Debug, thiserror::Error)]
pub enum FoundryError {
    #[error(transparent)]
    Format(#[from] FormatError),

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
}
