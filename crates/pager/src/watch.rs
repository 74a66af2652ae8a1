//! Which reads an I/O thread has under way, for whoever wonders why nothing comes. Must not know what the
//! reads are for, and decides nothing: what it says may be over by the time it is heard.

use crate::io::DEPTH_MAX;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One read under way, as the person at the terminal is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub file: u32,
    pub offset: u64,
}

#[derive(Default)]
struct Cell {
    /// When the read began, as a number that grows from read to read; 0 while there is none.
    begun: AtomicU64,
    file: AtomicU32,
    offset: AtomicU64,
}

/// Written by one I/O thread. What is read here only becomes words of an error, so all is Relaxed.
pub(crate) struct Watch {
    cells: [Cell; DEPTH_MAX],
}

impl Watch {
    pub(crate) const BYTES: usize = size_of::<Watch>();

    pub(crate) fn new() -> Watch {
        Watch { cells: std::array::from_fn(|_| Cell::default()) }
    }

    /// `begun`: larger than that of any read before, and not 0.
    pub(crate) fn begin(&self, ticket: usize, begun: u64, read: UnderWay) {
        let cell = &self.cells[ticket];
        cell.file.store(read.file, Ordering::Relaxed);
        cell.offset.store(read.offset, Ordering::Relaxed);
        cell.begun.store(begun, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, ticket: usize) {
        self.cells[ticket].begun.store(0, Ordering::Relaxed);
    }

    /// The read that has been under way for longest.
    pub(crate) fn oldest(&self) -> Option<UnderWay> {
        let begun = |cell: &&Cell| cell.begun.load(Ordering::Relaxed);
        let cell = self.cells.iter().filter(|cell| begun(cell) > 0).min_by_key(begun)?;
        Some(UnderWay {
            file: cell.file.load(Ordering::Relaxed),
            offset: cell.offset.load(Ordering::Relaxed),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_read_is_named_until_it_ends() {
        let watch = Watch::new();
        assert_eq!(watch.oldest(), None);
        let read = |offset| UnderWay { file: 3, offset };
        watch.begin(5, 1, read(50));
        watch.begin(0, 2, read(20));
        assert_eq!(watch.oldest(), Some(read(50)));
        watch.end(5);
        assert_eq!(watch.oldest(), Some(read(20)));
        watch.begin(5, 3, read(70));
        assert_eq!(watch.oldest(), Some(read(20)));
        watch.end(0);
        watch.end(5);
        assert_eq!(watch.oldest(), None);
    }
}
