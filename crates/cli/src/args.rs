//! Flags that several commands share: each flag's name, its help and its effect stand together here.

use std::path::PathBuf;

use anyhow::Result;

use crate::pull;

/// What a model may be called, wherever one is asked for.
pub const REFERENCE_HELP: &str = "A GGUF file (of a split model its first part), an alias (smollm2, \
    gemma3-270m), hf:OWNER/REPO/FILE or an http(s) URL";

/// The model that a command works on.
#[derive(clap::Args)]
pub struct ModelArgs {
    #[arg(value_name = "MODEL", help = REFERENCE_HELP)]
    model: String,
}

impl ModelArgs {
    /// Its file, pulled into the cache folder first if it is not on this machine.
    pub fn locate(&self) -> Result<PathBuf> {
        pull::locate(&self.model)
    }
}
