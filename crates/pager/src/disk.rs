//! Slots and the I/O threads that fill them: the engine's side. Owns the frames of all slots, their
//! states, and the threads. Must not know which slot holds what, nor why.

use crate::{
    FileSet, PagerError,
    error::Place,
    fetch::{Fetch, reads_max},
    io,
    line_pace::LinePace,
    memory::{AlignedBuf, Frames},
    queue::{Queue, Request},
    reader,
    slot::{Failure, Slot, State},
    wake::Event,
    watch::Watch,
};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Stack of an I/O thread: its loop is shallow, and the plan counts it whole.
const STACK_BYTES: usize = 128 << 10;

/// What the engine and the I/O threads share.
pub(crate) struct Shared {
    pub files: FileSet,
    pub frames: Frames,
    pub slots: Box<[Slot]>,
    /// Slot `i` is the frame of this size at `i * slot_bytes`; the last one may be shorter.
    pub slot_bytes: usize,
    pub lines: Box<[Line]>,
    /// Moves whenever a slot became Ready or Failed, or an I/O thread came or went.
    pub changed: Event,
    /// Asks the I/O threads to finish what is in flight and end.
    pub stop: AtomicBool,
    /// An I/O thread ended without being asked: what it had in flight will never be done.
    pub died: AtomicBool,
    /// I/O threads that have begun, and that have ended.
    pub started: AtomicUsize,
    pub ended: AtomicUsize,
    /// Files of which a read failed while there was another copy; they are asked for last.
    pub failing: Box<[AtomicBool]>,
    pub counters: ReadCounters,
}

/// The way to one I/O thread.
pub(crate) struct Line {
    /// The device that it is asked to read.
    pub device: usize,
    /// Reads that the thread may have in flight.
    pub depth: usize,
    /// Bytes in flight at which it begins no further read.
    pub flight_bytes: u64,
    /// What is asked for, and what is foreseen to be.
    pub queue: Queue,
    pub hints: Queue,
    /// Moves whenever a queue has grown or `stop` was set.
    pub bell: Event,
    pub watch: Watch,
    pub pace: LinePace,
}

impl Line {
    fn queue_for(&self, need: Need) -> &Queue {
        match need {
            Need::Asked(_) => &self.queue,
            Need::Foreseen(_) => &self.hints,
        }
    }
}

/// Why something is read: a call waits for it, or is foreseen to. Calls are numbered; the number may wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Asked(u32),
    Foreseen(u32),
}

impl Need {
    fn due(self) -> u32 {
        let (Need::Asked(call) | Need::Foreseen(call)) = self;
        call
    }
}

/// Counted by the I/O threads.
#[derive(Default)]
pub(crate) struct ReadCounters {
    /// Reads the disk has answered, failed ones included.
    pub reads: AtomicU64,
    /// Bytes the disk has delivered, with what the alignment adds.
    pub bytes: AtomicU64,
    /// Reads tried again after an error or without progress.
    pub retries: AtomicU64,
    /// Reads that ended early and were continued.
    pub short_reads: AtomicU64,
    /// Time in which a thread had reads under way, up to the end of the last one; the sum over threads.
    pub busy_ns: AtomicU64,
}

pub(crate) struct Disk {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The I/O thread that gets the next read of each device, and the bytes each thread was asked for.
    next_line: Box<[usize]>,
    asked: Box<[u64]>,
    /// Reads that had been answered when the disk was found to be stalled; `u64::MAX` if it never was.
    stalled_at: AtomicU64,
}

/// How long a disk that was found to be stalled, and has answered nothing since, is waited for.
const FAREWELL: Duration = Duration::from_millis(100);

impl Disk {
    /// `memory_bytes` in slots of `slot_bytes`, the last of which may be shorter. `reads_per_slot`: the
    /// most reads of one load.
    pub(crate) fn new(
        files: &FileSet,
        memory_bytes: usize,
        slot_bytes: usize,
        reads_per_slot: usize,
    ) -> Result<Disk, PagerError> {
        let lines = io::lines(files, queue_capacity(reads_per_slot * reads_max(files)))?;
        let shared = Arc::new(Shared {
            files: files.clone(),
            frames: Frames::new(AlignedBuf::new(memory_bytes)?),
            slots: (0..memory_bytes.div_ceil(slot_bytes)).map(|_| Slot::new()).collect(),
            slot_bytes,
            lines,
            changed: Event::new(),
            stop: AtomicBool::new(false),
            died: AtomicBool::new(false),
            started: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            failing: (0..files.len() * files.copies()).map(|_| AtomicBool::new(false)).collect(),
            counters: ReadCounters::default(),
        });
        let mut disk = Disk {
            shared: shared.clone(),
            threads: Vec::with_capacity(shared.lines.len()),
            next_line: first_lines(&shared.lines, files.devices().len()),
            asked: shared.lines.iter().map(|_| 0).collect(),
            stalled_at: AtomicU64::new(u64::MAX),
        };
        for (line, backend) in io::backends(&shared)?.into_iter().enumerate() {
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("adit-read-{line}"))
                .stack_size(STACK_BYTES)
                .spawn(move || reader::run(&shared, line, backend))
                .map_err(|source| PagerError::Unavailable { backend: "an I/O thread", source })?;
            disk.threads.push(thread);
        }
        disk.wait_for_start();
        Ok(disk)
    }

    /// What `new` takes beside the slots' frames, in bytes.
    pub(crate) fn overhead_bytes(files: &FileSet, slots: usize, reads_per_slot: usize) -> u64 {
        let lines = io::thread_count(files);
        let per_line = 2 * queue_capacity(reads_per_slot * reads_max(files)) * Queue::CELL_BYTES // requests
            + Watch::BYTES // what is under way
            + STACK_BYTES // the thread's stack
            + io::BACKEND_BYTES; // rings and tables of the backend, the thread's own bookkeeping
        (slots * size_of::<Slot>() + lines * per_line) as u64
    }

    /// A thread allocates while it starts; afterwards never. So that "afterwards" begins here.
    fn wait_for_start(&self) {
        loop {
            let seen = self.shared.changed.now();
            if self.shared.started.load(Ordering::Acquire) == self.threads.len() || self.died() {
                return;
            }
            self.shared.changed.wait(seen);
        }
    }

    pub(crate) fn state(&self, slot: usize) -> State {
        self.shared.slots[slot].state()
    }

    pub(crate) fn counters(&self) -> &ReadCounters {
        &self.shared.counters
    }

    /// Whether a load of `reads` pieces can be started now.
    pub(crate) fn has_room(&self, reads: usize, need: Need) -> bool {
        let reads = reads * reads_max(&self.shared.files);
        self.shared.lines.iter().all(|line| line.queue_for(need).room() >= reads)
    }

    /// Starts filling an empty slot by exactly `reads` pieces, for which `has_room` said yes. Pieces must
    /// not overlap: each byte belongs to one read. Long ones are read in parts, as their disk likes it.
    pub(crate) fn load<I>(&mut self, slot: usize, reads: usize, fetches: I, need: Need)
    where
        I: Iterator<Item = Fetch> + Clone,
    {
        let files = self.shared.files.clone();
        let pieces = fetches.clone().count();
        assert!(pieces == reads, "a load has as many pieces as it said: {pieces}, not {reads}");
        let split = fetches.flat_map(|fetch| fetch.reads(&files));
        self.shared.slots[slot].begin(split.clone().count() as u32);
        let base = slot * self.shared.slot_bytes;
        let mut free_from = 0;
        for Fetch { file, piece } in split {
            assert!(piece.at >= free_from, "pieces of a load come in order and do not overlap");
            free_from = piece.at + piece.bytes;
            assert!(free_from <= self.shared.slot_bytes as u64, "a load stays within its slot");
            let (file, line) = self.route(file, piece.bytes);
            self.asked[line] += piece.bytes;
            self.shared.lines[line].queue_for(need).push(Request {
                slot: slot as u32,
                file,
                offset: piece.offset,
                place: base as u64 + piece.at,
                bytes: piece.bytes as u32,
                wanted: piece.wanted as u32,
                due: need.due(),
            });
        }
    }

    /// Which copy of a file to read, and by which thread: the one that will be done first.
    fn route(&mut self, file: u32, bytes: u64) -> (u32, usize) {
        let files = &self.shared.files;
        let mut best = (file, self.next_line[files.file(file).device]);
        if files.copies() > 1 {
            let cost = |copy: u32| {
                let line = self.next_line[files.file(copy).device];
                let pace = &self.shared.lines[line].pace;
                let ahead = self.asked[line] - pace.ended() + bytes;
                let failing = self.shared.failing[copy as usize].load(Ordering::Relaxed);
                (failing, pace.seconds(ahead, GUESS_BYTES_PER_S), line)
            };
            let order = |a: &u32, b: &u32| {
                let (a, b) = (cost(*a), cost(*b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            };
            let copy = files.copies_of(file).min_by(order).expect("there is a first copy");
            best = (copy, cost(copy).2);
        }
        // The device's threads take turns.
        let lines = &self.shared.lines;
        let device = lines[best.1].device;
        let is_last = lines.get(best.1 + 1).is_none_or(|next| next.device != device);
        self.next_line[device] = match is_last {
            true => lines.iter().position(|line| line.device == device).expect("each device has a thread"),
            false => best.1 + 1,
        };
        best
    }

    /// Tells the I/O threads about the loads since the last call.
    pub(crate) fn submit(&self) {
        for line in &self.shared.lines {
            line.bell.notify();
        }
    }

    /// For `wait`: taken before looking at slots.
    pub(crate) fn now(&self) -> u32 {
        self.shared.changed.now()
    }

    /// Sleeps until some slot has changed since `now`, or fails when that may never happen: when a thread
    /// died, or no read was answered for as long as the files' `read_timeout`. After that it fails
    /// within [`FAREWELL`] until some read is answered. Slots stay Loading and may yet become Ready.
    pub(crate) fn wait(&self, seen: u32) -> Result<(), PagerError> {
        if self.died() {
            return Err(PagerError::ReaderDied);
        }
        if self.comes(seen) { Ok(()) } else { Err(self.stalled()) }
    }

    /// Waits for a change, for as long as reads are answered; false when they are not.
    fn comes(&self, seen: u32) -> bool {
        let answered_now = || self.shared.counters.reads.load(Ordering::Relaxed);
        let mut answered = answered_now();
        let patience = self.shared.files.read_timeout();
        // Who found it stalled has waited already.
        let mut limit = if self.stalled_at.load(Ordering::Relaxed) == answered {
            FAREWELL.min(patience)
        } else {
            patience
        };
        let mut since = Instant::now();
        while self.shared.changed.now() == seen {
            if answered != answered_now() {
                answered = answered_now();
                (since, limit) = (Instant::now(), patience);
            }
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                self.stalled_at.store(answered, Ordering::Relaxed);
                return false;
            }
            self.shared.changed.wait_at_most(seen, left);
        }
        true
    }

    fn stalled(&self) -> PagerError {
        let oldest = self.shared.lines.iter().find_map(|line| line.watch.oldest());
        let place = oldest.map(|read| (self.shared.files.file(read.file).path.clone(), read.offset));
        PagerError::Stalled { place: Place(place), limit: self.shared.files.read_timeout() }
    }

    pub(crate) fn died(&self) -> bool {
        self.shared.died.load(Ordering::Acquire)
    }

    /// Holds a loaded slot's bytes; None when the slot is not Ready.
    pub(crate) fn pin(&self, slot: usize) -> Option<Pinned<'_>> {
        self.shared.slots[slot].pin().then(|| Pinned { shared: &self.shared, slot })
    }

    /// Gives the memory of an empty slot back to the system; it reads as zeros until the next load.
    pub(crate) fn release(&self, slot: usize) {
        assert!(self.state(slot) == State::Empty, "only an empty slot has nothing to lose");
        let start = slot * self.shared.slot_bytes;
        let bytes = self.shared.slot_bytes.min(self.shared.frames.bytes() - start);
        // SAFETY: an empty slot is not in use, no read of it is under way, and only this thread begins one.
        unsafe { self.shared.frames.release(start, bytes) };
    }

    pub(crate) fn evict(&self, slot: usize) -> bool {
        self.shared.slots[slot].evict()
    }

    /// Empties a failed slot; the error names what could not be read.
    pub(crate) fn take_failure(&self, slot: usize) -> PagerError {
        let Failure { file, offset, bytes, cause } = self.shared.slots[slot].take_failure();
        let path = self.shared.files.file(file).path.clone();
        // What became of the file often says more than the error.
        let change = self.shared.files.change_of(file);
        PagerError::Read { path, offset, bytes, attempts: reader::ATTEMPTS_MAX, cause, change }
    }

    /// Error when a file is not as it was when it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), PagerError> {
        self.shared.files.check_unchanged()
    }

    /// Ends the I/O threads and hands the memory over.
    pub(crate) fn into_buffer(mut self) -> Result<AlignedBuf, PagerError> {
        if !self.stop() {
            return Err(self.stalled());
        }
        if self.died() {
            return Err(PagerError::ReaderDied);
        }
        let shared = self.shared.clone();
        drop(self);
        let shared = Arc::into_inner(shared).expect("the I/O threads have ended and let go");
        Ok(shared.frames.into_buffer())
    }

    /// Ends the I/O threads; false when reads of theirs do not return. Those threads then live on with the
    /// memory that their reads may yet write into, until the reads do return: nobody joins them.
    fn stop(&mut self) -> bool {
        self.shared.stop.store(true, Ordering::Release);
        self.submit();
        loop {
            let seen = self.shared.changed.now();
            // After the first call none is left to wait for.
            if self.shared.ended.load(Ordering::Acquire) >= self.threads.len() {
                break;
            }
            if !self.comes(seen) {
                self.threads.clear();
                return false;
            }
        }
        for thread in self.threads.drain(..) {
            // A panic of the thread has been noted in `died`.
            let _ = thread.join();
        }
        true
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What each disk is thought to give until it has been read: equal, so that all are tried.
const GUESS_BYTES_PER_S: f64 = 1e9;

/// The first thread of each device.
fn first_lines(lines: &[Line], devices: usize) -> Box<[usize]> {
    let first = |device| lines.iter().position(|line| line.device == device);
    (0..devices).map(|device| first(device).expect("each device has a thread")).collect()
}

/// Two full loads at least, so that one can be queued while another is being taken.
fn queue_capacity(reads_per_slot: usize) -> usize {
    (2 * reads_per_slot).max(256)
}

/// The bytes of a slot that is in use. While one lives the slot is neither emptied nor written.
pub(crate) struct Pinned<'a> {
    shared: &'a Shared,
    slot: usize,
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.slot * self.shared.slot_bytes;
        let bytes = self.shared.slot_bytes.min(self.shared.frames.bytes() - start);
        // SAFETY: the slot is Ready and counted as in use, so no load of it can begin, and a read
        // writes only within a slot that is Loading.
        unsafe { self.shared.frames.shared(start, bytes) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.shared.slots[self.slot].unpin();
    }
}
