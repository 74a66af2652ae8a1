//! Tokens become text while they arrive, whole characters only. Owns the bytes of a character that is not
//! complete yet; knows nothing of where tokens come from. Allocates nothing once it is made.

use std::sync::Arc;

use crate::tokenizer::Tokenizer;

/// What becomes of tokens that steer the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlTokens {
    Hidden,
    Shown,
}

pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    control: ControlTokens,
    /// The next text token may begin with a space that is not the text's.
    drop_space: bool,
    pending: Vec<u8>,
    text: String,
}

/// A token's text may grow by replacement characters: 3 bytes for one that cannot be read, and a character
/// has at most 3 bytes before the one that spoils it.
const GROWTH_MAX: usize = 3;
const CHARACTER_BYTES_MAX: usize = 4;

impl Detokenizer {
    /// For the tokens of a whole text.
    pub fn new(tokenizer: Arc<Tokenizer>, control: ControlTokens) -> Detokenizer {
        let drop_space = tokenizer.adds_space_prefix();
        Detokenizer { drop_space, ..Detokenizer::continuing(tokenizer, control) }
    }

    /// For tokens that go on with a text, whose first space is its own.
    pub fn continuing(tokenizer: Arc<Tokenizer>, control: ControlTokens) -> Detokenizer {
        let room = tokenizer.token_bytes_max() + CHARACTER_BYTES_MAX;
        Detokenizer {
            tokenizer,
            control,
            drop_space: false,
            pending: Vec::with_capacity(room),
            text: String::with_capacity(GROWTH_MAX * room),
        }
    }

    /// The text that became readable with this token: maybe none, never part of a character. Bytes that no
    /// more bytes can complete become U+FFFD.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        let control = self.tokenizer.is_control(id);
        if control {
            // What it cut off stays cut off.
            self.give_up();
        }
        if !control || self.control == ControlTokens::Shown {
            self.tokenizer.append_bytes(id, &mut self.pending);
        }
        let first_text = !control && !self.pending.is_empty() && std::mem::take(&mut self.drop_space);
        if first_text && self.pending[0] == b' ' {
            self.pending.remove(0);
        }
        self.take_characters();
        &self.text
    }

    /// What is left at the end: U+FFFD for a character that never became complete.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        self.give_up();
        &self.text
    }

    /// Moves all that can be read from `pending` to `text`, and leaves the beginning of a character.
    fn take_characters(&mut self) {
        let mut taken = 0;
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            taken += chunk.valid().len();
            let invalid = chunk.invalid();
            if invalid.is_empty() || is_beginning(invalid, taken + invalid.len() == self.pending.len()) {
                continue;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            taken += invalid.len();
        }
        self.pending.drain(..taken);
    }

    fn give_up(&mut self) {
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }
}

/// Whether bytes that are not a character may become one with more bytes after them.
fn is_beginning(bytes: &[u8], last: bool) -> bool {
    last && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::{bpe, integers, spm};

    fn made(metadata: &adit_format::Metadata) -> Arc<Tokenizer> {
        Arc::new(Tokenizer::from_metadata(metadata).unwrap())
    }

    fn pieces(detokenizer: &mut Detokenizer, ids: &[u32]) -> Vec<String> {
        let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).to_string()).collect();
        pieces.push(detokenizer.finish().to_string());
        pieces
    }

    /// "Ø«" is how the byte alphabet writes the Arabic letter of bytes D8 AB.
    fn bytewise() -> Arc<Tokenizer> {
        let mut metadata = bpe(&["a", "Ø", "«", "Ġb", "<end>"], &[]);
        metadata.set("tokenizer.ggml.token_type", integers(&[1, 1, 1, 1, 3]));
        made(&metadata)
    }

    #[test]
    fn a_character_comes_only_when_it_is_whole() {
        let mut detokenizer = Detokenizer::new(bytewise(), ControlTokens::Hidden);
        assert_eq!(pieces(&mut detokenizer, &[3, 1, 2, 0]), [" b", "", "\u{62b}", "a", ""]);
    }

    #[test]
    fn what_cannot_become_a_character_is_replaced() {
        let mut detokenizer = Detokenizer::new(bytewise(), ControlTokens::Hidden);
        assert_eq!(pieces(&mut detokenizer, &[1, 1, 2]), ["", "\u{fffd}", "\u{62b}", ""]);
        assert_eq!(pieces(&mut detokenizer, &[1, 0]), ["", "\u{fffd}a", ""]);
        assert_eq!(pieces(&mut detokenizer, &[2, 1]), ["\u{fffd}", "", "\u{fffd}"]);
        assert_eq!(pieces(&mut detokenizer, &[0, 1]), ["a", "", "\u{fffd}"]);
    }

    #[test]
    fn control_tokens_are_hidden_or_shown_and_end_a_broken_character() {
        let mut hidden = Detokenizer::new(bytewise(), ControlTokens::Hidden);
        assert_eq!(pieces(&mut hidden, &[0, 4, 1, 4, 99]), ["a", "", "", "\u{fffd}", "", ""]);
        let mut shown = Detokenizer::new(bytewise(), ControlTokens::Shown);
        assert_eq!(pieces(&mut shown, &[0, 4, 1, 4]), ["a", "<end>", "", "\u{fffd}<end>", ""]);
    }

    #[test]
    fn spm_drops_the_space_it_added_and_no_other() {
        let tokenizer = made(&spm(&[("<unk>", 0.0), ("▁a", -1.0), ("b▁", -2.0)]));
        let mut whole = Detokenizer::new(tokenizer.clone(), ControlTokens::Hidden);
        assert_eq!(pieces(&mut whole, &[0, 1, 1, 2]), ["", "a", " a", "b ", ""]);
        let mut part = Detokenizer::continuing(tokenizer, ControlTokens::Hidden);
        assert_eq!(pieces(&mut part, &[1]), [" a", ""]);
    }
}
