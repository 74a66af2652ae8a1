//! A file on disk becomes checked descriptors. No threads, no policy, no model families.

pub mod blocks;
mod tensor_type;

pub use tensor_type::TensorType;
