//! Descriptors become bytes in slots, in time. Knows nothing of models or of GGUF.
//!
//! A [`FileSet`] opens files for direct I/O. A [`Backbone`] reads extents of them once, for good. A
//! [`Pager`] has slots for the members of groups and reads a member when it is asked for. Reads are
//! done by I/O threads that own a backend of their own (`io`): io_uring, plain positioned reads, or a
//! simulated disk that is slow, out of order and faulty. Engine and I/O threads meet in three places
//! made of atomics only: queues of requests, the state of each slot, and a counter to sleep on.

mod backbone;
mod disk;
mod error;
mod fetch;
mod file;
mod groups;
mod hint;
mod io;
mod layout;
mod line_pace;
mod memory;
mod options;
mod pace;
mod pager;
pub mod policy;
pub mod probe;
mod queue;
mod reader;
mod slot;
mod sync;
mod wake;
mod watch;

pub use backbone::Backbone;
pub use error::{FileChange, PagerError, Place, ReadCause};
pub use file::FileSet;
pub use groups::{Group, Part, Parts};
pub use hint::{HintAccount, SOURCES_MAX};
pub use io::SimConfig;
pub use layout::Extent;
pub use memory::{AlignedBuf, PAGE_BYTES};
pub use options::{DiskChoice, IoKind, IoOptions, READ_TIMEOUT};
pub use pager::{Asked, Pager, PagerStats, Ready, TOGETHER_MAX};
