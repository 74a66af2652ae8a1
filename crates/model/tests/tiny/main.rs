//! The model layer on tiny models made from a seed: the same logits as another implementation, the same
//! bits whatever the memory, and clear errors from damaged files.

mod common;
mod damaged;
mod identity;
mod observer;
mod parity;
mod per_expert;
mod warm;
