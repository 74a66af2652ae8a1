//! What lanes remember: keys and values in blocks of positions, and which blocks a lane holds.
//!
//! Blocks are the unit of sharing and truncation; a lane is a list of them. Every layer uses the same
//! block numbers, each in its own arena. Knows nothing of tokens or text.

use adit_kernels::{KvFormat, KvView, encode_row};
use adit_pager::AlignedBuf;

use crate::config::Config;
use crate::error::ModelError;

/// Positions in one block: large enough that a block table is short, small enough to share prefixes.
pub const BLOCK_POSITIONS: usize = 64;

/// The shape of the key-value memory; its size in bytes is a term of the plan.
#[derive(Debug, Clone, Copy)]
pub struct KvShape {
    pub format: KvFormat,
    pub layers: usize,
    pub blocks: usize,
    pub key_row_bytes: usize,
    pub value_row_bytes: usize,
}

impl KvShape {
    /// Room for `lanes` sequences of `context` positions.
    pub fn new(config: &Config, format: KvFormat, context: usize, lanes: usize) -> KvShape {
        KvShape {
            format,
            layers: config.layers,
            blocks: context.div_ceil(BLOCK_POSITIONS) * lanes,
            key_row_bytes: format.row_bytes(config.key_width()),
            value_row_bytes: format.row_bytes(config.value_width()),
        }
    }

    /// Bytes of one position in all layers.
    pub fn position_bytes(&self) -> usize {
        self.layers * (self.key_row_bytes + self.value_row_bytes)
    }

    pub fn bytes(&self) -> usize {
        self.blocks * BLOCK_POSITIONS * self.position_bytes()
    }

    fn layer_keys_bytes(&self) -> usize {
        self.blocks * BLOCK_POSITIONS * self.key_row_bytes
    }

    fn layer_values_bytes(&self) -> usize {
        self.blocks * BLOCK_POSITIONS * self.value_row_bytes
    }
}

/// One sequence: the blocks that hold its positions `0..len`.
struct Lane {
    blocks: Vec<u32>,
    len: usize,
}

/// The key-value memory of all lanes.
pub struct Memory {
    shape: KvShape,
    keys: AlignedBuf,
    values: AlignedBuf,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    context: usize,
}

impl Memory {
    pub fn new(shape: KvShape, context: usize, lanes: usize) -> Result<Memory, ModelError> {
        let table = context.div_ceil(BLOCK_POSITIONS);
        Ok(Memory {
            shape,
            keys: AlignedBuf::new(shape.layers * shape.layer_keys_bytes())?,
            values: AlignedBuf::new(shape.layers * shape.layer_values_bytes())?,
            lanes: (0..lanes).map(|_| Lane { blocks: Vec::with_capacity(table), len: 0 }).collect(),
            free: (0..shape.blocks as u32).rev().collect(),
            context,
        })
    }

    /// Positions that `lane` remembers.
    pub fn len(&self, lane: usize) -> usize {
        self.lanes[lane].len
    }

    /// The blocks that `lane` holds, in order of position.
    pub(crate) fn blocks(&self, lane: usize) -> &[u32] {
        &self.lanes[lane].blocks
    }

    /// Gives `lane` blocks for positions up to `position`.
    pub(crate) fn reserve(&mut self, lane: usize, position: usize) -> Result<(), ModelError> {
        if position >= self.context {
            return Err(ModelError::ContextFull { position, context: self.context });
        }
        let lane = &mut self.lanes[lane];
        while lane.blocks.len() * BLOCK_POSITIONS <= position {
            let block = self.free.pop().expect("blocks are planned for every lane's whole context");
            lane.blocks.push(block);
        }
        Ok(())
    }

    /// Marks positions up to `position` of `lane` as computed.
    pub(crate) fn advance(&mut self, lane: usize, position: usize) {
        let lane = &mut self.lanes[lane];
        lane.len = lane.len.max(position + 1);
    }

    /// Forgets every position of `lane` from `len` on.
    pub fn truncate(&mut self, lane: usize, len: usize) {
        let lane = &mut self.lanes[lane];
        lane.len = lane.len.min(len);
        let keep = lane.len.div_ceil(BLOCK_POSITIONS);
        self.free.extend(lane.blocks.drain(keep.min(lane.blocks.len())..));
    }

    /// Stores the key and value (`kv_heads * head_dim` values each) of one position.
    pub(crate) fn store(&mut self, layer: usize, lane: usize, position: usize, key: &[f32], value: &[f32]) {
        let shape = self.shape;
        let block = self.lanes[lane].blocks[position / BLOCK_POSITIONS] as usize;
        let slot = (layer * shape.blocks + block) * BLOCK_POSITIONS + position % BLOCK_POSITIONS;
        let at = slot * shape.key_row_bytes;
        encode_row(shape.format, key, &mut self.keys[at..at + shape.key_row_bytes]);
        let at = slot * shape.value_row_bytes;
        encode_row(shape.format, value, &mut self.values[at..at + shape.value_row_bytes]);
    }

    /// One layer's keys and values, for the attention kernel.
    pub(crate) fn view(&self, layer: usize) -> KvView<'_> {
        let (keys, values) = (self.shape.layer_keys_bytes(), self.shape.layer_values_bytes());
        KvView {
            format: self.shape.format,
            keys: &self.keys[layer * keys..(layer + 1) * keys],
            values: &self.values[layer * values..(layer + 1) * values],
            block_len: BLOCK_POSITIONS,
        }
    }
}
