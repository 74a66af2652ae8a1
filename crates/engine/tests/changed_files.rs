//! A model file that is truncated, replaced or removed while the model runs: a clear error that names it.

use std::fs;
use std::path::{Path, PathBuf};

use adit_engine::{Engine, EngineError, Event, Flow, LoadOptions, SamplerOptions};
use adit_format::synth::{Family, Synth};
use adit_model::ModelError;

const PROMPT: [u32; 3] = [5, 6, 7];

fn model(folder: &Path) -> PathBuf {
    let synth = Synth { layers: 3, experts: 16, experts_used: 3, ..Synth::new(Family::Qwen3Moe) };
    synth.write(&folder.join("model.gguf")).unwrap()
}

/// With the smallest budget, so that experts are read all the time.
fn load(path: &Path) -> Engine {
    let mut memory = 1;
    loop {
        let options = LoadOptions { memory: Some(memory), context: Some(256), ..LoadOptions::default() };
        match Engine::load(path, &options, &mut |_, _| {}) {
            Err(EngineError::Model(ModelError::Plan(refused))) => memory = refused.needed_bytes(),
            loaded => return loaded.unwrap(),
        }
    }
}

/// An answer, in which `then` happens once the first token is there.
fn answer(engine: &mut Engine, mut then: impl FnMut()) -> Result<(), String> {
    engine.clear();
    let sampling = SamplerOptions { temperature: 5.0, seed: 4, ..SamplerOptions::default() };
    let mut on_event = |event: Event<'_>| {
        if matches!(event, Event::Text { .. }) {
            then();
        }
        Flow::Continue
    };
    engine.generate(&PROMPT, 100, sampling, &mut on_event).map(drop).map_err(|error| error.to_string())
}

fn truncate(path: &Path) {
    fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
}

#[test]
fn a_file_that_is_truncated_during_an_answer_ends_it_and_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    answer(&mut engine, || {}).unwrap();
    for when in ["during an answer", "before an answer"] {
        let error = answer(&mut engine, || truncate(&path)).unwrap_err();
        assert!(error.contains("model.gguf") && error.contains("truncated"), "{when}: {error}");
    }
}

#[test]
fn a_file_that_is_replaced_or_removed_ends_the_next_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    let copy = folder.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    // What is open stays as it is: this answer is not disturbed.
    answer(&mut engine, || drop(fs::rename(&copy, &path))).unwrap();
    let error = answer(&mut engine, || {}).unwrap_err();
    assert!(error.contains("model.gguf") && error.contains("replaced"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = answer(&mut engine, || {}).unwrap_err();
    assert!(error.contains("model.gguf") && error.contains("removed"), "{error}");
}
