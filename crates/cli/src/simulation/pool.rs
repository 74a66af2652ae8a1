//! A whole-model pool of slots, empty at first, that does what the pager does: all experts of a visit stay
//! until it is over. Counts what hits and what would be read.

use adit_pager::policy::{Lfu, Lru, Policy, Recall, S3Fifo, Shape, distance, victim};
use clap::ValueEnum;

use super::Trace;
use super::optimum::Optimum;

/// Worth of a slot that stays.
const STAYS: f64 = f64::INFINITY;
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

/// What a policy did with a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub hits: usize,
    pub misses: usize,
    /// Bytes of the misses; 0 where the trace gives no sizes.
    pub bytes: u64,
}

impl Outcome {
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses) as f64
    }
}

struct Pool {
    policy: Box<dyn Policy>,
    shape: Shape,
    /// Slot of each member, or `NOWHERE`.
    resident: Vec<u32>,
    /// Group and member of each slot that is taken.
    owner: Vec<(u32, u32)>,
    worths: Vec<f64>,
    /// Slots that the visit under way needs.
    held: Vec<u32>,
    slots: usize,
}

/// Runs `trace` through `slots` slots, at least 1.
pub fn simulate(trace: &Trace, slots: usize, kind: Kind) -> Outcome {
    let shape = Shape::new(vec![trace.experts_per_layer as u32; trace.layers]);
    let mut pool = Pool {
        policy: kind.policy(trace, shape.clone(), slots),
        resident: vec![NOWHERE; shape.members()],
        owner: Vec::new(),
        worths: Vec::new(),
        held: Vec::new(),
        slots,
        shape,
    };
    let mut outcome = Outcome::default();
    let mut token = 0;
    for (visit, experts) in trace.visits() {
        if visit.token != token {
            pool.policy.tick();
            token = visit.token;
        }
        let misses = pool.visit(visit.layer as usize, experts);
        outcome.misses += misses;
        outcome.hits += experts.len() - misses;
        let bytes = trace.expert_bytes.get(visit.layer as usize).copied().unwrap_or(0);
        outcome.bytes = outcome.bytes.saturating_add(bytes.saturating_mul(misses as u64));
    }
    outcome
}

impl Pool {
    /// Returns how many of `members` were not there.
    fn visit(&mut self, group: usize, members: &[u32]) -> usize {
        self.policy.visit(group, members);
        let first = self.shape.range(group).start;
        let slots = members.iter().map(|&member| self.resident[first + member as usize]);
        self.held.clear();
        self.held.extend(slots.filter(|&slot| slot != NOWHERE));
        let misses = members.len() - self.held.len();
        for &member in members {
            if self.resident[first + member as usize] == NOWHERE {
                self.bring(group, member);
            }
        }
        misses
    }

    fn bring(&mut self, group: usize, member: u32) {
        let slot = if self.owner.len() < self.slots {
            self.owner.push((0, 0));
            self.worths.push(STAYS);
            self.owner.len() - 1
        } else {
            self.empty(group)
        };
        let first = self.shape.range(group).start;
        self.owner[slot] = (group as u32, member);
        self.resident[first + member as usize] = slot as u32;
        self.held.push(slot as u32);
        self.policy.enter(first + member as usize);
    }

    /// The slot that was emptied.
    fn empty(&mut self, group: usize) -> usize {
        loop {
            for (worth, &(group, member)) in self.worths.iter_mut().zip(&self.owner) {
                *worth = self.policy.worth(self.shape.range(group as usize).start + member as usize);
            }
            self.held.iter().for_each(|&slot| self.worths[slot as usize] = STAYS);
            let owner = &self.owner;
            let distance_of = |slot: usize| distance(owner[slot].0 as usize, group, self.shape.groups());
            let Some(slot) = victim(&self.worths, distance_of) else {
                // With fewer slots than the visit has members the first of them are through by now.
                self.held.clear();
                continue;
            };
            let (owner_group, member) = self.owner[slot];
            let member = self.shape.range(owner_group as usize).start + member as usize;
            if self.policy.release(member) {
                self.policy.leave(member);
                self.resident[member] = NOWHERE;
                return slot;
            }
        }
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
            assert_eq!(simulate(&trace, 16, kind), Outcome { hits: 4, misses: 4, bytes: 22 }, "{kind:?}");
        }
    }

    #[test]
    fn the_optimum_keeps_what_comes_again_first() {
        let trace = trace(&[(&[0], 0), (&[1], 0), (&[2], 0), (&[0], 0), (&[1], 0)]);
        assert_eq!(simulate(&trace, 3, Kind::Optimum).hits, 4 + 1);
        assert_eq!(simulate(&trace, 3, Kind::Lru).hits, 4);
        // As many as a visit has, and fewer: in turns.
        let wide = self::trace(&[(&[0, 1, 2], 0), (&[0, 1, 2], 0)]);
        for &kind in Kind::value_variants() {
            for slots in [1, 2, 3] {
                let outcome = simulate(&wide, slots, kind);
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
            let best = simulate(&mixed, slots, Kind::Optimum).hits;
            for &kind in Kind::value_variants() {
                assert!(simulate(&mixed, slots, kind).hits <= best, "{kind:?} {slots}");
            }
        }
    }

    #[test]
    fn below_a_token_cycle_lru_collapses_and_the_default_does_not() {
        let mut same = Trace::default();
        (0..200).for_each(|visit| same.push(visit / 10, visit % 10, &[visit as u32 % 10 % 3]).unwrap());
        assert_eq!(simulate(&same, 5, Kind::Lru).hits, 0);
        let best = simulate(&same, 5, Kind::Optimum).hits;
        assert!(2 * simulate(&same, 5, Kind::Default).hits >= best && best > 0);
    }
}
