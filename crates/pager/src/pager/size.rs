//! The number of slots in use may shrink and grow between calls: memory that others need is given back to
//! the system, and taken again. Allocates nothing.

use super::Pager;

impl Pager {
    /// Brings the number of slots to `slots`, at least one more than there are pinned members and at most as
    /// many as the pager was made with, as far as it can be done now: slots that a hint is
    /// being read into stay. What is worth least leaves, and the memory of its slots goes back to the system.
    /// Returns the number of slots that there are now.
    pub fn resize(&mut self, slots: usize) -> usize {
        let slots = slots.max(self.pinned + 1).min(self.scores.len().max(1));
        while self.slots() > slots {
            let Some(slot) = self.free.pop().or_else(|| self.least()) else { break };
            self.disk().release(slot as usize);
            self.retired.push(slot);
        }
        while self.slots() < slots
            && let Some(slot) = self.retired.pop()
        {
            self.free.push(slot);
        }
        self.slots()
    }

    /// Empties the slot that is worth least.
    fn least(&mut self) -> Option<u32> {
        // Between tokens the first group comes next.
        let slot = self.victim(self.groups.len() - 1)?;
        Some(self.empty(slot))
    }
}
