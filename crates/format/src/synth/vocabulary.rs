//! Tiny vocabularies that any text can be encoded with: every byte is a token, a few words are longer ones.

use crate::{Array, Metadata, Strings, Value};

/// What the file says of its tokeniser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// Byte-level BPE (`gpt2`) with this `tokenizer.ggml.pre`.
    Bpe(&'static str),
    /// SentencePiece (`llama`) with byte tokens.
    Spm,
    /// No tokens at all, only their number.
    Absent(u32),
}

/// `enum llama_token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
     message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\\n' }}{% endif %}";

const GEMMA: &str = "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + \
     ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + message['content'] | trim + \
     '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<start_of_turn>model\\n' }}{% endif %}";

/// Merges in order of rank; each makes one more token. `Ġ` is a blank and `Ċ` a line end.
const MERGES: [(&str, &str); 22] = [
    ("Ġ", "t"),
    ("h", "e"),
    ("i", "n"),
    ("r", "e"),
    ("Ġ", "a"),
    ("o", "n"),
    ("Ġt", "he"),
    ("e", "r"),
    ("n", "d"),
    ("Ġ", "s"),
    ("o", "r"),
    ("Ġ", "w"),
    ("in", "g"),
    ("Ġa", "nd"),
    ("l", "l"),
    ("o", "u"),
    ("Ġ", "o"),
    ("Ġo", "f"),
    ("Ġ", "Ġ"),
    ("ĠĠ", "ĠĠ"),
    ("Ċ", "Ċ"),
    ("0", "0"),
];

/// Pieces of the SPM vocabulary, best first; `▁` is a blank. Single characters follow them.
const PIECES: [&str; 16] =
    ["▁t", "he", "in", "▁a", "er", "on", "▁the", "re", "▁s", "nd", "ing", "or", "▁w", "▁and", "▁o", "▁of"];

/// Writes the keys of the vocabulary and returns its number of tokens.
pub(super) fn describe(vocabulary: &Vocabulary, gemma: bool, metadata: &mut Metadata) -> u32 {
    match vocabulary {
        Vocabulary::Bpe(pre) => describe_bpe(pre, metadata),
        Vocabulary::Spm => describe_spm(gemma, metadata),
        Vocabulary::Absent(size) => {
            metadata.set("tokenizer.ggml.model", Value::string("none"));
            *size
        }
    }
}

fn describe_bpe(pre: &str, metadata: &mut Metadata) -> u32 {
    let mut tokens: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(String::from).to_vec();
    let controls = tokens.len();
    tokens.extend((0..=255).map(|byte| byte_character(byte).to_string()));
    tokens.extend(MERGES.map(|(left, right)| format!("{left}{right}")));
    let types = (0..tokens.len()).map(|index| if index < controls { CONTROL } else { NORMAL }).collect();
    let merges: Strings = MERGES.iter().map(|(left, right)| format!("{left} {right}")).collect();

    metadata.set("tokenizer.ggml.model", Value::string("gpt2"));
    metadata.set("tokenizer.ggml.pre", Value::string(pre));
    metadata.set("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens.iter().collect())));
    metadata.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    metadata.set("tokenizer.ggml.merges", Value::Array(Array::Str(merges)));
    metadata.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    metadata.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    metadata.set("tokenizer.ggml.padding_token_id", Value::U32(0));
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    metadata.set("tokenizer.chat_template", Value::string(CHATML));
    tokens.len() as u32
}

/// The character that stands for a byte in a GPT-2 vocabulary: itself if printable, else one from U+0100 on.
fn byte_character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(0x100 + before).expect("U+0100 to U+0143 are characters")
}

fn describe_spm(gemma: bool, metadata: &mut Metadata) -> u32 {
    let controls: &[(&str, i32)] = if gemma {
        &[("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)]
    } else {
        &[("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    };
    let mut tokens: Vec<(String, f32, i32)> = Vec::new();
    tokens.extend(controls.iter().map(|&(text, kind)| (text.to_string(), 0.0, kind)));
    if gemma {
        tokens.extend(["<start_of_turn>", "<end_of_turn>"].map(|text| (text.to_string(), 0.0, CONTROL)));
    }
    tokens.extend((0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), 0.0, BYTE)));
    let characters = ('!'..='~').map(|character| character.to_string());
    let pieces = PIECES.map(String::from).into_iter().chain(["▁".to_string()]).chain(characters);
    tokens.extend(pieces.enumerate().map(|(rank, piece)| (piece, -(rank as f32), NORMAL)));

    let texts: Strings = tokens.iter().map(|(text, ..)| text).collect();
    metadata.set("tokenizer.ggml.model", Value::string("llama"));
    metadata.set("tokenizer.ggml.pre", Value::string("default"));
    metadata.set("tokenizer.ggml.tokens", Value::Array(Array::Str(texts)));
    let scores = tokens.iter().map(|&(_, score, _)| score).collect();
    metadata.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    let types = tokens.iter().map(|&(.., kind)| kind).collect();
    metadata.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    let [bos, eos, unknown] = if gemma { [2, 1, 3] } else { [1, 2, 0] };
    metadata.set("tokenizer.ggml.bos_token_id", Value::U32(bos));
    metadata.set("tokenizer.ggml.eos_token_id", Value::U32(eos));
    metadata.set("tokenizer.ggml.unknown_token_id", Value::U32(unknown));
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    metadata.set("tokenizer.ggml.add_eos_token", Value::Bool(false));
    metadata.set("tokenizer.ggml.add_space_prefix", Value::Bool(!gemma));
    if gemma {
        let end_of_turn = controls.len() as u32 + 1;
        metadata.set("tokenizer.ggml.padding_token_id", Value::U32(0));
        metadata.set("tokenizer.ggml.eot_token_id", Value::U32(end_of_turn));
        metadata.set("tokenizer.chat_template", Value::string(GEMMA));
    }
    tokens.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_as_gpt_2_writes_them() {
        assert_eq!([b' ', b'\n', 0, b'a', 0xad, 0xff].map(byte_character), ['Ġ', 'Ċ', 'Ā', 'a', 'Ń', 'ÿ']);
    }

    #[test]
    fn every_merge_joins_tokens_that_exist_into_one_that_exists() {
        let mut metadata = Metadata::new();
        let size = describe(&Vocabulary::Bpe("smollm"), false, &mut metadata);
        let tokens = metadata.require_strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), size as usize);
        let known: std::collections::HashSet<&[u8]> = tokens.iter().collect();
        assert_eq!(known.len(), tokens.len(), "no token twice");
        for (left, right) in MERGES {
            let whole = format!("{left}{right}");
            assert!([left, right, &whole].iter().all(|text| known.contains(text.as_bytes())), "{whole}");
        }
    }

    #[test]
    fn spm_tokens_are_unique() {
        for gemma in [false, true] {
            let mut metadata = Metadata::new();
            let size = describe(&Vocabulary::Spm, gemma, &mut metadata);
            let tokens = metadata.require_strings("tokenizer.ggml.tokens").unwrap();
            let known: std::collections::HashSet<&[u8]> = tokens.iter().collect();
            assert_eq!((known.len(), tokens.len()), (size as usize, size as usize));
        }
    }
}
