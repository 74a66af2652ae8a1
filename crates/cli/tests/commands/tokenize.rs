//! `adit tokenize`: numbers and commas, from a text given either way.

use std::fs;

use adit_format::synth::{Family, Synth};

use crate::home::Home;

#[test]
fn a_text_becomes_numbers_and_control_tokens_only_when_asked() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    fs::write(home.path("text.txt"), "ab\n").unwrap();
    let tokens = |extra: &[&str]| home.run(&[&["tokenize", "tiny.gguf"], extra].concat()).fine();
    // Three control tokens come before the 256 bytes.
    assert_eq!(tokens(&["-p", "ab"]), "100,101\n");
    assert_eq!(tokens(&["-f", "text.txt"]), "100,101,13\n");
    assert_eq!(tokens(&["-p", ""]), "\n");
    assert_eq!(tokens(&["-p", "a<|im_end|>", "--parse-special"]), "100,2\n");
    assert_ne!(tokens(&["-p", "a<|im_end|>"]), "100,2\n");
}

#[test]
fn what_is_no_text_is_refused() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    fs::write(home.path("bytes.bin"), [0xff, 0xfe, 0x00]).unwrap();
    let error = home.run(&["tokenize", "tiny.gguf", "-f", "bytes.bin"]).failed(1);
    assert!(error.contains("bytes.bin"), "{error}");
    home.run(&["tokenize", "tiny.gguf"]).failed(2);
}

#[test]
fn a_damaged_vocabulary_is_refused_with_the_name_of_its_file() {
    let home = Home::new();
    let path = home.path("tiny.gguf");
    Synth::new(Family::Llama).write(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let key = b"tokenizer.ggml.model";
    let at = bytes.windows(key.len()).position(|found| found == key).expect("the key");
    // Behind the key: its type, the length of its value, then the value.
    bytes[at + key.len() + 4 + 8] = b'X';
    fs::write(&path, bytes).unwrap();
    let error = home.run(&["tokenize", "tiny.gguf", "-p", "a"]).failed(1);
    assert!(error.contains("tiny.gguf: tokenizer.ggml.model"), "{error}");
}
