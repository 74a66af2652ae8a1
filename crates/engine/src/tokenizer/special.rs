//! The tokens that mean more than their text: begin, end, end of generation; and which tokens are found in a
//! text before it is split. Follows llama.cpp, because files carry only part of this and rely on the names.
//! Knows not how text is cut into tokens.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use adit_format::Metadata;

use super::TokenizerError;
use super::vocabulary::{Attributes, TOKENS, Vocabulary};

/// Ends a turn, in the order in which one is taken as *the* end of turn.
const END_OF_TURN: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];
const END_OF_MESSAGE: [&str; 1] = ["<|eom_id|>"];
/// Ends a generation besides those above.
const END_OF_GENERATION: [&str; 10] = [
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];
/// Fill-in-the-middle tokens after which a model has nothing more to say.
const FILL_PAD: [&str; 5] = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FILL_REPOSITORY: [&str; 5] = ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FILL_FILE: [&str; 1] = ["<|file_sep|>"];
/// Parts of the harmony format that are to be shown.
const SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

pub(super) struct Specials {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub end_of_turn: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// All tokens that end a generation, ascending.
    pub ends: Vec<u32>,
}

/// What a kind of tokeniser assumes where the file is silent.
pub(super) struct Defaults {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
}

impl Specials {
    /// Reads the ids of the file, finds others by their names, and marks in `vocabulary` what those names
    /// mean.
    pub fn read(
        metadata: &Metadata,
        vocabulary: &mut Vocabulary,
        defaults: &Defaults,
    ) -> Result<Specials, TokenizerError> {
        let in_range = |id: &u32| (*id as usize) < vocabulary.len();
        let bos = id(metadata, "tokenizer.ggml.bos_token_id", vocabulary)?;
        let eos = id(metadata, "tokenizer.ggml.eos_token_id", vocabulary)?;
        let turn = id(metadata, "tokenizer.ggml.eot_token_id", vocabulary)?;
        let message = id(metadata, "tokenizer.ggml.eom_token_id", vocabulary)?;
        // Never put into a text by themselves: an id out of range does no harm.
        let quiet = |key| metadata.u32(key).ok().flatten().filter(in_range);
        let unknown = quiet("tokenizer.ggml.unknown_token_id").or(defaults.unknown.filter(in_range));
        let pad = quiet("tokenizer.ggml.fim_pad_token_id");
        let repository = quiet("tokenizer.ggml.fim_rep_token_id");
        let file = quiet("tokenizer.ggml.fim_sep_token_id");

        let mut specials = Specials {
            bos: bos.or(defaults.bos.filter(in_range)),
            eos: eos.or(defaults.eos.filter(in_range)),
            unknown,
            end_of_turn: turn.or_else(|| control_named(vocabulary, &END_OF_TURN)),
            add_bos: false,
            add_eos: false,
            ends: Vec::new(),
        };
        specials.add_bos = flag(metadata, "tokenizer.ggml.add_bos_token", defaults.add_bos, specials.bos)?;
        specials.add_eos = flag(metadata, "tokenizer.ggml.add_eos_token", false, specials.eos)?;

        specials.ends.extend(specials.eos);
        specials.ends.extend(specials.end_of_turn);
        specials.ends.extend(message.or_else(|| control_named(vocabulary, &END_OF_MESSAGE)));
        specials.ends.extend(pad.or_else(|| control_named(vocabulary, &FILL_PAD)));
        specials.ends.extend(repository.or_else(|| control_named(vocabulary, &FILL_REPOSITORY)));
        specials.ends.extend(file.or_else(|| control_named(vocabulary, &FILL_FILE)));
        for name in END_OF_TURN.iter().chain(&END_OF_MESSAGE).chain(&END_OF_GENERATION) {
            specials.ends.extend(control_named(vocabulary, &[name]));
        }
        specials.settle(vocabulary);
        strip_white_space(metadata, vocabulary);
        Ok(specials)
    }

    /// Names that mean something else beside certain others, and the final order.
    fn settle(&mut self, vocabulary: &mut Vocabulary) {
        for name in SHOWN {
            if let Some(id) = vocabulary.find(name.as_bytes()) {
                vocabulary.set_attributes(id, Attributes::USER_DEFINED);
            }
        }
        self.ends.sort_unstable();
        self.ends.dedup();
        let ends = |name: &str| {
            let id = vocabulary.find(name.as_bytes())?;
            self.ends.binary_search(&id).ok().map(|_| id)
        };
        let call = ends("<|call|>").is_some() || ends("<|calls|>").is_some();
        let harmony = call && (ends("<|return|>").is_some() || ends("<|flush|>").is_some());
        // In the harmony format `<|end|>` ends one part of an answer, not the answer.
        let end = ends("<|end|>").filter(|_| harmony);
        // Gemma 4 and PLaMo have `</s>` as ordinary text.
        let text = ends("<|tool_response>").is_some() || ends("<|plamo:eos|>").is_some();
        let slash_s = ends("</s>").filter(|_| text);
        self.ends.retain(|&id| Some(id) != end && Some(id) != slash_s);
        end.into_iter().for_each(|id| vocabulary.set_attributes(id, Attributes::USER_DEFINED));
        slash_s.into_iter().for_each(|id| vocabulary.set_attributes(id, Attributes::NORMAL));
    }
}

fn id(
    metadata: &Metadata,
    key: &'static str,
    vocabulary: &Vocabulary,
) -> Result<Option<u32>, TokenizerError> {
    match metadata.u32(key)? {
        Some(id) if id as usize >= vocabulary.len() => {
            let problem = format!("token {id} of a vocabulary of {} tokens", vocabulary.len());
            Err(TokenizerError::vocabulary(key, problem))
        }
        id => Ok(id),
    }
}

/// Whether to add the token `id`: the file's word, which needs an id, or the default where there is one.
fn flag(
    metadata: &Metadata,
    key: &'static str,
    default: bool,
    id: Option<u32>,
) -> Result<bool, TokenizerError> {
    match metadata.bool(key)? {
        Some(true) if id.is_none() => {
            Err(TokenizerError::vocabulary(key, "true, but no such token is named"))
        }
        Some(flag) => Ok(flag),
        None => Ok(default && id.is_some()),
    }
}

/// The first of `names` that the vocabulary has; it becomes a control token, whatever the file says.
fn control_named(vocabulary: &mut Vocabulary, names: &[&str]) -> Option<u32> {
    let id = names.iter().find_map(|name| vocabulary.find(name.as_bytes()))?;
    let attributes = vocabulary.attributes(id);
    vocabulary.set_attributes(id, attributes.and(Attributes::CONTROL));
    Some(id)
}

/// Which tokens swallow white space beside them is in no file: it goes by names of models.
fn strip_white_space(metadata: &Metadata, vocabulary: &mut Vocabulary) {
    let pre = metadata.str("tokenizer.ggml.pre").ok().flatten().unwrap_or_default();
    let name = metadata.str("general.name").ok().flatten().unwrap_or_default().to_lowercase();
    if ["jina-v2-de", "jina-v2-es"].contains(&pre) {
        if let Some(mask) = vocabulary.find(b"<mask>") {
            vocabulary.set_attributes(mask, vocabulary.attributes(mask).and(Attributes::STRIP_LEFT));
        }
    } else if name.contains("phi-3") || name.contains("phi3") {
        for id in 0..vocabulary.len() as u32 {
            let exempt = [b"<unk>".as_slice(), b"<s>", b"<|endoftext|>"].contains(&vocabulary.text(id));
            let special = is_special(vocabulary.attributes(id)) || vocabulary.text(id) == b"</s>";
            if special && !exempt {
                vocabulary.set_attributes(id, vocabulary.attributes(id).and(Attributes::STRIP_RIGHT));
            }
        }
    }
}

fn is_special(attributes: Attributes) -> bool {
    attributes.has(Attributes::CONTROL.and(Attributes::USER_DEFINED).and(Attributes::UNKNOWN))
}

/// A piece of a text: a special token, or words between them.
pub(super) enum Fragment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Finds special tokens in a text: the longest one at the leftmost place.
pub(super) struct Finder {
    /// Those that are found even in text that nobody vouches for.
    user_defined: Option<Automaton>,
    all: Option<Automaton>,
}

struct Automaton {
    search: AhoCorasick,
    ids: Box<[u32]>,
}

impl Finder {
    pub fn new(vocabulary: &Vocabulary) -> Result<Finder, TokenizerError> {
        let control = Attributes::CONTROL.and(Attributes::UNKNOWN);
        Ok(Finder {
            user_defined: Automaton::new(vocabulary, |of| {
                of.has(Attributes::USER_DEFINED) && !of.has(control)
            })?,
            all: Automaton::new(vocabulary, is_special)?,
        })
    }

    /// Calls `visit` with the fragments of `text` in order. Control tokens count only with `parse_special`.
    pub fn split<'t, E>(
        &self,
        text: &'t str,
        parse_special: bool,
        vocabulary: &Vocabulary,
        mut visit: impl FnMut(Fragment<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let automaton = if parse_special { &self.all } else { &self.user_defined };
        let white: &[char] = &[' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];
        let mut rest = text;
        while let Some((id, start, end)) = automaton.as_ref().and_then(|automaton| automaton.find(rest)) {
            let attributes = vocabulary.attributes(id);
            let (mut before, mut after) = (&rest[..start], &rest[end..]);
            if attributes.has(Attributes::STRIP_LEFT) {
                before = before.trim_end_matches(white);
            }
            if attributes.has(Attributes::STRIP_RIGHT) {
                after = after.trim_start_matches(white);
            }
            if !before.is_empty() {
                visit(Fragment::Text(before))?;
            }
            visit(Fragment::Token(id))?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { visit(Fragment::Text(rest)) }
    }

    pub fn bytes_held(&self) -> usize {
        let held = |automaton: &Automaton| automaton.search.memory_usage() + size_of_val(&*automaton.ids);
        self.user_defined.as_ref().map_or(0, held) + self.all.as_ref().map_or(0, held)
    }
}

impl Automaton {
    fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(Attributes) -> bool,
    ) -> Result<Option<Automaton>, TokenizerError> {
        // A token that is not valid UTF-8 could match within a character; no text can name it anyway.
        let ids: Box<[u32]> = (0..vocabulary.len() as u32)
            .filter(|&id| wanted(vocabulary.attributes(id)))
            .filter(|&id| !vocabulary.text(id).is_empty() && std::str::from_utf8(vocabulary.text(id)).is_ok())
            .collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(ids.iter().map(|&id| vocabulary.text(id)))
            .map_err(|error| TokenizerError::vocabulary(TOKENS, format!("special tokens: {error}")))?;
        Ok(Some(Automaton { search, ids }))
    }

    /// The first special token in `text`, with the bytes it takes.
    fn find(&self, text: &str) -> Option<(u32, usize, usize)> {
        let found = self.search.find(Input::new(text))?;
        Some((self.ids[found.pattern().as_usize()], found.start(), found.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bpe, integers, message};
    use super::*;
    use adit_format::Value;

    fn specials(metadata: &Metadata) -> Result<(Specials, Vocabulary), TokenizerError> {
        let mut vocabulary = Vocabulary::read(metadata)?;
        let defaults = Defaults { bos: None, eos: None, unknown: None, add_bos: false };
        let specials = Specials::read(metadata, &mut vocabulary, &defaults)?;
        Ok((specials, vocabulary))
    }

    #[test]
    fn generation_ends_at_named_ids_and_at_well_known_names() {
        let mut metadata = bpe(&["a", "<|im_end|>", "<|endoftext|>", "stop", "<|fim_pad|>"], &[]);
        metadata.set("tokenizer.ggml.eos_token_id", Value::U32(3));
        let (found, vocabulary) = specials(&metadata).unwrap();
        assert_eq!(found.ends, [1, 2, 3, 4]);
        assert_eq!((found.eos, found.end_of_turn), (Some(3), Some(1)));
        assert!(vocabulary.has(1, Attributes::CONTROL) && !vocabulary.has(3, Attributes::CONTROL));
    }

    #[test]
    fn in_the_harmony_format_end_ends_a_part_only() {
        let harmony = bpe(&["<|end|>", "<|return|>", "<|call|>", "<|message|>"], &[]);
        let (found, vocabulary) = specials(&harmony).unwrap();
        assert_eq!(found.ends, [1, 2]);
        assert!(!vocabulary.has(0, Attributes::CONTROL) && !vocabulary.has(3, Attributes::CONTROL));
        assert_eq!(specials(&bpe(&["<|end|>", "a"], &[])).unwrap().0.ends, [0]);
    }

    #[test]
    fn ids_out_of_range_and_flags_without_an_id_are_refused() {
        let mut metadata = bpe(&["a"], &[]);
        metadata.set("tokenizer.ggml.bos_token_id", Value::U32(9));
        let problem = message(specials(&metadata).err());
        assert!(problem.contains("bos_token_id: token 9 of a vocabulary of 1"), "{problem}");
        let mut metadata = bpe(&["a"], &[]);
        metadata.set("tokenizer.ggml.add_eos_token", Value::Bool(true));
        assert!(message(specials(&metadata).err()).contains("add_eos_token"));
    }

    fn fragments(metadata: &Metadata, text: &str, parse_special: bool) -> Vec<String> {
        let (_, vocabulary) = specials(metadata).unwrap();
        let mut all = Vec::new();
        let keep = |fragment: Fragment<'_>| {
            all.push(match fragment {
                Fragment::Token(id) => format!("#{id}"),
                Fragment::Text(text) => text.to_string(),
            });
            Ok::<(), ()>(())
        };
        Finder::new(&vocabulary).unwrap().split(text, parse_special, &vocabulary, keep).unwrap();
        all
    }

    #[test]
    fn control_tokens_count_only_when_parsed_and_user_defined_ones_always() {
        let mut metadata = bpe(&["<s>", "<s><s>", "  ", "é"], &[]);
        metadata.set("tokenizer.ggml.token_type", integers(&[3, 3, 4, 1]));
        assert_eq!(fragments(&metadata, "<s>a  b", false), ["<s>a", "#2", "b"]);
        assert_eq!(fragments(&metadata, "é<s><s><s>a  ", true), ["é", "#1", "#0", "a", "#2"]);
        assert_eq!(fragments(&metadata, "", true), [""; 0]);
    }

    #[test]
    fn phi_3_swallows_white_space_after_special_tokens() {
        let mut metadata = bpe(&["<|user|>", "<s>"], &[]);
        metadata.set("tokenizer.ggml.token_type", integers(&[3, 3]));
        metadata.set("general.name", Value::string("Phi-3 mini"));
        assert_eq!(fragments(&metadata, "<s> a <|user|> \n b", true), ["#1", " a ", "#0", "b"]);
    }
}
