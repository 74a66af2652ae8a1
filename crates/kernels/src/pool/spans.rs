//! Who does which pieces of a job. Every worker begins with a run of its own, because memory delivers long
//! runs fastest, and takes pieces from its front; whoever has nothing left takes half of what the worker with
//! the most has yet to do, from its end. A worker that never comes is thus robbed of all.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most workers of a pool.
pub const MOST_WORKERS: usize = 256;

/// The units of one job that nobody has taken yet, a run for each worker.
///
/// **Invariant:** a unit is in one run until it is taken, then in none.
pub struct Spans {
    /// First unit in the high half, end in the low one.
    runs: [AtomicU64; MOST_WORKERS],
    workers: usize,
    /// Runs are so many places apart: in cache lines of their own while they fit.
    stride: usize,
}

const LINE_RUNS: usize = 64 / size_of::<AtomicU64>();

fn pack(run: Range<u32>) -> u64 {
    (run.start as u64) << 32 | run.end as u64
}

fn unpack(run: u64) -> Range<u32> {
    (run >> 32) as u32..run as u32
}

impl Spans {
    pub fn new(total: usize, workers: usize) -> Spans {
        assert!(total <= u32::MAX as usize, "{total} pieces of work");
        assert!((1..=MOST_WORKERS).contains(&workers));
        let stride = (MOST_WORKERS / workers).min(LINE_RUNS);
        let spans = Spans { runs: [const { AtomicU64::new(0) }; MOST_WORKERS], workers, stride };
        let edge = |worker: usize| (total as u64 * worker as u64 / workers as u64) as u32;
        for worker in 0..workers {
            spans.run(worker).store(pack(edge(worker)..edge(worker + 1)), Ordering::Relaxed);
        }
        spans
    }

    /// The next units for `worker`, at most `piece` of them; `None` when all are taken. The numbers carry no
    /// data between threads, so relaxed atomics do.
    pub fn take(&self, worker: usize, piece: usize) -> Option<Range<usize>> {
        let piece = piece.min(u32::MAX as usize) as u32;
        loop {
            let own = self.run(worker).load(Ordering::Relaxed);
            let run = unpack(own);
            if run.is_empty() {
                match self.steal(worker, piece)? {
                    Some(units) => return Some(units),
                    None => continue,
                }
            }
            let taken = run.start..run.end.min(run.start.saturating_add(piece));
            if self.replace(worker, own, taken.end..run.end) {
                return Some(taken.start as usize..taken.end as usize);
            }
        }
    }

    /// Takes half of the longest run into the empty one of `worker`, or its last piece at once. `None` when
    /// there is nothing; `Some(None)` when the run of `worker` is worth another look.
    fn steal(&self, worker: usize, piece: u32) -> Option<Option<Range<usize>>> {
        let runs = (0..self.workers).map(|worker| (worker, self.run(worker).load(Ordering::Relaxed)));
        let (victim, seen) = runs.max_by_key(|(_, run)| unpack(*run).len())?;
        let run = unpack(seen);
        if run.is_empty() {
            return None;
        }
        let mine = if run.len() as u32 <= piece {
            run.clone()
        } else {
            run.start + (run.len() as u32).div_ceil(2)..run.end
        };
        if !self.replace(victim, seen, run.start..mine.start) {
            return Some(None);
        }
        if mine.len() as u32 <= piece {
            return Some(Some(mine.start as usize..mine.end as usize));
        }
        // Nobody else writes an empty run: they have nothing to take from it.
        self.run(worker).store(pack(mine), Ordering::Relaxed);
        Some(None)
    }

    fn run(&self, worker: usize) -> &AtomicU64 {
        &self.runs[worker * self.stride]
    }

    /// A run never comes back once units of it are taken, so equal bits mean that nothing has happened.
    fn replace(&self, worker: usize, seen: u64, run: Range<u32>) -> bool {
        self.run(worker).compare_exchange(seen, pack(run), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn every_unit_is_taken_once_whoever_comes() {
        for (total, workers, piece) in [(1, 1, 1), (7, 3, 2), (64, 4, 5), (1000, 7, 1), (5, 8, 1), (0, 2, 1)]
        {
            for present in 1..=workers {
                let spans = Spans::new(total, workers);
                let mut seen = vec![0; total];
                let mut left: Vec<usize> = (0..present).collect();
                let mut turn = 0;
                while !left.is_empty() {
                    // Uneven turns, so that some steal from others.
                    turn += 1;
                    let index = turn * turn % left.len();
                    match spans.take(left[index], piece) {
                        Some(units) => {
                            assert!(units.len() <= piece && !units.is_empty());
                            units.for_each(|unit| seen[unit] += 1);
                        }
                        None => drop(left.swap_remove(index)),
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "{total} {workers} {piece} {present}");
            }
        }
    }

    #[test]
    fn a_worker_walks_forward_through_its_own_run() {
        let spans = Spans::new(100, 2);
        assert_eq!(spans.take(1, 8), Some(50..58));
        assert_eq!(spans.take(1, 8), Some(58..66));
        assert_eq!(spans.take(0, 8), Some(0..8));
        // Worker 1 finishes its own; then half of the 42 units of worker 0 become its run.
        let own: usize = (0..5).filter_map(|_| spans.take(1, 8)).map(|units| units.len()).sum();
        assert_eq!(own, 34);
        assert_eq!(spans.take(1, 8), Some(29..37));
        assert_eq!(spans.take(0, 8), Some(8..16));
    }

    #[test]
    fn threads_that_rob_each_other_lose_and_double_nothing() {
        for round in 0..200 {
            let counts: Vec<AtomicU32> = (0..997).map(|_| AtomicU32::new(0)).collect();
            let spans = Spans::new(counts.len(), 4);
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let (spans, counts) = (&spans, &counts);
                    scope.spawn(move || {
                        while let Some(units) = spans.take(worker, 1 + (worker + round) % 3) {
                            for unit in units {
                                counts[unit].fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "round {round}");
        }
    }
}
