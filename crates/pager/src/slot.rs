//! The life of a slot: Empty -> Loading (reads pending) -> Ready -> in use (count), as one atomic word.
//! The only hand-over between the I/O threads and the engine; must not know what the bytes mean.
//!
//! **Invariant:** bytes of a slot are written only while it is Loading and read only while it is in
//! use. A slot in use or Loading is never emptied. Model-checked with loom below.

use crate::ReadCause;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const COUNT: u32 = (1 << 24) - 1;
const EMPTY: u32 = 0;
const LOADING: u32 = 1 << 24;
const READY: u32 = 2 << 24;
const FAILED: u32 = 3 << 24;

/// Set in `failed` once a read of the current load has failed.
const NO_FAILURE: u32 = 0;
const FAILURE: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Loading,
    /// Loaded; `users` readers hold it.
    Ready {
        users: u32,
    },
    Failed,
}

/// Why a load failed: the first read that gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub file: u32,
    pub offset: u64,
    pub bytes: u64,
    pub cause: ReadCause,
}

pub(crate) struct Slot {
    /// State in the high byte; pending reads (Loading) or users (Ready) in the low three.
    word: AtomicU32,
    failed: AtomicU32,
    failed_file: AtomicU32,
    failed_cause: AtomicU32,
    failed_offset: AtomicU64,
    failed_bytes: AtomicU64,
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot {
            word: AtomicU32::new(EMPTY),
            failed: AtomicU32::new(NO_FAILURE),
            failed_file: AtomicU32::new(0),
            failed_cause: AtomicU32::new(0),
            failed_offset: AtomicU64::new(0),
            failed_bytes: AtomicU64::new(0),
        }
    }

    /// Whoever sees Ready here also sees the bytes that were read.
    pub(crate) fn state(&self) -> State {
        let word = self.word.load(Ordering::Acquire);
        match word & !COUNT {
            EMPTY => State::Empty,
            LOADING => State::Loading,
            READY => State::Ready { users: word & COUNT },
            FAILED => State::Failed,
            other => unreachable!("slot state {other:#x}"),
        }
    }

    /// Empty -> Loading: from now on the bytes belong to the `reads` reads.
    pub(crate) fn begin(&self, reads: u32) {
        assert!(reads > 0 && reads <= COUNT, "a load has reads to wait for");
        self.failed.store(NO_FAILURE, Ordering::Relaxed);
        let begun = self.word.compare_exchange(EMPTY, LOADING | reads, Ordering::AcqRel, Ordering::Relaxed);
        assert!(begun.is_ok(), "only an empty slot is loaded");
    }

    /// One read has ended; true when it was the last one, so that someone must be told.
    pub(crate) fn read_ended(&self, failure: Option<Failure>) -> bool {
        if let Some(failure) = failure {
            self.record(failure);
        }
        // Release publishes this read's bytes and failure; Acquire sees those of the reads before it.
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        assert!(before & !COUNT == LOADING && before & COUNT > 0, "a read ends within its load");
        if before & COUNT > 1 {
            return false;
        }
        let failed = self.failed.load(Ordering::Relaxed) == FAILURE;
        self.word.store(if failed { FAILED } else { READY }, Ordering::Release);
        true
    }

    /// Keeps the first failure of a load.
    fn record(&self, failure: Failure) {
        let first = self.failed.compare_exchange(NO_FAILURE, FAILURE, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.failed_file.store(failure.file, Ordering::Relaxed);
            self.failed_cause.store(failure.cause.to_bits(), Ordering::Relaxed);
            self.failed_offset.store(failure.offset, Ordering::Relaxed);
            self.failed_bytes.store(failure.bytes, Ordering::Relaxed);
        }
    }

    /// Ready -> in use. False when the slot is not Ready (any more).
    pub(crate) fn pin(&self) -> bool {
        let pinned = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
            (word & !COUNT == READY && word & COUNT < COUNT).then_some(word + 1)
        });
        pinned.is_ok()
    }

    pub(crate) fn unpin(&self) {
        // Release: whoever empties the slot next does so after this user's reads.
        let before = self.word.fetch_sub(1, Ordering::Release);
        assert!(before & !COUNT == READY && before & COUNT > 0, "only a pinned slot is unpinned");
    }

    /// Ready and not in use -> Empty. False when the slot is in any other state.
    pub(crate) fn evict(&self) -> bool {
        self.word.compare_exchange(READY, EMPTY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Failed -> Empty, with the reason.
    pub(crate) fn take_failure(&self) -> Failure {
        let taken = self.word.compare_exchange(FAILED, EMPTY, Ordering::AcqRel, Ordering::Relaxed);
        assert!(taken.is_ok(), "only a failed slot has a failure to take");
        Failure {
            file: self.failed_file.load(Ordering::Relaxed),
            offset: self.failed_offset.load(Ordering::Relaxed),
            bytes: self.failed_bytes.load(Ordering::Relaxed),
            cause: ReadCause::from_bits(self.failed_cause.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, model::Builder, sync::Arc, thread};

    /// Two pieces of memory that a slot's state guards. loom fails the model when two threads touch a
    /// piece without one of them having happened before the other.
    struct Guarded {
        slot: Slot,
        bytes: [UnsafeCell<u32>; 2],
    }

    fn guarded() -> Arc<Guarded> {
        Arc::new(Guarded { slot: Slot::new(), bytes: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    impl Guarded {
        fn write(&self, piece: usize, value: u32) {
            // SAFETY: loom checks that this access is exclusive.
            self.bytes[piece].with_mut(|bytes| unsafe { *bytes = value });
        }

        fn read(&self, piece: usize) -> u32 {
            // SAFETY: loom checks that nobody writes meanwhile.
            self.bytes[piece].with(|bytes| unsafe { *bytes })
        }

        fn settled(&self) -> State {
            loop {
                match self.slot.state() {
                    State::Loading => thread::yield_now(),
                    state => return state,
                }
            }
        }
    }

    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(4);
        builder.check(model);
    }

    fn failure(offset: u64) -> Failure {
        Failure { file: 3, offset, bytes: offset + 1, cause: ReadCause::Os(5) }
    }

    #[test]
    fn loom_bytes_are_there_before_ready_is_seen() {
        explore(|| {
            let shared = guarded();
            shared.slot.begin(2);
            for piece in 0..2 {
                let loader = shared.clone();
                thread::spawn(move || {
                    loader.write(piece, 7 + piece as u32);
                    loader.slot.read_ended(None);
                });
            }
            assert_eq!(shared.settled(), State::Ready { users: 0 });
            assert!(shared.slot.pin());
            assert_eq!((shared.read(0), shared.read(1)), (7, 8));
            assert!(!shared.slot.evict(), "it is in use");
            shared.slot.unpin();
            assert!(shared.slot.evict());
        });
    }

    #[test]
    fn loom_one_of_two_loaders_is_the_last() {
        explore(|| {
            let shared = guarded();
            shared.slot.begin(2);
            let other = shared.clone();
            let thread = thread::spawn(move || other.slot.read_ended(None));
            let here = shared.slot.read_ended(None);
            assert!(here != thread.join().unwrap(), "exactly one tells the waiter");
        });
    }

    #[test]
    fn loom_a_failure_is_seen_whole_and_only_after_the_last_read() {
        explore(|| {
            let shared = guarded();
            shared.slot.begin(3);
            for piece in 0..2 {
                let loader = shared.clone();
                thread::spawn(move || {
                    loader.slot.read_ended(Some(failure(10 + piece)));
                });
            }
            shared.slot.read_ended(None);
            assert_eq!(shared.settled(), State::Failed);
            assert!(!shared.slot.pin() && !shared.slot.evict());
            let seen = shared.slot.take_failure();
            assert!(seen == failure(10) || seen == failure(11), "{seen:?}");
            // No read of the failed load is left: the slot can be filled at once.
            shared.slot.begin(1);
            shared.write(0, 1);
            shared.slot.read_ended(None);
            assert_eq!(shared.settled(), State::Ready { users: 0 }, "the old failure is forgotten");
        });
    }

    #[test]
    fn loom_a_slot_in_use_or_loading_is_never_emptied() {
        explore(|| {
            let shared = guarded();
            shared.slot.begin(1);
            let user = shared.clone();
            let user = thread::spawn(move || {
                if user.slot.pin() {
                    let seen = user.read(0);
                    assert!(seen == 1 || seen == 2, "{seen}");
                    user.slot.unpin();
                }
            });
            let evictor = shared.clone();
            let evictor = thread::spawn(move || {
                if evictor.slot.evict() {
                    evictor.slot.begin(1);
                    evictor.write(0, 2);
                    evictor.slot.read_ended(None);
                }
            });
            shared.write(0, 1);
            shared.slot.read_ended(None);
            user.join().unwrap();
            evictor.join().unwrap();
        });
    }
}
