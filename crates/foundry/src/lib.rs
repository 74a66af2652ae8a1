//! Models become other models: recipes that write new GGUF files. A recipe streams: it never holds a model
//! in memory. Knows files, not how a model is run.

mod error;
mod pack;
mod perturb;
mod source;
mod space;
mod upcycle;

pub use error::FoundryError;
pub use pack::{
    Form, Gain, LayerExperts, Pack, PackReport, Stage, Verdict, by_co_use, expected_gain, gain,
    holds_experts, layers_with_experts, pack,
};
pub use upcycle::{EXPERTS_MAX, Report, Upcycle, upcycle};
