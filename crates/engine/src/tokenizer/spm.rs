//! SPM, the tokeniser of `llama` files: characters are merged into tokens, the best score first.
//! Owns the merging of one text; knows nothing of special tokens and of white space rules.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::TokenizerError;
use super::vocabulary::{NO_TOKEN, Vocabulary};

/// What SPM writes for a space.
pub(super) const SPACE: &str = "\u{2581}";

pub(super) struct Spm {
    bytes: [u32; 256],
    unknown: Option<u32>,
    /// No token goes on with a space after something else, so that no merge crosses such a place and a text
    /// can be taken word by word, in less time and memory, with the same outcome.
    word_by_word: bool,
}

/// Memory of one merging, kept from text to text.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

const NONE: u32 = u32::MAX;

/// A run of characters that will be one token; those merged into their left neighbour have no bytes left.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    bytes: u32,
    before: u32,
    after: u32,
}

/// Two neighbours that would make a token.
#[derive(PartialEq)]
struct Candidate {
    score: f32,
    left: u32,
    right: u32,
    /// Of both together when they were queued: it tells whether one has grown or gone since.
    bytes: u32,
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    /// The best score is greatest, and the leftmost among equals.
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl Spm {
    pub fn new(vocabulary: &Vocabulary, unknown: Option<u32>) -> Spm {
        let mut bytes = vocabulary.byte_tokens();
        for (byte, id) in bytes.iter_mut().enumerate().filter(|(_, id)| **id == NO_TOKEN) {
            *id = vocabulary.find(&[byte as u8]).unwrap_or(NO_TOKEN);
        }
        let word_by_word = (0..vocabulary.len() as u32).all(|id| {
            let text = vocabulary.text(id);
            let spaces = text.chunks(SPACE.len()).take_while(|chunk| *chunk == SPACE.as_bytes()).count();
            let rest = &text[spaces * SPACE.len()..];
            !rest.windows(SPACE.len()).any(|window| window == SPACE.as_bytes())
        });
        Spm { bytes, unknown, word_by_word }
    }

    /// Appends the tokens of `text`, in which every space is already `SPACE`.
    pub fn encode(
        &self,
        text: &str,
        vocabulary: &Vocabulary,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if !self.word_by_word {
            return self.merge(text, vocabulary, scratch, out);
        }
        let mut start = 0;
        let mut after_space = true;
        for (at, letter) in text.char_indices() {
            let space = letter == '\u{2581}';
            if space && !after_space {
                self.merge(&text[start..at], vocabulary, scratch, out)?;
                start = at;
            }
            after_space = space;
        }
        self.merge(&text[start..], vocabulary, scratch, out)
    }

    fn merge(
        &self,
        text: &str,
        vocabulary: &Vocabulary,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        scratch.start(text);
        for left in 1..scratch.symbols.len() {
            scratch.try_pair(left as u32 - 1, left as u32, text, vocabulary);
        }
        while let Some(Candidate { left, right, bytes, .. }) = scratch.queue.pop() {
            let (first, second) = (scratch.symbols[left as usize], scratch.symbols[right as usize]);
            if first.bytes == 0 || second.bytes == 0 || first.bytes + second.bytes != bytes {
                continue;
            }
            scratch.symbols[left as usize].bytes = bytes;
            scratch.symbols[left as usize].after = second.after;
            scratch.symbols[right as usize].bytes = 0;
            if second.after != NONE {
                scratch.symbols[second.after as usize].before = left;
            }
            scratch.try_pair(first.before, left, text, vocabulary);
            scratch.try_pair(left, second.after, text, vocabulary);
        }
        for symbol in scratch.symbols.iter().filter(|symbol| symbol.bytes > 0) {
            let piece = &text.as_bytes()[symbol.start as usize..][..symbol.bytes as usize];
            match vocabulary.find(piece) {
                Some(id) => out.push(id),
                None => self.spell(piece, out)?,
            }
        }
        Ok(())
    }

    /// A character that is no token, byte by byte; as the unknown token where bytes are missing.
    fn spell(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        match piece.iter().find(|byte| self.bytes[usize::from(**byte)] == NO_TOKEN) {
            None => out.extend(piece.iter().map(|byte| self.bytes[usize::from(*byte)])),
            Some(&byte) => out.push(self.unknown.ok_or(TokenizerError::NoToken { byte })?),
        }
        Ok(())
    }
}

impl Scratch {
    fn start(&mut self, text: &str) {
        self.queue.clear();
        self.symbols.clear();
        self.symbols.extend(text.char_indices().enumerate().map(|(index, (start, letter))| Symbol {
            start: start as u32,
            bytes: letter.len_utf8() as u32,
            before: if index == 0 { NONE } else { index as u32 - 1 },
            after: index as u32 + 1,
        }));
        if let Some(last) = self.symbols.last_mut() {
            last.after = NONE;
        }
    }

    fn try_pair(&mut self, left: u32, right: u32, text: &str, vocabulary: &Vocabulary) {
        if left == NONE || right == NONE {
            return;
        }
        let start = self.symbols[left as usize].start as usize;
        let bytes = self.symbols[left as usize].bytes + self.symbols[right as usize].bytes;
        if let Some(id) = vocabulary.find(&text.as_bytes()[start..][..bytes as usize]) {
            self.queue.push(Candidate { score: vocabulary.score(id), left, right, bytes });
        }
    }
}
