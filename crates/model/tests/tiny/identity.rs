//! Memory decides the speed, never the answer: the same bits at every budget, thread count, disk and
//! prefill chunk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Run, tokens};
use adit_format::TensorType;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_model::{Blueprint, IoKind, IoOptions, KvFormat, Model, ModelError, Scout, ScoutSet, SimConfig};

/// Enough experts that the smallest budget holds a small part of them.
fn many_experts(folder: &Path, family: Family, types: WeightTypes) -> PathBuf {
    let synth = Synth { layers: 3, experts: 16, experts_used: 3, seed: 11, types, ..Synth::new(family) };
    let name = format!("{family:?}-{:?}.gguf", types.down);
    synth.write(&folder.join(name)).expect("the model is written")
}

/// The model with a budget of `more` slots above the smallest that the plan accepts.
fn load_with_slots(run: &Run, path: &Path, more: usize) -> Model {
    let mut memory = 1;
    loop {
        // What the process has taken so far is a term of the plan and may grow meanwhile, so ask again.
        match (Run { memory: Some(memory), ..run.clone() }).load(path) {
            Ok(model) if model.plan().slots >= model.config().experts.as_ref().unwrap().used + more => {
                return model;
            }
            Ok(model) => memory += model.plan().slot_bytes,
            Err(ModelError::Plan(refused)) => memory = refused.needed_bytes(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn logits_with_slots(run: &Run, path: &Path, more: usize, tokens: &[u32]) -> Vec<f32> {
    common::logits_of(&mut load_with_slots(run, path, more), run.chunk, tokens)
}

fn types() -> [WeightTypes; 3] {
    [WeightTypes::mixed(), WeightTypes::all(TensorType::Q4_1), WeightTypes::all(TensorType::F16)]
}

#[test]
fn every_budget_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(40);
    for types in types() {
        let path = many_experts(folder.path(), Family::Qwen3Moe, types);
        let everything = Run::default().logits(&path, &tokens);
        for more in [0, 1, 5, 17, 40] {
            let logits = logits_with_slots(&Run::default(), &path, more, &tokens);
            assert!(logits == everything, "{types:?} with {more} slots above the smallest budget");
        }
    }
}

#[test]
fn every_set_of_scouts_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(90);
    let path = many_experts(folder.path(), Family::Qwen3Moe, WeightTypes::mixed());
    let everything = Run::default().logits(&path, &tokens);
    let sets = Scout::ALL.map(|scout| ScoutSet::NONE.with(scout));
    let mut issued = [0; Scout::ALL.len()];
    for scouts in [ScoutSet::NONE, ScoutSet::ALL].into_iter().chain(sets) {
        for (chunk, more) in [(1, 3), (1, 12), (7, 17), (64, 17)] {
            let run = Run { scouts, chunk, ..Run::default() };
            let mut model = load_with_slots(&run, &path, more);
            assert!(common::logits_of(&mut model, chunk, &tokens) == everything, "{scouts:?}, chunk {chunk}");
            for (issued, report) in issued.iter_mut().zip(model.scout_reports()) {
                assert!(scouts.has(report.scout) || report.account.issued == 0, "{report:?}");
                *issued += report.account.issued;
            }
        }
    }
    assert!(issued.iter().all(|&issued| issued > 0), "every scout has made hints: {issued:?}");
}

#[test]
fn every_chunk_and_thread_count_gives_the_same_bits() {
    let tokens = tokens(70);
    for (family, kv) in [
        (Family::LlamaMoe, KvFormat::F16),
        (Family::LlamaMoe, KvFormat::Bf16),
        (Family::Qwen3Moe, KvFormat::Q8_0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = many_experts(folder.path(), family, WeightTypes::mixed());
        let reference = Run { kv, ..Run::default() }.logits(&path, &tokens);
        for (chunk, threads) in [(1, 1), (1, 2), (7, 1), (64, 2), (512, 1), (512, 2), (3, 4)] {
            let run = Run { chunk, threads, kv, ..Run::default() };
            assert!(
                logits_with_slots(&run, &path, 2, &tokens) == reference,
                "chunk {chunk}, {threads} threads"
            );
        }
    }
}

#[test]
fn dense_families_do_not_depend_on_chunk_or_threads() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(70);
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3] {
        let synth = Synth { seed: 12, types: WeightTypes::mixed(), ..Synth::new(family) };
        let path = synth.write(&folder.path().join(format!("{family:?}.gguf"))).unwrap();
        let reference = Run::default().logits(&path, &tokens);
        for (chunk, threads) in [(1, 1), (64, 2), (512, 1)] {
            let run = Run { chunk, threads, ..Run::default() };
            assert!(run.logits(&path, &tokens) == reference, "{family:?}: chunk {chunk}, {threads} threads");
        }
    }
}

#[test]
fn logits_do_not_depend_on_which_other_rows_want_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(40);
    for family in [Family::Qwen3Moe, Family::Gemma3] {
        let path = match family {
            Family::Gemma3 => Synth::new(family).write(&folder.path().join("dense.gguf")).unwrap(),
            _ => many_experts(folder.path(), family, WeightTypes::mixed()),
        };
        let run = Run { chunk: 20, ..Run::default() };
        let all = run.logits(&path, &tokens);
        let vocabulary = all.len() / tokens.len();
        let mut model = run.load(&path).unwrap();
        let mut seen = Vec::new();
        for first in [0, 20] {
            // Of the first chunk none, of the second two.
            let mut rows = common::rows(&tokens[first..first + 20], first);
            rows.iter_mut().for_each(|row| row.wants_logits = [23, 39].contains(&row.position));
            model
                .step(&rows, &mut |row, logits| {
                    let at = (first + row) * vocabulary;
                    assert!(logits == &all[at..at + vocabulary], "{family:?}, position {}", first + row);
                    seen.push(first + row);
                })
                .unwrap();
        }
        assert_eq!(seen, [23, 39]);
    }
}

#[test]
fn every_disk_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(40);
    let path = many_experts(folder.path(), Family::LlamaMoe, WeightTypes::mixed());
    let reference = Run::default().logits(&path, &tokens);
    let bad_disk = |seed| SimConfig {
        seed,
        delay_steps_max: 20,
        reorder: true,
        short_per_mille: 300,
        transient_per_mille: 100,
        transient_times: 2,
        ..SimConfig::default()
    };
    let disks = [IoKind::Auto, IoKind::Plain, IoKind::Simulated(bad_disk(1)), IoKind::Simulated(bad_disk(2))];
    for io in disks {
        for chunk in [1, 40] {
            let run = Run { io: io.clone(), chunk, ..Run::default() };
            assert!(logits_with_slots(&run, &path, 1, &tokens) == reference, "{io:?}, chunk {chunk}");
        }
    }
}

#[test]
fn delays_of_tens_of_milliseconds_and_passing_errors_change_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(10);
    let path = many_experts(folder.path(), Family::Qwen3Moe, WeightTypes::mixed());
    let reference = Run::default().logits(&path, &tokens);
    let config = SimConfig {
        seed: 3,
        delay_ms_max: 50,
        reorder: true,
        short_per_mille: 100,
        transient_per_mille: 10,
        transient_times: 2,
        rest_ms: 1,
        ..SimConfig::default()
    };
    let run = Run { io: IoKind::Simulated(config), chunk: 5, ..Run::default() };
    assert!(logits_with_slots(&run, &path, 1, &tokens) == reference);
}

#[test]
fn a_disk_that_answers_no_more_ends_the_step_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = many_experts(folder.path(), Family::Qwen3Moe, WeightTypes::mixed());
    let gguf = adit_format::Gguf::open(&path).unwrap();
    let experts = gguf.tensor("blk.1.ffn_up_exps.weight").unwrap();
    let lost = vec![adit_pager::Extent { file: 0, offset: experts.offset, bytes: experts.bytes }];
    let kind = IoKind::Simulated(SimConfig { lost, ..SimConfig::default() });
    let io = IoOptions { kind, read_timeout: Duration::from_millis(50), ..IoOptions::default() };
    let blueprint = Blueprint::open(&path, io).unwrap();
    let plan = blueprint.plan(&Run::default().request()).unwrap();
    // The backbone may share a page with an expert.
    let error = match Model::load(blueprint, plan, &mut |_| {}) {
        Ok(mut model) => model.step(&common::rows(&tokens(7), 0), &mut |_, _| {}).unwrap_err(),
        Err(error) => error,
    };
    assert!(error.to_string().contains(".gguf: the read at offset"), "{error}");
}

#[test]
fn a_mirror_gives_the_same_bits_also_with_one_copy_dead_and_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(20);
    let synth = Synth { layers: 3, experts: 16, experts_used: 3, parts: 2, ..Synth::new(Family::Qwen3Moe) };
    let path = synth.write(&folder.path().join("model.gguf")).unwrap();
    let mirror_at = folder.path().join("mirror");
    std::fs::create_dir(&mirror_at).unwrap();
    let mirror = synth.write(&mirror_at.join("model.gguf")).unwrap();
    let reference = Run::default().logits(&path, &tokens);
    let dead = |copy: u32| {
        let whole = |file| adit_pager::Extent { file, offset: 0, bytes: 1 << 40 };
        IoKind::Simulated(SimConfig {
            reorder: true,
            broken: vec![whole(copy * 2), whole(copy * 2 + 1)],
            ..SimConfig::default()
        })
    };
    for kind in [IoKind::Auto, IoKind::Plain, dead(0), dead(1)] {
        let io = IoOptions { kind: kind.clone(), mirrors: vec![mirror.clone()], ..IoOptions::default() };
        let blueprint = Blueprint::open(&path, io).unwrap();
        let plan = blueprint.plan(&Run::default().request()).unwrap();
        let mut model = Model::load(blueprint, plan, &mut |_| {}).unwrap();
        assert!(common::logits_of(&mut model, 7, &tokens) == reference, "{kind:?}");
    }
    let other = Synth { context: synth.context + 1, ..synth }.write(&folder.path().join("other.gguf"));
    let io = IoOptions { mirrors: vec![other.unwrap()], ..IoOptions::default() };
    let Err(error) = Blueprint::open(&path, io) else { panic!("another model was taken for a mirror") };
    assert!(error.to_string().contains("other") && error.to_string().contains("mirror"), "{error}");
}

#[test]
fn split_files_give_the_same_bits_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(20);
    let synth = Synth { layers: 3, experts: 8, experts_used: 2, ..Synth::new(Family::Qwen3Moe) };
    let whole = synth.write(&folder.path().join("whole.gguf")).unwrap();
    let split = Synth { parts: 3, ..synth }.write(&folder.path().join("split.gguf")).unwrap();
    assert_ne!(whole, split);
    assert!(Run::default().logits(&whole, &tokens) == Run::default().logits(&split, &tokens));
}

#[test]
fn a_broken_place_on_the_disk_fails_the_step_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = tokens(30);
    let path = many_experts(folder.path(), Family::Qwen3Moe, WeightTypes::mixed());
    let reference = Run::default().logits(&path, &tokens);
    let gguf = adit_format::Gguf::open(&path).unwrap();
    let experts = gguf.tensor("blk.1.ffn_up_exps.weight").unwrap();
    let broken = vec![adit_pager::Extent { file: 0, offset: experts.offset, bytes: experts.bytes }];
    // Long enough to outlast the retries of the reads in flight, then well again.
    let config = SimConfig { seed: 1, broken, broken_times: Some(40), ..SimConfig::default() };
    let run = Run { io: IoKind::Simulated(config), ..Run::default() };
    let mut model = load_with_slots(&run, &path, 0);
    let rows = common::rows(&tokens[..7], 0);
    let error = loop {
        match model.step(&rows, &mut |_, _| {}) {
            Err(error) => break error.to_string(),
            Ok(()) => assert_eq!(model.truncate(0, 0), 0),
        }
    };
    assert!(error.contains(".gguf") && error.contains("offset"), "{error}");
    assert_eq!(model.lane_len(0), 0, "a failed step leaves the lane as it was");
    for _ in 0..100 {
        if model.step(&rows, &mut |_, _| {}).is_ok() {
            model.truncate(0, 0);
            assert!(
                common::logits_of(&mut model, 7, &tokens) == reference,
                "the same answer after the disk is well"
            );
            return;
        }
    }
    panic!("the disk is well again, but the model still fails");
}
