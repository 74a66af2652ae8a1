//! The memory guard: when other processes take memory, or the control group gets less of it, expert slots
//! are given up between steps rather than that the machine swaps or kills, and taken back when there is room
//! again. Owns the watch over the machine's memory. Knows no experts, only how many slots there are.

use std::time::{Duration, Instant};

use crate::machine::{MemoryWatch, Room};

/// Looking costs some tens of microseconds, so it is not done at every step.
const EVERY: Duration = Duration::from_millis(25);
/// Below this share of the machine's or control group's memory slots are given up, until twice as much is
/// left; when three times as much is left they are taken back. A plan leaves 4 % of what was available.
const LOW_PERCENT: u64 = 1;
/// How many times what was taken since the last look may be taken until the next one.
const TREND: u64 = 4;
/// The share of all slots that is taken back at once: others may want the memory as well.
const GROW_SHARE: usize = 64;

/// What the guard has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardStats {
    /// How often slots were given up, and taken back.
    pub shrinks: u64,
    pub grows: u64,
}

pub(crate) struct Guard {
    watch: MemoryWatch,
    looked: Instant,
    /// What it last saw.
    last: Room,
    slot_bytes: u64,
    pub stats: GuardStats,
}

/// How many slots there are, were planned, and must be left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    pub now: usize,
    pub planned: usize,
    pub min: usize,
}

impl Guard {
    pub fn new(slot_bytes: u64) -> Guard {
        let watch = MemoryWatch::open();
        let last = watch.look().unwrap_or_default();
        Guard { watch, looked: Instant::now(), last, slot_bytes, stats: GuardStats::default() }
    }

    /// Between steps: the number of slots there should be, if it is another one and it is time to look.
    pub fn look(&mut self, slots: Slots) -> Option<usize> {
        if self.looked.elapsed() < EVERY {
            return None;
        }
        self.looked = Instant::now();
        let room = self.watch.look()?;
        let wanted = decide(room, self.last, self.slot_bytes, slots);
        self.last = room;
        self.stats.shrinks += u64::from(wanted < slots.now);
        self.stats.grows += u64::from(wanted > slots.now);
        (wanted != slots.now).then_some(wanted)
    }
}

/// How many slots there should be, of what is left now and was left at the last look.
fn decide(room: Room, last: Room, slot_bytes: u64, slots: Slots) -> usize {
    let low = room.total / 100 * LOW_PERCENT;
    // What others take fast is soon gone. This process takes its slots when they are first filled.
    let own = room.resident.saturating_sub(last.resident);
    let taken = last.available.saturating_sub(room.available).saturating_sub(own);
    let is_short = room.available < low || room.available < taken.saturating_mul(TREND);
    let missing = if is_short { (2 * low).max(taken.saturating_mul(TREND)) } else { 0 };
    let missing = missing.saturating_sub(room.available).max(room.swapped.saturating_sub(last.swapped));
    if missing > 0 {
        let given_up = missing.div_ceil(slot_bytes) as usize;
        return slots.now.saturating_sub(given_up).max(slots.min.min(slots.now));
    }
    if is_short {
        return slots.now;
    }
    let spare = (room.available.saturating_sub(3 * low) / slot_bytes) as usize;
    let step = (slots.planned / GROW_SHARE).max(1);
    slots.planned.min(slots.now + spare.min(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 1 << 20;

    fn room(available: u64) -> Room {
        Room { available: available << 20, total: 1000 << 20, resident: 0, swapped: 0 }
    }

    fn slots(now: usize) -> Slots {
        Slots { now, planned: 100, min: 8 }
    }

    #[test]
    fn slots_are_given_up_when_memory_is_short_and_never_the_last_ones() {
        assert_eq!(decide(room(10), room(10), SLOT, slots(100)), 100, "at the limit");
        assert_eq!(decide(room(5), room(5), SLOT, slots(100)), 85, "until twice the limit is left");
        assert_eq!(decide(room(0), room(0), SLOT, slots(20)), 8);
        assert_eq!(decide(room(0), room(0), SLOT, slots(5)), 5, "a step needs what it needs");
    }

    #[test]
    fn slots_are_given_up_before_memory_is_short_when_it_goes_fast() {
        assert_eq!(decide(room(100), room(120), SLOT, slots(100)), 100);
        assert_eq!(decide(room(100), room(130), SLOT, slots(100)), 80, "four times 30 may be gone soon");
        let filled = Room { resident: 30 << 20, ..room(100) };
        assert_eq!(decide(filled, room(130), SLOT, slots(100)), 100, "this process took them");
    }

    #[test]
    fn slots_are_given_up_when_this_process_is_swapped_out() {
        let swapping = Room { swapped: 30 << 20, ..room(500) };
        assert_eq!(decide(swapping, room(500), SLOT, slots(100)), 70);
        assert_eq!(decide(swapping, swapping, SLOT, slots(70)), 71, "what was swapped out once is over");
    }

    #[test]
    fn slots_are_taken_back_step_by_step_as_far_as_there_is_room() {
        let slots = |now| Slots { planned: 640, ..slots(now) };
        let wanted = |available, now| decide(room(available), room(available), SLOT, slots(now));
        assert_eq!(wanted(500, 50), 60);
        assert_eq!(wanted(34, 50), 54);
        assert_eq!(wanted(25, 50), 50);
        assert_eq!((wanted(500, 635), wanted(500, 640)), (640, 640));
    }
}
