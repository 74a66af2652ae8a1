//! A simulated disk: the true bytes of real files, delivered late, out of order, in part or not at all,
//! as a seed decides. Its time is counted in steps; only `delay_ms_max` and `rest_ms` make it real.

use super::{DEPTH_MAX, Done, Io, Read, read_at};
use crate::{Extent, ReadCause, disk::Shared, wake::Event};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Reads in flight. More than a few, so that reordering has something to reorder.
const DEPTH: usize = 16;

/// The error number of a read that the simulated disk fails: EIO.
pub(crate) const EIO: i32 = 5;

/// How the simulated disk misbehaves. The default is a perfect disk.
#[derive(Clone, Debug, Default)]
pub struct SimConfig {
    pub seed: u64,
    /// A read takes up to this many steps; a step is one look at the disk by its I/O thread.
    pub delay_steps_max: u32,
    /// And up to this many milliseconds.
    pub delay_ms_max: u32,
    /// Reads that are due end in any order instead of the order in which they were started.
    pub reorder: bool,
    /// Of 1000 reads, how many end early.
    pub short_per_mille: u32,
    /// Of 1000 places in the files, how many fail at first.
    pub transient_per_mille: u32,
    /// How often such a place fails before it is read. Beyond the retries of a read it is an error.
    pub transient_times: u32,
    /// Reads that touch one of these extents fail.
    pub broken: Vec<Extent>,
    /// After so many failures the broken extents are well again; None for never.
    pub broken_times: Option<u32>,
    /// Of 1000 places in the files, how many are never heard of again once they were asked for.
    pub lost_per_mille: u32,
    /// Reads that touch one of these extents never return.
    pub lost: Vec<Extent>,
    /// How long a read rests after its first failure, four times as long after each further one.
    pub rest_ms: u32,
    /// The I/O thread panics at the start of this read, counted from 1.
    pub panic_at_read: Option<u64>,
}

pub(crate) struct Simulated {
    shared: Arc<Shared>,
    config: SimConfig,
    random: u64,
    step: u64,
    reads_started: u64,
    times_broken: u32,
    /// In the order of their start. Never grows beyond its capacity.
    in_flight: Vec<Pending>,
}

struct Pending {
    read: Read,
    /// The read may end from this step on; never for `NEVER`.
    due_step: u64,
    /// And not before this moment.
    due: Option<Instant>,
}

const NEVER: u64 = u64::MAX;

impl Simulated {
    pub(crate) fn boxed(shared: Arc<Shared>, config: &SimConfig, line: usize) -> Box<dyn Io> {
        let config = config.clone();
        let random = config.seed.wrapping_add(line as u64);
        let in_flight = Vec::with_capacity(DEPTH_MAX);
        Box::new(Simulated { shared, config, random, step: 0, reads_started: 0, times_broken: 0, in_flight })
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.random)
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.next_random() % 1000 < u64::from(per_mille)
    }

    /// Whether this try of this place fails. A place's fate depends on the seed, not on the order.
    fn fails(&mut self, read: &Read) -> bool {
        let lasts = self.config.broken_times.is_none_or(|times| self.times_broken < times);
        if lasts && self.config.broken.iter().any(|broken| touches(read, broken)) {
            self.times_broken += 1;
            return true;
        }
        self.place(read) % 1000 < u64::from(self.config.transient_per_mille)
            && read.attempt < self.config.transient_times
    }

    fn is_lost(&self, read: &Read) -> bool {
        self.config.lost.iter().any(|lost| touches(read, lost))
            || mix(self.place(read)) % 1000 < u64::from(self.config.lost_per_mille)
    }

    /// A number that belongs to the place that is read.
    fn place(&self, read: &Read) -> u64 {
        mix(self.config.seed ^ mix(read.offset) ^ u64::from(read.file))
    }

    /// How many bytes this read delivers: as a real disk, at least one aligned unit.
    fn delivered(&mut self, read: &Read) -> usize {
        let unit = self.shared.files.align() as usize;
        let short = self.happens(self.config.short_per_mille);
        if !short || read.bytes <= unit {
            return read.bytes;
        }
        unit + self.next_random() as usize % (read.bytes - unit)
    }

    fn finish(&mut self, read: Read) -> Done {
        let bytes = self.delivered(&read);
        let file = &self.shared.files.file(read.file).file;
        // SAFETY: the caller of `start` lends these bytes until the read is done, which is now.
        let memory = unsafe { self.shared.frames.exclusive(read.place, bytes) };
        let result = read_at(file, memory, read.offset).map_err(|error| ReadCause::from_io(&error));
        Done { ticket: read.ticket, result }
    }
}

impl Io for Simulated {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn start(&mut self, read: Read) {
        self.reads_started += 1;
        assert!(self.config.panic_at_read != Some(self.reads_started), "the simulated I/O thread dies");
        let align = self.shared.files.align();
        let aligned = read.offset.is_multiple_of(align)
            && (read.bytes as u64).is_multiple_of(align)
            && (read.place as u64).is_multiple_of(align);
        assert!(aligned, "a real disk would refuse this read: {read:?}");
        // Whoever looks at these bytes too early shall see that they are not there.
        // SAFETY: the caller of `start` lends these bytes until the read is done.
        unsafe { self.shared.frames.exclusive(read.place, read.bytes) }.fill(0xA5);
        let delay = self.next_random() % (u64::from(self.config.delay_steps_max) + 1);
        let due_step = if self.is_lost(&read) { NEVER } else { self.step + delay };
        let due = (self.config.delay_ms_max > 0).then(|| {
            let delay_us = self.next_random() % (u64::from(self.config.delay_ms_max) * 1000 + 1);
            Instant::now() + Duration::from_micros(delay_us)
        });
        self.in_flight.push(Pending { read, due_step, due });
    }

    fn take(&mut self) -> Option<Done> {
        self.step += 1;
        let step = self.step;
        let now = (self.config.delay_ms_max > 0).then(Instant::now);
        let due = |pending: &Pending| pending.due_step <= step && pending.due <= now;
        let at = if self.config.reorder {
            let count = self.in_flight.iter().filter(|pending| due(pending)).count();
            if count == 0 {
                return None;
            }
            let chosen = self.next_random() as usize % count;
            (0..self.in_flight.len()).filter(|&at| due(&self.in_flight[at])).nth(chosen)?
        } else {
            let first = self.in_flight.iter().position(|pending| pending.due_step != NEVER)?;
            due(&self.in_flight[first]).then_some(first)?
        };
        let Pending { read, .. } = self.in_flight.remove(at);
        if self.fails(&read) {
            return Some(Done { ticket: read.ticket, result: Err(ReadCause::Os(EIO)) });
        }
        Some(self.finish(read))
    }

    /// With reads in flight this is where simulated time passes.
    fn wait(&mut self, bell: &Event, seen: u32, limit: Option<Duration>) {
        let returning = || self.in_flight.iter().filter(|pending| pending.due_step != NEVER);
        let first_step = returning().map(|pending| pending.due_step).min();
        let first_moment = returning().filter_map(|pending| pending.due).min();
        if let Some(first_step) = first_step {
            self.step = self.step.max(first_step.saturating_sub(1));
        }
        let delay = match (first_step, first_moment) {
            (Some(_), None) => return,
            (_, first_moment) => first_moment.map(|due| due.saturating_duration_since(Instant::now())),
        };
        match delay.into_iter().chain(limit).min() {
            Some(limit) => bell.wait_at_most(seen, limit),
            None => bell.wait(seen),
        }
    }

    fn rest(&self, failed_attempts: u32) -> Duration {
        Duration::from_millis(u64::from(self.config.rest_ms) << (2 * (failed_attempts - 1)))
    }
}

fn touches(read: &Read, extent: &Extent) -> bool {
    let end = read.offset + read.bytes as u64;
    extent.file == read.file && read.offset < extent.offset + extent.bytes && extent.offset < end
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
