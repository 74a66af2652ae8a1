//! What a pager knows and reads before anybody asks: the heat of earlier runs, members that never leave, and
//! free slots filled with the hottest members while nobody waits.

use super::{Awaited, NOWHERE, Pager, STAYS};
use crate::PagerError;
use crate::disk::Need;

/// Most bytes of one call of [`Pager::prewarm`]: a disk reads them in some milliseconds, which is how long a
/// demand that comes meanwhile may have to wait.
const PREWARM_BYTES_MAX: u64 = 16 << 20;

impl Pager {
    /// How often each member was used for each visit of its group, group after group, and how many tokens
    /// that is made of.
    pub fn heat(&self) -> (Box<[f32]>, f32) {
        (self.policy.heat(), self.policy.heat_tokens())
    }

    /// Begins with what [`Pager::heat`] told of an earlier run.
    pub fn warm(&mut self, rates: &[f32], tokens: f32) {
        self.policy.warm(rates, tokens);
        for slot in 0..self.scores.len() {
            if self.scores[slot] != STAYS {
                self.settle(slot as u32);
            }
        }
    }

    /// From now on the member, once it is read, never leaves. There must be a slot that no pinned member
    /// needs (asserted).
    pub fn pin(&mut self, group: usize, member: u32) {
        let layout = &self.groups[group];
        assert!((member as usize) < layout.members(), "group {group} has a member {member}");
        let place = layout.range().start + member as usize;
        if self.policy.is_pinned(place) {
            return;
        }
        assert!(self.pinned + 1 < self.slots(), "one of {} slots is left for others", self.slots());
        self.policy.pin(place);
        self.pinned += 1;
        let slot = self.resident[place];
        if slot != NOWHERE && self.scores[slot as usize] != STAYS {
            self.settle(slot);
        }
    }

    /// How many members are pinned, resident or not.
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    pub(super) fn is_pinned_in(&self, slot: u32) -> bool {
        self.policy.is_pinned(self.place_of(slot as usize))
    }

    /// Slots that hold nothing, while there is something worth prewarming; else 0.
    pub fn prewarmable(&self) -> usize {
        if self.free.is_empty() || self.hottest().is_none() { 0 } else { self.free.len() }
    }

    /// Reads pinned members, then those that were used most, into at most `most` free slots, as many at once
    /// as take a disk some milliseconds, and waits for them. Nothing leaves for them. Returns how many were
    /// read: 0 when no slot is free or no member that is not resident was ever used. After an error the pager
    /// is as usable as before.
    pub fn prewarm(&mut self, most: usize) -> Result<usize, PagerError> {
        if self.disk.is_none() {
            return Ok(0);
        }
        self.drain()?;
        let mut bytes = 0;
        while self.awaited.len() < most.min(self.awaited.capacity()) && bytes < PREWARM_BYTES_MAX {
            let Some((group, member)) = self.hottest() else { break };
            if !self.disk().has_room(self.groups[group].reads(member), Need::Asked(self.call as u32)) {
                break;
            }
            let Some(slot) = self.free.pop() else { break };
            // A prompt uses most of what is hot: until its turn it stays rather than what had its turn.
            self.policy.expect(group, self.groups[group].range().start + member as usize);
            self.load(slot, group, member, Need::Asked(self.call as u32));
            self.awaited.push(Awaited { index: 0, slot });
            bytes += self.groups[group].read_bytes(member);
        }
        let read = self.awaited.len();
        if read > 0 {
            self.disk().submit();
        }
        match self.drain()? {
            Some(failure) => Err(failure),
            None => {
                self.stats.prewarmed += read as u64;
                Ok(read)
            }
        }
    }

    /// The pinned member, or else the one used most, that is not resident.
    fn hottest(&self) -> Option<(usize, u32)> {
        let mut found = None;
        let mut greatest = 0.0;
        for (group, layout) in self.groups.iter().enumerate() {
            for (place, member) in layout.range().zip(0..) {
                if self.resident[place] == NOWHERE {
                    let rate = self.policy.rate(group, place);
                    let heat = if self.policy.is_pinned(place) { f32::INFINITY } else { rate };
                    if heat > greatest {
                        (found, greatest) = (Some((group, member)), heat);
                    }
                }
            }
        }
        found
    }
}
