//! What can go wrong between text and tokens.

use std::path::PathBuf;

use adit_model::ModelError;

use crate::tokenizer::TokenizerError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error("the prompt is empty and the model has no token to begin with; give it some text")]
    EmptyPrompt,
    #[error(
        "the prompt has {tokens} tokens or more, the context holds {context}; shorten it or give a longer -c"
    )]
    PromptTooLong { tokens: usize, context: usize },
    #[error("the vocabulary has {tokens} tokens but the embedding only {rows} rows; the file is damaged")]
    VocabularyMismatch { tokens: usize, rows: usize },
    #[error(
        "this model carries a state from token to token, which cannot take back a guess that was wrong; \
         leave out the draft model, and have prompt lookup on auto or off"
    )]
    GuessesWithState,
    #[error(
        "the draft model {} carries a state from token to token, which cannot take back a guess that was \
         wrong; give one without recurrent layers",
        path.display()
    )]
    DraftWithState { path: PathBuf },
    #[error("the draft model {} cannot be used: {source}", path.display())]
    Draft { path: PathBuf, source: Box<ModelError> },
    #[error(
        "the draft model {} has another vocabulary: {difference}; give one made for the same tokens",
        path.display()
    )]
    DraftVocabulary { path: PathBuf, difference: String },
    #[error(
        "of the draft model {} only {slots} of {experts} experts would be in memory, and one that waits for \
         the disk saves no time; give a smaller one",
        path.display()
    )]
    DraftTooLarge { path: PathBuf, slots: usize, experts: usize },
}
