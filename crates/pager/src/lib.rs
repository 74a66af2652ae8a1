//! Descriptors become bytes in slots, in time. Knows nothing of models or of GGUF.
