//! The tokeniser on vocabularies small enough to read; strangers' vocabularies are in `tests/`.

use adit_format::{Array, Metadata, Strings, Value};

use super::*;

pub(crate) fn strings(texts: &[&str]) -> Value {
    Value::Array(Array::Str(texts.iter().collect::<Strings>()))
}

pub(crate) fn integers(numbers: &[i32]) -> Value {
    Value::Array(Array::I32(numbers.to_vec()))
}

pub(crate) fn message(error: Option<TokenizerError>) -> String {
    error.map(|error| error.to_string()).unwrap_or_default()
}

/// A byte-level BPE vocabulary that splits as gpt-2 does.
pub(crate) fn bpe(tokens: &[&str], merges: &[&str]) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("tokenizer.ggml.model", Value::string("gpt2"));
    metadata.set("tokenizer.ggml.pre", Value::string("gpt-2"));
    metadata.set("tokenizer.ggml.tokens", strings(tokens));
    metadata.set("tokenizer.ggml.merges", strings(merges));
    metadata
}

/// An SPM vocabulary; the first token is the unknown one.
pub(crate) fn spm(tokens: &[(&str, f32)]) -> Metadata {
    let mut metadata = Metadata::new();
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
    let scores = tokens.iter().map(|(_, score)| *score).collect();
    let kind = |(id, text): (usize, &&str)| match (id, text.starts_with("<0x")) {
        (0, _) => 2,
        (_, true) => 6,
        (_, false) => 1,
    };
    let kinds: Vec<i32> = texts.iter().enumerate().map(kind).collect();
    metadata.set("tokenizer.ggml.model", Value::string("llama"));
    metadata.set("tokenizer.ggml.tokens", strings(&texts));
    metadata.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    metadata.set("tokenizer.ggml.token_type", integers(&kinds));
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    metadata
}

fn tokenizer(metadata: &Metadata) -> Tokenizer {
    Tokenizer::from_metadata(metadata).unwrap()
}

fn encode(metadata: &Metadata, text: &str) -> Vec<u32> {
    tokenizer(metadata).encode(text, true, true).unwrap()
}

fn decode(metadata: &Metadata, ids: &[u32]) -> String {
    let tokenizer = tokenizer(metadata);
    let mut bytes = Vec::new();
    ids.iter().for_each(|&id| tokenizer.append_bytes(id, &mut bytes));
    String::from_utf8(bytes).unwrap()
}

#[test]
fn bpe_merges_by_rank_then_from_the_left() {
    let metadata = bpe(&["a", "b", "c", "ab", "bc", "abc", "aa"], &["b c", "a b", "a bc", "a a"]);
    assert_eq!(encode(&metadata, "abc"), [5]);
    assert_eq!(encode(&metadata, "ab"), [3]);
    assert_eq!(encode(&metadata, "aaa"), [6, 0]);
    assert_eq!(encode(&metadata, "aabcab"), [0, 5, 3]);
    assert_eq!(decode(&metadata, &[0, 5, 3]), "aabcab");
}

#[test]
fn bpe_knows_any_byte_and_leaves_out_one_without_a_token() {
    let metadata = bpe(&["Ġ", "Ã", "©", "Ã©"], &["Ã ©"]);
    assert_eq!(encode(&metadata, "é é"), [3, 0, 3]);
    assert_eq!(encode(&metadata, "éx"), [3]);
    assert_eq!(decode(&metadata, &[3, 0, 1, 2]), "é é");
}

#[test]
fn whole_words_need_no_merges_where_the_kind_says_so() {
    let mut metadata = bpe(&["h", "i", "hi", "Ġhi", "Ġ"], &[]);
    assert_eq!(encode(&metadata, "hi hi"), [0, 1, 4, 0, 1]);
    metadata.set("tokenizer.ggml.pre", Value::string("llama-bpe"));
    assert_eq!(encode(&metadata, "hi hi"), [2, 3]);
}

#[test]
fn gemma_4_merges_characters_and_spells_what_it_lacks() {
    let tokens = ["\u{2581}", "a", "\u{2581}a", "<0xC3>", "<0xA9>", "\n\n", "\n"];
    let mut metadata = bpe(&tokens, &["\u{2581} a"]);
    metadata.set("tokenizer.ggml.model", Value::string("gemma4"));
    metadata.set("tokenizer.ggml.token_type", integers(&[1, 1, 1, 6, 6, 1, 1]));
    assert_eq!(encode(&metadata, "a aé\n\n"), [1, 2, 3, 4, 5]);
    assert_eq!(decode(&metadata, &[1, 2, 3, 4, 5]), "a aé\n\n");
}

#[test]
fn spm_merges_the_best_score_first_and_spells_the_rest() {
    let with_bytes = [("<unk>", 0.0), ("▁", -5.0), ("a", -5.0), ("b", -5.0), ("▁a", -2.0), ("ab", -1.0)];
    let bytes = [("<0xC3>", 0.0), ("<0xA9>", 0.0)];
    let metadata = spm(&[&with_bytes[..], &bytes[..]].concat());
    assert_eq!(encode(&metadata, "ab a"), [1, 5, 4]);
    assert_eq!(encode(&metadata, "é"), [1, 6, 7]);
    assert_eq!(encode(&metadata, "ü"), [1, 0], "a character without all its bytes is unknown");
    assert_eq!(encode(&metadata, ""), [0; 0]);
    assert_eq!(decode(&metadata, &[1, 5, 4, 6, 7]), " ab aé");
}

#[test]
fn spm_adds_and_removes_spaces_as_the_file_says() {
    let mut metadata = spm(&[("<unk>", 0.0), ("▁", -5.0), ("a", -5.0), ("▁▁", -1.0)]);
    assert_eq!(encode(&metadata, " a  a"), [3, 2, 3, 2]);
    metadata.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    assert_eq!(encode(&metadata, " a  a"), [1, 2, 3, 2]);
    metadata.set("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(true));
    assert_eq!(encode(&metadata, " a  a "), [2, 1, 2]);
}

#[test]
fn spm_merges_over_spaces_if_a_token_does() {
    let inner = [("<unk>", 0.0), ("▁", -5.0), ("a", -5.0), ("a▁a", -1.0), ("▁a", -3.0), ("a▁", -2.0)];
    assert_eq!(encode(&spm(&inner), "a a"), [1, 3]);
}

#[test]
fn begin_and_end_are_added_where_asked_for() {
    let mut metadata = bpe(&["<s>", "</s>", "a"], &[]);
    metadata.set("tokenizer.ggml.token_type", integers(&[3, 3, 1]));
    metadata.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    metadata.set("tokenizer.ggml.eos_token_id", Value::U32(1));
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    metadata.set("tokenizer.ggml.add_eos_token", Value::Bool(true));
    let tokenizer = tokenizer(&metadata);
    assert_eq!(tokenizer.encode("a", true, false).unwrap(), [0, 2, 1]);
    assert_eq!(tokenizer.encode("a<s>", false, true).unwrap(), [2, 0]);
    assert_eq!(tokenizer.encode("<s>", false, false).unwrap(), [0; 0], "its letters are no tokens");
    assert!(tokenizer.is_end_of_generation(1) && !tokenizer.is_end_of_generation(0));
    assert!(tokenizer.is_control(0) && !tokenizer.is_control(2) && !tokenizer.is_control(77));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab_size()), (Some(0), Some(1), 3));
    assert_eq!((tokenizer.token("a"), tokenizer.token("b")), (Some(2), None));
    assert_eq!(tokenizer.token_text(9), None);
}

#[test]
fn a_rendered_conversation_begins_once() {
    let mut metadata = bpe(&["<s>", "a"], &[]);
    metadata.set("tokenizer.ggml.token_type", integers(&[3, 1]));
    metadata.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let conversation = |text| tokenizer(&metadata).encode_conversation(text).unwrap();
    assert_eq!(conversation("<s>a"), [0, 1]);
    assert_eq!(conversation("a<s>"), [0, 1, 0]);
    assert_eq!(conversation(""), [0]);
    assert_eq!(encode(&metadata, "<s>a"), [0, 0, 1]);
}

#[test]
fn unknown_kinds_are_refused_by_name() {
    let refused = |key: &str, name: &str| {
        let mut metadata = bpe(&["a"], &[]);
        metadata.set(key, Value::string(name));
        message(Tokenizer::from_metadata(&metadata).err())
    };
    for model in ["bert", "t5", "rwkv", "no such"] {
        assert!(refused("tokenizer.ggml.model", model).contains(model));
    }
    assert!(refused("tokenizer.ggml.pre", "klingon").contains("klingon"));
}

#[test]
fn merges_that_make_no_sense_are_refused() {
    let refused = |merges: &[&str]| message(Tokenizer::from_metadata(&bpe(&["a", "b", "ab"], merges)).err());
    assert!(refused(&["a b", "ab"]).contains("merge 1, \"ab\", has no space"));
    assert!(refused(&["a x"]).contains("names no token"));
    assert!(refused(&["b a"]).contains("names no token"), "of what it makes");
    assert!(refused(&[""]).contains("merge 0"));
    let mut none = bpe(&["a"], &[]);
    none.remove("tokenizer.ggml.merges");
    assert!(message(Tokenizer::from_metadata(&none).err()).contains("tokenizer.ggml.merges"));
}

#[test]
fn of_equal_merges_the_first_counts() {
    let metadata = bpe(&["a", "b", "c", "ab", "bc"], &["a b", "b c", "a b"]);
    assert_eq!(encode(&metadata, "abc"), [3, 2]);
}

#[test]
fn long_texts_take_linear_memory_and_time() {
    let mut tokens: Vec<String> = (1..=16).map(|length| "a".repeat(length)).collect();
    tokens.splice(0..0, ["<unk>".into(), "▁".into()]);
    let scored: Vec<(&str, f32)> = tokens.iter().map(|text| (text.as_str(), -(text.len() as f32))).collect();
    let text = "a".repeat(1 << 20);
    assert_eq!(decode(&spm(&scored), &encode(&spm(&scored), &text)).len(), text.len() + 1);
    let merges: Vec<String> = (1..16).map(|length| format!("{} a", "a".repeat(length))).collect();
    let metadata = bpe(
        &tokens.iter().map(String::as_str).collect::<Vec<_>>(),
        &merges.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(decode(&metadata, &encode(&metadata, &text)), text);
}

/// Pseudo-random numbers below a bound: Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn text(&mut self) -> String {
        const PARTS: [&str; 14] =
            ["a", "b", "ab", " ", "▁", "Ġ", "é", "<0x41>", "<0xZZ>", "<s>", "\n", "漢", "", "<|im_end|>"];
        (0..self.below(4)).map(|_| PARTS[self.below(PARTS.len())]).collect()
    }

    fn metadata(&mut self) -> Metadata {
        let mut tokens: Vec<String> = (0..self.below(40)).map(|_| self.text()).collect();
        tokens.sort();
        tokens.dedup();
        let merges: Vec<String> =
            (0..self.below(20)).map(|_| format!("{} {}", self.text(), self.text())).collect();
        let count = (tokens.len() + self.below(8)).saturating_sub(self.below(2) * 4);
        let mut metadata = bpe(&[], &[]);
        let model = ["gpt2", "llama", "gemma4"][self.below(3)];
        metadata.set("tokenizer.ggml.model", Value::string(model));
        metadata
            .set("tokenizer.ggml.tokens", strings(&tokens.iter().map(String::as_str).collect::<Vec<_>>()));
        if self.below(2) == 0 {
            let merges = merges.iter().map(String::as_str).collect::<Vec<_>>();
            metadata.set("tokenizer.ggml.merges", strings(&merges));
        }
        if self.below(2) == 0 {
            let kinds = (0..count).map(|_| self.below(9) as i32 - 1).collect::<Vec<_>>();
            metadata.set("tokenizer.ggml.token_type", integers(&kinds));
        }
        let scores = [0.0, -1.5, f32::NAN, f32::INFINITY, -0.0];
        let scores = (0..count).map(|_| scores[self.below(5)]).collect();
        metadata.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
        for name in ["bos", "eos", "eot", "unknown", "fim_pad"] {
            if self.below(3) == 0 {
                let key = format!("tokenizer.ggml.{name}_token_id");
                metadata.set(&key, Value::U32([0, 1, 5, 30, u32::MAX][self.below(5)]));
            }
        }
        for name in ["add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"] {
            if self.below(3) == 0 {
                metadata.set(&format!("tokenizer.ggml.{name}"), Value::Bool(self.below(2) == 0));
            }
        }
        metadata
    }
}

#[test]
fn vocabularies_made_of_nonsense_are_refused_or_work() {
    let mut random = Random(0x5EED);
    let mut made = 0;
    for _ in 0..3000 {
        let Ok(tokenizer) = Tokenizer::from_metadata(&random.metadata()) else { continue };
        made += 1;
        for _ in 0..4 {
            let text: String = (0..random.below(20)).map(|_| random.text()).collect();
            if let Ok(ids) = tokenizer.encode(&text, random.below(2) == 0, random.below(2) == 0) {
                assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                ids.iter().for_each(|&id| drop(tokenizer.token_bytes(id)));
            }
        }
        assert!(tokenizer.ends_of_generation().iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    }
    assert!(made > 300, "only {made} were taken, which tests little");
}
