//! BPE, the tokeniser of `gpt2` files: pairs of tokens are merged in the order of the file's merges.
//! Owns the merges and the merging of one text; knows nothing of special tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adit_format::Metadata;

use super::pre::{Letters, Pre};
use super::split::Splitter;
use super::vocabulary::{NO_TOKEN, Vocabulary};
use super::{TokenizerError, alphabet};

const MERGES: &str = "tokenizer.ggml.merges";

pub(super) struct Bpe {
    merges: Merges,
    splitter: Splitter,
    letters: Letters,
    /// The token of every byte: of its letter, or `<0x0A>`, by which a lone character is spelt.
    bytes: [u32; 256],
    /// A word that is a token is taken whole, even if no merges lead there.
    whole_words: bool,
}

/// Memory of one merging, kept from word to word.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    word: String,
}

const NONE: u32 = u32::MAX;

/// A token in the making; those merged into their left neighbour have no bytes left.
#[derive(Clone, Copy)]
struct Symbol {
    /// `NO_TOKEN` for a character that the vocabulary lacks.
    id: u32,
    start: u32,
    bytes: u32,
    before: u32,
    after: u32,
}

/// Two neighbours that a merge joins; the lowest rank goes first, the leftmost among equals.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    right: u32,
    /// Of both symbols when they were queued: they tell whether one has changed since.
    left_id: u32,
    right_id: u32,
    joined: u32,
}

impl Bpe {
    pub fn read(metadata: &Metadata, vocabulary: &Vocabulary, pre: &Pre) -> Result<Bpe, TokenizerError> {
        let bytes = match pre.letters {
            Letters::Bytes => std::array::from_fn(|byte| {
                let letter = alphabet::char_of(byte as u8);
                vocabulary.find(letter.encode_utf8(&mut [0; 4]).as_bytes()).unwrap_or(NO_TOKEN)
            }),
            Letters::Characters => vocabulary.byte_tokens(),
        };
        Ok(Bpe {
            merges: Merges::read(metadata, vocabulary)?,
            splitter: Splitter::new(pre.steps),
            letters: pre.letters,
            bytes,
            whole_words: pre.whole_words,
        })
    }

    /// Appends the tokens of `text`. A byte that has no token is left out, as the makers' tokenisers do.
    pub fn encode(&self, text: &str, vocabulary: &Vocabulary, scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.splitter.split(text, &mut |word| match self.letters {
            Letters::Bytes => self.byte_word(word, vocabulary, scratch, out),
            Letters::Characters => self.character_word(word, vocabulary, scratch, out),
        });
    }

    fn byte_word(&self, word: &str, vocabulary: &Vocabulary, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if self.whole_words {
            scratch.word.clear();
            scratch.word.extend(word.bytes().map(alphabet::char_of));
            if let Some(id) = vocabulary.find(scratch.word.as_bytes()) {
                return out.push(id);
            }
        }
        scratch.start(word.bytes().enumerate().map(|(at, byte)| (self.bytes[usize::from(byte)], at, 1)));
        self.merge(scratch);
        out.extend(scratch.living().map(|symbol| symbol.id).filter(|&id| id != NO_TOKEN));
    }

    fn character_word(&self, word: &str, vocabulary: &Vocabulary, scratch: &mut Scratch, out: &mut Vec<u32>) {
        // Blank lines are taken whole, although no merges lead there.
        if (self.whole_words || word.bytes().all(|byte| byte == b'\n'))
            && let Some(id) = vocabulary.find(word.as_bytes())
        {
            return out.push(id);
        }
        scratch.start(word.char_indices().map(|(at, letter)| {
            let bytes = letter.len_utf8();
            (vocabulary.find(&word.as_bytes()[at..at + bytes]).unwrap_or(NO_TOKEN), at, bytes)
        }));
        self.merge(scratch);
        for symbol in scratch.living() {
            if symbol.id != NO_TOKEN {
                out.push(symbol.id);
                continue;
            }
            let character = &word.as_bytes()[symbol.start as usize..][..symbol.bytes as usize];
            let spelt = character.iter().map(|byte| self.bytes[usize::from(*byte)]);
            out.extend(spelt.filter(|&id| id != NO_TOKEN));
        }
    }

    fn merge(&self, scratch: &mut Scratch) {
        for right in 1..scratch.symbols.len() as u32 {
            scratch.try_pair(right - 1, right, &self.merges);
        }
        while let Some(Reverse(pair)) = scratch.queue.pop() {
            let (left, right) = (scratch.symbols[pair.left as usize], scratch.symbols[pair.right as usize]);
            let gone = left.bytes == 0 || right.bytes == 0;
            if gone || left.id != pair.left_id || right.id != pair.right_id {
                continue;
            }
            let joined = &mut scratch.symbols[pair.left as usize];
            joined.id = pair.joined;
            joined.bytes += right.bytes;
            joined.after = right.after;
            scratch.symbols[pair.right as usize].bytes = 0;
            if right.after != NONE {
                scratch.symbols[right.after as usize].before = pair.left;
            }
            scratch.try_pair(left.before, pair.left, &self.merges);
            scratch.try_pair(pair.left, right.after, &self.merges);
        }
    }

    pub fn bytes_held(&self) -> usize {
        size_of_val(&*self.merges.starts) + size_of_val(&*self.merges.all)
    }
}

impl Scratch {
    /// One symbol for each (id, start, bytes), in a row.
    fn start(&mut self, parts: impl Iterator<Item = (u32, usize, usize)>) {
        self.queue.clear();
        self.symbols.clear();
        self.symbols.extend(parts.enumerate().map(|(index, (id, start, bytes))| Symbol {
            id,
            start: start as u32,
            bytes: bytes as u32,
            before: if index == 0 { NONE } else { index as u32 - 1 },
            after: index as u32 + 1,
        }));
        if let Some(last) = self.symbols.last_mut() {
            last.after = NONE;
        }
    }

    fn living(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.bytes > 0)
    }

    fn try_pair(&mut self, left: u32, right: u32, merges: &Merges) {
        if left == NONE || right == NONE {
            return;
        }
        let (left_id, right_id) = (self.symbols[left as usize].id, self.symbols[right as usize].id);
        if let Some(merge) = merges.find(left_id, right_id) {
            let (rank, joined) = (merge.rank, merge.joined);
            self.queue.push(Reverse(Candidate { rank, left, right, left_id, right_id, joined }));
        }
    }
}

/// All merges, sorted by their left token and then their right one: 12 bytes each, found by bisection.
struct Merges {
    /// The merges of left token `id` are `all[starts[id]..starts[id + 1]]`.
    starts: Box<[u32]>,
    all: Box<[Merge]>,
}

#[derive(Clone, Copy)]
struct Merge {
    right: u32,
    rank: u32,
    joined: u32,
}

impl Merges {
    fn read(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Merges, TokenizerError> {
        let strings = metadata.require_strings(MERGES)?;
        let mut pairs: Vec<(u32, Merge)> = Vec::with_capacity(strings.len());
        let mut joined_text = Vec::new();
        for (rank, text) in strings.iter().enumerate() {
            let refused = |problem| {
                let shown = String::from_utf8_lossy(text);
                TokenizerError::vocabulary(MERGES, format!("merge {rank}, {shown:?}, {problem}"))
            };
            // The first byte may itself be the space that is merged.
            let space = text.iter().skip(1).position(|&byte| byte == b' ').map(|at| at + 1);
            let (left, right) = space
                .map(|at| (&text[..at], &text[at + 1..]))
                .ok_or_else(|| refused("has no space between two tokens"))?;
            let id = |part| vocabulary.find(part).ok_or_else(|| refused("names no token of the vocabulary"));
            let (left_id, right_id) = (id(left)?, id(right)?);
            joined_text.clear();
            joined_text.extend_from_slice(left);
            joined_text.extend_from_slice(right);
            let rank = u32::try_from(rank).map_err(|_| refused("is one too many"))?;
            let joined = id(&joined_text)?;
            pairs.push((left_id, Merge { right: right_id, rank, joined }));
        }
        // Of two equal merges the first counts.
        pairs.sort_unstable_by_key(|(left, merge)| (*left, merge.right, merge.rank));
        pairs.dedup_by_key(|(left, merge)| (*left, merge.right));
        let mut starts = vec![0; vocabulary.len() + 1];
        pairs.iter().for_each(|(left, _)| starts[*left as usize + 1] += 1);
        for id in 0..vocabulary.len() {
            starts[id + 1] += starts[id];
        }
        let all = pairs.iter().map(|(_, merge)| *merge).collect();
        Ok(Merges { starts: starts.into(), all })
    }

    fn find(&self, left: u32, right: u32) -> Option<&Merge> {
        if left == NO_TOKEN {
            return None;
        }
        let left = left as usize;
        let merges = &self.all[self.starts[left] as usize..self.starts[left + 1] as usize];
        merges.binary_search_by_key(&right, |merge| merge.right).ok().map(|at| &merges[at])
    }
}
