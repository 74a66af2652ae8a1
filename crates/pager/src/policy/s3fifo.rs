//! S3-FIFO (Yang et al., SOSP 2023): newcomers wait in a small queue, which only those that are used again
//! leave for the main one; a ghost queue remembers who left the small one without that.

use super::{Policy, Shape};

/// Share of the slots that belong to the small queue: one in ten, as published.
const SMALL_SHARE: usize = 10;
/// Uses that are counted at most.
const USES_MAX: u8 = 3;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Small,
    Main,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    place: Place,
    /// Uses since the member came or was last spared.
    uses: u8,
    /// When it joined its queue; of a ghost, when it left.
    order: u64,
    is_ghost: bool,
}

pub struct S3Fifo {
    shape: Shape,
    entries: Box<[Entry]>,
    slots: usize,
    small: usize,
    /// Counts what joins a queue.
    joined: u64,
    /// Counts what left the small queue: a ghost is forgotten after as many as the main queue holds.
    ghosts: u64,
}

impl S3Fifo {
    pub fn new(shape: Shape, slots: usize) -> S3Fifo {
        let entries = vec![Entry::default(); shape.members()].into();
        S3Fifo { shape, entries, slots, small: 0, joined: 0, ghosts: 0 }
    }

    fn join(&mut self, member: usize, place: Place) {
        self.joined += 1;
        let entry = &mut self.entries[member];
        *entry = Entry { place, uses: 0, order: self.joined, is_ghost: false };
        self.small += usize::from(place == Place::Small);
    }
}

impl Policy for S3Fifo {
    fn visit(&mut self, group: usize, members: &[u32]) {
        let first = self.shape.range(group).start;
        for &member in members {
            let entry = &mut self.entries[first + member as usize];
            if entry.place != Place::Nowhere {
                entry.uses = (entry.uses + 1).min(USES_MAX);
            }
        }
    }

    fn worth(&self, member: usize) -> f64 {
        let entry = self.entries[member];
        let is_small_full = self.small * SMALL_SHARE >= self.slots;
        let goes_first = (entry.place == Place::Small) == is_small_full;
        entry.order as f64 + if goes_first { 0.0 } else { (1u64 << 52) as f64 }
    }

    fn release(&mut self, member: usize) -> bool {
        let entry = self.entries[member];
        match entry.place {
            Place::Small if entry.uses > 0 => {
                self.small -= 1;
                self.join(member, Place::Main);
                false
            }
            Place::Main if entry.uses > 0 => {
                self.join(member, Place::Main);
                self.entries[member].uses = entry.uses - 1;
                false
            }
            _ => true,
        }
    }

    fn enter(&mut self, member: usize) {
        let entry = self.entries[member];
        let is_known = entry.is_ghost && self.ghosts - entry.order < self.slots as u64;
        self.join(member, if is_known { Place::Main } else { Place::Small });
    }

    fn leave(&mut self, member: usize) {
        let was_small = self.entries[member].place == Place::Small;
        self.small -= usize::from(was_small);
        self.ghosts += u64::from(was_small);
        self.entries[member] =
            Entry { place: Place::Nowhere, uses: 0, order: self.ghosts, is_ghost: was_small };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn come(policy: &mut S3Fifo, member: u32) {
        policy.visit(0, &[member]);
        policy.enter(member as usize);
    }

    #[test]
    fn a_newcomer_leaves_before_the_main_queue_and_its_ghost_returns_to_it() {
        let mut policy = S3Fifo::new(Shape::new([4]), 2);
        come(&mut policy, 0);
        policy.visit(0, &[0]);
        come(&mut policy, 1);
        // The first was used again: it is spared once, into the main queue.
        assert!(policy.worth(0) < policy.worth(1));
        assert!(!policy.release(0));
        assert!(policy.worth(1) < policy.worth(0));
        assert!(policy.release(1));
        policy.leave(1);
        come(&mut policy, 1);
        assert!(policy.worth(0) < policy.worth(1), "both are in the main queue, in order");
        assert!(policy.release(0));
    }
}
