//! What every step needs: extents read once, neighbours together, into memory that then stays as it is.
//! Must not know what the extents mean.

use crate::{
    FileSet, PagerError,
    disk::{Disk, Need},
    fetch::Fetch,
    layout::{Extent, Piece, READ_BYTES_MAX, Run, coalesce},
    memory::AlignedBuf,
    slot::State,
};

/// Extents of files, resident. They point into one buffer; nothing is held twice.
pub struct Backbone {
    memory: AlignedBuf,
    /// Where each extent begins in `memory`, and its length.
    places: Box<[(usize, usize)]>,
}

impl Backbone {
    /// Reads all extents. `progress` is told the bytes read so far, up to `bytes_needed`.
    ///
    /// The buffer is read as if it were slots of one long read each, so that several are in flight and
    /// short reads, retries and errors are those of the pager.
    pub fn load(
        files: &FileSet,
        extents: &[Extent],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Backbone, PagerError> {
        for &extent in extents {
            files.check(extent)?;
        }
        let (runs, places) = coalesce(extents, files.align());
        let bytes: u64 = runs.iter().map(|run| run.frame.bytes).sum();
        let places = places.iter().zip(extents);
        let places = places.map(|(&place, extent)| (place as usize, extent.bytes as usize)).collect();
        if bytes == 0 {
            return Ok(Backbone { memory: AlignedBuf::new(0)?, places });
        }
        let chunks = chunks(&runs);
        let reads_max = chunks.iter().map(Vec::len).max().unwrap_or(0);
        let memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut disk = Disk::new(files, memory_bytes, READ_BYTES_MAX as usize, reads_max)?;
        let mut started = 0;
        for chunk in 0..chunks.len() {
            loop {
                // Before looking: what happens after this wakes us.
                let seen = disk.now();
                started = start_chunks(&mut disk, &chunks, started);
                match disk.state(chunk) {
                    State::Ready { .. } => break,
                    State::Failed => return Err(disk.take_failure(chunk)),
                    State::Loading => disk.wait(seen)?,
                    State::Empty => unreachable!("chunks are started in order"),
                }
            }
            progress(bytes.min((chunk as u64 + 1) * READ_BYTES_MAX));
        }
        files.forget_cached();
        Ok(Backbone { memory: disk.into_buffer()?, places })
    }

    /// The memory that `load` takes for these extents and keeps.
    pub fn bytes_needed(files: &FileSet, extents: &[Extent]) -> u64 {
        let (runs, _) = coalesce(extents, files.align());
        runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.frame.bytes))
    }

    /// The bytes of extent `i`. They begin at an address that is as aligned as their offset in the
    /// file, up to a page.
    pub fn bytes(&self, i: usize) -> &[u8] {
        let (place, bytes) = self.places[i];
        &self.memory[place..place + bytes]
    }

    /// How many extents there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Starts the chunks that the queues have room for; returns how many are started now.
fn start_chunks(disk: &mut Disk, chunks: &[Vec<Fetch>], mut started: usize) -> usize {
    let before = started;
    while started < chunks.len() && disk.has_room(chunks[started].len(), Need::Asked(0)) {
        disk.load(started, chunks[started].len(), chunks[started].iter().copied(), Need::Asked(0));
        started += 1;
    }
    if started > before {
        disk.submit();
    }
    started
}

/// Cuts the memory of all runs into chunks of one long read; a chunk may hold pieces of several runs.
fn chunks(runs: &[Run]) -> Vec<Vec<Fetch>> {
    let mut chunks: Vec<Vec<Fetch>> = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.frame.bytes {
            let place = run.place + done;
            let (chunk, at) = ((place / READ_BYTES_MAX) as usize, place % READ_BYTES_MAX);
            let bytes = (run.frame.bytes - done).min(READ_BYTES_MAX - at);
            let wanted = (run.frame.wanted - done).min(bytes);
            let piece = Piece { offset: run.frame.start + done, at, bytes, wanted };
            if chunk == chunks.len() {
                chunks.push(Vec::new());
            }
            chunks[chunk].push(Fetch { file: run.file, piece });
            done += bytes;
        }
    }
    chunks
}
