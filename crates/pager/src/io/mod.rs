//! A disk as the I/O thread sees it: reads are started, later they are done. Each backend says how many
//! it takes at once; a backend knows nothing of slots, retries or short reads.

mod plain;
mod simulated;

pub use simulated::SimConfig;

use crate::{IoKind, PagerError, ReadCause, disk::Shared, wake::Event};
use std::{fs::File, io, sync::Arc};

/// The most reads that any backend has in flight: the tickets of a `Flights` table.
pub(crate) const DEPTH_MAX: usize = 64;

/// What one backend takes beside its stack, for the plan: rings, tables, the thread's bookkeeping.
pub(crate) const BACKEND_BYTES: usize = 64 << 10;

/// One read of a file into the memory at `place`. The memory stays lent to the backend until the
/// read of this ticket is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub ticket: usize,
    pub file: u32,
    pub offset: u64,
    pub place: usize,
    pub bytes: usize,
    /// 0 for the first try of these bytes.
    pub attempt: u32,
}

/// A finished read: how many bytes came, which may be fewer than asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub ticket: usize,
    pub result: Result<usize, ReadCause>,
}

pub(crate) trait Io: Send {
    /// How many reads may be in flight; at most `DEPTH_MAX`.
    fn depth(&self) -> usize;

    /// Starts a read. The caller keeps to `depth`, and lends memory that nobody else touches.
    fn start(&mut self, read: Read);

    /// A finished read, if there is one. Never blocks.
    fn take(&mut self) -> Option<Done>;

    /// Sleeps until a read has finished or `bell` moved away from `seen`. May return early.
    fn wait(&mut self, bell: &Event, seen: u32);
}

/// What `IoKind::Auto` means here.
pub(crate) fn choose() -> IoKind {
    IoKind::Plain
}

/// Refuses a backend that does not work here.
pub(crate) fn check(io: &IoKind) -> Result<(), PagerError> {
    match io {
        IoKind::Uring => {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            Err(PagerError::Unavailable { backend: "io_uring", source })
        }
        _ => Ok(()),
    }
}

/// The backends of one set of files, one for each I/O thread.
pub(crate) fn backends(shared: &Arc<Shared>) -> Result<Vec<Box<dyn Io>>, PagerError> {
    let threads = thread_count(shared.files.io());
    Ok(match shared.files.io() {
        IoKind::Simulated(config) => vec![simulated::Simulated::boxed(shared.clone(), config.clone())],
        _ => (0..threads).map(|_| plain::Plain::boxed(shared.clone())).collect(),
    })
}

/// How many I/O threads `backends` wants.
pub(crate) fn thread_count(io: &IoKind) -> usize {
    match io {
        IoKind::Simulated(_) | IoKind::Uring => 1,
        IoKind::Auto | IoKind::Plain => plain::THREADS,
    }
}

/// One positioned read. Ends early at the end of the file.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}
