//! `adit logits`: the same bits however they are computed, from files that need no vocabulary.

use std::fs;

use adit_format::synth::{Family, Synth};

use crate::home::Home;

const TOKENS: &str = "1,7,33,2,2,90,41,5,17";

fn logits(home: &Home, extra: &[&str]) -> Vec<u8> {
    let mut arguments = vec!["logits", "tiny.gguf", "--tokens", TOKENS, "-o", "out.f32"];
    arguments.extend(extra);
    assert_eq!(home.run(&arguments).fine(), "");
    let bytes = fs::read(home.path("out.f32")).unwrap();
    fs::remove_file(home.path("out.f32")).unwrap();
    bytes
}

#[test]
fn the_bits_do_not_depend_on_chunks_threads_reads_or_budget() {
    let home = Home::new();
    Synth::new(Family::Qwen3Moe).write(&home.path("tiny.gguf")).unwrap();
    let expected = logits(&home, &[]);
    let rows = TOKENS.split(',').count();
    assert_eq!(expected.len() % (rows * 4), 0);
    assert!(expected.as_chunks::<4>().0.iter().all(|logit| f32::from_le_bytes(*logit).is_finite()));
    let ways: [&[&str]; 5] = [
        &["--chunk", "1"],
        &["--chunk", "4", "-t", "1"],
        &["--chunk", "512", "-t", "2"],
        &["--io", "plain"],
        &["--memory", "40M", "--chunk", "2"],
    ];
    for way in ways {
        assert!(logits(&home, way) == expected, "{way:?} computes other bits");
    }
}

#[test]
fn the_format_of_keys_and_values_changes_little_but_is_heeded() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    let floats = |bytes: Vec<u8>| -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|logit| f32::from_le_bytes(*logit)).collect()
    };
    let exact = floats(logits(&home, &["--kv", "f32"]));
    let range = exact.iter().fold(0f32, |most, logit| most.max(logit.abs()));
    for kv in ["f16", "bf16", "q8_0"] {
        let near = floats(logits(&home, &["--kv", kv]));
        let apart = exact.iter().zip(&near).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart > 0.0 && apart < 0.1 * range, "{kv}: {apart} of {range}");
    }
}

#[test]
fn heads_that_q8_0_cannot_hold_are_refused_and_it_is_not_advised() {
    let home = Home::new();
    Synth { head_dim: 40, ..Synth::new(Family::Llama) }.write(&home.path("tiny.gguf")).unwrap();
    assert!(!logits(&home, &["--kv", "bf16"]).is_empty());
    let arguments = ["logits", "tiny.gguf", "--tokens", TOKENS, "-o", "out.f32"];
    let refused = home.run(&[&arguments[..], &["--kv", "q8_0"]].concat()).failed(1);
    assert!(refused.contains("multiple of 32") && refused.contains("40"), "{refused}");
    let small = home.run(&[&arguments[..], &["--memory", "1M"]].concat()).failed(1);
    assert!(!small.contains("q8_0"), "{small}");
}

#[test]
fn tokens_that_do_not_exist_are_wrong_usage_and_leave_no_file() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    for tokens in ["1,99999999", "", "1,,2", "a", "-1"] {
        home.run(&["logits", "tiny.gguf", "--tokens", tokens, "-o", "out.f32"]).failed(2);
    }
    let nowhere =
        home.run(&["logits", "tiny.gguf", "--tokens", "1", "-o", "no/such/folder/out.f32"]).failed(1);
    assert!(nowhere.contains("no/such/folder/out.f32"), "{nowhere}");
    assert!(!home.path("out.f32").exists());
}

#[test]
fn as_many_threads_as_the_pool_takes_work_and_more_are_wrong_usage() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    assert!(logits(&home, &["-t", "256"]) == logits(&home, &["-t", "1"]));
    home.run(&["logits", "tiny.gguf", "--tokens", "1", "-o", "out.f32", "-t", "257"]).failed(2);
}

#[cfg(unix)]
#[test]
fn an_output_that_is_no_ordinary_file_is_written_to_and_stays_what_it_is() {
    use std::os::unix::fs::symlink;
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    let expected = logits(&home, &[]);

    fs::write(home.path("target"), "old").unwrap();
    symlink("target", home.path("link")).unwrap();
    home.run(&["logits", "tiny.gguf", "--tokens", TOKENS, "-o", "link"]).fine();
    assert!(fs::symlink_metadata(home.path("link")).unwrap().is_symlink());
    assert!(fs::read(home.path("target")).unwrap() == expected);

    // Through a link, so that a mistake here costs the link and not the machine's device.
    symlink("/dev/full", home.path("full")).unwrap();
    let error = home.run(&["logits", "tiny.gguf", "--tokens", TOKENS, "-o", "full"]).failed(1);
    assert!(error.contains("full") && error.contains("space"), "{error}");
    assert!(fs::symlink_metadata(home.path("full")).unwrap().is_symlink());
}
