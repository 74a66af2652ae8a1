//! `--heat` and `--pin`: what earlier runs of a model used most is kept in the cache folder, one file a
//! model; the next run begins with it and reads the hottest experts first. Knows no slots and decides
//! nothing.

mod file;
mod pins;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use adit_engine::Engine;
use adit_model::{Heat, Model};
use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::failure::Usage;
use crate::progress::note;
use crate::pull::{Digest, cache};
use crate::whole_file;
use pins::{Pins, Plan};

/// A run of fewer tokens says too little to be remembered.
const TOKENS_MIN: u64 = 32;

/// What is read first, and what stays.
#[derive(clap::Args)]
pub struct HeatArgs {
    /// Begin with the experts that earlier runs of this model used most, and remember what this one uses
    #[arg(long, value_name = "WHEN", default_value = "on")]
    heat: When,

    /// Experts that never leave memory: a file with lines of a layer and experts of it (`3 17 42`, # begins a
    /// comment), or heat:N for the N that earlier runs used most
    #[arg(long, value_name = "PLAN")]
    pin: Option<Pins>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    On,
    Off,
}

impl HeatArgs {
    /// The plan of pins, read before a model is loaded.
    pub fn pins(&self) -> Result<Option<Plan>> {
        if matches!((&self.pin, self.heat), (Some(Pins::Hottest(_)), When::Off)) {
            bail!(Usage("--pin heat:N needs the heat of earlier runs, and --heat is off".into()));
        }
        self.pin.as_ref().map(Pins::read).transpose()
    }

    /// Warms the model with what is known of earlier runs and pins what the plan says. `None` when this run
    /// is not to be remembered.
    pub fn begin(&self, engine: &mut Engine, pins: Option<Plan>) -> Result<Option<Learning>> {
        let learning = match self.heat {
            When::On => Learning::begin(engine.model()),
            When::Off => None,
        };
        let known = learning.as_ref().and_then(|learning| learning.known.as_ref());
        if let Some(heat) = known {
            engine.warm(heat);
        }
        if let Some(pins) = pins {
            let places = pins.places(engine.model(), known)?;
            engine.pin(&places)?;
        }
        Ok(learning)
    }
}

/// A run whose heat will be kept.
pub struct Learning {
    path: PathBuf,
    fingerprint: Digest,
    /// What it began with.
    known: Option<Heat>,
}

impl Learning {
    fn begin(model: &Model) -> Option<Learning> {
        let experts = experts(model);
        if experts == 0 {
            return None;
        }
        // Without a cache folder, or a file to tell the model by, nothing is remembered.
        let fingerprint = file::fingerprint(model.files()).ok()?;
        let name = format!("{:.16}.heat", fingerprint.to_string());
        let path = cache::cache_folder().ok()?.join("heat").join(name);
        let known = read(&path, fingerprint, experts);
        Some(Learning { path, fingerprint, known })
    }

    /// Keeps what this run used, together with what earlier ones did, if it was long enough.
    pub fn end(self, engine: &Engine) {
        if engine.stats().generated_tokens < TOKENS_MIN {
            return;
        }
        if let Err(error) = self.keep(engine.model()) {
            note(&format!("what this run used is not remembered: {error:#}"));
        }
    }

    fn keep(self, model: &Model) -> Result<()> {
        let Some(mut heat) = model.heat() else { return Ok(()) };
        // Another run may have kept its own meanwhile.
        let there = read_quietly(&self.path, self.fingerprint, heat.rates.len());
        if let Some(there) = there.filter(|there| self.known.as_ref() != Some(there)) {
            heat = file::merge(&heat, &there);
        }
        cache::make_parent(&self.path)?;
        let bytes = file::encode(&heat, self.fingerprint);
        whole_file::write(&self.path, |out| Ok(std::io::Write::write_all(out, &bytes)?))
    }
}

fn experts(model: &Model) -> usize {
    model.expert_layers().iter().map(|layer| layer.experts).sum()
}

/// The heat kept at `path`; one that is damaged or another model's is told of and left out.
fn read(path: &Path, fingerprint: Digest, experts: usize) -> Option<Heat> {
    let said = file::read(path, fingerprint, experts);
    said.map_err(|wrong| note(&format!("{}: {wrong}; it is ignored", path.display()))).ok()?
}

fn read_quietly(path: &Path, fingerprint: Digest, experts: usize) -> Option<Heat> {
    file::read(path, fingerprint, experts).ok()?
}

/// Does `wait`, in which somebody thinks or types, and meanwhile reads hot experts into free slots. The
/// reading ends with the waiting: what is in flight then is awaited, no more.
pub fn meanwhile<T>(engine: &mut Engine, wait: impl FnOnce() -> T) -> T {
    if !engine.model().wants_prewarm() {
        return wait();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // An error is told by the next answer, if that needs what cannot be read.
        scope.spawn(|| drop(engine.prewarm(&stop)));
        let waited = wait();
        stop.store(true, Ordering::Relaxed);
        waited
    })
}
