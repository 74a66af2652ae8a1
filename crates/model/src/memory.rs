//! What lanes remember: keys and values in blocks of positions, which blocks a lane holds, and the states of
//! recurrent layers.
//!
//! Blocks are the unit of sharing and truncation; a lane is a list of them. Every layer uses the same
//! block numbers, each in its own arena. Knows nothing of tokens or text.

use adit_kernels::{KV_BLOCK, KvFormat, KvLayout, KvView};
use adit_pager::AlignedBuf;

use crate::config::{AttentionConfig, Config, LayerConfig};
use crate::error::ModelError;
use crate::states::{StateShape, States};

/// The shape of the key-value memory; its size in bytes is a term of the plan.
#[derive(Debug, Clone)]
pub struct KvShape {
    /// What each layer stores of a position; nothing where it carries a state instead.
    pub layouts: Vec<Option<KvLayout>>,
    /// What each layer keeps of runs of positions, if it does.
    pub entries: Vec<Option<EntryShape>>,
    pub blocks: usize,
}

/// What is kept of runs of positions.
#[derive(Debug, Clone, Copy)]
pub struct EntryShape {
    /// Positions of a run.
    pub ratio: usize,
    /// Values of its entry.
    pub len: usize,
}

impl EntryShape {
    /// Values in a block: where runs are longer than a block, every one has room for an entry.
    fn block_floats(self) -> usize {
        KV_BLOCK.div_ceil(self.ratio) * self.len
    }
}

impl KvShape {
    /// Room for `lanes` sequences of `context` positions.
    pub fn new(config: &Config, format: KvFormat, context: usize, lanes: usize) -> KvShape {
        let layout = |layer: &LayerConfig| {
            let &AttentionConfig { kv_heads, head_dim, value_dim, values, .. } = layer.mixer.attention()?;
            Some(KvLayout { format, kv_heads, head_dim, value_dim, values })
        };
        let entries = |layer: &LayerConfig| {
            let (ratio, len) = layer.mixer.recurrent()?.entries()?;
            Some(EntryShape { ratio, len })
        };
        KvShape {
            layouts: config.layers.iter().map(layout).collect(),
            entries: config.layers.iter().map(entries).collect(),
            blocks: context.div_ceil(KV_BLOCK) * lanes,
        }
    }

    /// Bytes of one position in all layers.
    pub fn position_bytes(&self) -> usize {
        let block = |layout: &KvLayout| layout.key_block_bytes() + layout.value_block_bytes();
        let entries = self.entry_block_floats() * size_of::<f32>();
        (self.layouts.iter().flatten().map(block).sum::<usize>() + entries) / KV_BLOCK
    }

    fn entry_block_floats(&self) -> usize {
        self.entries.iter().flatten().map(|entry| entry.block_floats()).sum()
    }

    fn entries_bytes(&self) -> usize {
        self.blocks * self.entry_block_floats() * size_of::<f32>()
    }

    /// Layers that store something of a position.
    pub fn layers(&self) -> usize {
        let entries = self.entries.iter().flatten().count();
        self.layouts.iter().flatten().count() + entries
    }

    pub fn bytes(&self) -> usize {
        self.keys_bytes() + self.values_bytes() + self.entries_bytes()
    }

    fn keys_bytes(&self) -> usize {
        self.blocks * self.layouts.iter().flatten().map(KvLayout::key_block_bytes).sum::<usize>()
    }

    fn values_bytes(&self) -> usize {
        self.blocks * self.layouts.iter().flatten().map(KvLayout::value_block_bytes).sum::<usize>()
    }
}

/// Where a layer's blocks lie.
struct Arena {
    layout: KvLayout,
    /// Bytes of all layers before it.
    keys: usize,
    values: usize,
}

/// One sequence: the blocks that hold its positions `0..len`.
struct Lane {
    blocks: Vec<u32>,
    len: usize,
}

/// The memory of all lanes.
pub struct Memory {
    /// One for each layer that stores positions.
    arenas: Vec<Option<Arena>>,
    states: States,
    /// For each layer that keeps entries of runs of positions, their shape and the values of all before it.
    entry_shapes: Vec<Option<(EntryShape, usize)>>,
    entries: AlignedBuf,
    /// Blocks of every layer.
    blocks: usize,
    keys: AlignedBuf,
    values: AlignedBuf,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    context: usize,
}

impl Memory {
    pub fn new(
        shape: &KvShape,
        states: &StateShape,
        context: usize,
        lanes: usize,
    ) -> Result<Memory, ModelError> {
        let table = context.div_ceil(KV_BLOCK);
        let (mut keys, mut values) = (0, 0);
        let arena = |&layout: &Option<KvLayout>| {
            let layout = layout?;
            let arena = Arena { layout, keys, values };
            keys += shape.blocks * layout.key_block_bytes();
            values += shape.blocks * layout.value_block_bytes();
            Some(arena)
        };
        let mut floats = 0;
        let entry_shape = |&entry: &Option<EntryShape>| {
            let first = floats;
            floats += entry.map_or(0, |entry| shape.blocks * entry.block_floats());
            entry.map(|entry| (entry, first))
        };
        Ok(Memory {
            entry_shapes: shape.entries.iter().map(entry_shape).collect(),
            entries: AlignedBuf::new(shape.entries_bytes())?,
            arenas: shape.layouts.iter().map(arena).collect(),
            states: States::new(states, lanes)?,
            blocks: shape.blocks,
            keys: AlignedBuf::new(shape.keys_bytes())?,
            values: AlignedBuf::new(shape.values_bytes())?,
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
        while lane.blocks.len() * KV_BLOCK <= position {
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

    /// Forgets every position of `lane` from `len` on, and those before it back to the newest snapshot where
    /// layers carry a state; returns how many positions are left.
    pub fn truncate(&mut self, lane: usize, len: usize) -> usize {
        let held = self.lanes[lane].len;
        match len < held {
            true => self.keep(lane, len),
            false => held,
        }
    }

    /// A step that may have changed the lane's state has failed: goes back to what is known to be whole.
    pub(crate) fn fall_back(&mut self, lane: usize) {
        self.keep(lane, self.lanes[lane].len);
    }

    fn keep(&mut self, lane: usize, len: usize) -> usize {
        let len = self.states.rewind(lane, len);
        let lane = &mut self.lanes[lane];
        lane.len = len;
        let keep = len.div_ceil(KV_BLOCK);
        self.free.extend(lane.blocks.drain(keep.min(lane.blocks.len())..));
        len
    }

    /// Keeps a copy of the lane's state, if it has one, that [`Memory::truncate`] can go back to.
    pub fn snapshot(&mut self, lane: usize) {
        self.states.snapshot(lane, self.lanes[lane].len);
    }

    /// The state of a recurrent layer after the positions that were computed.
    pub(crate) fn state(&mut self, layer: usize, lane: usize) -> &mut [f32] {
        self.states.of(layer, lane)
    }

    /// The same, with what the layer keeps of runs of positions.
    pub(crate) fn state_and_entries(&mut self, layer: usize, lane: usize) -> (&mut [f32], Entries<'_>) {
        let Memory { entry_shapes, entries, states, lanes, .. } = self;
        let (shape, first) = entry_shapes[layer].unwrap_or((EntryShape { ratio: 1, len: 0 }, 0));
        let entries =
            Entries { values: &mut entries.as_f32_mut()[first..], blocks: &lanes[lane].blocks, shape };
        (states.of(layer, lane), entries)
    }

    /// Stores the key and value (`kv_heads * head_dim` values each) of one position.
    pub(crate) fn store(&mut self, layer: usize, lane: usize, position: usize, key: &[f32], value: &[f32]) {
        let Arena { layout, keys, values } = arena(&self.arenas, layer);
        let block = self.lanes[lane].blocks[position / KV_BLOCK] as usize;
        let bytes = layout.key_block_bytes();
        layout.store_key(&mut self.keys[keys + block * bytes..][..bytes], position % KV_BLOCK, key);
        let bytes = layout.value_block_bytes();
        layout.store_value(&mut self.values[values + block * bytes..][..bytes], position % KV_BLOCK, value);
    }

    /// One layer's keys and values, for the attention kernel.
    pub(crate) fn view(&self, layer: usize) -> KvView<'_> {
        let Arena { layout, keys, values } = arena(&self.arenas, layer);
        KvView {
            layout: *layout,
            keys: &self.keys[*keys..keys + self.blocks * layout.key_block_bytes()],
            values: &self.values[*values..values + self.blocks * layout.value_block_bytes()],
        }
    }
}

/// What one layer keeps of a lane's runs of positions.
pub(crate) struct Entries<'a> {
    values: &'a mut [f32],
    blocks: &'a [u32],
    shape: EntryShape,
}

impl Entries<'_> {
    /// Where the entry of a run lies: in the block of the run's first position.
    fn place(&self, run: usize) -> std::ops::Range<usize> {
        let EntryShape { ratio, len } = self.shape;
        let block = self.blocks[run * ratio / KV_BLOCK] as usize;
        let first = block * self.shape.block_floats() + run * ratio % KV_BLOCK / ratio * len;
        first..first + len
    }

    pub fn entry(&self, run: usize) -> &[f32] {
        &self.values[self.place(run)]
    }

    pub fn entry_mut(&mut self, run: usize) -> &mut [f32] {
        let place = self.place(run);
        &mut self.values[place]
    }
}

fn arena(arenas: &[Option<Arena>], layer: usize) -> &Arena {
    arenas[layer].as_ref().expect("only attention asks for keys and values")
}
