//! `adit perplexity`: the last line is the estimate, and it does not depend on how it is computed.

use std::fs;

use adit_format::synth::{Family, Synth};

use crate::home::Home;

fn estimate(home: &Home, extra: &[&str]) -> String {
    let mut arguments = vec!["perplexity", "tiny.gguf", "-f", "text.txt", "-c", "32"];
    arguments.extend(extra);
    home.run(&arguments).fine().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_last_line_is_the_estimate_in_every_budget() {
    let home = Home::new();
    Synth::new(Family::LlamaMoe).write(&home.path("tiny.gguf")).unwrap();
    fs::write(home.path("text.txt"), "It was the best of times, it was the worst of times.\n".repeat(3))
        .unwrap();
    let line = estimate(&home, &[]);
    let numbers = line.strip_prefix("Final estimate: PPL = ").unwrap_or_else(|| panic!("{line:?}"));
    let (perplexity, error) = numbers.split_once(" +/- ").unwrap_or_else(|| panic!("{line:?}"));
    let (perplexity, error): (f64, f64) = (perplexity.parse().unwrap(), error.parse().unwrap());
    assert!(perplexity > 1.0 && error > 0.0 && error < perplexity, "{line:?}");
    for extra in [&["--memory", "40M"][..], &["-t", "1"], &["--io", "plain"]] {
        assert_eq!(estimate(&home, extra), line, "{extra:?}");
    }
}

#[test]
fn a_text_shorter_than_one_chunk_is_refused() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    fs::write(home.path("text.txt"), "short").unwrap();
    let error = home.run(&["perplexity", "tiny.gguf", "-f", "text.txt"]).failed(1);
    assert!(error.contains("512") && error.contains("-c"), "{error}");
    home.run(&["perplexity", "tiny.gguf", "-f", "text.txt", "-c", "0"]).failed(2);
}

#[cfg(unix)]
#[test]
fn a_text_without_an_end_is_refused() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    for command in ["perplexity", "run", "tokenize"] {
        let error = home.run(&[command, "tiny.gguf", "-f", "/dev/zero"]).failed(1);
        assert!(error.contains("/dev/zero has more than"), "{error}");
    }
}
