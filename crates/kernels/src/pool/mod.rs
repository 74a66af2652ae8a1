//! The worker pool: one caller and its helpers, on one job at a time. Owns threads, waking and joining;
//! knows nothing of what the jobs compute.
//!
//! A job is a function that takes pieces of work until none is left ([`Spans`]). Helpers are welcome,
//! never needed: the caller works too, a helper that wakes too late finds the job closed and is not waited
//! for, so a descheduled core costs at most the piece that it holds. `run` allocates nothing, locks nothing
//! and enters the kernel only to wake sleepers or to sleep. Idle helpers spin for some microseconds, then
//! sleep.
//!
//! Help is not always worth its price: a job may be too short to wake anyone for, and on a busy machine a
//! helper may lose its core in the middle of a piece or be woken onto the caller's own. [`Experience`] times
//! jobs of a kind with and without help and picks the faster way, so two threads are not slower than one.
//!
//! Helpers are pinned to processors only on request ([`places`]).
//!
//! **Invariant:** results never depend on which thread took which piece.

mod experience;
mod places;
mod signal;
mod spans;

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::isa::Isa;
use experience::{Experience, Way};
use signal::Signal;
use spans::{MOST_WORKERS, Spans};

/// Looks at the word before a thread sleeps: 10 to 40 microseconds, about the gap between two products.
const SPINS: u32 = 1000;
/// Bits of [`Shared::state`]: helpers may join; the caller sleeps until the last has left; who is inside.
const OPEN: u32 = 1 << 31;
const CALLER_SLEEPS: u32 = 1 << 30;
const INSIDE: u32 = CALLER_SLEEPS - 1;

pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    isa: Isa,
    experience: Experience,
}

type Task = dyn Fn(usize) + Sync + 'static;

struct Shared {
    /// [`OPEN`] | [`CALLER_SLEEPS`] | number of helpers inside the job.
    state: Signal,
    /// Counts jobs; helpers between jobs wait for it to change.
    bell: Signal,
    sleepers: AtomicU32,
    /// The job. Written by the owner of `busy` while nobody is inside, read by helpers inside.
    task: UnsafeCell<Option<*const Task>>,
    /// A caller owns the helpers.
    busy: AtomicBool,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `task` is the only field that is not Sync: it is written under `busy` while the job is closed and
// nobody is inside, and read only between joining an open job and leaving it; joining acquires what opening
// released. The pointee is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed while the `run` that stored it waits.
unsafe impl Send for Shared {}

impl Pool {
    /// The most threads that a pool takes, the caller counted.
    pub const THREADS_MAX: usize = MOST_WORKERS;

    /// `threads` counts the caller: 1 means no helpers. Uses the best instruction set.
    pub fn new(threads: usize) -> Pool {
        Pool::with_isa(threads, Isa::best())
    }

    /// As [`Pool::new`] with the instruction set given, for tests and comparisons.
    pub fn with_isa(threads: usize, isa: Isa) -> Pool {
        assert!(
            (1..=MOST_WORKERS).contains(&threads),
            "a pool has 1 to {MOST_WORKERS} threads, not {threads}"
        );
        let shared = Arc::new(Shared {
            state: Signal::default(),
            bell: Signal::default(),
            sleepers: AtomicU32::new(0),
            task: UnsafeCell::new(None),
            busy: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let started = Arc::new(Barrier::new(threads));
        let places = places::of_helpers(threads);
        let helpers = (1..threads)
            .map(|worker| {
                let (shared, started) = (shared.clone(), started.clone());
                let place = places.get(worker - 1).copied();
                std::thread::Builder::new()
                    .name(format!("adit-worker-{worker}"))
                    .spawn(move || {
                        if let Some(processor) = place {
                            places::pin(processor);
                        }
                        started.wait();
                        help(&shared, worker);
                    })
                    .expect("the system lets us start a thread")
            })
            .collect();
        // A starting thread allocates (its name); wait, so that nobody does once the pool is in use.
        started.wait();
        Pool { shared, helpers, isa, experience: Experience::new() }
    }

    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Calls `task` with worker number 0 here, and with 1.. on the helpers that come before it returns; a
    /// number is never used by two threads at once. `task` must claim its work from a counter of its own,
    /// as [`Pool::ranges`] does. Returns when all have returned; panics if one of them did. A call from
    /// inside a task, or while another thread runs one, does all the work itself.
    pub fn run(&self, task: &(dyn Fn(usize) + Sync)) {
        if self.helpers.is_empty() || self.shared.busy.swap(true, Ordering::Acquire) {
            return task(0);
        }
        let closing = CloseOnDrop(&self.shared);
        // SAFETY: only the lifetime changes. `close` below does not return, nor unwind past this frame,
        // before every helper that joined has left, and after it none can join.
        let task_ptr = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const Task>(task) };
        // SAFETY: we own `busy`, and the job is closed with nobody inside.
        unsafe { *self.shared.task.get() = Some(task_ptr) };
        self.shared.open();
        task(0);
        self.shared.close();
        let panicked = self.shared.panicked.load(Ordering::Relaxed);
        drop(closing);
        assert!(!panicked, "a worker of the pool panicked; its message is above");
    }

    /// Calls `f(worker, range)` for pieces of at most `piece` that cover `0..total` once.
    pub fn ranges<F: Fn(usize, Range<usize>) + Sync>(&self, total: usize, piece: usize, f: F) {
        self.weighed_ranges(total, piece, 0, f);
    }

    /// As [`Pool::ranges`]; `weight` tells jobs apart that take different times by the same code.
    pub(crate) fn weighed_ranges<F>(&self, total: usize, piece: usize, weight: usize, f: F)
    where
        F: Fn(usize, Range<usize>) + Sync,
    {
        assert!(piece > 0, "pieces of work must not be empty");
        if total <= piece || self.helpers.is_empty() {
            return work(&Spans::new(total, 1), 0, piece, &f);
        }
        let code = std::any::type_name::<F>().as_ptr() as usize;
        let kind = self.experience.kind([code, total, piece, weight]);
        let way = self.experience.choose(kind);
        let begun = Instant::now();
        match way {
            Way::Alone => work(&Spans::new(total, 1), 0, piece, &f),
            Way::Helped => self.helped_ranges(total, piece, f),
        }
        kind.learn(way, begun.elapsed());
    }

    /// As [`Pool::ranges`], with help whether it pays or not.
    pub(crate) fn helped_ranges<F: Fn(usize, Range<usize>) + Sync>(&self, total: usize, piece: usize, f: F) {
        let spans = Spans::new(total, self.threads());
        self.run(&|worker| work(&spans, worker, piece, &f));
    }

    /// Calls `f(row, its part of data)` for every row of `row_len` elements.
    pub fn rows<T: Send>(&self, data: &mut [T], row_len: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let rows = Rows::new(data, row_len);
        self.ranges(rows.count, self.piece(rows.count, row_len), |_, range| {
            for row in range {
                // SAFETY: `ranges` hands out every row once.
                f(row, unsafe { rows.row(row) });
            }
        });
    }

    /// Rows to claim at once: a few thousand elements at least, and some pieces a thread.
    pub(crate) fn piece(&self, rows: usize, row_len: usize) -> usize {
        (2048 / row_len.max(1)).max(rows / (self.threads() * 8)).max(1)
    }
}

/// The part of one worker in a job over ranges.
fn work<F: Fn(usize, Range<usize>)>(spans: &Spans, worker: usize, piece: usize, f: &F) {
    while let Some(units) = spans.take(worker, piece) {
        f(worker, units);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.ring();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of tasks, so it ends well.
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn open(&self) {
        self.panicked.store(false, Ordering::Relaxed);
        self.state.word.store(OPEN, Ordering::Release);
        self.ring();
    }

    /// Sequentially consistent against `sleepers` in [`help`]: we see the sleeper, or it sees the bell.
    fn ring(&self) {
        self.bell.word.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.bell.wake_all();
        }
    }

    /// Lets nobody join any more and waits until those inside have left.
    fn close(&self) {
        let mut state = self.state.word.fetch_and(!OPEN, Ordering::Acquire) & !OPEN;
        let mut spins = 0;
        while state & INSIDE != 0 {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else if state & CALLER_SLEEPS == 0 {
                self.state.word.fetch_or(CALLER_SLEEPS, Ordering::Relaxed);
            } else {
                self.state.sleep_while(state);
            }
            state = self.state.word.load(Ordering::Acquire);
        }
    }

    /// Works on the job if it is open.
    fn join(&self, worker: usize) {
        let joined = self.state.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
            (state & OPEN != 0).then_some(state + 1)
        });
        if joined.is_err() {
            return;
        }
        // SAFETY: we are inside, so the caller of `run` waits for us and its task lives; it was written
        // before the job was opened, and joining acquired that.
        let task = unsafe { &*(*self.task.get()).expect("an open job has a task") };
        if catch_unwind(AssertUnwindSafe(|| task(worker))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        let before = self.state.word.fetch_sub(1, Ordering::Release);
        if before & CALLER_SLEEPS != 0 && before & INSIDE == 1 {
            self.state.wake_all();
        }
    }
}

/// Closes the job, also when the caller's part of it panics, and lets the helpers go to the next caller.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
        self.0.busy.store(false, Ordering::Release);
    }
}

/// The life of a helper: wait for the bell, join, again.
fn help(shared: &Shared, worker: usize) {
    let mut heard = 0;
    loop {
        let mut spins = 0;
        while shared.bell.word.load(Ordering::Acquire) == heard {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                shared.sleepers.fetch_add(1, Ordering::SeqCst);
                shared.bell.sleep_while(heard);
                shared.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
        }
        heard = shared.bell.word.load(Ordering::Acquire);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        shared.join(worker);
    }
}

/// A slice cut into rows that several threads write, each its own.
pub(crate) struct Rows<'a, T> {
    data: *mut T,
    row_len: usize,
    count: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: threads get disjoint rows only, by the contract of `row`.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    pub fn new(data: &'a mut [T], row_len: usize) -> Rows<'a, T> {
        assert!(row_len > 0 && data.len().is_multiple_of(row_len), "{} / {row_len} rows", data.len());
        Rows {
            count: data.len() / row_len,
            data: data.as_mut_ptr(),
            row_len,
            lifetime: std::marker::PhantomData,
        }
    }

    /// # Safety
    /// No row may be borrowed twice at a time.
    #[expect(clippy::mut_from_ref, reason = "rows are disjoint, by the contract")]
    pub unsafe fn row(&self, row: usize) -> &mut [T] {
        assert!(row < self.count, "row {row} of {}", self.count);
        // SAFETY: inside the slice that `new` borrowed for us; nobody else has this row.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.row_len), self.row_len) }
    }

    /// `count` rows from `first` on as one.
    ///
    /// # Safety
    /// No row may be borrowed twice at a time.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "rows are disjoint, by the contract")]
    pub unsafe fn span(&self, first: usize, count: usize) -> &mut [T] {
        assert!(first <= self.count && count <= self.count - first, "{count} rows from {first}");
        // SAFETY: inside the slice that `new` borrowed for us; nobody else has these rows.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(first * self.row_len), count * self.row_len) }
    }
}

#[cfg(test)]
mod tests;
