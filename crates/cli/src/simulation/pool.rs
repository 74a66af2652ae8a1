//! A whole-model pool of slots, empty at first, that does what the pager does: all experts of a visit stay
//! until it is over. Counts what hits and what would be read.
//!
//! A visit changes the worth of its own group's members only. So each group keeps the one of its members that
//! would leave first, and the one to leave is the first of those: a run over a trace takes milliseconds, and
//! a curve of many sizes seconds.

use std::ops::Range;

use adit_pager::policy::{Lfu, Lru, Policy, Recall, S3Fifo, Shape, distance};
use clap::ValueEnum;

use super::Trace;
use super::optimum::Optimum;
use super::trace::Phase;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Lru,
    Lfu,
    Lfuda,
    S3fifo,
    /// The engine's own
    Default,
    /// Knows the future
    Optimum,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lru => "lru",
            Kind::Lfu => "lfu",
            Kind::Lfuda => "lfuda",
            Kind::S3fifo => "s3fifo",
            Kind::Default => "default",
            Kind::Optimum => "optimum",
        }
    }

    fn policy(self, trace: &Trace, shape: Shape, slots: usize) -> Box<dyn Policy> {
        match self {
            Kind::Lru => Box::new(Lru::new(shape)),
            Kind::Lfu => Box::new(Lfu::new(shape)),
            Kind::Lfuda => Box::new(Lfu::ageing(shape)),
            Kind::S3fifo => Box::new(S3Fifo::new(shape, slots)),
            Kind::Default => Box::new(Recall::new(shape)),
            Kind::Optimum => Box::new(Optimum::new(trace, shape)),
        }
    }
}

/// What a policy did with some steps of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub hits: u64,
    pub misses: u64,
    /// Bytes of the misses; 0 where the trace gives no sizes.
    pub bytes: u64,
}

impl Outcome {
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / ((self.hits + self.misses) as f64).max(1.0)
    }
}

/// What a policy did with a trace, phase by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub prefill: Outcome,
    pub decode: Outcome,
}

impl Outcomes {
    pub fn sum(&self) -> Outcome {
        Outcome {
            hits: self.prefill.hits + self.decode.hits,
            misses: self.prefill.misses + self.decode.misses,
            bytes: self.prefill.bytes.saturating_add(self.decode.bytes),
        }
    }

    pub fn of(&self, phase: Phase) -> Outcome {
        match phase {
            Phase::Prefill => self.prefill,
            Phase::Decode => self.decode,
        }
    }
}

struct Pool {
    policy: Box<dyn Policy>,
    shape: Shape,
    /// Slot of each member, or `NOWHERE`.
    resident: Vec<u32>,
    /// Of each group, the slots of its members.
    slots_of: Vec<Vec<u32>>,
    /// Member of each slot that is taken, counted through, and its place in its group's `slots_of`.
    owner: Vec<(u32, u32)>,
    /// Of each group, the slot to empty first and its worth; `None` where that is to be found out.
    first: Vec<Option<(u32, f64)>>,
    /// Visit in which each slot was last needed.
    needed_in: Vec<u64>,
    visit: u64,
    /// Group of that visit: what it needed is not among its `first`.
    visited: usize,
    slots: usize,
}

/// Runs `trace` through `slots` slots, at least 1; counts the steps in `counted`.
pub fn simulate_steps(trace: &Trace, slots: usize, kind: Kind, counted: Range<usize>) -> Outcomes {
    let shape = Shape::new(vec![trace.experts_per_layer as u32; trace.layers]);
    let mut pool = Pool {
        policy: kind.policy(trace, shape.clone(), slots),
        resident: vec![NOWHERE; shape.members()],
        slots_of: vec![Vec::new(); shape.groups()],
        owner: Vec::new(),
        first: vec![None; shape.groups()],
        needed_in: Vec::new(),
        visit: 0,
        visited: 0,
        slots,
        shape,
    };
    let mut outcomes = Outcomes::default();
    let mut step = 0;
    for (visit, experts) in trace.visits() {
        while step < visit.step {
            pool.policy.tick();
            step += 1;
        }
        let misses = pool.visit(visit.layer as usize, experts);
        if !counted.contains(&(visit.step as usize)) {
            continue;
        }
        let outcome = match trace.steps[visit.step as usize].phase {
            Phase::Prefill => &mut outcomes.prefill,
            Phase::Decode => &mut outcomes.decode,
        };
        outcome.misses += misses;
        outcome.hits += experts.len() as u64 - misses;
        let bytes = trace.expert_bytes.get(visit.layer as usize).copied().unwrap_or(0);
        outcome.bytes = outcome.bytes.saturating_add(bytes.saturating_mul(misses));
    }
    outcomes
}

/// The same, counting every step.
pub fn simulate(trace: &Trace, slots: usize, kind: Kind) -> Outcomes {
    simulate_steps(trace, slots, kind, 0..trace.steps.len())
}

impl Pool {
    /// Returns how many of `members` were not there.
    fn visit(&mut self, group: usize, members: &[u32]) -> u64 {
        self.visit += 1;
        self.policy.visit(group, members);
        self.first[self.visited] = None;
        self.first[group] = None;
        self.visited = group;
        let start = self.shape.range(group).start;
        let mut misses = 0;
        for &member in members {
            match self.resident[start + member as usize] {
                NOWHERE => misses += 1,
                slot => self.needed_in[slot as usize] = self.visit,
            }
        }
        for &member in members {
            if self.resident[start + member as usize] == NOWHERE {
                self.bring(group, start + member as usize);
            }
        }
        misses
    }

    fn bring(&mut self, group: usize, member: usize) {
        let slot = if self.owner.len() < self.slots {
            self.owner.push((0, 0));
            self.needed_in.push(0);
            self.owner.len() - 1
        } else {
            self.empty(group)
        };
        self.owner[slot] = (member as u32, self.slots_of[group].len() as u32);
        self.slots_of[group].push(slot as u32);
        self.resident[member] = slot as u32;
        self.needed_in[slot] = self.visit;
        self.first[group] = None;
        self.policy.enter(member);
    }

    /// The slot that was emptied.
    fn empty(&mut self, current: usize) -> usize {
        loop {
            let Some((group, slot)) = self.first_to_leave(current) else {
                // With fewer slots than the visit has members the first of them are through by now.
                self.visit += 1;
                self.first[current] = None;
                continue;
            };
            self.first[group] = None;
            let (member, place) = self.owner[slot];
            if self.policy.release(member as usize) {
                self.policy.leave(member as usize);
                self.resident[member as usize] = NOWHERE;
                self.slots_of[group].swap_remove(place as usize);
                if let Some(&moved) = self.slots_of[group].get(place as usize) {
                    self.owner[moved as usize].1 = place;
                }
                return slot;
            }
        }
    }

    /// Group and slot of what is worth least; among equals of the group that comes last.
    fn first_to_leave(&mut self, current: usize) -> Option<(usize, usize)> {
        let groups = self.shape.groups();
        let mut lowest: Option<(f64, usize, usize, usize)> = None;
        for group in 0..groups {
            let Some((slot, worth)) = self.first_of(group) else { continue };
            let distance = distance(group, current, groups);
            if lowest
                .is_none_or(|(least, farthest, ..)| worth < least || worth == least && distance > farthest)
            {
                lowest = Some((worth, distance, group, slot as usize));
            }
        }
        lowest.map(|(_, _, group, slot)| (group, slot))
    }

    fn first_of(&mut self, group: usize) -> Option<(u32, f64)> {
        if let Some((slot, worth)) = self.first[group] {
            // A policy of several queues may have turned from one to another: then all have changed.
            let is_current = self.policy.worth(self.owner[slot as usize].0 as usize) == worth;
            if is_current && self.needed_in[slot as usize] != self.visit {
                return Some((slot, worth));
            }
        }
        let mut first: Option<(u32, f64)> = None;
        for &slot in &self.slots_of[group] {
            if self.needed_in[slot as usize] != self.visit {
                let worth = self.policy.worth(self.owner[slot as usize].0 as usize);
                if first.is_none_or(|(other, least)| worth < least || worth == least && slot < other) {
                    first = Some((slot, worth));
                }
            }
        }
        self.first[group] = first;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of one layer with eight experts and one of two, sized 10 and 1 bytes.
    fn trace(tokens: &[(&[u32], u32)]) -> Trace {
        let mut trace = Trace::default();
        for (token, &(experts, second)) in tokens.iter().enumerate() {
            trace.push(token, 0, experts).unwrap();
            trace.push(token, 1, &[second]).unwrap();
        }
        trace.expert_bytes = vec![10, 1];
        trace
    }

    #[test]
    fn every_policy_hits_with_room_for_all_and_counts_the_bytes() {
        let trace = trace(&[(&[0, 7], 0), (&[7, 0], 1), (&[0], 0)]);
        for &kind in Kind::value_variants() {
            let decode = Outcome { hits: 4, misses: 4, bytes: 22 };
            let expected = Outcomes { decode, ..Outcomes::default() };
            assert_eq!(simulate(&trace, 16, kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn the_optimum_keeps_what_comes_again_first() {
        let trace = trace(&[(&[0], 0), (&[1], 0), (&[2], 0), (&[0], 0), (&[1], 0)]);
        assert_eq!(simulate(&trace, 3, Kind::Optimum).decode.hits, 4 + 1);
        assert_eq!(simulate(&trace, 3, Kind::Lru).decode.hits, 4);
        // As many as a visit has, and fewer: in turns.
        let wide = self::trace(&[(&[0, 1, 2], 0), (&[0, 1, 2], 0)]);
        for &kind in Kind::value_variants() {
            for slots in [1, 2, 3] {
                let outcome = simulate(&wide, slots, kind).decode;
                assert_eq!(outcome.hits + outcome.misses, 8, "{kind:?} {slots}");
            }
        }
    }

    #[test]
    fn no_policy_hits_more_than_the_optimum() {
        let tokens: Vec<(Vec<u32>, u32)> =
            (0..60u32).map(|t| (vec![t * t % 7, 7 + t % 2, 9 + t % 5], t % 3)).collect();
        let tokens: Vec<(&[u32], u32)> = tokens.iter().map(|(a, b)| (a.as_slice(), *b)).collect();
        let mixed = trace(&tokens);
        for slots in [4, 6, 9] {
            let best = simulate(&mixed, slots, Kind::Optimum).decode.hits;
            for &kind in Kind::value_variants() {
                assert!(simulate(&mixed, slots, kind).decode.hits <= best, "{kind:?} {slots}");
            }
        }
    }

    #[test]
    fn below_a_token_cycle_lru_collapses_and_the_default_does_not() {
        let mut same = Trace::default();
        (0..200).for_each(|visit| same.push(visit / 10, visit % 10, &[visit as u32 % 10 % 3]).unwrap());
        assert_eq!(simulate(&same, 5, Kind::Lru).decode.hits, 0);
        let best = simulate(&same, 5, Kind::Optimum).decode.hits;
        assert!(2 * simulate(&same, 5, Kind::Default).decode.hits >= best && best > 0);
    }
}
