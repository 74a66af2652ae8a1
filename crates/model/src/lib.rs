//! Tokens become logits: model families, the memory plan, the forward pass.
