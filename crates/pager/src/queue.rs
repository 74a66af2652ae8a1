//! A fixed queue of read requests from the engine to one I/O thread: one producer, one consumer,
//! atomics only. Must not know what a request is for.

use crate::sync::{AtomicU64, Ordering};

/// One read to do: `bytes` from `offset` of `file` into the memory at `place`, for `slot`.
/// The first `wanted` bytes must arrive; the rest is there because of the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub slot: u32,
    pub file: u32,
    pub offset: u64,
    pub place: u64,
    pub bytes: u32,
    pub wanted: u32,
    /// Number of the call that needs it; it may wrap.
    pub due: u32,
}

/// A request as plain words. Ordered by the queue's two counters, so their own order is Relaxed.
#[derive(Default)]
struct Cell {
    words: [AtomicU64; 5],
}

impl Cell {
    fn put(&self, request: Request) {
        let pair = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        let words = [
            pair(request.slot, request.file),
            request.offset,
            request.place,
            pair(request.bytes, request.wanted),
            request.due.into(),
        ];
        for (cell, word) in self.words.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Request {
        let word = |i: usize| self.words[i].load(Ordering::Relaxed);
        let (ids, sizes) = (word(0), word(3));
        Request {
            slot: (ids >> 32) as u32,
            file: ids as u32,
            offset: word(1),
            place: word(2),
            bytes: (sizes >> 32) as u32,
            wanted: sizes as u32,
            due: word(4) as u32,
        }
    }
}

pub(crate) struct Queue {
    cells: Box<[Cell]>,
    /// Requests ever taken; written by the consumer only.
    taken: AtomicU64,
    /// Requests ever given; written by the producer only.
    given: AtomicU64,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Queue {
        assert!(capacity > 0);
        let cells = (0..capacity).map(|_| Cell::default()).collect();
        Queue { cells, taken: AtomicU64::new(0), given: AtomicU64::new(0) }
    }

    /// Bytes of one cell, for the plan.
    pub(crate) const CELL_BYTES: usize = size_of::<Cell>();

    /// How many requests still fit. Only the producer's answer stays true.
    pub(crate) fn room(&self) -> usize {
        let taken = self.taken.load(Ordering::Acquire);
        self.cells.len() - (self.given.load(Ordering::Relaxed) - taken) as usize
    }

    /// For the one producer, which has looked for room.
    pub(crate) fn push(&self, request: Request) {
        assert!(self.room() > 0, "the producer looks for room first");
        let given = self.given.load(Ordering::Relaxed);
        self.cells[(given % self.cells.len() as u64) as usize].put(request);
        self.given.store(given + 1, Ordering::Release);
    }

    /// For the one consumer.
    pub(crate) fn pop(&self) -> Option<Request> {
        self.pop_if(|_| true)
    }

    /// For the one consumer: takes the next request if it is as wanted.
    pub(crate) fn pop_if(&self, is_wanted: impl Fn(&Request) -> bool) -> Option<Request> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.given.load(Ordering::Acquire) {
            return None;
        }
        let request = self.cells[(taken % self.cells.len() as u64) as usize].get();
        if !is_wanted(&request) {
            return None;
        }
        self.taken.store(taken + 1, Ordering::Release);
        Some(request)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_come_out_whole_and_in_order_however_often_the_queue_wraps() {
        let queue = Queue::new(3);
        let request = |i: u32| Request {
            slot: i,
            file: u32::MAX - i,
            offset: u64::MAX - u64::from(i),
            place: u64::from(i) << 40,
            bytes: i * 3,
            wanted: u32::MAX / (i + 1),
            due: u32::MAX - 2 * i,
        };
        assert_eq!(queue.pop(), None);
        for round in 0..10 {
            for i in 0..3 {
                assert_eq!(queue.room(), 3 - i);
                queue.push(request(round * 3 + i as u32));
            }
            assert_eq!(queue.room(), 0);
            for i in 0..3 {
                assert_eq!(queue.pop(), Some(request(round * 3 + i)));
            }
            assert_eq!((queue.pop(), queue.room()), (None, 3));
        }
    }

    #[test]
    fn a_request_that_is_not_wanted_yet_stays_the_next_one() {
        let queue = Queue::new(2);
        queue.push(Request { slot: 1, ..Request::default() });
        queue.push(Request { slot: 2, ..Request::default() });
        assert_eq!(queue.pop_if(|request| request.slot == 2), None);
        assert_eq!(queue.pop_if(|request| request.slot == 1).map(|request| request.slot), Some(1));
        assert_eq!(queue.pop().map(|request| request.slot), Some(2));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::wake::Event;
    use loom::{model::Builder, sync::Arc, thread};

    fn request(i: u32) -> Request {
        Request { slot: i, file: i, offset: i.into(), place: i.into(), bytes: i, wanted: i, due: i }
    }

    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn loom_requests_come_out_whole_and_in_order() {
        explore(|| {
            let queue = Arc::new(Queue::new(2));
            let consumer = queue.clone();
            let consumer = thread::spawn(move || {
                let mut next = 1;
                while next <= 3 {
                    match consumer.pop() {
                        Some(taken) => {
                            assert_eq!(taken, request(next));
                            next += 1;
                        }
                        None => thread::yield_now(),
                    }
                }
            });
            for i in 1..=3 {
                while queue.room() == 0 {
                    thread::yield_now();
                }
                queue.push(request(i));
            }
            consumer.join().unwrap();
        });
    }

    /// The sleep of the I/O thread: had a wake-up been lost, it would never end.
    #[test]
    fn loom_a_sleeper_is_woken_for_every_request() {
        explore(|| {
            let shared = Arc::new((Queue::new(2), Event::new()));
            let consumer = shared.clone();
            let consumer = thread::spawn(move || {
                let (queue, bell) = &*consumer;
                for i in 1..=2 {
                    loop {
                        let seen = bell.now();
                        if let Some(taken) = queue.pop() {
                            assert_eq!(taken, request(i));
                            break;
                        }
                        bell.wait(seen);
                    }
                }
            });
            for i in 1..=2 {
                shared.0.push(request(i));
                shared.1.notify();
            }
            consumer.join().unwrap();
        });
    }
}
