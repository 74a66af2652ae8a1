//! What a cache of experts would have done on a recorded trace: the traces, the pool, and the optimum that
//! knows the future. The policies are the pager's own. Knows no flags and prints nothing.

mod csv;
mod curves;
mod jsonl;
mod optimum;
mod own;
mod page;
mod pool;
mod route;
mod trace;

pub use curves::Curves;
pub use page::page;
pub use pool::{Kind, Outcomes, simulate};
pub use route::{Route, optimum_of};
pub use trace::{Memory, Phase, Trace};
