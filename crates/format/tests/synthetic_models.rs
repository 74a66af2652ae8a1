//! Synthetic models are valid, whole and the same for the same seed.

use std::fs;

use adit_format::synth::{Family, RopeScaling, Synth, Vocabulary, WeightTypes};
use adit_format::{Gguf, TensorType};

#[test]
fn every_family_opens_with_its_keys_and_tensors() {
    let folder = tempfile::tempdir().unwrap();
    for family in Family::ALL {
        let path = Synth::new(family).write(&folder.path().join(format!("{family:?}.gguf"))).unwrap();
        let model = Gguf::open(&path).unwrap();
        let architecture = model.metadata().require_str("general.architecture").unwrap();
        assert_eq!(architecture, family.architecture());
        let tokens = model.metadata().require_strings("tokenizer.ggml.tokens").unwrap().len();
        assert_eq!(model.tensor("token_embd.weight").unwrap().dims, [256, tokens as u64]);
        assert_eq!(model.tensor("output.weight").is_none(), family == Family::Gemma3);
        assert_eq!(model.tensor("blk.0.attn_q.bias").is_some(), family == Family::Qwen2);
        match family.has_experts() {
            true => assert_eq!(model.tensor("blk.1.ffn_down_exps.weight").unwrap().dims, [256, 256, 8]),
            false => assert_eq!(model.tensor("blk.1.ffn_down.weight").unwrap().dims, [512, 256]),
        }
    }
}

#[test]
fn every_weight_type_can_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for kind in TensorType::ALL {
        let path = folder.path().join(format!("{kind}.gguf"));
        let written = Synth::new(Family::LlamaMoe).of_type(kind).write(&path);
        let is_number = matches!(kind.name(), "I8" | "I16" | "I32" | "I64" | "F64");
        assert_eq!(written.is_err(), is_number, "{kind}");
        if !is_number {
            let model = Gguf::open(&path).unwrap();
            assert_eq!(model.tensor("blk.0.ffn_up_exps.weight").unwrap().kind, kind);
        }
    }
}

#[test]
fn a_seed_always_makes_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, seed| {
        let model = Synth { seed, types: WeightTypes::mixed(), ..Synth::new(Family::Qwen3Moe) };
        fs::read(model.write(&folder.path().join(name)).unwrap()).unwrap()
    };
    let first = make("a.gguf", 7);
    assert!(first == make("b.gguf", 7));
    assert!(first != make("c.gguf", 8));
}

#[test]
fn a_split_model_has_the_same_tensors_as_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Synth { rope_scaling: RopeScaling::Factors, ..Synth::new(Family::Llama) };
    let split = Synth { parts: 3, ..whole.clone() };
    let whole = Gguf::open(&whole.write(&folder.path().join("m.gguf")).unwrap()).unwrap();
    let path = split.write(&folder.path().join("m.gguf")).unwrap();
    assert_eq!(path, folder.path().join("m-00001-of-00003.gguf"));
    let split = Gguf::open(&path).unwrap();

    assert_eq!((whole.parts().len(), split.parts().len()), (1, 3));
    assert_eq!(whole.tensors().len(), split.tensors().len());
    let data = |model: &Gguf, name: &str| {
        let tensor = model.tensor(name).unwrap();
        let bytes = fs::read(&model.parts()[tensor.part].path).unwrap();
        bytes[tensor.offset as usize..][..tensor.bytes as usize].to_vec()
    };
    for tensor in whole.tensors() {
        assert!(data(&whole, &tensor.name) == data(&split, &tensor.name), "{}", tensor.name);
    }
}

#[test]
fn a_model_without_a_vocabulary_says_only_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let model = Synth { vocabulary: Vocabulary::Absent(100), ..Synth::new(Family::Qwen3) };
    let model = Gguf::open(&model.write(&folder.path().join("m.gguf")).unwrap()).unwrap();
    assert_eq!(model.metadata().u32("qwen3.vocab_size").unwrap(), Some(100));
    assert!(!model.metadata().contains("tokenizer.ggml.tokens"));
}
