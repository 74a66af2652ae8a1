//! What can be wrong with a vocabulary, and with a text given to it.

use std::path::{Path, PathBuf};

use adit_format::FormatError;

#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(transparent)]
    Format(#[from] FormatError),

    #[error(
        "tokenizer.ggml.model is {model:?}, a kind of tokeniser that adit does not have; \
         it reads gpt2 (byte-level BPE), gemma4 (BPE) and llama (SPM)"
    )]
    UnknownModel { model: String },

    #[error(
        "tokenizer.ggml.pre is {pre:?}, a way of splitting text that adit does not know; \
         a newer adit may, or the file was converted wrongly"
    )]
    UnknownPre { pre: String },

    /// A vocabulary that contradicts itself.
    #[error("{key}: {problem}; the file is damaged or was converted wrongly")]
    Vocabulary { key: &'static str, problem: String },

    /// One of the above, in this file.
    #[error("{}: {problem}", path.display())]
    InFile { path: PathBuf, problem: Box<TokenizerError> },

    #[error("byte 0x{byte:02X} of the text has no token in this vocabulary, and neither has the unknown")]
    NoToken { byte: u8 },

    #[error("a text of {bytes} bytes is too long to tokenise; the most is {most}")]
    TooLong { bytes: usize, most: usize },
}

impl TokenizerError {
    pub(super) fn vocabulary(key: &'static str, problem: impl Into<String>) -> TokenizerError {
        TokenizerError::Vocabulary { key, problem: problem.into() }
    }

    /// Names the file, where nothing has named it yet.
    pub(super) fn in_file(self, path: &Path) -> TokenizerError {
        match self {
            TokenizerError::Format(error) => TokenizerError::Format(error),
            problem => TokenizerError::InFile { path: path.to_path_buf(), problem: Box::new(problem) },
        }
    }
}
