//! A disk as the I/O thread sees it: reads are started, later they are done. Each backend says how many
//! it takes at once; a backend knows nothing of slots, retries or short reads.

mod plain;
mod simulated;
#[cfg(all(target_os = "linux", not(loom)))]
mod uring;

pub use simulated::SimConfig;

use crate::{
    DiskChoice, FileSet, IoKind, PagerError, ReadCause,
    disk::{Line, Shared},
    line_pace::LinePace,
    queue::Queue,
    reader::RESTS,
    wake::Event,
    watch::Watch,
};
use std::{fs::File, io, sync::Arc, time::Duration};

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

    /// Sleeps until a read has finished, `bell` moved away from `seen`, or `limit` is over. May return
    /// early.
    fn wait(&mut self, bell: &Event, seen: u32, limit: Option<Duration>);

    /// How long a read rests after it has failed so often, 1 to 3 times, before it is tried again.
    fn rest(&self, failed_attempts: u32) -> Duration {
        RESTS[failed_attempts as usize - 1]
    }
}

/// Without io_uring there is only its refusal.
#[cfg(not(all(target_os = "linux", not(loom))))]
mod uring {
    pub(crate) fn check() -> std::io::Result<()> {
        Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
    }
}

/// What `io` means here: never `Auto`. Refuses a backend that does not work here.
pub(crate) fn choose(io: &IoKind) -> Result<IoKind, PagerError> {
    match io {
        IoKind::Auto if uring::check().is_ok() => Ok(IoKind::Uring),
        IoKind::Auto => Ok(IoKind::Plain),
        IoKind::Uring => match uring::check() {
            Ok(()) => Ok(IoKind::Uring),
            Err(source) => Err(PagerError::Unavailable { backend: "io_uring", source }),
        },
        other => Ok(other.clone()),
    }
}

/// The ways to the I/O threads that `backends` will want, with queues of `capacity`: the threads of each
/// device stand together, in the order of the devices.
pub(crate) fn lines(files: &FileSet, capacity: usize) -> Result<Box<[Line]>, PagerError> {
    let devices = files.devices().iter().enumerate();
    let of_device = |(device, choice): (usize, DiskChoice)| {
        std::iter::repeat_n((device, choice), threads(files.io(), choice))
    };
    devices
        .map(|(number, device)| (number, device.choice))
        .flat_map(of_device)
        .map(|(device, choice)| {
            Ok(Line {
                device,
                depth: choice.depth,
                flight_bytes: choice.flight_bytes,
                queue: Queue::new(capacity),
                hints: Queue::new(capacity),
                bell: bell(files.io())?,
                watch: Watch::new(),
                pace: LinePace::default(),
            })
        })
        .collect()
}

/// What an I/O thread sleeps on: one in a ring can only be woken by a descriptor.
fn bell(io: &IoKind) -> Result<Event, PagerError> {
    match io {
        #[cfg(all(target_os = "linux", not(loom)))]
        IoKind::Uring => {
            Event::with_descriptor().map_err(|source| PagerError::Unavailable { backend: "io_uring", source })
        }
        _ => Ok(Event::new()),
    }
}

/// The backends of one set of files, one for each I/O thread.
pub(crate) fn backends(shared: &Arc<Shared>) -> Result<Vec<Box<dyn Io>>, PagerError> {
    let backend = |line: usize| match shared.files.io() {
        IoKind::Simulated(config) => Ok(simulated::Simulated::boxed(shared.clone(), config, line)),
        #[cfg(all(target_os = "linux", not(loom)))]
        IoKind::Uring => uring::Uring::boxed(shared.clone(), line),
        _ => Ok(plain::Plain::boxed(shared.clone())),
    };
    (0..shared.lines.len()).map(backend).collect()
}

/// How many I/O threads `backends` wants.
pub(crate) fn thread_count(files: &FileSet) -> usize {
    files.devices().iter().map(|device| threads(files.io(), device.choice)).sum()
}

/// How many I/O threads one device has.
fn threads(io: &IoKind, choice: DiskChoice) -> usize {
    match io {
        IoKind::Simulated(_) | IoKind::Uring => 1,
        IoKind::Auto | IoKind::Plain => choice.depth.min(plain::THREADS),
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
