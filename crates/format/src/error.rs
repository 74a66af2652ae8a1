//! What can be wrong with a model file, said so that its owner knows where and what to do.
//! Every message names the file; where there is one, the field and the byte offset in that file.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("{path}: cannot {action}: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },

    /// Not a GGUF file at all, or one of a kind that adit does not read.
    #[error("{path}: {problem}")]
    NotGguf { path: PathBuf, problem: String },

    /// The header asks for more bytes than the file has left.
    #[error(
        "{path}: {field} at byte {offset} needs {needed} bytes, but the file ends {left} bytes further on; \
         it is damaged or its download was cut short: download it again"
    )]
    Overrun { path: PathBuf, field: String, offset: u64, needed: u64, left: u64 },

    /// The header is whole, the tensor data are not.
    #[error(
        "{path}: expected {expected} bytes, found {found}: {} bytes are missing, up to the end of tensor \
         {tensor} at byte {offset}; the download was cut short: resume it or download it again",
        expected - found
    )]
    Truncated { path: PathBuf, expected: u64, found: u64, tensor: String, offset: u64 },

    #[error("{path}: {field} at byte {offset}: {problem}")]
    Malformed { path: PathBuf, field: String, offset: u64, problem: String },

    /// A split model whose parts do not belong together.
    #[error("{path}: {problem}")]
    Split { path: PathBuf, problem: String },

    #[error(
        "{path}: metadata key {key} is missing; the file may be incomplete or of a kind adit does not know"
    )]
    MissingKey { path: PathBuf, key: String },

    #[error("{path}: metadata key {key} at byte {offset}: expected {expected}, found {found}")]
    WrongType { path: PathBuf, key: String, offset: u64, expected: &'static str, found: String },

    #[error("{path}: already exists; remove it, choose another name, or ask for it to be overwritten")]
    Exists { path: PathBuf },

    /// A file that was to be written and cannot be.
    #[error("cannot write such a model: {problem}")]
    Unwritable { problem: String },
}

/// A name from a file as it may be shown: quoted, control characters escaped, not endless.
pub(crate) fn shown(name: &str) -> String {
    const CHARS_MAX: usize = 80;
    match name.char_indices().nth(CHARS_MAX) {
        None => format!("{name:?}"),
        Some((cut, _)) => format!("{:?}... ({} bytes)", &name[..cut], name.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_escaped_and_short() {
        assert_eq!(shown("a\u{1b}[2J"), "\"a\\u{1b}[2J\"");
        let long = shown(&"é".repeat(5000));
        assert!(long.ends_with("... (10000 bytes)") && long.len() < 200, "{long}");
    }
}
