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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_extents() -> impl Strategy<Value = Vec<Extent>> {
        let extent = (0u32..3, 0u64..200_000, 0u64..30_000);
        prop::collection::vec(extent.prop_map(|(file, offset, bytes)| Extent { file, offset, bytes }), 0..40)
    }

    proptest! {
        #[test]
        fn a_frame_is_the_smallest_aligned_superset(
            offset in 0u64..1 << 50,
            bytes in 1u64..1 << 30,
            shift in 12u32..17,
        ) {
            let align = 1 << shift;
            let frame = frame(offset, bytes, align);
            prop_assert_eq!((frame.start % align, frame.bytes % align), (0, 0));
            prop_assert_eq!(frame.start + frame.skip, offset);
            prop_assert_eq!(frame.start + frame.wanted, offset + bytes);
            prop_assert!(frame.skip < align && frame.bytes - frame.wanted < align);
        }

        #[test]
        fn pieces_tile_their_frame(offset in 0u64..1 << 40, bytes in 1u64..40 << 20) {
            let frame = frame(offset, bytes, ALIGN_MIN);
            let mut at = 0;
            for piece in pieces(frame) {
                prop_assert_eq!((piece.at, piece.offset), (at, frame.start + at));
                prop_assert!(piece.bytes > 0 && piece.bytes <= READ_BYTES_MAX);
                prop_assert!(piece.wanted > 0 && piece.wanted <= piece.bytes);
                prop_assert!(piece.wanted == piece.bytes || at + piece.wanted == frame.wanted);
                at += piece.bytes;
            }
            prop_assert_eq!((at, pieces(frame).len()), (frame.bytes, piece_count(frame.bytes)));
        }

        #[test]
        fn runs_hold_every_extent_and_no_byte_twice(extents in some_extents()) {
            let (runs, places) = coalesce(&extents, ALIGN_MIN);
            let mut place = 0;
            for (i, run) in runs.iter().enumerate() {
                prop_assert_eq!(run.place, place);
                place += run.frame.bytes;
                let next = runs.get(i + 1).filter(|next| next.file == run.file);
                prop_assert!(next.is_none_or(|next| next.frame.start > run.frame.start + run.frame.bytes));
            }
            for (extent, &place) in extents.iter().zip(&places).filter(|(extent, _)| extent.bytes > 0) {
                let run = runs.iter().rfind(|run| run.place <= place).unwrap();
                prop_assert_eq!(run.file, extent.file);
                prop_assert_eq!(run.frame.start + (place - run.place), extent.offset);
                prop_assert!(place - run.place + extent.bytes <= run.frame.wanted);
            }
            let pages = |e: &Extent| e.offset / ALIGN_MIN..(e.offset + e.bytes).div_ceil(ALIGN_MIN);
            let touched: std::collections::BTreeSet<(u32, u64)> = extents
                .iter()
                .filter(|extent| extent.bytes > 0)
                .flat_map(|extent| pages(extent).map(|page| (extent.file, page)))
                .collect();
            prop_assert_eq!(place, touched.len() as u64 * ALIGN_MIN);
        }
    }

    #[test]
    fn sizes_that_no_file_has_do_not_overflow() {
        let frame = frame(u64::MAX - 5, u64::MAX, ALIGN_MIN);
        assert!(frame.bytes >= 5);
    }
}
