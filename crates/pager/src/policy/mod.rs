//! Who leaves when a slot is needed: pure functions over counters, without files, slots or clocks, so that
//! the engine and the simulator run the same code. Must not know where a member is read from.
//!
//! A policy gives each member a worth, and the member that is worth least leaves. It is told of every
//! visit of a group, and of the members that come and go. Members are counted through, group after group.

mod alike;
mod lfu;
mod lru;
mod memory;
mod recall;
mod s3fifo;

pub use lfu::Lfu;
pub use lru::Lru;
pub use recall::Recall;
pub use s3fifo::S3Fifo;

use std::ops::Range;

/// How many members each group has; groups are visited in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Where the members of each group begin, and behind the last one where they end.
    firsts: Box<[u32]>,
}

impl Shape {
    /// `members` of each group.
    pub fn new(members: impl IntoIterator<Item = u32>) -> Shape {
        let ends = members.into_iter().scan(0, |end, members| {
            *end += members;
            Some(*end)
        });
        Shape { firsts: std::iter::once(0).chain(ends).collect() }
    }

    pub fn groups(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Members of all groups.
    pub fn members(&self) -> usize {
        self.firsts[self.groups()] as usize
    }

    /// Members of the largest group.
    pub fn widest(&self) -> usize {
        self.firsts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0)
    }

    /// The group's members among those of all groups.
    pub fn range(&self, group: usize) -> Range<usize> {
        self.firsts[group] as usize..self.firsts[group + 1] as usize
    }
}

/// What a policy remembers of members, and what they are worth to it.
pub trait Policy {
    /// A token (a step) is over.
    fn tick(&mut self) {}

    /// `members` of `group` (counted within it) are asked for, resident or not. The worth of this group's
    /// members may change, and of no others.
    fn visit(&mut self, group: usize, members: &[u32]);

    /// The lowest leaves first.
    fn worth(&self, member: usize) -> f64;

    /// Whether the member that is worth least may leave; when not, it is now worth more.
    fn release(&mut self, _member: usize) -> bool {
        true
    }

    /// The member takes a slot.
    fn enter(&mut self, _member: usize) {}

    /// The member gives its slot up.
    fn leave(&mut self, _member: usize) {}
}

/// How many visits of other groups pass before `group` is visited, when `current` is being visited
/// and groups come in turn: 0 for the next one, `groups - 1` for `current` itself.
pub fn distance(group: usize, current: usize, groups: usize) -> usize {
    (group + groups - current + groups - 1) % groups
}

/// The slot to empty: the lowest worth, among equals the greatest distance, among those the first.
/// A worth of infinity means that the slot cannot be emptied now; None when that is so for all.
pub fn victim(worths: &[f64], distance_of: impl Fn(usize) -> usize) -> Option<usize> {
    let lowest = worths.iter().copied().fold(f64::INFINITY, f64::min);
    if lowest == f64::INFINITY {
        return None;
    }
    let mut best: Option<(usize, usize)> = None;
    for (slot, &worth) in worths.iter().enumerate() {
        if worth == lowest {
            let distance = distance_of(slot);
            if best.is_none_or(|(_, greatest)| distance > greatest) {
                best = Some((slot, distance));
            }
        }
    }
    best.map(|(slot, _)| slot)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn groups_come_in_turn() {
        let order: Vec<usize> = (0..4).map(|group| distance(group, 1, 4)).collect();
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!(distance(0, 0, 1), 0);
    }

    #[test]
    fn the_lowest_worth_leaves_and_ties_keep_what_comes_next() {
        let infinity = f64::INFINITY;
        assert_eq!(victim(&[3.0, 1.0, 2.0], |_| 0), Some(1));
        assert_eq!(victim(&[1.0, infinity, 1.0, 1.0], |slot| [0, 9, 5, 5][slot]), Some(2));
        assert_eq!(victim(&[infinity, infinity], |_| 0), None);
        assert_eq!(victim(&[], |_| 0), None);
    }

    #[test]
    fn members_are_counted_through() {
        let shape = Shape::new([3, 2]);
        assert_eq!((shape.groups(), shape.members()), (2, 5));
        assert_eq!(shape.range(1), 3..5);
        assert_eq!(Shape::new([]).members(), 0);
    }
}
