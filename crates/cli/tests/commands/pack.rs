//! `adit pack`: the same answers from a packed model, whatever reads it; never by accident, never half.

use std::fs;

use adit_format::synth::zoo::Animal;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_format::{Gguf, TensorType};
use serde_json::Value;

use crate::home::Home;

fn model(home: &Home, family: Family) {
    let synth = Synth { layers: 3, experts: 6, types: WeightTypes::mixed(), ..Synth::new(family) };
    synth.write(&home.path("moe.gguf")).unwrap();
}

#[test]
fn a_packed_model_gives_the_logits_of_its_source_and_so_does_the_stacked_one() {
    for family in [Family::LlamaMoe, Family::Qwen3Moe] {
        let home = Home::new();
        model(&home, family);
        home.run(&["pack", "moe.gguf", "-o", "packed.gguf"]).fine();
        home.run(&["pack", "packed.gguf", "--stacked", "-o", "stacked.gguf"]).fine();
        let logits = |model: &str, io: &str| {
            let tokens = "5,17,3,99,42,7,64,8,120,11,200,31";
            home.run(&["logits", model, "--tokens", tokens, "--io", io, "--chunk", "3", "-o", "out.f32"])
                .fine();
            fs::read(home.path("out.f32")).unwrap()
        };
        let expected = logits("moe.gguf", "auto");
        for model in ["packed.gguf", "stacked.gguf"] {
            for io in ["auto", "plain"] {
                assert!(logits(model, io) == expected, "{family:?}: {model} with {io}");
            }
        }
        let info = |model: &str| -> Value {
            let mut info: Value = serde_json::from_str(&home.run(&["info", model, "--json"]).fine()).unwrap();
            for key in ["file_bytes", "parts", "tensor_types"] {
                info.as_object_mut().unwrap().remove(key);
            }
            info
        };
        assert_eq!(info("packed.gguf"), info("moe.gguf"));
        assert_eq!(info("packed.gguf")["experts"]["per_layer"], 6);
    }
}

#[test]
fn experts_that_a_trace_uses_together_become_neighbours() {
    let home = Home::new();
    model(&home, Family::LlamaMoe);
    let line = r#"{"tok": 0, "layers": [[4, 1], [0, 5], [2, 3]]}"#;
    fs::write(home.path("trace.jsonl"), format!("{line}\n").repeat(3)).unwrap();
    home.run(&["pack", "moe.gguf", "--trace", "trace.jsonl", "-o", "packed.gguf"]).fine();
    let packed = Gguf::open(&home.path("packed.gguf")).unwrap();
    for (layer, order) in [[1, 4, 0, 2, 3, 5], [0, 5, 1, 2, 3, 4], [2, 3, 0, 1, 4, 5]].iter().enumerate() {
        let prefix = format!("blk.{layer}.ffn_gate.");
        let stored = packed.tensors().iter().filter_map(|tensor| tensor.name.strip_prefix(&prefix));
        let stored: Vec<u32> = stored.map(|rest| rest.split_once('.').unwrap().0.parse().unwrap()).collect();
        assert_eq!(stored, order);
    }
    fs::write(home.path("other.jsonl"), "{\"tok\": 0, \"layers\": [[1], [2]]}\n").unwrap();
    let error = home.run(&["pack", "moe.gguf", "--trace", "other.jsonl", "-o", "x.gguf"]).failed(1);
    assert!(error.contains("other.jsonl") && error.contains("2 layers"), "{error}");
    fs::write(home.path("other.jsonl"), "{\"tok\": 0, \"layers\": [[1], [2], [6]]}\n").unwrap();
    let error = home.run(&["pack", "moe.gguf", "--trace", "other.jsonl", "-o", "x.gguf"]).failed(1);
    assert!(error.contains("7 experts") && !home.path("x.gguf").exists(), "{error}");
}

#[test]
fn a_dry_run_writes_nothing_and_tells_what_packing_gains() {
    let home = Home::new();
    model(&home, Family::Qwen3Moe);
    let said = home.run(&["pack", "moe.gguf", "--dry-run"]).fine();
    assert!(
        said.contains("matrices apart") && said.contains("packing gains") && said.contains("turns"),
        "{said}"
    );
    assert_eq!(fs::read_dir(home.path(".")).unwrap().count(), 1);
}

#[test]
fn what_is_there_is_replaced_only_when_told_to_and_the_source_never() {
    let home = Home::new();
    model(&home, Family::LlamaMoe);
    fs::write(home.path("out.gguf"), "precious").unwrap();
    let error = home.run(&["pack", "moe.gguf", "-o", "out.gguf"]).failed(1);
    assert!(error.contains("out.gguf: already exists") && error.contains("--force"), "{error}");
    fs::write(home.path("new.gguf.partial"), "precious").unwrap();
    let error = home.run(&["pack", "moe.gguf", "-o", "new.gguf"]).failed(1);
    assert!(error.contains("new.gguf.partial") && error.contains("--force"), "{error}");
    for name in ["out.gguf", "new.gguf.partial"] {
        assert_eq!(fs::read(home.path(name)).unwrap(), b"precious");
    }
    let before = fs::read(home.path("moe.gguf")).unwrap();
    let error = home.run(&["pack", "moe.gguf", "-o", "./moe.gguf", "--force"]).failed(1);
    assert!(error.contains("that is to be packed"), "{error}");
    assert!(fs::read(home.path("moe.gguf")).unwrap() == before);
    home.run(&["pack", "moe.gguf", "-o", "out.gguf", "--force"]).fine();
    home.run(&["pack", "moe.gguf"]).failed(2);
    home.run(&["pack", "moe.gguf", "--stacked", "--dry-run"]).failed(2);
}

#[test]
fn a_model_without_experts_is_refused() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("dense.gguf")).unwrap();
    let error = home.run(&["pack", "dense.gguf", "-o", "out.gguf"]).failed(1);
    assert!(error.contains("no routed experts"), "{error}");
    assert!(!home.path("out.gguf").exists());
}

#[test]
fn gates_and_ups_in_one_tensor_biases_and_odd_formats_survive_packing() {
    let home = Home::new();
    for name in ["gemma4", "gpt-oss", "nemotron_h_moe"] {
        let animal = Animal::find(name).expect("a model of the zoo");
        let path = home.path(&format!("{name}.gguf"));
        animal.write(TensorType::Q8_0, 1, &path).unwrap();
        let source = format!("{name}.gguf");
        let packed = format!("{name}-packed.gguf");
        home.run(&["pack", &source, "-o", &packed]).fine();
        let logits = |model: &str| {
            home.run(&["logits", model, "--tokens", "5,17,3,99,42,7,64", "-o", "out.f32"]).fine();
            fs::read(home.path("out.f32")).unwrap()
        };
        assert!(logits(&packed) == logits(&source), "{name}");
    }
}
