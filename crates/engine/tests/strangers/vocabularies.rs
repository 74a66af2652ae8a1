//! Token ids on strangers' vocabularies: the pairs that come with them, and texts of our own.

use std::path::Path;
use std::sync::Arc;

use adit_engine::{ControlTokens, Detokenizer, Tokenizer, TokenizerError};
use adit_format::Gguf;

use crate::fetch::models;

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";
/// Those that lie beside texts and expected ids, but for `bert-bge`, a WPM vocabulary.
const PAIRS: [&str; 14] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

fn open(models: &Path, name: &str) -> Result<Tokenizer, TokenizerError> {
    let gguf = Gguf::open(&models.join(format!("ggml-vocab-{name}.gguf"))).unwrap();
    Tokenizer::from_metadata(gguf.metadata())
}

/// Says where two sequences part, with the pieces of text around.
fn assert_ids(name: &str, tokenizer: &Tokenizer, found: &[u32], expected: &[u32]) {
    if found == expected {
        return;
    }
    let at = found.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let show = |ids: &[u32]| -> Vec<String> {
        let around = &ids[at.saturating_sub(3).min(ids.len())..(at + 5).min(ids.len())];
        let text = |id: &u32| tokenizer.token_text(*id).unwrap_or_default().into_owned();
        around.iter().map(|id| format!("{id} {:?}", text(id))).collect()
    };
    panic!("{name}: token {at}\n   found {:?}\nexpected {:?}", show(found), show(expected));
}

#[test]
fn ids_equal_those_of_every_pair() {
    let Some(models) = models() else { return };
    for name in PAIRS {
        let tokenizer = open(&models, name).unwrap();
        let read =
            |end| std::fs::read_to_string(models.join(format!("ggml-vocab-{name}.gguf.{end}"))).unwrap();
        let (inputs, outputs) = (read("inp"), read("out"));
        // A separator follows the last text too.
        let inputs: Vec<&str> = inputs.strip_suffix(SEPARATOR).unwrap_or(&inputs).split(SEPARATOR).collect();
        let outputs: Vec<&str> = outputs.lines().collect();
        assert_eq!(inputs.len(), outputs.len(), "{name}");
        for (text, ids) in inputs.iter().zip(outputs) {
            let expected: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let found = tokenizer.encode(text, false, false).unwrap();
            assert_ids(&format!("{name}: {text:?}"), &tokenizer, &found, &expected);
        }
    }
}

#[test]
fn ids_of_our_texts_equal_those_of_llama_cpp() {
    let Some(models) = models() else { return };
    let expected: serde_json::Value = serde_json::from_str(include_str!("ids.json")).unwrap();
    let plain = include_str!("multilingual.txt");
    let special = include_str!("special.txt");
    for (name, ids) in expected.as_object().unwrap() {
        let tokenizer = open(&models, name).unwrap();
        let expected = |which: &str| -> Vec<u32> {
            ids[which].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        let found = tokenizer.encode(plain, false, false).unwrap();
        assert_ids(&format!("{name}, plain"), &tokenizer, &found, &expected("plain"));
        let found = tokenizer.encode(special, true, true).unwrap();
        assert_ids(&format!("{name}, special"), &tokenizer, &found, &expected("special"));
    }
}

#[test]
fn streamed_tokens_give_the_text_back() {
    let Some(models) = models() else { return };
    let text = include_str!("multilingual.txt");
    for name in PAIRS {
        let tokenizer = Arc::new(open(&models, name).unwrap());
        let ids = tokenizer.encode(text, false, false).unwrap();
        let mut detokenizer = Detokenizer::new(tokenizer, ControlTokens::Hidden);
        let mut found: String = ids.iter().map(|&id| detokenizer.push(id).to_string()).collect();
        found.push_str(detokenizer.finish());
        let text = match name {
            // It has no token for this byte.
            "falcon" => text.replace('\u{b}', ""),
            // To them this character is the space.
            "gemma-4" | "llama-spm" | "phi-3" => text.replace('\u{2581}', " "),
            _ => text.to_string(),
        };
        let at = found.bytes().zip(text.bytes()).take_while(|(found, expected)| found == expected).count();
        let around =
            |text: &str| String::from_utf8_lossy(&text.as_bytes()[at..text.len().min(at + 30)]).into_owned();
        assert!(found == text, "{name}, byte {at}: {:?}, not {:?}", around(&found), around(&text));
    }
}

#[test]
fn vocabularies_of_other_kinds_are_refused_by_name() {
    let Some(models) = models() else { return };
    for (name, kind) in [("bert-bge", "bert"), ("nomic-bert-moe", "t5")] {
        let refused = open(&models, name).err().unwrap().to_string();
        assert!(refused.contains(&format!("{kind:?}")), "{refused}");
    }
}
