//! What can go wrong between a checked file and its logits.

use adit_format::FormatError;
use adit_pager::PagerError;

use crate::plan::PlanError;

/// A model that cannot be loaded, or a step that could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Pager(#[from] PagerError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error("{file}: general.architecture is `{found}`, which adit cannot run yet; it runs {known}")]
    UnknownArchitecture { file: String, found: String, known: String },
    #[error(
        "{file}: tensor `{name}` is missing; the file is incomplete or of a variant that adit does not know"
    )]
    MissingTensor { file: String, name: String },
    #[error("{file}: tensor `{name}` has shape {found:?}, expected {expected:?} from the metadata")]
    WrongShape { file: String, name: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("{file}: tensor `{name}` is stored as {found}, expected {expected}")]
    WrongType { file: String, name: String, found: &'static str, expected: &'static str },
    #[error(
        "{file}: tensor `{name}` belongs to no known part of a `{architecture}` model; \
         it is refused rather than run approximately"
    )]
    UnknownTensor { file: String, name: String, architecture: &'static str },
    #[error(
        "{file}: tensor `{name}` holds the experts that `{other}` and its neighbours hold as well; expected \
         one of the two: the file is damaged, download or pack it again"
    )]
    ExpertsTwice { file: String, name: String, other: String },
    #[error("{file}: `{key}` is {found}, expected {expected}")]
    BadMetadata { file: String, key: String, found: String, expected: String },
    #[error(
        "{format} keys and values need heads of a multiple of 32 values, this model has {head_dim} and \
         {value_dim}; use --kv f16"
    )]
    KvFormat { format: &'static str, head_dim: usize, value_dim: usize },
    #[error(
        "of a context of {context} tokens this model attends to the best {exact} only, which adit does not \
         select; give it at most {exact} tokens (run and plan: -c {exact})"
    )]
    ContextBeyondExact { context: usize, exact: usize },
    #[error(
        "an adapter of rank {rank} with matrices of {found:?} values; this layer needs {expected:?} and a \
         rank from 1 to {rank_max}"
    )]
    AdapterShape { rank: usize, rank_max: usize, found: [usize; 2], expected: [usize; 2] },
    #[error("layer {layer} has no latent attention whose up-projection could be adapted")]
    NoUpProjection { layer: usize },
    #[error(
        "what the model says at position {position} is no number: weights in its file are damaged, or one of \
         its values is beyond what can be computed; compare the file's digest with that of its source"
    )]
    NotANumber { position: usize },
    #[error("token {token} at row {row} is outside the vocabulary of {vocabulary} tokens")]
    BadToken { row: usize, token: u32, vocabulary: usize },
    #[error(
        "position {position} is beyond the context of {context} tokens; \
         start over, or give a longer context with -c"
    )]
    ContextFull { position: usize, context: usize },
}

/// Experts that cannot be pinned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    #[error("this model has no experts to pin: all of it is in memory anyway")]
    NoExperts,
    #[error("layer {layer} has no experts to pin; the layers that have some are within {first} to {last}")]
    NoSuchLayer { layer: usize, first: usize, last: usize },
    #[error("layer {layer} has no expert {expert} to pin; it has {count}, counted from 0")]
    NoSuchExpert { layer: usize, expert: usize, count: usize },
    #[error("expert {expert} of layer {layer} is pinned twice; name it once")]
    Twice { layer: usize, expert: usize },
    #[error(
        "{pins} experts are to be pinned, but memory holds {slots} and a token needs {used} of a layer \
         beside the pinned ones; pin at most {most}, or raise --memory"
    )]
    TooMany { pins: usize, slots: usize, used: usize, most: usize },
}
