//! How fast the disk delivers what is demanded, and how long it then has no demand: from these follows how
//! much may be read on hints. Must not know slots or members.

use std::time::{Duration, Instant};

/// Weight of a new measurement against those before.
const NEW_SHARE: f64 = 0.125;
/// A call that reads less says little about the disk's speed.
const MEASURED_BYTES_MIN: u64 = 256 << 10;
/// A longer one is a pause between answers.
const GAP_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Smoothed; 0 as long as nothing is known.
    ns_per_byte: f64,
    /// Smoothed time between the arrival of all that a call needs and the next call.
    gap_ns: f64,
    /// When demands were begun that are under way, and the bytes that the disk had delivered by then.
    busy: Option<(Instant, u64)>,
    /// Since when the call has all it needs.
    quiet_since: Option<Instant>,
}

impl Pace {
    /// A call begins, with demands or without.
    pub(crate) fn call(&mut self) {
        if let Some(gap) = self.quiet_since.take().map(|since| since.elapsed()).filter(|gap| *gap < GAP_MAX) {
            smooth(&mut self.gap_ns, gap.as_nanos() as f64);
        }
    }

    /// Demands were begun; `delivered`: bytes so far.
    pub(crate) fn demanded(&mut self, delivered: u64) {
        self.busy.get_or_insert((Instant::now(), delivered));
    }

    /// All demands have arrived, the last while somebody was `waiting` for it, or some time ago.
    pub(crate) fn arrived(&mut self, delivered: u64, waiting: bool) {
        let now = Instant::now();
        self.quiet_since.get_or_insert(now);
        let Some((since, before)) = self.busy.take() else { return };
        let bytes = delivered - before;
        if waiting && bytes >= MEASURED_BYTES_MIN {
            smooth(&mut self.ns_per_byte, (now - since).as_nanos() as f64 / bytes as f64);
        }
    }

    /// What the disk takes for so many bytes; nothing as long as nobody knows.
    pub(crate) fn reading_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos((self.ns_per_byte * bytes as f64) as u64)
    }

    /// What the disk can deliver while there is no demand.
    pub(crate) fn gap_bytes(&self) -> u64 {
        if self.ns_per_byte > 0.0 { (self.gap_ns / self.ns_per_byte) as u64 } else { 0 }
    }
}

fn smooth(mean: &mut f64, measured: f64) {
    *mean = if *mean > 0.0 { *mean + (measured - *mean) * NEW_SHARE } else { measured };
}
