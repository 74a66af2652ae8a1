//! io_uring: one ring, many direct reads in flight, files registered once. One system call starts
//! everything new and waits for the next completion.
//!
//! The memory is not registered (`docs/decisions.md` has the figures): it would have to be touched as
//! a whole before the first token, and its reads measured no faster for it.

use super::{Done, Io, Read};
use crate::{PagerError, ReadCause, disk::Shared, layout::READ_BYTES_MAX, wake::Event};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::{io, os::fd::RawFd, sync::Arc, time::Duration};

/// `user_data` of the poll that ends when the bell rings; tickets are small.
const BELL: u64 = u64::MAX;

pub(crate) struct Uring {
    ring: IoUring,
    depth: usize,
    shared: Arc<Shared>,
    bell: RawFd,
    /// A poll of the bell is in flight.
    bell_is_watched: bool,
    in_flight: usize,
}

/// Whether this system lets us use io_uring, with all that `Uring` needs.
pub(crate) fn check() -> io::Result<()> {
    let ring = build(1)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::PollAdd::CODE];
    // The last one is a wait with a limit: Linux 5.11.
    if needed.iter().all(|&code| probe.is_supported(code)) && ring.params().is_feature_ext_arg() {
        return Ok(());
    }
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Without interrupting the I/O thread for completions, which it waits for anyway; older kernels do
/// not know that flag.
fn build(depth: usize) -> io::Result<IoUring> {
    // All reads, the poll of the bell, and room for one more of each while they are replaced.
    let entries = 2 * (depth as u32 + 1);
    IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))
}

impl Uring {
    pub(crate) fn boxed(shared: Arc<Shared>, line: usize) -> Result<Box<dyn Io>, PagerError> {
        let refused = |source| PagerError::Unavailable { backend: "io_uring", source };
        let depth = shared.lines[line].depth;
        let ring = build(depth).map_err(refused)?;
        let files: Vec<RawFd> = shared.files.descriptors().collect();
        ring.submitter().register_files(&files).map_err(refused)?;
        let bell = shared.lines[line].bell.descriptor().expect("the bell of a ring has a descriptor");
        Ok(Box::new(Uring { ring, depth, shared, bell, bell_is_watched: false, in_flight: 0 }))
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: a read's memory belongs to `shared`, which lives until `drop` has awaited all reads,
        // and is lent to it until it is done; a poll has no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has an entry for every read in flight and the bell");
    }

    /// Starts what was pushed, and waits for `count` completions, or until `limit` is over.
    fn enter(&mut self, count: usize, limit: Option<Duration>) {
        let entered = match limit.map(types::Timespec::from) {
            Some(limit) => {
                self.ring.submitter().submit_with_args(count, &types::SubmitArgs::new().timespec(&limit))
            }
            None => self.ring.submit_and_wait(count),
        };
        match entered {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(EINTR | ETIME)) => {}
            Err(error) if matches!(error.raw_os_error(), Some(EAGAIN | EBUSY)) => {
                // The kernel is short of memory: not a matter of spinning.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => panic!("io_uring failed: {error}"),
        }
    }
}

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();
const ETIME: i32 = rustix::io::Errno::TIME.raw_os_error();
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();

impl Io for Uring {
    fn depth(&self) -> usize {
        self.depth
    }

    fn start(&mut self, read: Read) {
        assert!(read.bytes as u64 <= READ_BYTES_MAX && self.in_flight < self.depth);
        let memory = self.shared.frames.pointer(read.place, read.bytes);
        let file = types::Fixed(read.file);
        let entry = opcode::Read::new(file, memory, read.bytes as u32).offset(read.offset).build();
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

    fn wait(&mut self, bell: &Event, seen: u32, limit: Option<Duration>) {
        if !self.bell_is_watched {
            // First silence it: what rang until now has moved the counter already.
            bell.silence();
            let readable = rustix::event::PollFlags::IN.bits().into();
            let poll = opcode::PollAdd::new(types::Fd(self.bell), readable).build();
            self.push(&poll.user_data(BELL));
            self.bell_is_watched = true;
        }
        bell.announce();
        self.enter(usize::from(bell.now() == seen), limit);
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
