//! Heat, pins and prewarming move bytes early, or keep them, and change no bit of any result.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::common::{self, Run, tokens};
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_model::{ExpertPlace, Heat, IoKind, Model, ModelError, PinError, SimConfig};

const LAYERS: usize = 3;
const EXPERTS: usize = 16;
const USED: usize = 3;

fn model_file(folder: &tempfile::TempDir) -> PathBuf {
    let types = WeightTypes::mixed();
    let synth = Synth {
        layers: LAYERS as u32,
        experts: EXPERTS as u32,
        experts_used: USED as u32,
        seed: 11,
        types,
        ..Synth::new(Family::Qwen3Moe)
    };
    synth.write(&folder.path().join("model.gguf")).unwrap()
}

/// A model with memory for `slots` experts or a few more.
fn load(run: &Run, path: &std::path::Path, slots: usize) -> Model {
    let mut memory = 1;
    loop {
        match (Run { memory: Some(memory), ..run.clone() }).load(path) {
            Ok(model) if model.plan().slots >= slots => return model,
            Ok(model) => memory += model.plan().slot_bytes,
            Err(ModelError::Plan(refused)) => memory = refused.needed_bytes(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn place(layer: usize, expert: usize) -> ExpertPlace {
    ExpertPlace { layer, expert }
}

/// What a run over `tokens` has used.
fn learned(path: &std::path::Path, tokens: &[u32]) -> Heat {
    let mut model = Run::default().load(path).unwrap();
    common::logits_of(&mut model, 1, tokens);
    let heat = model.heat().unwrap();
    assert_eq!((heat.rates.len(), heat.tokens > 30.0), (LAYERS * EXPERTS, true));
    heat
}

#[test]
fn heat_pins_and_prewarming_in_all_combinations_give_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = model_file(&folder);
    let tokens = tokens(40);
    let heat = learned(&path, &tokens);
    // Heat of another model, so to say: all that is hot here is cold.
    let wrong = Heat { rates: heat.rates.iter().map(|rate| 1.0 - rate).collect(), ..heat.clone() };
    let everything = Run::default().logits(&path, &tokens);
    let pins: Vec<ExpertPlace> = (0..6).map(|at| place(at % LAYERS, at * 2)).collect();
    let rough = SimConfig {
        seed: 5,
        delay_steps_max: 20,
        reorder: true,
        short_per_mille: 200,
        ..SimConfig::default()
    };
    for io in [IoKind::Auto, IoKind::Simulated(rough)] {
        for heat in [None, Some(&heat), Some(&wrong)] {
            for pins in [&[][..], &pins] {
                for (prewarm, chunk, slots) in
                    [(false, 1, 9), (true, 1, 9), (true, 7, 20), (true, 40, LAYERS * EXPERTS)]
                {
                    let run = Run { io: io.clone(), chunk, ..Run::default() };
                    let mut model = load(&run, &path, slots);
                    heat.iter().for_each(|heat| model.warm(heat));
                    model.pin(pins).unwrap();
                    if prewarm {
                        let read = model.prewarm(&AtomicBool::new(false)).unwrap();
                        assert_eq!(read > 0, heat.is_some() || !pins.is_empty());
                    }
                    let what = format!(
                        "heat {}, {} pins, prewarm {prewarm}, {slots} slots",
                        heat.is_some(),
                        pins.len()
                    );
                    assert!(common::logits_of(&mut model, chunk, &tokens) == everything, "{what}");
                }
            }
        }
    }
}

#[test]
fn who_begins_warm_finds_more_experts_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = model_file(&folder);
    let heat = learned(&path, &tokens(60));
    let hits = |warm: bool| {
        let mut model = load(&Run::default(), &path, 20);
        if warm {
            model.warm(&heat);
            model.prewarm(&AtomicBool::new(false)).unwrap();
        }
        common::logits_of(&mut model, 1, &tokens(10));
        model.pager_stats().hits
    };
    let (cold, warm) = (hits(false), hits(true));
    assert!(warm > cold, "{warm} hits, {cold} from cold");
}

#[test]
fn prewarming_ends_when_it_is_told_to_and_when_its_slots_are_filled() {
    let folder = tempfile::tempdir().unwrap();
    let path = model_file(&folder);
    let mut model = load(&Run::default(), &path, 9);
    model.warm(&learned(&path, &tokens(60)));
    assert!(model.wants_prewarm());
    assert_eq!(model.prewarm(&AtomicBool::new(true)).unwrap(), 0);
    assert_eq!(model.pager_stats().reads, 0, "somebody waits");
    assert_eq!(model.prewarm(&AtomicBool::new(false)).unwrap(), model.slots());
    let read = model.pager_stats();
    assert!(read.prewarmed == model.slots() as u64 && !model.wants_prewarm());
    assert_eq!(model.prewarm(&AtomicBool::new(false)).unwrap(), 0);
    assert_eq!(model.pager_stats(), read, "nothing is read beyond the free slots");
}

#[test]
fn pins_that_cannot_be_are_refused_with_numbers_and_pin_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = model_file(&folder);
    let mut model = load(&Run::default(), &path, 9);
    let slots = model.slots();
    let refused = |model: &mut Model, places: &[ExpertPlace]| match model.pin(places) {
        Err(ModelError::Pin(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = refused(&mut model, &[place(0, 1), place(LAYERS, 1)]);
    assert_eq!(error, PinError::NoSuchLayer { layer: LAYERS, first: 0, last: LAYERS - 1 });
    let error = refused(&mut model, &[place(1, EXPERTS)]);
    assert_eq!(error, PinError::NoSuchExpert { layer: 1, expert: EXPERTS, count: EXPERTS });
    let error = refused(&mut model, &[place(1, 2), place(0, 2), place(1, 2)]);
    assert_eq!(error, PinError::Twice { layer: 1, expert: 2 });
    let most = slots - USED;
    let many: Vec<ExpertPlace> = (0..=most).map(|at| place(at % LAYERS, at / LAYERS)).collect();
    let error = refused(&mut model, &many);
    assert_eq!(error, PinError::TooMany { pins: most + 1, slots, used: USED, most });
    assert!(error.to_string().contains(&format!("pin at most {most}")), "{error}");
    assert_eq!(model.prewarm(&AtomicBool::new(false)).unwrap(), 0, "nothing is pinned");
    model.pin(&many[..most]).unwrap();
    let everything = Run::default().logits(&path, &tokens(40));
    assert!(common::logits_of(&mut model, 7, &tokens(40)) == everything, "with as many pins as there may be");
    let dense = Synth::new(Family::Llama).write(&folder.path().join("dense.gguf")).unwrap();
    let mut model = Run::default().load(&dense).unwrap();
    assert_eq!(refused(&mut model, &[place(0, 0)]), PinError::NoExperts);
    assert!(model.heat().is_none() && !model.wants_prewarm());
}
