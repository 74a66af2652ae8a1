//! A pool of equal slots for all members of all groups: hits are visited while misses are read, each
//! in the order in which it becomes ready. Owns what is resident where. Must not know that a group is
//! a layer and a member an expert, nor what their bytes mean.
//!
//! **Invariants:** a member is in at most one slot. A slot that the current call still needs is
//! neither emptied nor reused. Between calls only reads that were begun on a hint are in flight. A hint
//! waits for all demands to be on their way, and takes no slot whose member is foreseen to be used before
//! the hint's own. A pinned member never leaves, and there is always a slot that none of them has.

mod ahead;
mod size;
mod warm;

use crate::{
    FileSet, PagerError,
    disk::{Disk, Need},
    groups::{Group, GroupLayout, Parts, check, layouts},
    hint::Hints,
    pace::Pace,
    policy::{self, Policy, Recall, Shape},
    slot::State,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

const NOWHERE: u32 = u32::MAX;

/// Most members that one visit is given.
pub const TOGETHER_MAX: usize = 16;

/// Score of a slot that must stay: empty, loading, or awaited by the current call.
const STAYS: f64 = f64::INFINITY;

/// What a pager has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagerStats {
    /// Members asked for that were resident when the call began. Counted by the engine thread.
    pub hits: u64,
    /// Members asked for that had to be read, be it before they were asked for. Counted by the engine
    /// thread.
    pub misses: u64,
    /// Members read before they were asked for, and how many of them then were. Counted by the engine thread.
    pub hints_issued: u64,
    pub hints_used: u64,
    /// Members read while nobody asked for anything. Counted by the engine thread.
    pub prewarmed: u64,
    /// Resident members that left to make room. Counted by the engine thread.
    pub evictions: u64,
    /// Time in which the engine thread had nothing to visit and waited for the disk.
    pub wait_ns: u64,
    /// Bytes the disk delivered, with what alignment adds. Counted by the I/O threads.
    pub bytes_read: u64,
    /// Reads the disk answered, failed ones included. Counted by the I/O threads.
    pub reads: u64,
    /// Reads tried again after an error. Counted by the I/O threads.
    pub retries: u64,
    /// Reads that ended early and were continued. Counted by the I/O threads.
    pub short_reads: u64,
    /// Time in which reads were under way; the sum over the I/O threads, of which each device has one with
    /// io_uring. Counted by the I/O threads.
    pub disk_busy_ns: u64,
}

/// A member that the current call still has to visit.
#[derive(Clone, Copy)]
struct Awaited {
    /// Position in the caller's list.
    index: u32,
    slot: u32,
}

/// A member that is resident, for as long as it is visited.
#[derive(Clone, Copy)]
pub struct Ready<'a> {
    /// Position in the caller's list.
    pub index: usize,
    pub parts: Parts<'a>,
}

/// Slots, what is in them, and the threads that fill them.
pub struct Pager {
    /// None when there is nothing to stream.
    disk: Option<Disk>,
    groups: Vec<GroupLayout>,
    /// Slot of each (group, member), `NOWHERE` if it is not resident; groups one after the other.
    resident: Box<[u32]>,
    /// What it knows of each (group, member), resident or not.
    policy: Recall,
    /// (group, member) of each slot; meaningless while it is free.
    owner: Box<[(u32, u32)]>,
    /// Worth of each slot's member, or `STAYS`.
    scores: Box<[f64]>,
    free: Vec<u32>,
    /// Slots out of use, whose memory the system has back.
    retired: Vec<u32>,
    /// The call under way: what to visit, and what is still to be read (as positions in its list).
    awaited: Vec<Awaited>,
    unread: Vec<u32>,
    /// Call in which each member was last asked for, to find duplicates.
    asked_in: Box<[u64]>,
    call: u64,
    /// Members that never leave.
    pinned: usize,
    /// The group of this token's last call.
    visited: Option<usize>,
    hints: Hints,
    pace: Pace,
    stats: PagerStats,
}

/// What the call under way can do next, with a place in `awaited`.
enum Next {
    Visit(usize),
    Fail(usize),
    Wait,
    Finish,
}

/// Members that are asked for and not visited yet.
pub struct Asked<'a> {
    pager: &'a mut Pager,
    group: usize,
    members: &'a [u32],
}

impl Asked<'_> {
    /// The second half of [`Pager::stream`].
    pub fn visit<E: From<PagerError>>(
        self,
        visit: impl FnMut(&[Ready<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pager.visit_asked(self.group, self.members, visit)
    }
}

impl Pager {
    /// `slots`: how many members are resident at once; at least 1, at most as many as there are.
    pub fn new(files: FileSet, groups: Vec<Group>, slots: usize) -> Result<Pager, PagerError> {
        check(&files, &groups)?;
        let groups = layouts(&groups, files.align());
        let members: usize = groups.iter().map(|group| group.members()).sum();
        let slots = slots.min(members);
        if slots == 0 && members > 0 {
            return Err(PagerError::NoSlots { groups: groups.len() });
        }
        let slot_bytes = slot_bytes(&groups);
        let disk = if members > 0 {
            let memory_bytes = (slots as u64).saturating_mul(slot_bytes);
            let memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
            Some(Disk::new(&files, memory_bytes, slot_bytes as usize, reads_max(&groups))?)
        } else {
            None
        };
        let widest = groups.iter().map(|group| group.members()).max().unwrap_or(0);
        Ok(Pager {
            disk,
            resident: vec![NOWHERE; members].into(),
            policy: Recall::new(shape(&groups)),
            owner: vec![(0, 0); slots].into(),
            scores: vec![STAYS; slots].into(),
            free: (0..slots as u32).rev().collect(),
            retired: Vec::with_capacity(slots),
            awaited: Vec::with_capacity(widest),
            unread: Vec::with_capacity(widest),
            asked_in: vec![0; widest].into(),
            call: 0,
            pinned: 0,
            visited: None,
            hints: Hints::new(slots, widest),
            pace: Pace::default(),
            stats: PagerStats::default(),
            groups,
        })
    }

    /// Bytes of one slot: it holds the aligned frames of all parts of the largest member.
    pub fn slot_bytes(files: &FileSet, groups: &[Group]) -> u64 {
        slot_bytes(&layouts(groups, files.align()))
    }

    /// What a pager takes beside `slots * slot_bytes`, in bytes.
    pub fn overhead_bytes(files: &FileSet, groups: &[Group], slots: usize) -> u64 {
        let layouts = layouts(groups, files.align());
        let members: usize = layouts.iter().map(|group| group.members()).sum();
        let widest = layouts.iter().map(|group| group.members()).max().unwrap_or(0);
        if members == 0 {
            return 0;
        }
        // Where a member is and what the policy knows of it; owner, score and free-list entry of a slot; the
        // call under way; what the groups are.
        let tables = members * size_of::<u32>()
            + Recall::heap_bytes(&shape(&layouts))
            + slots * (size_of::<(u32, u32)>() + size_of::<f64>() + 2 * size_of::<u32>())
            + widest * (size_of::<Awaited>() + size_of::<u32>() + size_of::<u64>())
            + Hints::heap_bytes(slots, widest)
            + layouts.iter().map(GroupLayout::heap_bytes).sum::<usize>();
        tables as u64 + Disk::overhead_bytes(files, slots, reads_max(&layouts))
    }

    /// A token (a step) is over: what was used before it counts a little less from now on.
    pub fn tick(&mut self) {
        self.policy.tick();
        self.visited = None;
        self.hints.tick();
        self.judge(None);
    }

    pub fn stats(&self) -> PagerStats {
        let mut stats = self.stats;
        if let Some(disk) = &self.disk {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let counters = disk.counters();
            stats.bytes_read = read(&counters.bytes);
            stats.reads = read(&counters.reads);
            stats.retries = read(&counters.retries);
            stats.short_reads = read(&counters.short_reads);
            stats.disk_busy_ns = read(&counters.busy_ns);
        }
        for account in self.hints.accounts() {
            stats.hints_issued += account.issued;
            stats.hints_used += account.used;
        }
        stats
    }

    /// Error when a file was cut, grown, rewritten, replaced or removed since it was opened.
    pub fn check_unchanged(&self) -> Result<(), PagerError> {
        self.disk.as_ref().map_or(Ok(()), Disk::check_unchanged)
    }

    /// Time in which the engine thread had nothing to visit and waited for the disk.
    pub fn wait_ns(&self) -> u64 {
        self.stats.wait_ns
    }

    /// Whether a member is in a slot.
    pub fn is_resident(&self, group: usize, member: u32) -> bool {
        self.resident[self.groups[group].range()][member as usize] != NOWHERE
    }

    /// Bytes that are read for one member, with what alignment adds.
    pub fn read_bytes(&self, group: usize, member: u32) -> u64 {
        self.groups[group].read_bytes(member)
    }

    /// How many members can be resident.
    pub fn slots(&self) -> usize {
        self.scores.len() - self.retired.len()
    }

    /// How many members are resident.
    pub fn resident(&self) -> usize {
        self.slots() - self.free.len()
    }

    /// Visits each of `members` of `group` exactly once, first ready first: what is resident at once,
    /// what is read as it arrives, in waves when there are more than slots. `visit` gets those that are
    /// ready together, up to [`TOGETHER_MAX`]; one at a time while others wait for a slot, so that the disk
    /// has work during the visit. Members must be distinct and exist (asserted).
    ///
    /// After an error, of a read or of `visit`, no further member is visited, reads in flight are
    /// awaited, and the pager is as usable as before.
    pub fn stream<E: From<PagerError>>(
        &mut self,
        group: usize,
        members: &[u32],
        visit: impl FnMut(&[Ready<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.ask(group, members)?.visit(visit)
    }

    /// The first half of [`Pager::stream`]: begins to read what is missing of `members`, and does not wait,
    /// so that the caller may compute something else before it visits them. Without a visit, the next call
    /// awaits what is in flight.
    pub fn ask<'a>(&'a mut self, group: usize, members: &'a [u32]) -> Result<Asked<'a>, PagerError> {
        // Nothing is left over, except when `visit` panicked.
        self.drain()?;
        self.begin(group, members);
        self.read_ahead(group, members);
        if self.unread.is_empty() {
            self.read_hints();
        }
        Ok(Asked { pager: self, group, members })
    }

    /// Visits what was asked for.
    fn visit_asked<E: From<PagerError>>(
        &mut self,
        group: usize,
        members: &[u32],
        mut visit: impl FnMut(&[Ready<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut waited = false;
        loop {
            // Before looking: what happens after this wakes us.
            let seen = self.disk().now();
            self.read_ahead(group, members);
            if self.unread.is_empty() {
                if !self.awaits_reads() {
                    self.pace.arrived(self.delivered_bytes(), waited);
                }
                self.read_hints();
            }
            waited = false;
            let outcome = match self.next() {
                Next::Visit(first) => {
                    let count = self.gather(first);
                    let outcome = self.show(group, members, count, &mut visit);
                    (0..count).for_each(|_| self.keep(0));
                    outcome
                }
                Next::Fail(at) => Err(self.fail(at).into()),
                Next::Wait => {
                    let start = Instant::now();
                    let outcome = self.disk().wait(seen);
                    self.stats.wait_ns += start.elapsed().as_nanos() as u64;
                    waited = true;
                    outcome.map_err(E::from)
                }
                Next::Finish => return Ok(()),
            };
            if outcome.is_err() {
                self.drain()?;
                return outcome;
            }
        }
    }

    fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a pager with groups has a disk")
    }

    /// Counts the uses and sorts the members into resident ones, which now stay, and unread ones.
    fn begin(&mut self, group: usize, members: &[u32]) {
        self.call += 1;
        self.pace.call();
        for &member in members {
            let member = member as usize;
            assert!(member < self.groups[group].members(), "group {group} has a member {member}");
            assert!(self.asked_in[member] != self.call, "member {member} is asked for once a call");
            self.asked_in[member] = self.call;
        }
        self.visited = Some(group);
        self.hints.forget_wishes(group);
        let hinted = self.judge(Some(group));
        let layout = &self.groups[group];
        let range = layout.range();
        self.policy.visit(group, members);
        for (member, &slot) in range.clone().zip(&self.resident[range.clone()]) {
            // What a hint reads stays until it is there.
            if slot != NOWHERE && self.scores[slot as usize] != STAYS {
                self.scores[slot as usize] = self.policy.worth(member);
            }
        }
        let resident = &self.resident[range];
        // Backwards, so that `pop` takes them in the caller's order.
        for (index, &member) in members.iter().enumerate().rev() {
            let slot = resident[member as usize];
            if slot == NOWHERE {
                self.unread.push(index as u32);
                self.stats.misses += 1;
            } else {
                self.awaited.push(Awaited { index: index as u32, slot });
                self.scores[slot as usize] = STAYS;
                self.hints.release(slot);
                self.stats.hits += 1;
            }
        }
        self.awaited.reverse();
        // These had to be read as well, if earlier.
        self.stats.hits -= hinted;
        self.stats.misses += hinted;
    }

    /// Starts as many reads as there are slots and queue entries for.
    fn read_ahead(&mut self, group: usize, members: &[u32]) {
        let mut started = false;
        while let Some(&index) = self.unread.last() {
            let member = members[index as usize];
            let reads = self.groups[group].reads(member);
            if !self.disk().has_room(reads, Need::Asked(self.call as u32)) {
                break;
            }
            let Some(slot) = self.empty_slot(group) else { break };
            self.unread.pop();
            self.load(slot, group, member, Need::Asked(self.call as u32));
            self.awaited.push(Awaited { index, slot });
            started = true;
        }
        if started {
            self.disk().submit();
            self.pace.demanded(self.delivered_bytes());
        }
    }

    /// Begins to read a member, for which there is room, into an empty slot.
    fn load(&mut self, slot: u32, group: usize, member: u32, need: Need) {
        let layout = &self.groups[group];
        let disk = self.disk.as_mut().expect("a pager with groups has a disk");
        disk.load(slot as usize, layout.reads(member), layout.fetches(member), need);
        self.resident[layout.range()][member as usize] = slot;
        self.owner[slot as usize] = (group as u32, member);
    }

    /// Whether something that the call under way needs is still being read.
    fn awaits_reads(&self) -> bool {
        self.awaited.iter().any(|awaited| self.disk().state(awaited.slot as usize) == State::Loading)
    }

    /// A free slot, or one that is worth least and not needed by the current call.
    fn empty_slot(&mut self, current: usize) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        match self.victim(current) {
            Some(slot) => Some(self.empty(slot)),
            // Without anything to wait for, a hint has to yield.
            None if self.awaited.is_empty() => self.take_back_hint(),
            None => None,
        }
    }

    /// The slot that is worth least while `current` is visited.
    fn victim(&self, current: usize) -> Option<usize> {
        let distance_of =
            |slot: usize| policy::distance(self.owner[slot].0 as usize, current, self.groups.len());
        policy::victim(&self.scores, distance_of)
    }

    /// The slot's member among those of all groups.
    fn place_of(&self, slot: usize) -> usize {
        let (group, member) = self.owner[slot];
        self.groups[group as usize].range().start + member as usize
    }

    /// The member in the slot, which has a score, leaves.
    fn empty(&mut self, slot: usize) -> u32 {
        assert!(self.disk().evict(slot), "a slot with a score is Ready and not in use");
        self.forget(slot as u32);
        self.stats.evictions += 1;
        slot as u32
    }

    /// The slot's member is not resident any more.
    fn forget(&mut self, slot: u32) {
        self.resident[self.place_of(slot as usize)] = NOWHERE;
        self.scores[slot as usize] = STAYS;
    }

    /// Looks for the first awaited member that is ready, or that failed.
    fn next(&self) -> Next {
        for at in 0..self.awaited.len() {
            let slot = self.awaited[at].slot as usize;
            match self.disk().state(slot) {
                State::Ready { .. } => return Next::Visit(at),
                State::Failed => return Next::Fail(at),
                State::Loading => {}
                State::Empty => unreachable!("an awaited slot is loaded or loading"),
            }
        }
        // With nothing awaited hints hold all slots, and are still being read.
        if self.awaited.is_empty() && self.unread.is_empty() { Next::Finish } else { Next::Wait }
    }

    /// Moves what can be visited together to the front of `awaited`, beginning with the ready member at
    /// `first`; says how many that are.
    fn gather(&mut self, first: usize) -> usize {
        let most = if self.unread.is_empty() { TOGETHER_MAX } else { 1 };
        let mut count = 0;
        for at in first..self.awaited.len() {
            let slot = self.awaited[at].slot as usize;
            if count < most && matches!(self.disk().state(slot), State::Ready { .. }) {
                self.awaited[count..=at].rotate_right(1);
                count += 1;
            }
        }
        count
    }

    /// Visits the first `count` of `awaited`, which are ready.
    fn show<E>(
        &self,
        group: usize,
        members: &[u32],
        count: usize,
        visit: &mut impl FnMut(&[Ready<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let awaited = &self.awaited[..count];
        let pinned: [_; TOGETHER_MAX] = std::array::from_fn(|place| {
            let pin = |awaited: &Awaited| self.disk().pin(awaited.slot as usize);
            awaited.get(place).map(|awaited| pin(awaited).expect("the slot was seen Ready"))
        });
        // The array is full: behind the last that is ready stands the last again.
        let ready: [_; TOGETHER_MAX] = std::array::from_fn(|place| {
            let place = place.min(count - 1);
            let slot = pinned[place].as_ref().expect("pinned above");
            let index = awaited[place].index as usize;
            Ready { index, parts: Parts::new(slot, &self.groups[group], members[index]) }
        });
        visit(&ready[..count])
    }

    /// Its slot is not needed by this call any more, but may be by a later one.
    fn keep(&mut self, at: usize) {
        let slot = self.awaited.remove(at).slot;
        self.settle(slot);
    }

    /// From now on the slot's member may leave, by what it is worth.
    fn settle(&mut self, slot: u32) {
        self.scores[slot as usize] = self.policy.worth(self.place_of(slot as usize));
    }

    fn fail(&mut self, at: usize) -> PagerError {
        let slot = self.awaited.remove(at).slot;
        self.give_up(slot)
    }

    /// Empties a slot whose load failed.
    fn give_up(&mut self, slot: u32) -> PagerError {
        let error = self.disk().take_failure(slot as usize);
        self.forget(slot);
        self.free.push(slot);
        error
    }

    /// Waits for the reads in flight of a call that was broken off. What arrives whole stays. Returns the
    /// last failure of a read.
    fn drain(&mut self) -> Result<Option<PagerError>, PagerError> {
        self.unread.clear();
        let mut failure = None;
        while !self.awaited.is_empty() {
            let seen = self.disk().now();
            match self.next() {
                Next::Visit(at) => self.keep(at),
                Next::Fail(at) => failure = Some(self.fail(at)),
                Next::Wait => self.disk().wait(seen)?,
                Next::Finish => unreachable!("something is awaited"),
            }
        }
        Ok(failure)
    }
}

fn shape(groups: &[GroupLayout]) -> Shape {
    Shape::new(groups.iter().map(|group| group.members() as u32))
}

fn slot_bytes(groups: &[GroupLayout]) -> u64 {
    groups.iter().map(GroupLayout::slot_bytes).max().unwrap_or(0)
}

fn reads_max(groups: &[GroupLayout]) -> usize {
    groups.iter().map(GroupLayout::reads_max).max().unwrap_or(0)
}
