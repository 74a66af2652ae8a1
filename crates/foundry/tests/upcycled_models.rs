//! What `upcycle` makes of synthetic models, and what it refuses.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use adit_format::synth::{Family, Synth, WeightTypes};
use adit_format::writer::Existing;
use adit_format::{Gguf, TensorType};
use adit_foundry::{FoundryError, Report, Upcycle, upcycle};

fn job<'a>(input: &'a Path, output: &'a Path) -> Upcycle<'a> {
    Upcycle { input, output, experts: 4, top_k: 2, seed: 1, existing: Existing::Refuse }
}

fn run(job: &Upcycle<'_>) -> Result<Report, FoundryError> {
    upcycle(job, &mut |_, _| ControlFlow::Continue(()))
}

#[track_caller]
fn assert_refused(job: &Upcycle<'_>, parts: &[&str]) {
    let message = run(job).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "expected {part:?} in: {message}");
    }
}

fn bytes_of(model: &Gguf, name: &str) -> Vec<u8> {
    let tensor = model.tensor(name).unwrap_or_else(|| panic!("{name} exists"));
    let file = fs::read(&model.parts()[tensor.part].path).unwrap();
    file[tensor.offset as usize..][..tensor.bytes as usize].to_vec()
}

fn dense(folder: &Path, model: Synth) -> PathBuf {
    model.write(&folder.join("dense.gguf")).unwrap()
}

#[test]
fn experts_are_changed_copies_and_the_rest_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth { types: WeightTypes::mixed(), ..Synth::new(Family::Llama) });
    let output = folder.path().join("moe.gguf");
    let report = run(&job(&input, &output)).unwrap();
    let (before, after) = (Gguf::open(&input).unwrap(), Gguf::open(&output).unwrap());

    assert_eq!((report.layers, report.experts, report.top_k), (2, 4, 2));
    assert_eq!((report.input_bytes, report.output_bytes), (before.bytes(), after.bytes()));
    assert_eq!(after.metadata().u32("llama.expert_count").unwrap(), Some(4));
    assert_eq!(after.metadata().u32("llama.expert_used_count").unwrap(), Some(2));
    let kept = after.metadata().iter().filter(|(key, _)| !key.starts_with("llama.expert"));
    assert!(kept.eq(before.metadata().iter()), "all other keys as they were, in their order");

    for tensor in before.tensors() {
        let Some(role) =
            ["gate", "up", "down"].iter().find(|role| tensor.name.contains(&format!("ffn_{role}.")))
        else {
            assert!(bytes_of(&before, &tensor.name) == bytes_of(&after, &tensor.name), "{}", tensor.name);
            continue;
        };
        let name = tensor.name.replace(&format!("ffn_{role}."), &format!("ffn_{role}_exps."));
        let experts = after.tensor(&name).unwrap();
        assert_eq!((experts.kind, &experts.dims[..2], experts.dims[2]), (tensor.kind, &tensor.dims[..], 4));
        let original = bytes_of(&before, &tensor.name);
        let copies = bytes_of(&after, &name);
        let copies: Vec<&[u8]> = copies.chunks_exact(original.len()).collect();
        assert_eq!(copies.len(), 4);
        for (index, copy) in copies.iter().enumerate() {
            let changed = copy.iter().zip(&original).filter(|(new, old)| new != old).count();
            assert!(changed > 0 && changed < original.len() / 20, "{changed} of {} bytes", original.len());
            assert!(copies[..index].iter().all(|other| other != copy), "no two experts are the same");
        }
    }
    assert_eq!(before.tensors().len() + 2, after.tensors().len(), "a router a layer is new");
}

#[test]
fn routers_spread_their_logits() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth::new(Family::Llama));
    let output = folder.path().join("moe.gguf");
    run(&Upcycle { experts: 64, ..job(&input, &output) }).unwrap();
    let model = Gguf::open(&output).unwrap();
    let router = model.tensor("blk.1.ffn_gate_inp.weight").unwrap();
    assert_eq!((router.kind, router.dims.as_slice()), (TensorType::F32, [256, 64].as_slice()));
    let floats = |name: &str| -> Vec<f32> {
        bytes_of(&model, name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let norm = floats("blk.1.ffn_norm.weight");
    // A normalised state of alternating signs.
    let state: Vec<f32> = norm
        .iter()
        .enumerate()
        .map(|(index, weight)| if index % 2 == 0 { *weight } else { -weight })
        .collect();
    let logits: Vec<f32> = floats("blk.1.ffn_gate_inp.weight")
        .chunks_exact(256)
        .map(|row| row.iter().zip(&state).map(|(weight, value)| weight * value).sum())
        .collect();
    let spread = (logits.iter().map(|logit| logit * logit).sum::<f32>() / 64.0).sqrt();
    assert!((1.0..2.0).contains(&spread), "{spread}");
}

#[test]
fn a_seed_always_makes_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth::new(Family::Llama));
    let make = |name: &str, seed| {
        let output = folder.path().join(name);
        run(&Upcycle { seed, ..job(&input, &output) }).unwrap();
        fs::read(output).unwrap()
    };
    let first = make("a.gguf", 1);
    assert!(first == make("b.gguf", 1));
    assert!(first != make("c.gguf", 2));
}

#[test]
fn every_type_with_float_scales_works_and_others_are_refused_by_name() {
    for kind in TensorType::ALL.into_iter().filter(|kind| kind.is_quantised() || kind.name().contains("F16"))
    {
        let folder = tempfile::tempdir().unwrap();
        let input = dense(folder.path(), Synth::new(Family::Llama).of_type(kind));
        let output = folder.path().join("moe.gguf");
        if kind == TensorType::Mxfp4 {
            assert_refused(&job(&input, &output), &["dense.gguf", "MXFP4", "another quantisation"]);
        } else {
            run(&job(&input, &output)).unwrap();
            Gguf::open(&output).unwrap();
        }
    }
}

#[test]
fn a_split_model_becomes_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth { parts: 3, ..Synth::new(Family::Llama) });
    let output = folder.path().join("moe.gguf");
    run(&job(&input, &output)).unwrap();
    let model = Gguf::open(&output).unwrap();
    assert_eq!(model.parts().len(), 1);
    assert!(!model.metadata().contains("split.count"));
}

#[test]
fn models_that_do_not_fit_the_recipe_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.gguf");
    for (family, word) in [(Family::LlamaMoe, "experts already"), (Family::Qwen3, "found qwen3")] {
        let input = Synth::new(family).write(&folder.path().join(format!("{family:?}.gguf"))).unwrap();
        assert_refused(&job(&input, &output), &[&format!("{family:?}.gguf"), word]);
    }
    let input = dense(folder.path(), Synth::new(Family::Llama));
    assert_refused(&Upcycle { experts: 1, ..job(&input, &output) }, &["2 to 1024", "got 1"]);
    assert_refused(&Upcycle { experts: 2000, ..job(&input, &output) }, &["got 2000"]);
    assert_refused(&Upcycle { top_k: 5, ..job(&input, &output) }, &["top-k", "1 to 4", "got 5"]);
    assert_refused(&Upcycle { top_k: 0, ..job(&input, &output) }, &["top-k"]);
    assert!(!output.exists());
}

#[test]
fn nothing_is_overwritten_unasked_and_never_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth::new(Family::Llama));
    let output = folder.path().join("out.gguf");
    fs::write(&output, "precious").unwrap();
    assert_refused(&job(&input, &output), &["out.gguf", "already exists"]);
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    run(&Upcycle { existing: Existing::Replace, ..job(&input, &output) }).unwrap();
    assert!(Gguf::open(&output).is_ok());

    let before = fs::read(&input).unwrap();
    let same = folder.path().join(".").join("dense.gguf");
    assert_refused(&Upcycle { existing: Existing::Replace, ..job(&input, &same) }, &["the same file"]);
    assert!(fs::read(&input).unwrap() == before);
}

#[test]
fn stopping_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let input = dense(folder.path(), Synth::new(Family::Llama));
    let output = folder.path().join("out.gguf");
    let mut calls = 0;
    let stopped = upcycle(&job(&input, &output), &mut |done, bytes| {
        assert!(done <= bytes);
        calls += 1;
        if calls < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(matches!(stopped, Err(FoundryError::Stopped { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the input is left");
}
