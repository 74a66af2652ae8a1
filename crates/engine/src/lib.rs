//! Text becomes a stream of tokens: tokeniser, templates, sampling, lanes.

mod detokenizer;
mod tokenizer;

pub use detokenizer::{ControlTokens, Detokenizer};
pub use tokenizer::{Tokenizer, TokenizerError};
