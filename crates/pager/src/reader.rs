//! The I/O thread: takes requests, keeps the backend busy, continues short reads, retries errors, and
//! tells the slot. Allocates nothing. Must not know what a slot holds or who waits for it.
//!
//! A read that fails is tried again after a rest, [`RESTS`], during which other reads go on, and at last
//! from another copy of the file, if there is one. A read that never returns keeps its place in the table
//! for ever: nobody else may use its memory.

use crate::{
    ReadCause,
    disk::{Line, Shared},
    io::{DEPTH_MAX, Done, Io, Read},
    layout::align_down,
    queue::Request,
    slot::Failure,
    watch::UnderWay,
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// How often one read is tried before its slot fails. A read that ends early but got further is not
/// a failed try.
pub(crate) const ATTEMPTS_MAX: u32 = 1 + RESTS.len() as u32;

/// How long a disk is left alone after the first, second and third failure of a read. An error that goes
/// away does so at once or within milliseconds; one that stays is told after 21 ms.
pub(crate) const RESTS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];

/// A read for a call so long ago is one that may never return: nothing waits for it.
const STRAGGLER_CALLS: u32 = 8;

/// One request under way.
#[derive(Clone, Copy, Default)]
struct Flight {
    request: Request,
    /// Bytes that have arrived, as far as a next read may continue them.
    got: u64,
    failed_attempts: u32,
    /// Copies of the file that have been given up.
    failed_copies: usize,
    /// Why the last try failed, and until when the disk is left alone; None while it is being read.
    resting: Option<(ReadCause, Instant)>,
}

/// The requests under way: a fixed table, so that they cannot exceed the plan.
struct Flights {
    table: [Flight; DEPTH_MAX],
    /// Bit i: `table[i]` is under way.
    busy: u64,
    /// Bit i: `table[i]` waits for its next try, so it is not in the backend's hands.
    resting: u64,
    /// The most that may be in the backend's hands, in reads, and in bytes unless it is a single one: what
    /// is asked for first shall arrive first, not together with all that was asked for after it.
    limit: usize,
    bytes_limit: u64,
}

impl Flights {
    fn new(limit: usize, bytes_limit: u64) -> Flights {
        assert!((1..=DEPTH_MAX).contains(&limit));
        Flights { table: [Flight::default(); DEPTH_MAX], busy: 0, resting: 0, limit, bytes_limit }
    }

    /// Whether the backend takes no more.
    fn is_loaded(&self) -> bool {
        let bytes: u64 = self.flying().map(|request| u64::from(request.bytes)).sum();
        self.flying().count() == self.limit || bytes >= self.bytes_limit
    }

    /// Whether nothing that is needed shortly before the call `due` is in the backend's hands.
    fn is_turn_of(&self, due: u32) -> bool {
        // Numbers of calls wrap: only their distance counts.
        let before = |request: &Request| due.wrapping_sub(request.due);
        !self.flying().any(|request| (1..=STRAGGLER_CALLS).contains(&before(request)))
    }

    /// What is in the backend's hands.
    fn flying(&self) -> impl Iterator<Item = &Request> {
        let flying = self.busy & !self.resting;
        let tickets = (0..DEPTH_MAX).filter(move |ticket| flying & (1 << ticket) != 0);
        tickets.map(|ticket| &self.table[ticket].request)
    }

    fn is_full(&self) -> bool {
        self.is_loaded() || self.busy == u64::MAX
    }

    fn is_empty(&self) -> bool {
        self.busy == 0
    }

    fn acquire(&mut self, request: Request) -> usize {
        assert!(!self.is_full());
        let ticket = self.busy.trailing_ones() as usize;
        self.busy |= 1 << ticket;
        self.table[ticket] = Flight { request, ..Flight::default() };
        ticket
    }

    fn get(&mut self, ticket: usize) -> &mut Flight {
        assert!(self.busy & (1 << ticket) != 0, "only a read under way can end");
        &mut self.table[ticket]
    }

    fn release(&mut self, ticket: usize) {
        self.busy &= !(1 << ticket);
        self.resting &= !(1 << ticket);
    }

    fn rest(&mut self, ticket: usize, cause: ReadCause, until: Instant) {
        self.resting |= 1 << ticket;
        self.get(ticket).resting = Some((cause, until));
    }

    fn wake(&mut self, ticket: usize) {
        self.resting &= !(1 << ticket);
        self.get(ticket).resting = None;
    }

    /// Those that wait for their next try: ticket, why the last one failed, until when.
    fn resting(&self) -> impl Iterator<Item = (usize, ReadCause, Instant)> {
        let tickets = (0..DEPTH_MAX).filter(|&ticket| self.resting & (1 << ticket) != 0);
        tickets.filter_map(|ticket| self.table[ticket].resting.map(|(cause, until)| (ticket, cause, until)))
    }
}

/// Tells the waiters that the thread has ended, also when by a panic: then what it had in flight will
/// never be done.
struct DeathNote<'a> {
    shared: &'a Shared,
    asked_to_end: bool,
}

impl Drop for DeathNote<'_> {
    fn drop(&mut self) {
        if !self.asked_to_end {
            self.shared.died.store(true, Ordering::Release);
        }
        self.shared.ended.fetch_add(1, Ordering::Release);
        self.shared.changed.notify();
    }
}

/// The life of an I/O thread.
pub(crate) fn run(shared: &Shared, line: usize, backend: Box<dyn Io>) {
    let mut note = DeathNote { shared, asked_to_end: false };
    let flights = Flights::new(backend.depth(), shared.lines[line].flight_bytes);
    let mut reader =
        Reader { shared, line: &shared.lines[line], flights, backend, tries: 0, busy_since: None };
    shared.started.fetch_add(1, Ordering::Release);
    shared.changed.notify();
    reader.serve();
    note.asked_to_end = true;
}

struct Reader<'a> {
    shared: &'a Shared,
    line: &'a Line,
    // Before `flights`: a backend may have to finish its reads when it is dropped.
    backend: Box<dyn Io>,
    flights: Flights,
    /// Reads given to the backend so far.
    tries: u64,
    /// When the last read ended, or the first one began after none was under way.
    busy_since: Option<Instant>,
}

impl Reader<'_> {
    fn serve(&mut self) {
        let line = self.line;
        loop {
            let seen = line.bell.now();
            let stop = self.shared.stop.load(Ordering::Acquire);
            let rest = self.resume(stop);
            if stop && self.flights.is_empty() {
                return;
            }
            while !stop && !self.flights.is_full() {
                let Some(request) = self.next_request() else { break };
                if self.flights.is_empty() {
                    self.busy_since = Some(Instant::now());
                }
                let ticket = self.flights.acquire(request);
                self.start(ticket);
            }
            let mut idle = true;
            while let Some(done) = self.backend.take() {
                self.end(done);
                idle = false;
            }
            if idle {
                self.backend.wait(&line.bell, seen, rest);
            }
        }
    }

    /// What is asked for comes first. What is foreseen waits until all that is needed before it has arrived:
    /// reads that share a disk end late, some disks tell the end of none before the end of all.
    fn next_request(&self) -> Option<Request> {
        let has_its_turn = |request: &Request| self.flights.is_turn_of(request.due);
        self.line.queue.pop().or_else(|| self.line.hints.pop_if(has_its_turn))
    }

    /// Tries again what has rested for long enough, as far as the backend takes it; returns how long the
    /// next one still rests. Asked to stop, it gives all of them up instead.
    fn resume(&mut self, stop: bool) -> Option<Duration> {
        if self.flights.resting == 0 {
            return None;
        }
        let now = Instant::now();
        while let Some((ticket, cause, until)) = self.flights.resting().min_by_key(|&(.., until)| until) {
            if stop {
                self.give_up(ticket, cause);
            } else if self.flights.is_loaded() {
                break;
            } else if until <= now {
                self.flights.wake(ticket);
                self.start(ticket);
            } else {
                return Some(until - now);
            }
        }
        None
    }

    /// Reads what a flight still lacks.
    fn start(&mut self, ticket: usize) {
        let Flight { request, got, failed_attempts, .. } = *self.flights.get(ticket);
        self.tries += 1;
        let place = UnderWay { file: request.file, offset: request.offset + got };
        self.line.watch.begin(ticket, self.tries, place);
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
            let rest = self.backend.rest(flight.failed_attempts);
            if rest.is_zero() {
                return self.start(done.ticket);
            }
            self.line.watch.end(done.ticket);
            return self.flights.rest(done.ticket, cause, Instant::now() + rest);
        }
        if !self.turn_to_another_copy(done.ticket) {
            self.give_up(done.ticket, cause);
        }
    }

    /// Reads from the next copy of the file what has not arrived, if there is a copy that did not fail.
    fn turn_to_another_copy(&mut self, ticket: usize) -> bool {
        let files = &self.shared.files;
        let flight = self.flights.get(ticket);
        flight.failed_copies += 1;
        if flight.failed_copies == files.copies() {
            return false;
        }
        self.shared.failing[flight.request.file as usize].store(true, Ordering::Relaxed);
        flight.request.file = files.copies_of(flight.request.file).nth(1).expect("there is another copy");
        flight.failed_attempts = 0;
        // The disk of that copy may be read in longer units only.
        flight.got = align_down(flight.got, files.align());
        self.start(ticket);
        true
    }

    fn give_up(&mut self, ticket: usize, cause: ReadCause) {
        let Flight { request, got, .. } = *self.flights.get(ticket);
        let failure = Failure {
            file: request.file,
            offset: request.offset + got,
            bytes: u64::from(request.wanted) - got,
            cause,
        };
        self.settle(ticket, Some(failure));
    }

    /// The flight is over; its slot is told, and the engine if the slot's load is complete.
    fn settle(&mut self, ticket: usize, failure: Option<Failure>) {
        let Request { slot, bytes, .. } = self.flights.get(ticket).request;
        let now = Instant::now();
        let busy_ns = self.busy_since.replace(now).map_or(0, |since| (now - since).as_nanos() as u64);
        self.line.pace.add(bytes.into(), busy_ns);
        self.shared.counters.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        self.flights.release(ticket);
        self.line.watch.end(ticket);
        if self.shared.slots[slot as usize].read_ended(failure) {
            self.shared.changed.notify();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_foreseen_has_its_turn_when_nothing_needed_before_is_under_way() {
        for call in [7, u32::MAX] {
            let mut flights = Flights::new(8, u64::MAX);
            assert!(flights.is_turn_of(call));
            let ticket = flights.acquire(Request { due: call, ..Request::default() });
            let after = |calls: u32| call.wrapping_add(calls);
            assert!(flights.is_turn_of(call) && flights.is_turn_of(call - 1), "needed together, or before");
            assert!(!flights.is_turn_of(after(1)) && !flights.is_turn_of(after(2)));
            assert!(flights.is_turn_of(after(STRAGGLER_CALLS + 1)), "nobody waits for a read of long ago");
            flights.rest(ticket, ReadCause::EndOfFile, Instant::now());
            assert!(flights.is_turn_of(after(1)), "the disk is left alone meanwhile");
            flights.wake(ticket);
            flights.release(ticket);
            assert!(flights.is_turn_of(after(1)));
        }
    }
}
