//! Reads traces back: whole blocks of records, out of a file that may be cut off, damaged or no trace at all.

use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail};
use flate2::bufread::GzDecoder;

use super::header::{Header, MAGIC};
use super::words::{
    self, END, END_WORDS, EXPERT_MASK, PREDICTED, PREDICTED_WORDS, RESIDENT, ROW_WORDS, STEP, STEP_END,
    STEP_END_WORDS, STEP_WORDS, VISIT, VISIT_WAIT, VISIT_WORDS, WANTS_LOGITS,
};

/// More than a block ever has.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// One record, borrowed from its block. What words mean is said in `docs/trace-format.md`.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Step {
        step: u64,
        rows: &'a [u32],
    },
    Visit {
        layer: usize,
        used: usize,
        bytes: u64,
        wait_ns: u64,
        picks: &'a [u32],
    },
    Predicted {
        layer: usize,
        source: u32,
        set: &'a [u32],
    },
    StepEnd {
        step_ns: u64,
    },
    End {
        steps: u64,
        dropped: u64,
    },
    /// Of a later version.
    Unknown,
}

/// A row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedRow {
    pub token: u32,
    pub position: u32,
    pub lane: u32,
    pub wants_logits: bool,
}

/// One of a row's experts in a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    pub expert: u32,
    pub weight: f32,
    pub is_resident: bool,
}

impl TracedRow {
    pub fn all(words: &[u32]) -> impl DoubleEndedIterator<Item = TracedRow> + Clone + '_ {
        words.chunks_exact(ROW_WORDS).map(|row| TracedRow {
            token: row[0],
            position: row[1],
            lane: row[2] & !WANTS_LOGITS,
            wants_logits: row[2] & WANTS_LOGITS != 0,
        })
    }
}

impl Pick {
    pub fn of(word: u32) -> Pick {
        Pick {
            expert: word & EXPERT_MASK,
            weight: half::f16::from_bits((word >> 16) as u16).to_f32(),
            is_resident: word & RESIDENT != 0,
        }
    }
}

/// The records of a trace, block by block.
pub struct Records<R> {
    pub header: Header,
    input: R,
    block: Vec<u8>,
    words: Vec<u32>,
    at: usize,
    /// The last block is not whole: whoever wrote it was stopped.
    pub is_cut: bool,
}

impl<R: BufRead> Records<R> {
    /// Whether a file that begins with these bytes is a trace of ours.
    pub fn recognise(start: &[u8]) -> bool {
        let mut magic = [0; MAGIC.len()];
        GzDecoder::new(start).read_exact(&mut magic).is_ok() && magic == MAGIC
    }

    pub fn open(mut input: R) -> Result<Records<R>> {
        let mut block = Vec::new();
        if !unpack(&mut input, &mut block)? {
            bail!("its first block is cut off");
        }
        let json = block.strip_prefix(MAGIC).context("it is no trace of adit's")?;
        let header = serde_json::from_slice(json).context("its header is no such JSON object")?;
        Ok(Records { header, input, block, words: Vec::new(), at: 0, is_cut: false })
    }

    /// The next record; `None` at the end, or behind the last whole block.
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        while self.at == self.words.len() {
            if self.input.fill_buf()?.is_empty() {
                return Ok(None);
            }
            self.block.clear();
            if !unpack(&mut self.input, &mut self.block)? {
                self.is_cut = true;
                return Ok(None);
            }
            if !self.block.len().is_multiple_of(4) {
                bail!("a block of {} bytes is no whole number of words", self.block.len());
            }
            let words = self.block.chunks_exact(4);
            self.words.clear();
            self.words.extend(words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))));
            self.at = 0;
        }
        let rest = &self.words[self.at..];
        let (kind, len) = (rest[0] & 0xff, (rest[0] >> 8) as usize);
        if len == 0 || len > rest.len() {
            bail!("a record of {len} words where its block has {} left", rest.len());
        }
        self.at += len;
        record(kind, &rest[..len]).map(Some)
    }
}

fn record(kind: u32, words: &[u32]) -> Result<Record<'_>> {
    let least = match kind {
        STEP => STEP_WORDS,
        VISIT => VISIT_WORDS,
        PREDICTED => PREDICTED_WORDS,
        STEP_END => STEP_END_WORDS,
        END => END_WORDS,
        _ => return Ok(Record::Unknown),
    };
    if words.len() < least {
        bail!("a record of kind {kind} has {} words, not {least}", words.len());
    }
    let long = |at: usize| words::whole([words[at], words[at + 1]]);
    let rest = &words[least..];
    Ok(match kind {
        STEP => {
            if rest.len() != (words[3] as usize).saturating_mul(ROW_WORDS) {
                bail!("a step of {} rows has {} words for them", words[3], rest.len());
            }
            Record::Step { step: long(1), rows: rest }
        }
        VISIT => {
            let used = words[3] as usize;
            if rest.len() != (words[2] as usize).saturating_mul(used) {
                bail!("{} rows of {used} picks have {} words", words[2], rest.len());
            }
            let layer = words[1] as usize;
            Record::Visit { layer, used, bytes: long(4), wait_ns: long(VISIT_WAIT), picks: rest }
        }
        PREDICTED => Record::Predicted { layer: words[1] as usize, source: words[2], set: rest },
        STEP_END => Record::StepEnd { step_ns: long(1) },
        _ => Record::End { steps: long(1), dropped: long(3) },
    })
}

/// Unpacks one gzip member; false if it is cut off.
fn unpack(input: &mut impl BufRead, block: &mut Vec<u8>) -> Result<bool> {
    let mut member = GzDecoder::new(input).take(BLOCK_BYTES_MAX + 1);
    match member.read_to_end(block) {
        Ok(_) if block.len() as u64 > BLOCK_BYTES_MAX => {
            bail!("it has a block of more than {} MiB", BLOCK_BYTES_MAX >> 20)
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error).context("it is damaged"),
    }
}
