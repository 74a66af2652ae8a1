//! Experts that are tensors of their own, as `adit pack` and converters of 2023 write them: the same bits as
//! stacked ones, wherever they lie, and clear errors where one is not what it should be.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Run, logits_of, tokens};
use crate::damaged::Outcomes;
use adit_format::rng::Rng;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_format::writer::{Existing, Layout, TensorSpec, Writer};
use adit_format::{Gguf, TensorInfo, TensorType};
use adit_model::IoKind;

/// A tensor to be written, with its bytes.
type Tensor = (TensorSpec, Vec<u8>);

fn stacked(folder: &Path, family: Family) -> PathBuf {
    let synth = Synth { layers: 3, experts: 6, types: WeightTypes::mixed(), seed: 5, ..Synth::new(family) };
    synth.write(&folder.join("stacked.gguf")).expect("the model is written")
}

fn bytes_of(file: &[u8], tensor: &TensorInfo) -> Vec<u8> {
    file[tensor.offset as usize..][..tensor.bytes as usize].to_vec()
}

/// All tensors of a model, with the experts apart; those of a layer in the order of their matrices.
fn apart(path: &Path) -> Vec<Tensor> {
    let (model, file) = (Gguf::open(path).unwrap(), fs::read(path).unwrap());
    let mut tensors = Vec::new();
    for tensor in model.tensors() {
        let bytes = bytes_of(&file, tensor);
        let spec = TensorSpec { name: tensor.name.clone(), kind: tensor.kind, dims: tensor.dims.clone() };
        let Some(stem) = tensor.name.strip_suffix("_exps.weight") else {
            tensors.push((spec, bytes));
            continue;
        };
        for (expert, slice) in bytes.chunks_exact(bytes.len() / tensor.dims[2] as usize).enumerate() {
            let name = format!("{stem}.{expert}.weight");
            let dims = tensor.dims[..2].to_vec();
            tensors.push((TensorSpec { name, kind: tensor.kind, dims }, slice.to_vec()));
        }
    }
    tensors
}

fn write(path: &Path, like: &Path, tensors: &[Tensor]) {
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let layout = Layout::new(Gguf::open(like).unwrap().metadata(), &specs).unwrap();
    let mut writer = Writer::create(path, layout, Existing::Replace).unwrap();
    tensors.iter().for_each(|(_, bytes)| writer.write(bytes).unwrap());
    writer.finish().unwrap();
}

#[test]
fn experts_apart_give_the_same_bits_in_any_order() {
    let tokens = tokens(30);
    for family in [Family::LlamaMoe, Family::Qwen3Moe] {
        let folder = tempfile::tempdir().unwrap();
        let source = stacked(folder.path(), family);
        let reference = Run::default().logits(&source, &tokens);
        let mut tensors = apart(&source);
        let path = folder.path().join("apart.gguf");
        for turn in 0..3 {
            match turn {
                0 => {}
                1 => tensors.reverse(),
                // An expert's matrices side by side, experts in no order.
                _ => tensors.sort_by_key(|(spec, _)| {
                    let expert = spec.name.split('.').nth(3).and_then(|number| number.parse::<u32>().ok());
                    (expert.map(|expert| expert * 5 % 6), spec.name.clone())
                }),
            }
            write(&path, &source, &tensors);
            for io in [IoKind::Auto, IoKind::Plain] {
                let run = Run { io, ..Run::default() };
                let mut model = run.load(&path).unwrap();
                assert!(logits_of(&mut model, 7, &tokens) == reference, "{family:?}, turn {turn}");
            }
        }
    }
}

#[test]
fn an_expert_that_is_missing_or_wrong_or_there_twice_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = stacked(folder.path(), Family::LlamaMoe);
    let tensors = apart(&source);
    let path = folder.path().join("apart.gguf");
    let at = |name: &str| tensors.iter().position(|(spec, _)| spec.name == name).unwrap();
    let check = |tensors: &[Tensor], parts: &[&str]| {
        write(&path, &source, tensors);
        let message = Run::default().load(&path).err().expect("the file is refused").to_string();
        for part in ["apart.gguf"].iter().chain(parts) {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    };
    for name in ["blk.0.ffn_gate.0.weight", "blk.2.ffn_down.5.weight", "blk.1.ffn_up.3.weight"] {
        let mut fewer = tensors.clone();
        fewer.remove(at(name));
        check(&fewer, &[name, "missing"]);
    }
    let mut more = tensors.clone();
    let (mut spec, bytes) = tensors[at("blk.1.ffn_up.3.weight")].clone();
    spec.name = "blk.1.ffn_up.6.weight".into();
    more.push((spec.clone(), bytes.clone()));
    check(&more, &["blk.1.ffn_up.6.weight", "no known part"]);

    let mut flat = tensors.clone();
    let up = at("blk.1.ffn_up.3.weight");
    flat[up].0.dims = vec![256, 128];
    flat[up].1.truncate(bytes.len() / 2);
    check(&flat, &["blk.1.ffn_up.3.weight", "[256, 128]", "[256, 256]"]);

    let mut other = tensors.clone();
    other[up].0.kind = TensorType::F32;
    other[up].1 = vec![0; 4 * 256 * 256];
    check(&other, &["blk.1.ffn_up.3.weight", "F32", "Q4_K"]);

    let mut both = tensors.clone();
    let name = "blk.1.ffn_up_exps.weight".to_string();
    let spec = TensorSpec { name, kind: spec.kind, dims: vec![256, 256, 6] };
    both.push((spec, bytes.repeat(6)));
    check(&both, &["blk.1.ffn_up_exps.weight", "blk.1.ffn_up.0.weight", "one of the two"]);

    let mut twice = tensors.clone();
    twice.push(tensors[up].clone());
    check(&twice, &["blk.1.ffn_up.3.weight", "already"]);
}

#[test]
fn damaged_files_of_experts_apart_fail_clearly_or_run() {
    let folder = tempfile::tempdir().unwrap();
    let source = stacked(folder.path(), Family::LlamaMoe);
    let path = folder.path().join("apart.gguf");
    write(&path, &source, &apart(&source));
    let valid = fs::read(&path).unwrap();
    let header = Gguf::open(&path).unwrap().tensors()[0].offset;
    let (mut outcomes, mut random) = (Outcomes::default(), Rng::new(29));
    for _ in 0..60 {
        let mut bytes = valid.clone();
        let at = random.below(header) as usize;
        bytes[at] ^= 1 << random.below(8);
        outcomes.check(&path, &bytes, &format!("bit flipped in byte {at}"));
    }
    assert!(outcomes.errors > 5 && outcomes.runs > 5, "{} errors, {} runs", outcomes.errors, outcomes.runs);
}
