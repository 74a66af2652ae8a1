//! What `pack` makes of synthetic models: the same tensors in another form, whatever happened on the way, and
//! nothing at all of files that are not what they should be.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use adit_format::rng::Rng;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_format::writer::{Existing, Layout, TensorSpec, Writer};
use adit_format::{Gguf, TensorType};
use adit_foundry::{Form, FoundryError, Pack, PackReport, Stage, expected_gain, gain, pack};

const ROLES: [&str; 3] = ["gate", "up", "down"];

fn job<'a>(source: &'a Path, output: &'a Path, form: Form) -> Pack<'a> {
    Pack { source, output, form, orders: None, existing: Existing::Refuse }
}

fn run(job: &Pack<'_>) -> Result<PackReport, FoundryError> {
    pack(job, &mut |_, _, _| ControlFlow::Continue(()))
}

#[track_caller]
fn assert_refused(job: &Pack<'_>, parts: &[&str]) {
    let message = run(job).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "expected {part:?} in: {message}");
    }
}

fn write(folder: &Path, name: &str, model: &Synth) -> PathBuf {
    model.write(&folder.join(name)).unwrap()
}

/// Expert sizes that are no multiple of a block, in two types.
fn synth(family: Family) -> Synth {
    Synth { layers: 3, experts: 6, types: WeightTypes::mixed(), ..Synth::new(family) }
}

fn bytes_of(model: &Gguf, name: &str) -> Vec<u8> {
    let tensor = model.tensor(name).unwrap_or_else(|| panic!("{name} exists"));
    let file = fs::read(&model.parts()[tensor.part].path).unwrap();
    file[tensor.offset as usize..][..tensor.bytes as usize].to_vec()
}

fn partial(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Asserts that two models have the same tensors, keys and bytes; the alignment aside.
#[track_caller]
fn assert_same(a: &Gguf, b: &Gguf) {
    let keys = |model: &Gguf| {
        let kept = model.metadata().iter().filter(|(key, _)| *key != "general.alignment");
        kept.map(|(key, value)| (key.to_string(), value.clone())).collect::<Vec<_>>()
    };
    assert_eq!(keys(a), keys(b));
    let specs = |model: &Gguf| {
        let mut specs: Vec<_> =
            model.tensors().iter().map(|t| (t.name.clone(), t.kind, t.dims.clone())).collect();
        specs.sort_by(|a, b| a.0.cmp(&b.0));
        specs
    };
    assert_eq!(specs(a), specs(b));
    for tensor in a.tensors() {
        assert!(bytes_of(a, &tensor.name) == bytes_of(b, &tensor.name), "{}", tensor.name);
    }
}

#[test]
fn an_experts_matrices_lie_side_by_side_and_are_what_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for family in [Family::LlamaMoe, Family::Qwen3Moe] {
        let source = write(folder.path(), &format!("{family:?}.gguf"), &synth(family));
        let output = folder.path().join(format!("{family:?}-packed.gguf"));
        let orders = Some(vec![vec![3, 0, 5, 1, 4, 2], (0..6).collect(), (0..6).rev().collect()]);
        let report = run(&Pack { orders: orders.clone(), ..job(&source, &output, Form::Packed) }).unwrap();
        let (before, after) = (Gguf::open(&source).unwrap(), Gguf::open(&output).unwrap());
        assert_eq!((report.layers, report.experts, report.kept_bytes), (3, 6, 0));
        assert_eq!((report.source_bytes, report.output_bytes), (before.bytes(), after.bytes()));
        assert_eq!(after.metadata().u32("general.alignment").unwrap(), Some(4096));
        for layer in 0..3 {
            let mut end = None;
            for expert in &orders.as_ref().unwrap()[layer] {
                for role in ROLES {
                    let stacked = before.tensor(&format!("blk.{layer}.ffn_{role}_exps.weight")).unwrap();
                    let name = format!("blk.{layer}.ffn_{role}.{expert}.weight");
                    let own = after.tensor(&name).unwrap();
                    assert_eq!((own.kind, &own.dims[..]), (stacked.kind, &stacked.dims[..2]));
                    assert!(own.offset.is_multiple_of(4096) && end.is_none_or(|end| own.offset == end));
                    end = Some((own.offset + own.bytes).next_multiple_of(4096));
                    let all = bytes_of(&before, &stacked.name);
                    let slice = &all[*expert as usize * own.bytes as usize..][..own.bytes as usize];
                    assert!(bytes_of(&after, &name) == slice, "{name}");
                }
            }
        }
        assert!(!partial(&output).exists());
    }
}

#[test]
fn stacking_what_was_packed_gives_back_the_model() {
    let folder = tempfile::tempdir().unwrap();
    for family in [Family::LlamaMoe, Family::Qwen3Moe] {
        let source = write(folder.path(), &format!("{family:?}.gguf"), &synth(family));
        let [packed, again, stacked] = ["packed", "again", "stacked"].map(|name| folder.path().join(name));
        run(&job(&source, &packed, Form::Packed)).unwrap();
        let orders = Some(vec![vec![5, 4, 3, 2, 1, 0]; 3]);
        run(&Pack { orders, ..job(&packed, &again, Form::Packed) }).unwrap();
        run(&job(&again, &stacked, Form::Stacked)).unwrap();
        let [source, packed, again, stacked] =
            [source, packed, again, stacked].map(|path| Gguf::open(&path).unwrap());
        for model in [&packed, &again, &stacked] {
            assert!(model.tensors().iter().all(|tensor| tensor.offset.is_multiple_of(4096)));
        }
        assert_same(&packed, &again);
        assert_same(&source, &stacked);
        for model in [packed, again, stacked] {
            fs::remove_file(&model.parts()[0].path).unwrap();
        }
    }
}

#[test]
fn a_split_model_becomes_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write(folder.path(), "whole.gguf", &synth(Family::Qwen3Moe));
    let split = write(folder.path(), "split.gguf", &Synth { parts: 5, ..synth(Family::Qwen3Moe) });
    let outputs = ["a", "b"].map(|name| folder.path().join(name));
    run(&job(&whole, &outputs[0], Form::Packed)).unwrap();
    run(&job(&split, &outputs[1], Form::Packed)).unwrap();
    assert!(fs::read(&outputs[0]).unwrap() == fs::read(&outputs[1]).unwrap());
}

/// Runs until `bytes` of `stage` are done.
fn stop_at(job: &Pack<'_>, stage: Stage, bytes: u64) -> FoundryError {
    let outcome = pack(job, &mut |now, done, total| {
        assert!(done <= total);
        if now == stage && done >= bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    outcome.unwrap_err()
}

#[test]
fn stopped_work_is_gone_on_with_and_never_has_the_final_name() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let before = fs::read(&source).unwrap();
    let [whole, output] = ["whole", "output"].map(|name| folder.path().join(name));
    let total = run(&job(&source, &whole, Form::Packed)).unwrap().output_bytes;
    let job = job(&source, &output, Form::Packed);
    for (stage, bytes) in
        [(Stage::Writing, total / 3), (Stage::Writing, total * 2 / 3), (Stage::Verifying, 1)]
    {
        let stopped = stop_at(&job, stage, bytes);
        assert!(matches!(&stopped, FoundryError::Paused { done, .. } if *done >= bytes), "{stopped}");
        assert!(stopped.to_string().contains("output.partial"), "{stopped}");
        assert!(!output.exists() && partial(&output).exists());
    }
    let report = run(&job).unwrap();
    assert_eq!(report.kept_bytes, total, "all had been written before");
    assert!(fs::read(&output).unwrap() == fs::read(&whole).unwrap());
    assert!(!partial(&output).exists() && fs::read(&source).unwrap() == before);
}

#[test]
fn an_unfinished_file_that_was_damaged_is_put_right() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let [whole, output] = ["whole", "output"].map(|name| folder.path().join(name));
    run(&job(&source, &whole, Form::Packed)).unwrap();
    let whole = fs::read(&whole).unwrap();
    let head = Gguf::open(&source).unwrap().tensors()[0].offset as usize;
    let job = job(&source, &output, Form::Packed);
    let cut = whole.len() / 2 + 17;
    for damage in 0..4 {
        let mut left = whole.clone();
        match damage {
            0 => left.truncate(cut),
            1 => left[cut] ^= 0x40,
            // As after a power cut: the length is there, the bytes are not.
            2 => left[cut..].fill(0),
            _ => left.truncate(head / 2),
        }
        fs::write(partial(&output), left).unwrap();
        let report = run(&job).unwrap();
        assert!(report.kept_bytes < whole.len() as u64);
        assert!(fs::read(&output).unwrap() == whole);
        fs::remove_file(&output).unwrap();
    }
}

#[test]
fn an_unfinished_file_of_other_work_is_kept_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let output = folder.path().join("output");
    stop_at(&job(&source, &output, Form::Packed), Stage::Writing, 100_000);
    let left = fs::read(partial(&output)).unwrap();
    let other = job(&source, &output, Form::Stacked);
    assert_refused(&other, &["output.partial", "other work"]);
    assert!(fs::read(partial(&output)).unwrap() == left);
    run(&Pack { existing: Existing::Replace, ..other }).unwrap();
    assert_same(&Gguf::open(&source).unwrap(), &Gguf::open(&output).unwrap());
}

#[test]
fn the_source_and_what_is_there_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let before = fs::read(&source).unwrap();
    let output = folder.path().join("output");
    fs::write(&output, "precious").unwrap();
    assert_refused(&job(&source, &output, Form::Packed), &["output", "already exists"]);
    assert_eq!(fs::read(&output).unwrap(), b"precious");

    fn replace<'a>(source: &'a Path, output: &'a Path) -> Pack<'a> {
        Pack { existing: Existing::Replace, ..job(source, output, Form::Packed) }
    }
    assert_refused(
        &replace(&source, &folder.path().join(".").join("source.gguf")),
        &["that is to be packed"],
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&source, folder.path().join("link")).unwrap();
        fs::hard_link(&source, folder.path().join("other.partial")).unwrap();
        for name in ["link", "other"] {
            assert_refused(&replace(&source, &folder.path().join(name)), &["that is to be packed"]);
        }
    }
    assert!(fs::read(&source).unwrap() == before);
    assert_refused(&replace(&source, Path::new("")), &["name of the file to write"]);
    run(&replace(&source, &output)).unwrap();
    assert!(Gguf::open(&output).is_ok());
}

#[test]
fn a_source_that_changes_meanwhile_gives_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let output = folder.path().join("output");
    let outcome = pack(&job(&source, &output, Form::Packed), &mut |stage, _, _| {
        if stage == Stage::Verifying && fs::metadata(&source).unwrap().len().is_multiple_of(2) {
            fs::OpenOptions::new().append(true).open(&source).unwrap().set_len(1_000_001).unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(outcome, Err(FoundryError::SourceChanged { .. })), "{outcome:?}");
    assert!(!output.exists());
}

/// A file of these tensors, all of one value.
fn tensors(path: &Path, like: &Path, list: &[(&str, TensorType, &[u64])]) {
    let spec = |&(name, kind, dims): &(&str, TensorType, &[u64])| TensorSpec {
        name: name.to_string(),
        kind,
        dims: dims.to_vec(),
    };
    let specs: Vec<TensorSpec> = list.iter().map(spec).collect();
    let layout = Layout::new(Gguf::open(like).unwrap().metadata(), &specs).unwrap();
    let bytes: u64 = layout.tensors().iter().map(|(bytes, _)| bytes).sum();
    let mut writer = Writer::create(path, layout, Existing::Replace).unwrap();
    writer.write(&vec![1; bytes as usize]).unwrap();
    writer.finish().unwrap();
}

#[test]
fn experts_that_are_incomplete_or_unequal_or_there_twice_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let like = write(folder.path(), "like.gguf", &Synth { experts: 2, ..synth(Family::LlamaMoe) });
    let [path, output] = ["bad.gguf", "output"].map(|name| folder.path().join(name));
    const F: TensorType = TensorType::F32;
    let check = |list: &[(&str, TensorType, &[u64])], parts: &[&str]| {
        tensors(&path, &like, list);
        for form in [Form::Packed, Form::Stacked] {
            assert_refused(&job(&path, &output, form), &[&["bad.gguf"], parts].concat());
        }
        assert!(!output.exists() && !partial(&output).exists());
    };
    check(&[("blk.0.ffn_up.weight", F, &[32, 8])], &["no routed experts"]);
    let first: (&str, TensorType, &[u64]) = ("blk.0.ffn_up.0.weight", F, &[32, 8]);
    let second: (&str, TensorType, &[u64]) = ("blk.0.ffn_up.1.weight", F, &[32, 8]);
    check(&[second], &["blk.0.ffn_up.0.weight is missing"]);
    check(&[first, ("blk.0.ffn_up.4000000000.weight", F, &[32, 8])], &["blk.0.ffn_up.1.weight is missing"]);
    check(&[first, ("blk.0.ffn_up.1.weight", F, &[8, 32])], &["blk.0.ffn_up.1.weight", "[8, 32]"]);
    check(&[first, ("blk.0.ffn_up.1.weight", TensorType::Q8_0, &[32, 8])], &["Q8_0", "F32"]);
    check(&[first, ("blk.0.ffn_up_exps.weight", F, &[32, 8, 2])], &["hold the same experts"]);
    check(&[first], &["blk.0.ffn_up_exps.weight", "expected 2", "found 1"]);
    check(&[("blk.0.ffn_up_exps.weight", F, &[32, 8, 3])], &["expected 2", "found 3"]);
    check(&[("blk.0.ffn_up.0.weight", F, &[32]), ("blk.0.ffn_up.1.weight", F, &[32])], &["2 dimensions"]);
}

#[test]
fn a_damaged_source_is_refused_or_packed_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::LlamaMoe));
    let [packed, output] = ["packed", "output"].map(|name| folder.path().join(name));
    run(&job(&source, &packed, Form::Packed)).unwrap();
    let mut random = Rng::new(23);
    let (mut refused, mut done) = (0, 0);
    for path in [source, packed] {
        let valid = fs::read(&path).unwrap();
        let header = Gguf::open(&path).unwrap().tensors()[0].offset;
        for _ in 0..60 {
            let mut bytes = valid.clone();
            bytes[random.below(header) as usize] ^= 1 << random.below(8);
            fs::write(&path, bytes).unwrap();
            for form in [Form::Packed, Form::Stacked] {
                match run(&Pack { existing: Existing::Replace, ..job(&path, &output, form) }) {
                    Ok(_) => done += 1,
                    Err(error) => {
                        assert!(error.to_string().len() > 20, "{error}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 10 && done > 10, "{refused} refused, {done} done");
}

#[test]
fn what_belongs_to_experts_and_is_no_matrix_is_copied_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let like = write(folder.path(), "like.gguf", &Synth { experts: 2, ..synth(Family::LlamaMoe) });
    let [path, packed, stacked] = ["odd.gguf", "packed", "stacked"].map(|name| folder.path().join(name));
    const F: TensorType = TensorType::F32;
    tensors(
        &path,
        &like,
        &[
            ("blk.0.ffn_gate_up_exps.weight", F, &[32, 8, 2]),
            ("blk.0.ffn_down_exps.bias", F, &[8, 2]),
            ("blk.0.ffn_down_exps.weight", F, &[32, 8, 2]),
            ("blk.0.ffn_up_shexp.weight", F, &[32, 8]),
            ("blk.0.ffn_gate_inp.weight", F, &[32, 2]),
        ],
    );
    run(&job(&path, &packed, Form::Packed)).unwrap();
    let names: Vec<String> =
        Gguf::open(&packed).unwrap().tensors().iter().map(|tensor| tensor.name.clone()).collect();
    assert_eq!(
        names[..3],
        ["blk.0.ffn_gate_up.0.weight", "blk.0.ffn_down.0.weight", "blk.0.ffn_gate_up.1.weight"]
    );
    assert!(names.contains(&"blk.0.ffn_down_exps.bias".to_string()));
    run(&job(&packed, &stacked, Form::Stacked)).unwrap();
    assert_same(&Gguf::open(&path).unwrap(), &Gguf::open(&stacked).unwrap());
}

#[test]
fn the_gain_is_measured_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "source.gguf", &synth(Family::Qwen3Moe));
    let packed = folder.path().join("packed");
    run(&job(&source, &packed, Form::Packed)).unwrap();
    let bytes = 2 * (256 * 256 / 256 * 144) + 256 * 256 / 256 * 210;
    for gain in [expected_gain(&source), expected_gain(&packed), gain(&source, &packed)] {
        let gain = gain.unwrap().expect("the model is large enough");
        assert_eq!((gain.expert_bytes, gain.together), (bytes, 2));
        assert!(gain.apart_bytes_per_s > 0.0 && gain.share > -1.0);
    }
    assert_eq!(gain(&packed, &packed).unwrap(), None);
}
