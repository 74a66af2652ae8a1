//! io_uring: one ring, many direct reads in flight, files and memory registered once. One system call
//! starts everything new and waits for the next completion.

use super::{Done, Io, Read};
use crate::{PagerError, ReadCause, disk::Shared, layout::READ_BYTES_MAX, wake::Event};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::{io, os::fd::RawFd, sync::Arc};

/// Reads in flight. Enough to keep an SSD busy with reads of a megabyte (the `disk` example measures
/// it); more would only make the first of them later.
const DEPTH: usize = 16;

/// All reads, the poll of the bell, and room for one more of each while they are replaced.
const ENTRIES: u32 = 2 * (DEPTH as u32 + 1);

/// `user_data` of the poll that ends when the bell rings; tickets are small.
const BELL: u64 = u64::MAX;

/// The kernel takes registered buffers of at most this size.
const REGION_BYTES_MAX: usize = 1 << 30;

pub(crate) struct Uring {
    ring: IoUring,
    shared: Arc<Shared>,
    bell: RawFd,
    /// A poll of the bell is in flight.
    bell_is_watched: bool,
    in_flight: usize,
    /// Size of the registered buffers that the memory is divided into; None if the system refused.
    region_bytes: Option<usize>,
}

/// Whether this system lets us use io_uring, with all that `Uring` needs.
pub(crate) fn check() -> io::Result<()> {
    let ring = build()?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::ReadFixed::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|&code| probe.is_supported(code)) {
        return Ok(());
    }
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Without interrupting the I/O thread for completions, which it waits for anyway; older kernels do
/// not know that flag.
fn build() -> io::Result<IoUring> {
    IoUring::builder().setup_coop_taskrun().build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))
}

impl Uring {
    pub(crate) fn boxed(shared: Arc<Shared>, line: usize) -> Result<Box<dyn Io>, PagerError> {
        let refused = |source| PagerError::Unavailable { backend: "io_uring", source };
        let ring = build().map_err(refused)?;
        let files: Vec<RawFd> = shared.files.descriptors().collect();
        ring.submitter().register_files(&files).map_err(refused)?;
        let bell = shared.lines[line].bell.descriptor().expect("the bell of a ring has a descriptor");
        let region_bytes = register_memory(&ring, &shared);
        Ok(Box::new(Uring { ring, shared, bell, bell_is_watched: false, in_flight: 0, region_bytes }))
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: a read's memory belongs to `shared`, which lives until `drop` has awaited all reads,
        // and is lent to it until it is done; a poll has no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has an entry for every read in flight and the bell");
    }

    /// Starts what was pushed, and waits for `count` completions.
    fn enter(&mut self, count: usize) {
        match self.ring.submit_and_wait(count) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.raw_os_error(), Some(EAGAIN | EBUSY)) => {
                // The kernel is short of memory: not a matter of spinning.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => panic!("io_uring failed: {error}"),
        }
    }
}

const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();

/// Registers the memory in regions of whole slots, so that no read lies in two of them.
fn register_memory(ring: &IoUring, shared: &Shared) -> Option<usize> {
    let region_bytes = REGION_BYTES_MAX / shared.slot_bytes * shared.slot_bytes;
    if region_bytes == 0 {
        return None;
    }
    let bytes = shared.frames.bytes();
    let regions: Vec<libc::iovec> = (0..bytes)
        .step_by(region_bytes)
        .map(|start| {
            let length = region_bytes.min(bytes - start);
            libc::iovec { iov_base: shared.frames.pointer(start, length).cast(), iov_len: length }
        })
        .collect();
    // SAFETY: the memory lives as long as `shared`, and the ring is dropped before it.
    let registered = unsafe { ring.submitter().register_buffers(&regions) };
    // Refused where a user may not lock that much memory; reads then cost a little more each.
    registered.is_ok().then_some(region_bytes)
}

impl Io for Uring {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn start(&mut self, read: Read) {
        assert!(read.bytes as u64 <= READ_BYTES_MAX && self.in_flight < DEPTH);
        let memory = self.shared.frames.pointer(read.place, read.bytes);
        let file = types::Fixed(read.file);
        let bytes = read.bytes as u32;
        let entry = match self.region_bytes {
            Some(region) => opcode::ReadFixed::new(file, memory, bytes, (read.place / region) as u16)
                .offset(read.offset)
                .build(),
            None => opcode::Read::new(file, memory, bytes).offset(read.offset).build(),
        };
        self.push(&entry.user_data(read.ticket as u64));
        self.in_flight += 1;
    }

    fn take(&mut self) -> Option<Done> {
        loop {
            let completion = self.ring.completion().next()?;
            if completion.user_data() == BELL {
                self.bell_is_watched = false;
                continue;
            }
            self.in_flight -= 1;
            let result = completion.result();
            let result = usize::try_from(result).map_err(|_| ReadCause::Os(-result));
            return Some(Done { ticket: completion.user_data() as usize, result });
        }
    }

    fn wait(&mut self, bell: &Event, seen: u32) {
        if !self.bell_is_watched {
            // First silence it: what rang until now has moved the counter already.
            bell.silence();
            let readable = rustix::event::PollFlags::IN.bits().into();
            let poll = opcode::PollAdd::new(types::Fd(self.bell), readable).build();
            self.push(&poll.user_data(BELL));
            self.bell_is_watched = true;
        }
        bell.announce();
        self.enter(usize::from(bell.now() == seen));
        bell.retract();
    }
}

impl Drop for Uring {
    /// The kernel may write into the memory until the last read is done.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.ring.submit_and_wait(1).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                // Nobody can say when the reads end: keep their memory for ever.
                std::mem::forget(self.shared.clone());
                return;
            }
            while self.take().is_some() {}
        }
    }
}
