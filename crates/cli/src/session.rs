//! Loading a model before a person's eyes, and the counters as a file afterwards.

use std::io::Write;
use std::path::Path;

use adit_engine::{Engine, LoadOptions, Stats};
use adit_model::{Blueprint, Model, Plan};
use anyhow::Result;

use crate::progress::Progress;
use crate::whole_file;

/// Loads a model without its vocabulary, with a bar for its backbone.
pub fn load_model(blueprint: Blueprint, plan: Plan) -> Result<Model> {
    let bar = Progress::bytes("loading", Some(blueprint.backbone_bytes()));
    Ok(Model::load(blueprint, plan, &mut |done| bar.set(done))?)
}

/// Loads a model that talks, with a bar for its backbone.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Engine> {
    let mut bar: Option<Progress> = None;
    let engine = Engine::load(path, options, &mut |done, total| {
        bar.get_or_insert_with(|| Progress::bytes("loading", Some(total))).set(done);
    })?;
    Ok(engine)
}

/// Writes the counters as one JSON object; the keys are those that scripts rely on.
pub fn write_stats(path: &Path, stats: &Stats) -> Result<()> {
    whole_file::write(path, |out| {
        serde_json::to_writer_pretty(&mut *out, stats)?;
        Ok(writeln!(out)?)
    })
}
