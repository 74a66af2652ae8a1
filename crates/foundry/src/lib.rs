//! Models become other models: recipes that write new GGUF files.
