//! Arithmetic of extents: the aligned frame around some bytes of a file, and runs of neighbours.
//! Pure functions; must not know files, threads or slots.

/// The smallest alignment in use: a page, so that frames of one slot never share one.
pub(crate) const ALIGN_MIN: u64 = 4096;

/// The longest single read. Longer frames are split, so that several pieces are in flight.
pub(crate) const READ_BYTES_MAX: u64 = 4 << 20;

/// Some bytes of one file of a `FileSet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub file: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// The aligned superset of an extent: what direct I/O can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where the frame begins in the file; a multiple of the alignment.
    pub start: u64,
    /// Its length; a multiple of the alignment. May reach beyond the end of the file.
    pub bytes: u64,
    /// Where the extent begins within the frame.
    pub skip: u64,
    /// How many bytes of the frame must arrive: up to the end of the extent.
    pub wanted: u64,
}

/// One read: a piece of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub offset: u64,
    /// Where the piece goes, relative to the place of its frame.
    pub at: u64,
    pub bytes: u64,
    pub wanted: u64,
}

pub(crate) fn align_down(value: u64, align: u64) -> u64 {
    value / align * align
}

/// Saturates, for sizes that nobody has checked against a file yet.
fn align_up(value: u64, align: u64) -> u64 {
    value.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

pub(crate) fn frame(offset: u64, bytes: u64, align: u64) -> Frame {
    let start = align_down(offset, align);
    let wanted_end = offset.saturating_add(bytes);
    let end = align_up(wanted_end, align);
    Frame { start, bytes: end - start, skip: offset - start, wanted: wanted_end - start }
}

/// The reads of a frame: at most `READ_BYTES_MAX` each.
pub(crate) fn pieces(frame: Frame) -> impl ExactSizeIterator<Item = Piece> + Clone {
    let count = piece_count(frame.bytes);
    (0..count).map(move |i| {
        let at = i as u64 * READ_BYTES_MAX;
        let bytes = (frame.bytes - at).min(READ_BYTES_MAX);
        Piece { offset: frame.start + at, at, bytes, wanted: (frame.wanted - at).min(bytes) }
    })
}

pub(crate) fn piece_count(frame_bytes: u64) -> usize {
    frame_bytes.div_ceil(READ_BYTES_MAX) as usize
}

/// Neighbouring extents of one file, read as one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub file: u32,
    pub frame: Frame,
    /// Where the run begins in the memory that holds all runs, one after the other.
    pub place: u64,
}

/// Merges extents whose frames touch or overlap, so that no byte of a file is read or held twice.
/// Returns the runs in file order and, for each extent, where its bytes begin in their memory.
pub(crate) fn coalesce(extents: &[Extent], align: u64) -> (Vec<Run>, Vec<u64>) {
    let mut order: Vec<usize> = (0..extents.len()).filter(|&i| extents[i].bytes > 0).collect();
    order.sort_by_key(|&i| (extents[i].file, extents[i].offset));
    let mut runs: Vec<Run> = Vec::new();
    let mut places = vec![0; extents.len()];
    let mut place = 0;
    for i in order {
        let extent = extents[i];
        let own = frame(extent.offset, extent.bytes, align);
        match runs.last_mut() {
            Some(run) if run.file == extent.file && own.start <= run.frame.start + run.frame.bytes => {
                let end = (own.start + own.bytes).max(run.frame.start + run.frame.bytes);
                run.frame.bytes = end - run.frame.start;
                run.frame.wanted = run.frame.wanted.max(extent.offset + extent.bytes - run.frame.start);
                place = run.place + run.frame.bytes;
            }
            _ => {
                runs.push(Run { file: extent.file, frame: own, place });
                place += own.bytes;
            }
        }
        let run = runs.last().expect("a run was just pushed or extended");
        places[i] = run.place + (extent.offset - run.frame.start);
    }
    (runs, places)
}
