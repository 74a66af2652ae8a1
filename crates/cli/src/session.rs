//! Loading a model before a person's eyes.

use std::path::Path;

use adit_engine::{Engine, LoadOptions};
use anyhow::Result;

use crate::progress::Progress;

/// Loads a model with a bar for its backbone.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Engine> {
    let mut bar: Option<Progress> = None;
    let engine = Engine::load(path, options, &mut |done, total| {
        bar.get_or_insert_with(|| Progress::bytes("loading", Some(total))).set(done);
    })?;
    Ok(engine)
}
