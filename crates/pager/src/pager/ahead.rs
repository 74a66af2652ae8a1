//! The pager's hints: what is read before it is asked for, while the disk has no demand.

use super::Pager;
use crate::{
    disk::Need,
    hint::{Brought, HintAccount, SOURCES_MAX, Wish},
    slot::State,
};
use std::sync::atomic::Ordering;

impl Pager {
    /// Whether it is worth while to foresee for `source` (below [`SOURCES_MAX`]) now: it is not switched off,
    /// and not everything is resident.
    pub fn wants_hints(&self, source: usize) -> bool {
        self.slots() < self.resident.len() && self.hints.is_on(source)
    }

    /// `source` foresees that `members` of `group` will be asked for when the group is next visited, the
    /// surest first. Takes the place of its earlier hints that are not begun yet. Nothing is read before
    /// all that is demanded is on its way.
    pub fn hint(&mut self, source: usize, group: usize, members: &[u32]) {
        let next_token = if self.is_behind(group) { 1.0 } else { 0.0 };
        let due = self.policy.now(group) + next_token;
        let next = self.visited.map_or(0, |visited| visited + 1);
        let calls_between = (group + self.groups.len() - next) % self.groups.len();
        let call = self.call as u32 + 1 + calls_between as u32;
        self.hints.wish(source, group, members, (due, call));
    }

    /// Whether the group's turn in the present token is over.
    fn is_behind(&self, group: usize) -> bool {
        self.visited.is_some_and(|visited| group <= visited)
    }

    /// Time that `source` took to foresee.
    pub fn charge(&mut self, source: usize, spent_ns: u64) {
        self.hints.charge(source, spent_ns);
    }

    /// What each source's hints have brought and cost.
    pub fn hint_accounts(&self) -> [HintAccount; SOURCES_MAX] {
        self.hints.accounts()
    }

    /// Begins to read what was hinted, as far as the disk has nothing better to do and slots may be had.
    pub fn read_hints(&mut self) {
        if self.hints.next_wish().is_none() || !self.unread.is_empty() {
            return;
        }
        let limit = self.pace.gap_bytes() / 4 * 5;
        let mut under_way = self.hinted_bytes_under_way();
        let mut started = false;
        while let Some(wish) = self.hints.next_wish() {
            let (group, member) = (wish.group as usize, wish.member);
            let layout = &self.groups[group];
            if self.resident[layout.range()][member as usize] != super::NOWHERE {
                self.hints.drop_wish();
                continue;
            }
            let (reads, bytes) = (layout.reads(member), layout.read_bytes(member));
            // Demands must always find a slot that no hint holds.
            if self.hints.brought().len() >= (self.slots() - self.pinned) / 2 {
                break;
            }
            if (under_way > 0 && under_way + bytes > limit)
                || !self.disk().has_room(reads, Need::Foreseen(wish.call))
            {
                break;
            }
            self.hints.drop_wish();
            let Some(slot) = self.slot_for_hint(wish) else {
                self.hints.refuse(wish);
                break;
            };
            self.load(slot, group, member, Need::Foreseen(wish.call));
            self.hints.begun(wish, slot, bytes, self.stats.wait_ns);
            under_way += bytes;
            started = true;
        }
        if started {
            self.disk().submit();
        }
    }

    /// The slot of a hint that has been read for a later call, and whose member is not pinned.
    pub(super) fn take_back_hint(&mut self) -> Option<u32> {
        let may_go = |slot: u32| match self.disk().state(slot as usize) {
            State::Loading => false,
            State::Failed => true,
            _ => !self.is_pinned_in(slot),
        };
        let slot = self.hints.brought().iter().map(|brought| brought.slot).rfind(|&slot| may_go(slot))?;
        self.hints.release(slot);
        if self.disk().state(slot as usize) == State::Failed {
            drop(self.give_up(slot));
            return self.free.pop();
        }
        Some(self.empty(slot as usize))
    }

    fn hinted_bytes_under_way(&self) -> u64 {
        let loading = |brought: &&Brought| self.disk().state(brought.slot as usize) == State::Loading;
        self.hints.brought().iter().filter(loading).map(|brought| brought.bytes).sum()
    }

    /// A free slot, or that of a member which is foreseen to be used later than the wish is due.
    fn slot_for_hint(&mut self, wish: Wish) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.victim(wish.group as usize)?;
        (self.policy.foreseen(self.place_of(slot)) > wish.due).then(|| self.empty(slot))
    }

    /// Judges what was brought for `group`, whose call begins, and what was brought for calls that never
    /// came. Returns how many members of the call were brought by hints.
    pub(super) fn judge(&mut self, group: Option<usize>) -> u64 {
        let mut used_now = 0;
        if self.hints.brought().is_empty() {
            return used_now;
        }
        while let Some(brought) = self.hints.take_due(group, self.policy.now(0)) {
            let wish = brought.wish;
            let used = group == Some(wish.group as usize) && self.asked_in[wish.member as usize] == self.call;
            let reading = self.pace.reading_time(brought.bytes).as_nanos() as u64;
            self.hints.judge(brought, used, self.stats.wait_ns, reading);
            let state = self.disk().state(brought.slot as usize);
            match (used, state) {
                // Whoever asks for it reads it again, and is told if that fails too.
                (_, State::Failed) => drop(self.give_up(brought.slot)),
                (true, _) => used_now += 1,
                (false, State::Loading) => self.hints.put_back(brought),
                (false, _) => self.settle(brought.slot),
            }
        }
        while let Some(late) = {
            let disk = self.disk.as_ref().expect("a pager with hints has a disk");
            self.hints.take_late(|slot| disk.state(slot as usize) != State::Loading)
        } {
            match self.disk().state(late.slot as usize) {
                State::Failed => drop(self.give_up(late.slot)),
                _ => self.settle(late.slot),
            }
        }
        used_now
    }

    pub(super) fn delivered_bytes(&self) -> u64 {
        self.disk().counters().bytes.load(Ordering::Relaxed)
    }
}
