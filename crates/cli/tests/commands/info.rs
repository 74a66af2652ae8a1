//! `adit info`: what it says of files that hold experts, come in parts, or are no models at all.

use std::fs;

use adit_format::TensorType;
use adit_format::synth::zoo::Animal;
use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::Home;

fn json(home: &Home, file: &str) -> Value {
    serde_json::from_str(&home.run(&["info", file, "--json"]).fine()).expect("one JSON object")
}

#[test]
fn experts_and_backbone_add_up_to_the_tensors() {
    let home = Home::new();
    let synth = Synth { experts: 8, experts_used: 2, layers: 3, ..Synth::new(Family::Qwen3Moe) };
    synth.write(&home.path("moe.gguf")).unwrap();
    let info = json(&home, "moe.gguf");
    let number = |pointer: &str| info.pointer(pointer).and_then(Value::as_u64).expect(pointer);
    assert_eq!(info["architecture"], "qwen3moe");
    assert_eq!(
        [number("/experts/layers"), number("/experts/per_layer"), number("/experts/used_per_token")],
        [3, 8, 2]
    );
    assert_eq!(number("/experts/bytes"), 3 * 8 * number("/experts/expert_bytes_max"));
    let types = info["tensor_types"].as_array().unwrap();
    let total: u64 = types.iter().map(|kind| kind["bytes"].as_u64().unwrap()).sum();
    assert_eq!(number("/backbone_bytes") + number("/experts/bytes"), total);
    assert!(number("/parameters_per_token") < number("/parameters"));
}

#[test]
fn a_person_reads_the_same_facts_as_text() {
    let home = Home::new();
    Synth { layers: 2, context: 640, ..Synth::new(Family::Llama) }.write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["info", "tiny.gguf"]).fine();
    for line in ["architecture   llama", "layers         2", "context        640", "experts        none"] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn latents_and_shared_experts_are_told() {
    let home = Home::new();
    let deepseek = Animal::find("deepseek2").expect("a model of the zoo");
    deepseek.write(TensorType::F32, 1, &home.path("tiny.gguf")).unwrap();
    let info = json(&home, "tiny.gguf");
    let [latent, rotated] = [0, 1].map(|at| info["latent"][at].as_u64().expect("two numbers"));
    let shared = info["shared_expert_bytes"].as_u64().unwrap();
    assert!(shared > 0 && shared < info["backbone_bytes"].as_u64().unwrap());
    let text = home.run(&["info", "tiny.gguf"]).fine();
    let heads = format!(", a latent of {latent} + {rotated} values");
    assert!(text.lines().any(|line| line.starts_with("heads ") && line.ends_with(&heads)), "{text}");
    assert!(text.lines().any(|line| line.starts_with("shared experts ")), "{text}");
}

#[test]
fn the_parts_of_a_split_model_are_one_model() {
    let home = Home::new();
    let first = Synth { parts: 3, ..Synth::new(Family::Qwen2) }.write(&home.path("split.gguf")).unwrap();
    let info = json(&home, first.to_str().unwrap());
    assert_eq!(info["parts"].as_array().unwrap().len(), 3);
    // Pulled into the cache by the first part's name, it is still one model.
    let pulled = home.run(&["pull", first.to_str().unwrap()]).fine();
    assert_eq!(json(&home, pulled.trim_end())["tensor_types"], info["tensor_types"]);
}

#[test]
fn what_is_no_model_is_one_clear_line() {
    let home = Home::new();
    fs::write(home.path("page.gguf"), "<!DOCTYPE html><title>Sign in</title>").unwrap();
    let error = home.run(&["info", "page.gguf"]).failed(1);
    assert!(error.contains("page.gguf"), "{error}");
    let error = home.run(&["info", "missing.gguf"]).failed(1);
    assert!(error.contains("missing.gguf"), "{error}");
}

#[test]
fn text_in_a_file_does_not_steer_the_terminal() {
    let home = Home::new();
    let path = Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let name = b"general.architecture";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 12;
    bytes[at] = 0x1b;
    fs::write(&path, bytes).unwrap();
    let said = home.run(&["info", "tiny.gguf"]);
    assert!(!said.stdout.contains('\u{1b}') && !said.stderr.contains('\u{1b}'), "{said:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_leaves_ends_the_command_quietly_and_a_full_disk_does_not() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = home.command().args(["info", "tiny.gguf"]).stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = home.command().args(["info", "tiny.gguf"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{output:?}");
}
