//! Tokens become logits: model families, the memory plan, the forward pass.
//!
//! Knows tokens as numbers only; text, sampling and conversations are the engine's.

mod attention;
mod config;
mod error;
mod families;
mod forward;
mod gated_query;
mod guard;
mod keys;
mod latent;
mod linear;
pub mod machine;
mod memory;
mod mirrors;
mod model;
mod moe;
mod norm;
mod observe;
mod plan;
mod recurrent;
mod router;
mod scout;
mod scratch;
mod states;
mod streams;
mod up_projection;
mod weights;

pub use adit_kernels::{KV_BLOCK, KvFormat};
pub use adit_pager::{HintAccount, IoKind, IoOptions, PagerStats, SimConfig};
pub use config::{Config, Experts, MixerConfig};
pub use error::{ModelError, PinError};
pub use families::Family;
pub use forward::Row;
pub use guard::GuardStats;
pub use model::{Blueprint, ExpertLayer, ExpertPlace, FileHeader, Heat, Model, StepStats, THREADS_MAX};
pub use observe::{Observer, Routing};
pub use plan::{BudgetSource, Bytes, Division, FileSizes, Place, Plan, PlanError, Request, Term};
pub use scout::{Scout, ScoutReport, ScoutSet};
pub use weights::{FeedForward, Weights};
