//! `adit forge upcycle`: a dense model becomes a mixture of experts, once, and never by accident.

use std::fs;

use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::Home;

fn dense(home: &Home) {
    Synth::new(Family::Llama).write(&home.path("dense.gguf")).unwrap();
}

#[test]
fn upcycling_makes_the_experts_that_were_asked_for() {
    let home = Home::new();
    dense(&home);
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--experts", "5", "--top-k", "3"]).fine();
    let info: Value = serde_json::from_str(&home.run(&["info", "moe.gguf", "--json"]).fine()).unwrap();
    assert_eq!(info["experts"]["per_layer"], 5);
    assert_eq!(info["experts"]["used_per_token"], 3);
    assert_eq!(info["architecture"], "llama");
}

#[test]
fn an_existing_file_is_replaced_only_when_told_to() {
    let home = Home::new();
    dense(&home);
    fs::write(home.path("moe.gguf"), "precious").unwrap();
    let error = home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf"]).failed(1);
    assert!(error.contains("moe.gguf: already exists") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(home.path("moe.gguf")).unwrap(), b"precious");
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--force"]).fine();
    home.run(&["info", "moe.gguf"]).fine();
}

#[test]
fn what_cannot_be_upcycled_is_refused_and_leaves_nothing() {
    let home = Home::new();
    Synth::new(Family::Qwen2).write(&home.path("dense.gguf")).unwrap();
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf"]).failed(1);
    assert!(!home.path("moe.gguf").exists());
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--experts", "1"]).failed(2);
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--experts", "1025"]).failed(2);
    home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--experts", "4", "--top-k", "5"]).failed(2);
}

#[test]
fn a_folder_in_the_place_of_the_output_is_refused_before_the_work() {
    let home = Home::new();
    dense(&home);
    fs::create_dir(home.path("moe.gguf")).unwrap();
    let error = home.run(&["forge", "upcycle", "dense.gguf", "moe.gguf", "--force"]).failed(1);
    assert!(error.contains("moe.gguf") && error.contains("no ordinary file"), "{error}");
}
