//! A ring of words between one thread that puts and one that takes, made of atomics only: whoever puts never
//! waits and allocates nothing. Knows nothing of what the words mean.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub struct Ring {
    words: Box<[AtomicU32]>,
    /// Words published and words taken since the beginning; they differ by at most the ring's length.
    published: AtomicUsize,
    taken: AtomicUsize,
    /// Nothing more will come.
    closed: AtomicBool,
    /// Nobody takes any more.
    abandoned: AtomicBool,
    /// Steps put whole, and steps for which there was no room.
    steps: AtomicU64,
    dropped: AtomicU64,
}

impl Ring {
    /// `len` words, a power of two.
    pub fn new(len: usize) -> Ring {
        assert!(len.is_power_of_two(), "places are found with a mask");
        Ring {
            words: (0..len).map(|_| AtomicU32::new(0)).collect(),
            published: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Words that were published and not yet taken.
    pub fn filled(&self) -> usize {
        self.published.load(Ordering::Acquire) - self.taken.load(Ordering::Relaxed)
    }

    /// Words that fit behind place `at`, which is not before the published ones. Putting thread only.
    pub fn room(&self, at: usize) -> usize {
        // Acquire: the taker has read a place before it is written again.
        self.len() - (at - self.taken.load(Ordering::Acquire))
    }

    /// Puts a word at a place with room. Putting thread only.
    pub fn put(&self, at: usize, word: u32) {
        self.words[at & (self.len() - 1)].store(word, Ordering::Relaxed);
    }

    /// Shows the taker everything before place `end`. Putting thread only.
    pub fn publish(&self, end: usize) {
        self.published.store(end, Ordering::Release);
    }

    /// Appends what was published to `bytes`, little-endian. Taking thread only.
    pub fn take(&self, bytes: &mut Vec<u8>) {
        let (from, to) = (self.taken.load(Ordering::Relaxed), self.published.load(Ordering::Acquire));
        for at in from..to {
            let word = self.words[at & (self.len() - 1)].load(Ordering::Relaxed);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.taken.store(to, Ordering::Release);
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Nobody takes any more: putting is of no use.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub fn count_step(&self, is_whole: bool) {
        let counter = if is_whole { &self.steps } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Steps put whole, and steps dropped.
    pub fn steps(&self) -> (u64, u64) {
        (self.steps.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_in_order_while_both_threads_work() {
        let ring = Ring::new(64);
        let mut bytes = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 0;
                while at < 10_000 {
                    if ring.room(at) > 0 {
                        ring.put(at, at as u32);
                        at += 1;
                        ring.publish(at);
                    } else {
                        std::thread::yield_now();
                    }
                }
                ring.close();
            });
            while !(ring.is_closed() && ring.filled() == 0) {
                ring.take(&mut bytes);
            }
        });
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        assert!(words.eq(0..10_000));
    }
}
