//! The tokens of a model in compact form: texts in one piece of memory, found by id and by text.
//! Owns what a token is; knows not how text is cut into tokens, nor which ids are special.

use std::hash::{BuildHasher, RandomState};

use adit_format::Metadata;

use super::TokenizerError;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const KINDS: &str = "tokenizer.ggml.token_type";

/// An id that no vocabulary can reach.
pub(super) const NO_TOKEN: u32 = u32::MAX;
/// Far above every vocabulary there is (262,144), and small enough that sizes cannot overflow.
const TOKENS_MAX: usize = 1 << 24;

/// What a token is, as a set of bits: one names its kind, others may be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(u8);

impl Attributes {
    pub const NORMAL: Attributes = Attributes(1);
    pub const UNKNOWN: Attributes = Attributes(2);
    pub const CONTROL: Attributes = Attributes(4);
    pub const USER_DEFINED: Attributes = Attributes(8);
    pub const BYTE: Attributes = Attributes(16);
    /// Swallows the white space before it.
    pub const STRIP_LEFT: Attributes = Attributes(32);
    /// Swallows the white space after it.
    pub const STRIP_RIGHT: Attributes = Attributes(64);
    /// In the file, but not to be shown; also all numbers that no kind has.
    const NOTHING: Attributes = Attributes(0);

    /// `enum llama_token_type`, as files store it.
    fn of_kind(kind: i32) -> Attributes {
        match kind {
            1 => Attributes::NORMAL,
            2 => Attributes::UNKNOWN,
            3 => Attributes::CONTROL,
            4 => Attributes::USER_DEFINED,
            6 => Attributes::BYTE,
            _ => Attributes::NOTHING,
        }
    }

    pub fn has(self, any: Attributes) -> bool {
        self.0 & any.0 != 0
    }

    pub fn and(self, more: Attributes) -> Attributes {
        Attributes(self.0 | more.0)
    }
}

pub(super) struct Vocabulary {
    texts: Box<[u8]>,
    /// Where the text of token `id` ends in `texts`.
    ends: Box<[u32]>,
    attributes: Box<[Attributes]>,
    /// One a token, or none at all.
    scores: Box<[f32]>,
    index: Index,
    /// Bytes of the longest token.
    longest: usize,
}

impl Vocabulary {
    pub fn read(metadata: &Metadata) -> Result<Vocabulary, TokenizerError> {
        let strings = metadata.require_strings(TOKENS)?;
        let count = strings.len();
        if count == 0 || count > TOKENS_MAX {
            let problem = format!("{count} tokens; a vocabulary has 1 to {TOKENS_MAX}");
            return Err(TokenizerError::vocabulary(TOKENS, problem));
        }
        let bytes: usize = strings.iter().map(<[u8]>::len).sum();
        if u32::try_from(bytes).is_err() {
            return Err(TokenizerError::vocabulary(TOKENS, format!("{bytes} bytes of text, above 4 GiB")));
        }
        let kinds = metadata.i32s(KINDS)?;
        let scores = metadata.f32s(SCORES)?;
        check_count(KINDS, kinds.as_ref().map(Vec::len), count)?;
        check_count(SCORES, scores.as_ref().map(Vec::len), count)?;

        let mut texts = Vec::with_capacity(bytes);
        let mut ends = Vec::with_capacity(count);
        for text in strings.iter() {
            texts.extend_from_slice(text);
            ends.push(texts.len() as u32);
        }
        let attributes = (0..count)
            .map(|id| kinds.as_ref().map_or(Attributes::NORMAL, |kinds| Attributes::of_kind(kinds[id])));
        let mut vocabulary = Vocabulary {
            texts: texts.into(),
            ends: ends.into(),
            attributes: attributes.collect(),
            scores: scores.map_or_else(Box::default, Vec::into_boxed_slice),
            index: Index::with_room_for(count),
            longest: strings.iter().map(<[u8]>::len).max().unwrap_or(0),
        };
        vocabulary.fill_index()?;
        Ok(vocabulary)
    }

    fn fill_index(&mut self) -> Result<(), TokenizerError> {
        for id in 0..self.len() as u32 {
            let text = text_of(&self.texts, &self.ends, id);
            // Converters leave holes in a vocabulary as empty tokens: no text can mean them.
            if text.is_empty() {
                continue;
            }
            let (slot, found) = self.index.locate(text, |other| text_of(&self.texts, &self.ends, other));
            if let Some(first) = found {
                let shown = String::from_utf8_lossy(text);
                let problem = format!("tokens {first} and {id} are both {shown:?}");
                return Err(TokenizerError::vocabulary(TOKENS, problem));
            }
            self.index.slots[slot] = id;
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text of a token as the file has it. Panics where `id` is not below `len`.
    pub fn text(&self, id: u32) -> &[u8] {
        text_of(&self.texts, &self.ends, id)
    }

    pub fn find(&self, text: &[u8]) -> Option<u32> {
        if text.is_empty() || text.len() > self.longest {
            return None;
        }
        self.index.locate(text, |other| self.text(other)).1
    }

    /// A missing score counts as 0.
    pub fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    pub fn attributes(&self, id: u32) -> Attributes {
        self.attributes[id as usize]
    }

    pub fn set_attributes(&mut self, id: u32, attributes: Attributes) {
        self.attributes[id as usize] = attributes;
    }

    pub fn has(&self, id: u32, any: Attributes) -> bool {
        self.attributes(id).has(any)
    }

    /// Bytes of the longest token.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The byte that a token of the form `<0x0A>` stands for.
    pub fn byte(&self, id: u32) -> Option<u8> {
        let digits = self.text(id).strip_prefix(b"<0x")?.strip_suffix(b">")?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
        u8::from_str_radix(digits, 16).ok()
    }

    /// The tokens `<0x00>` to `<0xFF>`, `NO_TOKEN` for those that are missing.
    pub fn byte_tokens(&self) -> [u32; 256] {
        std::array::from_fn(|byte| self.find(format!("<0x{byte:02X}>").as_bytes()).unwrap_or(NO_TOKEN))
    }

    pub fn bytes_held(&self) -> usize {
        size_of_val(&*self.texts)
            + size_of_val(&*self.ends)
            + size_of_val(&*self.attributes)
            + size_of_val(&*self.scores)
            + size_of_val(&*self.index.slots)
    }
}

fn check_count(key: &'static str, found: Option<usize>, tokens: usize) -> Result<(), TokenizerError> {
    match found {
        Some(found) if found < tokens => {
            Err(TokenizerError::vocabulary(key, format!("{found} entries for {tokens} tokens")))
        }
        _ => Ok(()),
    }
}

fn text_of<'t>(texts: &'t [u8], ends: &[u32], id: u32) -> &'t [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &texts[start..ends[id] as usize]
}

/// Text -> id by open addressing: 4 bytes a slot, at most half of them full. The hash has a secret key, so
/// no file can be made whose tokens all fall together.
struct Index {
    slots: Box<[u32]>,
    hasher: RandomState,
}

impl Index {
    fn with_room_for(tokens: usize) -> Index {
        let slots = (tokens * 2).next_power_of_two();
        Index { slots: vec![NO_TOKEN; slots].into(), hasher: RandomState::new() }
    }

    /// The slot of `text`: where it is, with its id, or where it would go.
    fn locate<'t>(&self, text: &[u8], text_of: impl Fn(u32) -> &'t [u8]) -> (usize, Option<u32>) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(text) as usize & mask;
        loop {
            match self.slots[slot] {
                NO_TOKEN => return (slot, None),
                id if text_of(id) == text => return (slot, Some(id)),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bpe, integers, message};
    use super::*;

    #[test]
    fn tokens_are_found_by_text_and_by_id() {
        let vocabulary = Vocabulary::read(&bpe(&["a", "", "bc", "<0x0A>", ""], &[])).unwrap();
        assert_eq!(vocabulary.len(), 5);
        assert_eq!(vocabulary.find(b"bc"), Some(2));
        assert_eq!(vocabulary.find(b"b"), None);
        assert_eq!(vocabulary.find(b""), None);
        assert_eq!(vocabulary.text(2), b"bc");
        assert_eq!(vocabulary.byte(3), Some(10));
        assert_eq!(vocabulary.byte(2), None);
        assert_eq!(vocabulary.byte_tokens()[10], 3);
    }

    #[test]
    fn vocabularies_that_contradict_themselves_are_refused() {
        let read = |metadata| message(Vocabulary::read(&metadata).err());
        assert!(read(bpe(&[], &[])).contains("0 tokens"));
        let twins = read(bpe(&["a", "b", "a"], &[]));
        assert!(twins.contains("tokens 0 and 2 are both \"a\""), "{twins}");
        let mut short = bpe(&["a", "b"], &[]);
        short.set(KINDS, integers(&[1]));
        assert!(read(short).contains("1 entries for 2 tokens"));
        let mut none = bpe(&["a"], &[]);
        none.remove(TOKENS);
        assert!(read(none).contains(TOKENS));
    }
}
