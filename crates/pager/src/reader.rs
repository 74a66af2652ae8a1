//! The I/O thread: takes requests, keeps the backend busy, continues short reads, retries errors, and
//! tells the slot. Allocates nothing. Must not know what a slot holds or who waits for it.

use crate::{
    ReadCause,
    disk::Shared,
    io::{DEPTH_MAX, Done, Io, Read},
    layout::align_down,
    queue::Request,
    slot::Failure,
};
use std::sync::atomic::Ordering;

/// How often one read is tried before its slot fails. A read that ends early but got further is not
/// a failed try.
pub(crate) const ATTEMPTS_MAX: u32 = 4;

/// One request under way.
#[derive(Clone, Copy, Default)]
struct Flight {
    request: Request,
    /// Bytes that have arrived, as far as a next read may continue them.
    got: u64,
    failed_attempts: u32,
}

/// The requests under way: a fixed table, so that they cannot exceed the plan.
struct Flights {
    table: [Flight; DEPTH_MAX],
    /// Bit i: `table[i]` is under way.
    busy: u64,
    limit: usize,
}

impl Flights {
    fn new(limit: usize) -> Flights {
        assert!((1..=DEPTH_MAX).contains(&limit));
        Flights { table: [Flight::default(); DEPTH_MAX], busy: 0, limit }
    }

    fn is_full(&self) -> bool {
        self.busy.count_ones() as usize == self.limit
    }

    fn is_empty(&self) -> bool {
        self.busy == 0
    }

    fn acquire(&mut self, request: Request) -> usize {
        assert!(!self.is_full());
        let ticket = self.busy.trailing_ones() as usize;
        self.busy |= 1 << ticket;
        self.table[ticket] = Flight { request, got: 0, failed_attempts: 0 };
        ticket
    }

    fn get(&mut self, ticket: usize) -> &mut Flight {
        assert!(self.busy & (1 << ticket) != 0, "only a read under way can end");
        &mut self.table[ticket]
    }

    fn release(&mut self, ticket: usize) {
        self.busy &= !(1 << ticket);
    }
}

/// Tells the waiters when the thread ends by a panic: what it had in flight will never be done.
struct DeathNote<'a> {
    shared: &'a Shared,
    asked_to_end: bool,
}

impl Drop for DeathNote<'_> {
    fn drop(&mut self) {
        if !self.asked_to_end {
            self.shared.died.store(true, Ordering::Release);
            self.shared.changed.notify();
        }
    }
}

/// The life of an I/O thread.
pub(crate) fn run(shared: &Shared, line: usize, backend: Box<dyn Io>) {
    let mut note = DeathNote { shared, asked_to_end: false };
    let mut reader = Reader { shared, flights: Flights::new(backend.depth()), backend };
    shared.started.fetch_add(1, Ordering::Release);
    shared.changed.notify();
    reader.serve(line);
    note.asked_to_end = true;
}

struct Reader<'a> {
    shared: &'a Shared,
    // Before `flights`: a backend may have to finish its reads when it is dropped.
    backend: Box<dyn Io>,
    flights: Flights,
}

impl Reader<'_> {
    fn serve(&mut self, line: usize) {
        let line = &self.shared.lines[line];
        loop {
            let seen = line.bell.now();
            let stop = self.shared.stop.load(Ordering::Acquire);
            if stop && self.flights.is_empty() {
                return;
            }
            while !stop && !self.flights.is_full() {
                let Some(request) = line.queue.pop() else { break };
                let ticket = self.flights.acquire(request);
                self.start(ticket);
            }
            let mut idle = true;
            while let Some(done) = self.backend.take() {
                self.end(done);
                idle = false;
            }
            if idle {
                self.backend.wait(&line.bell, seen);
            }
        }
    }

    /// Reads what a flight still lacks.
    fn start(&mut self, ticket: usize) {
        let Flight { request, got, failed_attempts } = *self.flights.get(ticket);
        self.backend.start(Read {
            ticket,
            file: request.file,
            offset: request.offset + got,
            place: (request.place + got) as usize,
            bytes: (u64::from(request.bytes) - got) as usize,
            attempt: failed_attempts,
        });
    }

    fn end(&mut self, done: Done) {
        let counters = &self.shared.counters;
        counters.reads.fetch_add(1, Ordering::Relaxed);
        let flight = self.flights.get(done.ticket);
        let request = flight.request;
        let cause = match done.result {
            Ok(bytes) => {
                counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                let reached = flight.got + bytes as u64;
                if reached >= u64::from(request.wanted) {
                    return self.settle(done.ticket, None);
                }
                let got = align_down(reached, self.shared.files.step(request.file));
                if got > flight.got {
                    flight.got = got;
                    counters.short_reads.fetch_add(1, Ordering::Relaxed);
                    return self.start(done.ticket);
                }
                ReadCause::EndOfFile
            }
            Err(cause) => cause,
        };
        flight.failed_attempts += 1;
        if flight.failed_attempts < ATTEMPTS_MAX {
            counters.retries.fetch_add(1, Ordering::Relaxed);
            return self.start(done.ticket);
        }
        let failure = Failure {
            file: request.file,
            offset: request.offset + flight.got,
            bytes: u64::from(request.wanted) - flight.got,
            cause,
        };
        self.settle(done.ticket, Some(failure));
    }

    /// The flight is over; its slot is told, and the engine if the slot's load is complete.
    fn settle(&mut self, ticket: usize, failure: Option<Failure>) {
        let slot = self.flights.get(ticket).request.slot;
        self.flights.release(ticket);
        if self.shared.slots[slot as usize].read_ended(failure) {
            self.shared.changed.notify();
        }
    }
}
