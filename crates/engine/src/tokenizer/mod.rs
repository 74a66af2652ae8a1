//! Text to token ids and back, by the vocabulary inside a GGUF file. Owns the order of the steps: special
//! tokens first, then white space rules, then BPE or SPM. Knows nothing of chat templates and of lanes.

mod alphabet;
mod bpe;
mod error;
mod pre;
mod special;
mod split;
mod spm;
mod vocabulary;

use std::borrow::Cow;

use adit_format::Metadata;

pub use error::TokenizerError;

use bpe::Bpe;
use pre::{Letters, Pre};
use special::{Defaults, Finder, Fragment, Specials};
use spm::{SPACE, Spm};
use vocabulary::{Attributes, Vocabulary};

/// Positions within a text are kept in 32 bits, and a space may become three bytes.
const TEXT_BYTES_MAX: usize = 1 << 30;

pub struct Tokenizer {
    vocabulary: Vocabulary,
    specials: Specials,
    finder: Finder,
    model: Model,
    /// A text, and one after a special token, is read as if a space came before it.
    add_space_prefix: bool,
    /// Several spaces count as one, and those at the ends as none.
    remove_extra_spaces: bool,
}

enum Model {
    Bpe(Bpe, Letters),
    Spm(Spm),
}

/// Memory of one encoding, whatever the model.
#[derive(Default)]
struct Scratch {
    bpe: bpe::Scratch,
    spm: spm::Scratch,
    text: String,
}

impl Tokenizer {
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::read(metadata).map_err(|error| error.in_file(metadata.path()))
    }

    fn read(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let model = metadata.require_str("tokenizer.ggml.model")?;
        let mut vocabulary = match model {
            "gpt2" | "gemma4" | "llama" => Vocabulary::read(metadata)?,
            _ => return Err(TokenizerError::UnknownModel { model: model.to_string() }),
        };
        let named_pre = match model {
            "gemma4" => Some("gemma4"),
            "llama" => None,
            _ => Some(metadata.str("tokenizer.ggml.pre")?.filter(|pre| !pre.is_empty()).unwrap_or("default")),
        };
        let pre = match named_pre {
            None => None,
            Some(name) => {
                Some(Pre::named(name).ok_or_else(|| TokenizerError::UnknownPre { pre: name.to_string() })?)
            }
        };
        let defaults = match pre {
            Some(pre) => Defaults { bos: None, eos: None, unknown: None, add_bos: pre.add_bos },
            None => Defaults { bos: Some(1), eos: Some(2), unknown: Some(0), add_bos: true },
        };
        let specials = Specials::read(metadata, &mut vocabulary, &defaults)?;
        let model = match pre {
            Some(pre) => Model::Bpe(Bpe::read(metadata, &vocabulary, pre)?, pre.letters),
            None => Model::Spm(Spm::new(&vocabulary, specials.unknown)),
        };
        let add_space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?;
        let remove_extra_spaces = metadata.bool("tokenizer.ggml.remove_extra_whitespaces")?;
        let spm = matches!(model, Model::Spm(_));
        Ok(Tokenizer {
            finder: Finder::new(&vocabulary)?,
            vocabulary,
            specials,
            model,
            add_space_prefix: spm && add_space_prefix.unwrap_or(true),
            remove_extra_spaces: spm && remove_extra_spaces.unwrap_or(false),
        })
    }

    /// The tokens of `text`. With `add_special`, begin and end tokens are added where the model wants them;
    /// with `parse_special`, the names of control tokens in the text become those tokens. Leave it off for
    /// text that a stranger wrote.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TokenizerError::TooLong { bytes: text.len(), most: TEXT_BYTES_MAX });
        }
        let mut tokens = Vec::new();
        if add_special && self.specials.add_bos {
            tokens.extend(self.specials.bos);
        }
        let mut scratch = Scratch::default();
        let mut after_special = true;
        self.finder.split(text, parse_special, &self.vocabulary, |fragment| {
            match fragment {
                Fragment::Token(id) => tokens.push(id),
                Fragment::Text(text) => self.encode_text(text, after_special, &mut scratch, &mut tokens)?,
            }
            after_special = matches!(fragment, Fragment::Token(_));
            Ok::<(), TokenizerError>(())
        })?;
        if add_special && self.specials.add_eos {
            tokens.extend(self.specials.eos);
        }
        Ok(tokens)
    }

    /// The tokens of what a chat template made, which may begin with `bos` by itself: it comes once.
    pub fn encode_conversation(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = self.encode(text, false, true)?;
        if self.specials.add_bos && tokens.first().copied() != self.specials.bos {
            tokens.splice(0..0, self.specials.bos);
        }
        Ok(tokens)
    }

    fn encode_text(
        &self,
        text: &str,
        after_special: bool,
        scratch: &mut Scratch,
        tokens: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match &self.model {
            Model::Bpe(bpe, Letters::Bytes) => bpe.encode(text, &self.vocabulary, &mut scratch.bpe, tokens),
            Model::Bpe(bpe, Letters::Characters) => {
                scratch.text.clear();
                append_escaped(text, &mut scratch.text);
                bpe.encode(&scratch.text, &self.vocabulary, &mut scratch.bpe, tokens);
            }
            Model::Spm(spm) => {
                scratch.text.clear();
                if self.add_space_prefix && after_special {
                    scratch.text.push_str(SPACE);
                }
                if self.remove_extra_spaces {
                    let words = text.split(' ').filter(|word| !word.is_empty());
                    words.enumerate().for_each(|(index, word)| {
                        scratch.text.push_str(if index == 0 { "" } else { SPACE });
                        scratch.text.push_str(word);
                    });
                } else {
                    append_escaped(text, &mut scratch.text);
                }
                spm.encode(&scratch.text, &self.vocabulary, &mut scratch.spm, tokens)?;
            }
        }
        Ok(())
    }

    /// Appends the bytes that a token stands for: not always whole characters. Nothing for a number that is
    /// no token, or one that the file marks as unused.
    pub fn append_bytes(&self, id: u32, out: &mut Vec<u8>) {
        if id as usize >= self.vocabulary.len() {
            return;
        }
        let text = self.vocabulary.text(id);
        let attributes = self.vocabulary.attributes(id);
        if self.is_control(id) || attributes.has(Attributes::USER_DEFINED) {
            out.extend_from_slice(text);
        } else if attributes.has(Attributes::NORMAL) {
            match &self.model {
                // A token that is not spelt in the byte alphabet stands for its own text.
                Model::Bpe(_, Letters::Bytes) if alphabet::decode(text, out) => {}
                Model::Bpe(_, Letters::Bytes) => out.extend_from_slice(text),
                Model::Bpe(_, Letters::Characters) | Model::Spm(_) => append_unescaped(text, out),
            }
        } else if attributes.has(Attributes::BYTE) {
            match self.vocabulary.byte(id) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(text),
            }
        }
    }

    /// What `append_bytes` appends.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_bytes(id, &mut bytes);
        bytes
    }

    /// The text of a token as the file has it, for showing.
    pub fn token_text(&self, id: u32) -> Option<Cow<'_, str>> {
        let known = (id as usize) < self.vocabulary.len();
        known.then(|| String::from_utf8_lossy(self.vocabulary.text(id)))
    }

    /// The token whose text in the file is exactly `text`.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.vocabulary.find(text.as_bytes())
    }

    pub fn bos(&self) -> Option<u32> {
        self.specials.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.specials.eos
    }

    pub fn end_of_turn(&self) -> Option<u32> {
        self.specials.end_of_turn
    }

    /// Whether `encode` with `add_special` begins with `bos`.
    pub fn adds_bos(&self) -> bool {
        self.specials.add_bos
    }

    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.specials.ends.binary_search(&id).is_ok()
    }

    /// All tokens that end a generation, ascending.
    pub fn ends_of_generation(&self) -> &[u32] {
        &self.specials.ends
    }

    /// Whether a token steers the model and is no text for readers.
    pub fn is_control(&self, id: u32) -> bool {
        let control = Attributes::CONTROL.and(Attributes::UNKNOWN);
        (id as usize) < self.vocabulary.len() && self.vocabulary.has(id, control)
    }

    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Whether the first space of a decoded text is one that `encode` put there.
    pub(crate) fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// The most bytes that `append_bytes` appends.
    pub(crate) fn token_bytes_max(&self) -> usize {
        self.vocabulary.longest()
    }

    /// The memory that the tables keep, for the plan: all but the compiled patterns, which take a few MiB.
    pub fn bytes_held(&self) -> usize {
        let merges = match &self.model {
            Model::Bpe(bpe, _) => bpe.bytes_held(),
            Model::Spm(_) => 0,
        };
        self.vocabulary.bytes_held() + self.finder.bytes_held() + merges
    }
}

fn append_escaped(text: &str, out: &mut String) {
    for (index, part) in text.split(' ').enumerate() {
        out.push_str(if index == 0 { "" } else { SPACE });
        out.push_str(part);
    }
}

fn append_unescaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        if rest.starts_with(SPACE.as_bytes()) {
            out.push(b' ');
            rest = &rest[SPACE.len()..];
        } else {
            out.push(byte);
            rest = &rest[1..];
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
