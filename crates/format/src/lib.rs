//! A file on disk becomes checked descriptors. No threads, no policy, no model families.

pub mod blocks;
mod codec;
mod cursor;
mod error;
mod gguf;
mod header;
mod metadata;
pub mod rng;
mod strangers;
pub mod synth;
mod tensor_type;
mod value;
pub mod writer;

pub use error::FormatError;
pub use gguf::{Gguf, Part};
pub use header::TensorInfo;
pub use metadata::Metadata;
pub use tensor_type::TensorType;
pub use value::{Array, Strings, Value};
