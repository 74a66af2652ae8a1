//! A file on disk becomes checked descriptors. No threads, no policy, no model families.
