//! Recent and frequent use together.
//!
//! The score of a member is the sum of two exponentially decayed use counts, one that forgets within
//! tokens and one that remembers a conversation, each as a share of the tokens it remembers: 1 for a
//! member that every token uses. (Unweighted, the long memory outweighs the short one: on recorded
//! routes of three models that closed 1-13 % of the gap between LRU and the clairvoyant optimum at 6
//! and 12 % of members resident, against 11-28 % as shares.)
//!
//! The age of a use is counted in whole tokens up to its group's last visit, not up to now: otherwise
//! the members of groups that this token has not reached yet would look older than those it has
//! passed, and a cache below one token cycle would always drop what comes next, as LRU does. Where
//! scores tie, the group that comes next stays.

use super::{Policy, Shape};

/// Half-lives of the two counts, in tokens.
const HALF_LIVES_TOKENS: [f32; 2] = [2.0, 32.0];

/// What one use adds to each count: `1 - 2^(-1 / half-life)`, so that a use every token adds up to 1.
const GAINS: [f32; 2] = [0.292_893_2, 0.021_428_1];

/// A count below this is forgotten: far under any difference that matters, and far above the
/// subnormal numbers, on which arithmetic is slow.
const FORGOTTEN: f32 = 1e-9;

/// The decayed use counts of one member of a group, at its group's last visit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Uses {
    counts: [f32; 2],
}

/// Ages the counts of all members of one group by the tokens since the group's last visit.
fn age(uses: &mut [Uses], tokens: u64) {
    if tokens == 0 {
        return;
    }
    let factors = HALF_LIVES_TOKENS.map(|half_life| (-(tokens as f32) / half_life).exp2());
    for member in uses {
        for (count, factor) in member.counts.iter_mut().zip(factors) {
            let aged = *count * factor;
            *count = if aged < FORGOTTEN { 0.0 } else { aged };
        }
    }
}

/// Counts one use, after `age`.
fn count_use(uses: &mut Uses) {
    for (count, gain) in uses.counts.iter_mut().zip(GAINS) {
        *count += gain;
    }
}

/// What a member is worth. The lowest leaves first.
fn score(uses: Uses) -> f32 {
    uses.counts.iter().sum()
}

/// The policy over these counts.
pub struct Decay {
    shape: Shape,
    uses: Box<[Uses]>,
    /// Token at which each group was last visited.
    visited: Box<[u64]>,
    token: u64,
}

impl Decay {
    pub fn new(shape: Shape) -> Decay {
        let uses = vec![Uses::default(); shape.members()].into();
        Decay { uses, visited: vec![0; shape.groups()].into(), token: 0, shape }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(shape: &Shape) -> usize {
        shape.members() * size_of::<Uses>() + shape.groups() * (size_of::<u64>() + size_of::<u32>())
    }
}

impl Policy for Decay {
    fn tick(&mut self) {
        self.token += 1;
    }

    fn visit(&mut self, group: usize, members: &[u32]) {
        let uses = &mut self.uses[self.shape.range(group)];
        age(uses, self.token - self.visited[group]);
        self.visited[group] = self.token;
        members.iter().for_each(|&member| count_use(&mut uses[member as usize]));
    }

    fn worth(&self, member: usize) -> f64 {
        f64::from(score(self.uses[member]))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn used(tokens_ago: &[u64]) -> Uses {
        let mut uses = [Uses::default()];
        for token in (0..=*tokens_ago.iter().max().unwrap()).rev() {
            age(&mut uses, 1);
            if tokens_ago.contains(&token) {
                count_use(&mut uses[0]);
            }
        }
        uses[0]
    }

    #[test]
    fn a_use_counts_half_after_each_half_life() {
        for (i, half_life) in HALF_LIVES_TOKENS.into_iter().enumerate() {
            let share = used(&[half_life as u64]).counts[i] / used(&[0]).counts[i];
            assert!((share - 0.5).abs() < 1e-4, "{half_life}: {share}");
        }
    }

    #[test]
    fn a_member_that_every_token_uses_counts_one() {
        let always: Vec<u64> = (0..1000).collect();
        for count in used(&always).counts {
            assert!((count - 1.0).abs() < 1e-3, "{count}");
        }
    }

    #[test]
    fn ageing_at_once_or_token_by_token_is_the_same() {
        let mut once = [used(&[0, 3])];
        let mut steps = once;
        age(&mut once, 40);
        (0..40).for_each(|_| age(&mut steps, 1));
        assert!((score(once[0]) - score(steps[0])).abs() < 1e-5);
        let before = steps;
        age(&mut steps, 0);
        assert_eq!(steps, before);
        age(&mut steps, u64::MAX);
        assert_eq!(score(steps[0]), 0.0);
    }

    #[test]
    fn recent_use_and_frequent_use_both_keep_a_member() {
        assert!(score(used(&[1])) > score(used(&[9])), "recent");
        assert!(
            score(used(&[4, 8, 12, 16, 20])) > score(used(&[2])),
            "frequent, though not in the last tokens"
        );
        assert!(score(used(&[0])) > score(used(&[150, 151, 152, 153])), "but not for ever");
    }
}
