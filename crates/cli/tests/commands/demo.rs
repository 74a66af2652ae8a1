//! `adit demo`, with a tiny model where the pulled one would lie, so that it needs no network.

use std::fs;

use adit_format::synth::{Family, Synth};

use crate::home::Home;

#[test]
fn the_demo_makes_its_model_once_and_answers_within_the_budget() {
    let home = Home::new();
    let pulled = home.path("cache/models/alias/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
    fs::create_dir_all(pulled.parent().unwrap()).unwrap();
    Synth::new(Family::Llama).write(&pulled).unwrap();
    let run = || {
        let said = home.run(&["demo", "--memory", "64M"]);
        let said_below = said.stderr.clone();
        (said.fine(), said_below)
    };
    let (answer, below) = run();
    assert!(answer.len() > 1, "{answer:?}");
    for words in [
        "making 32 experts",
        "the budget of 64.0 MB",
        "> Why is the sky blue?",
        "of 64 MB | hits",
        "MB/token",
    ] {
        assert!(below.contains(words), "{words} is not in\n{below}");
    }
    let (again, below) = run();
    assert_eq!(again, answer);
    assert!(!below.contains("making"), "{below}");
}
