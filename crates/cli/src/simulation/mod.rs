//! What a cache of experts would have done on a recorded trace: the traces, the pool, and the optimum that
//! knows the future. The policies are the pager's own. Knows no flags and prints nothing.

mod csv;
mod jsonl;
mod optimum;
mod pool;
mod trace;

pub use pool::{Kind, Outcome, simulate};
pub use trace::Trace;
