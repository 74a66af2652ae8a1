//! A 32-bit word that threads can sleep on. Owns the system call; knows nothing of jobs.

use std::sync::atomic::AtomicU32;

/// Linux: a futex. Nothing is allocated and nothing is locked.
#[cfg(target_os = "linux")]
#[derive(Default)]
pub struct Signal {
    pub word: AtomicU32,
}

#[cfg(target_os = "linux")]
impl Signal {
    /// Sleeps while the word is `value`. May return early: callers look at the word again.
    pub fn sleep_while(&self, value: u32) {
        // An error means that the word has changed already or that a signal arrived.
        let _ = rustix::thread::futex::wait(&self.word, rustix::thread::futex::Flags::PRIVATE, value, None);
    }

    pub fn wake_all(&self) {
        // Waking cannot fail for a mapped, aligned word.
        let _ =
            rustix::thread::futex::wake(&self.word, rustix::thread::futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

/// Elsewhere: a lock and a condition variable, touched only by those about to sleep or to wake a sleeper.
#[cfg(not(target_os = "linux"))]
#[derive(Default)]
pub struct Signal {
    pub word: AtomicU32,
    lock: std::sync::Mutex<()>,
    changed: std::sync::Condvar,
}

#[cfg(not(target_os = "linux"))]
impl Signal {
    /// Sleeps while the word is `value`. May return early: callers look at the word again.
    pub fn sleep_while(&self, value: u32) {
        let guard = self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.word.load(std::sync::atomic::Ordering::SeqCst) == value {
            drop(self.changed.wait(guard));
        }
    }

    pub fn wake_all(&self) {
        drop(self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.changed.notify_all();
    }
}
