//! Text becomes a stream of tokens: tokeniser, templates, sampling, lanes.

mod detokenizer;
mod engine;
mod error;
mod sampler;
mod speculation;
mod stats;
mod template;
mod tokenizer;

pub use adit_model::THREADS_MAX;
pub use detokenizer::{ControlTokens, Detokenizer};
pub use engine::{Answer, Engine, Event, Finish, Flow, LoadOptions};
pub use error::EngineError;
pub use sampler::{Sampler, SamplerOptions, greedy};
pub use speculation::{DraftFile, GUESSES_MAX, ProposerStats, SpeculationOptions, When};
pub use stats::Stats;
pub use template::{ChatTemplate, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};
