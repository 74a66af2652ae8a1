//! Sleeping until something happened, without a lock: a counter that only grows, on which a waiter
//! spins briefly and then sleeps (a futex on Linux). Must not know what happened.
//!
//! Use: `let seen = event.now();` look for work; if there is none `event.wait(seen)`. Whoever makes
//! work calls `event.notify()` after it is visible. A notification between the two is never lost,
//! since `wait` returns at once when the counter has moved.

use crate::sync::{AtomicU32, Ordering, fence, spin};
use std::time::Duration;

/// Turns of the busy wait: a few microseconds, about what going to sleep would cost. Longer would
/// take the processor from the I/O thread that is being waited for.
const SPINS: u32 = if cfg!(loom) { 0 } else { 200 };

pub(crate) struct Event {
    count: AtomicU32,
    sleepers: AtomicU32,
    sleep: platform::Sleep,
}

impl Event {
    pub(crate) fn new() -> Event {
        Event { count: AtomicU32::new(0), sleepers: AtomicU32::new(0), sleep: platform::Sleep::new() }
    }

    pub(crate) fn now(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::Release);
        // The counter must move before we look for sleepers, as they count themselves before they
        // look at the counter: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.sleep.wake(&self.count);
        }
    }

    /// Returns once the counter is no longer `seen`.
    pub(crate) fn wait(&self, seen: u32) {
        while self.now() == seen {
            self.doze(seen, None);
        }
    }

    /// Returns once the counter is no longer `seen`, after `limit`, or now and then for no reason.
    pub(crate) fn wait_at_most(&self, seen: u32, limit: Duration) {
        self.doze(seen, Some(limit));
    }

    /// Spins, then sleeps at most once.
    fn doze(&self, seen: u32, limit: Option<Duration>) {
        for _ in 0..SPINS {
            if self.now() != seen {
                return;
            }
            spin();
        }
        self.announce();
        if self.now() == seen {
            self.sleep.wait(&self.count, seen, limit);
        }
        self.retract();
    }

    /// From here until `retract` a notification also wakes; check `now` in between, then sleep.
    pub(crate) fn announce(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn retract(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// For a waiter that sleeps in a ring: a notification makes a descriptor readable.
#[cfg(all(target_os = "linux", not(loom)))]
impl Event {
    pub(crate) fn with_descriptor() -> std::io::Result<Event> {
        Ok(Event { sleep: platform::Sleep::with_descriptor()?, ..Event::new() })
    }

    pub(crate) fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        self.sleep.descriptor()
    }

    /// The descriptor is not readable until the next notification.
    pub(crate) fn silence(&self) {
        self.sleep.silence();
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod platform {
    use rustix::{
        event::{EventfdFlags, eventfd},
        fs::Timespec,
        thread::futex::{Flags, wait, wake},
    };
    use std::{
        io,
        os::fd::{AsRawFd, OwnedFd, RawFd},
        sync::atomic::AtomicU32,
        time::Duration,
    };

    pub(super) struct Sleep {
        descriptor: Option<OwnedFd>,
    }

    impl Sleep {
        pub(super) fn new() -> Sleep {
            Sleep { descriptor: None }
        }

        pub(super) fn with_descriptor() -> io::Result<Sleep> {
            let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            Ok(Sleep { descriptor: Some(descriptor) })
        }

        pub(super) fn descriptor(&self) -> Option<RawFd> {
            self.descriptor.as_ref().map(OwnedFd::as_raw_fd)
        }

        pub(super) fn silence(&self) {
            if let Some(descriptor) = &self.descriptor {
                // Nothing to read means that it is silent.
                let _ = rustix::io::read(descriptor, &mut [0; 8]);
            }
        }

        pub(super) fn wait(&self, count: &AtomicU32, seen: u32, limit: Option<Duration>) {
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // Any error means "look again": the counter has moved, a signal came, or time is up.
            let _ = wait(count, Flags::PRIVATE, seen, limit.as_ref());
        }

        pub(super) fn wake(&self, count: &AtomicU32) {
            // Neither can fail in a way that leaves a sleeper asleep.
            let _ = match &self.descriptor {
                Some(descriptor) => rustix::io::write(descriptor, &1u64.to_ne_bytes()),
                None => wake(count, Flags::PRIVATE, i32::MAX as u32),
            };
        }
    }
}

/// The standard library has no futex. The lock is held only by one who is about to sleep or who
/// wakes a sleeper; nobody who finds work takes it.
#[cfg(all(not(target_os = "linux"), not(loom)))]
mod platform {
    use std::sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    };
    use std::time::Duration;

    pub(super) struct Sleep {
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Sleep {
        pub(super) fn new() -> Sleep {
            Sleep { lock: Mutex::new(()), woken: Condvar::new() }
        }

        pub(super) fn wait(&self, count: &AtomicU32, seen: u32, limit: Option<Duration>) {
            let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if count.load(Ordering::Acquire) != seen {
                return;
            }
            match limit {
                None => drop(self.woken.wait(held).unwrap_or_else(PoisonError::into_inner)),
                Some(limit) => {
                    drop(self.woken.wait_timeout(held, limit).unwrap_or_else(PoisonError::into_inner))
                }
            }
        }

        pub(super) fn wake(&self, _count: &AtomicU32) {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_all();
        }
    }
}

/// loom has no sleep that a counter guards: the sleeper is one that yields until it is woken.
#[cfg(loom)]
mod platform {
    use crate::sync::{AtomicU32, Ordering, spin};
    use std::time::Duration;

    pub(super) struct Sleep {
        woken: AtomicU32,
    }

    impl Sleep {
        pub(super) fn new() -> Sleep {
            Sleep { woken: AtomicU32::new(0) }
        }

        /// As a futex: returns at once if the counter has moved before we slept, else when woken. A limit
        /// is over at once, since loom has no time.
        pub(super) fn wait(&self, count: &AtomicU32, seen: u32, limit: Option<Duration>) {
            let woken = self.woken.load(Ordering::SeqCst);
            if count.load(Ordering::SeqCst) != seen {
                return;
            }
            if limit.is_some() {
                return spin();
            }
            while self.woken.load(Ordering::SeqCst) == woken {
                spin();
            }
        }

        pub(super) fn wake(&self, _count: &AtomicU32) {
            self.woken.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{model::Builder, sync::Arc, thread};

    /// A waiter that gave up must not take the wake-up of one that has not.
    #[test]
    fn loom_a_wait_with_a_limit_takes_no_wake_up_from_another() {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let event = Arc::new(Event::new());
            let sleeper = event.clone();
            let sleeper = thread::spawn(move || {
                let seen = 0;
                sleeper.wait_at_most(seen, Duration::from_secs(1));
                sleeper.wait(seen);
                assert_eq!(sleeper.now(), 1);
            });
            event.notify();
            sleeper.join().unwrap();
        });
    }
}
