//! How fast a way to a disk is, as seen while it has work: bytes answered per time in which something was
//! asked for. Decides nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// Older times count half each time as many bytes were answered: a disk may become slower.
const BYTES_KEPT: u64 = 256 << 20;

/// Written by one I/O thread, read by the engine. A guess for sharing work, so all is Relaxed.
#[derive(Default)]
pub(crate) struct LinePace {
    /// All bytes of ended reads, as they were asked for.
    ended: AtomicU64,
    /// Of late.
    bytes: AtomicU64,
    busy_ns: AtomicU64,
}

impl LinePace {
    /// A read of so many bytes ended, after so much busy time since the last one did.
    pub(crate) fn add(&self, bytes: u64, busy_ns: u64) {
        self.ended.fetch_add(bytes, Ordering::Relaxed);
        let mut all = self.bytes.load(Ordering::Relaxed) + bytes;
        let mut all_ns = self.busy_ns.load(Ordering::Relaxed) + busy_ns;
        if all > BYTES_KEPT {
            (all, all_ns) = (all / 2, all_ns / 2);
        }
        self.bytes.store(all, Ordering::Relaxed);
        self.busy_ns.store(all_ns, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Time that so many bytes will take; `guess_bytes_per_s` until something has been read.
    pub(crate) fn seconds(&self, bytes: u64, guess_bytes_per_s: f64) -> f64 {
        let busy_ns = self.busy_ns.load(Ordering::Relaxed);
        let seen = self.bytes.load(Ordering::Relaxed) as f64 * 1e9 / busy_ns as f64;
        bytes as f64 / if busy_ns == 0 { guess_bytes_per_s } else { seen.max(1.0) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_a_disk_that_becomes_slower() {
        let pace = LinePace::default();
        assert_eq!(pace.seconds(1000, 500.0), 2.0);
        for _ in 0..1000 {
            pace.add(1 << 20, 1 << 20); // 1 GB/s
        }
        assert!((pace.seconds(1 << 30, 1.0) - 1.0737).abs() < 0.01);
        for _ in 0..2000 {
            pace.add(1 << 20, 4 << 20);
        }
        assert!(pace.seconds(1 << 30, 1.0) > 4.0);
        assert_eq!(pace.ended(), 3000 << 20);
    }
}
