//! The engine's default: whoever is likely to be used last leaves.
//!
//! When a group is visited, each of its members gets an estimate of how likely the next tokens use it, of
//! three parts: how often it was used lately (a decayed count), how long ago it was used, and *recall*:
//! whether it was used by tokens that followed one routed as the present one is, or by tokens like those
//! followers ([`Memory`]). The next use of a member with the chance `p` is foreseen after `1 / p` tokens.
//! What leaves is not quite the latest, as under the optimum (Belady), but the greatest sum of the time at
//! which the group is due and `PATIENCE * ln(1 / p)`: the less sure a use is, the more it matters that it is
//! soon. Since that is a point in time, nothing has to be reckoned again until the group's next visit.
//!
//! The *heat* is the count over thousands of tokens. It says little beside the others, except at the start
//! of a run that is warmed with that of an earlier one.
//!
//! The constants are round numbers from a plateau: on the recorded routes none of them, a third lower or half
//! as much again, changes the mean share of the gap between LRU and the optimum by more than 0.7 points
//! (docs/streaming.md, "Replacement", which also says what was tried and did not help).

use super::{Policy, Shape, memory::Memory};

/// Half-life of the count, in tokens.
const HALF_LIFE_TOKENS: f32 = 20.0;
/// What one use adds to the count, `1 - 2^(-1 / half-life)`: a use every token adds up to 1.
const GAIN: f32 = 0.034_063_67;
/// A count below this is forgotten: subnormal numbers are slow.
const FORGOTTEN: f32 = 1e-9;
/// The rate at which a member that was never used is taken to be used, against which others are rare.
const RARE: f32 = 0.02;

/// What a chance is made of. `RECENT` over one more than the age in tokens.
const FREQUENT: f32 = 0.36;
const RECALLED: f32 = 0.5;
const RECENT: f32 = 0.18;
/// How much the heat is believed, once the group was visited more often than `HEAT_DOUBT` times.
const HEATED: f32 = 0.3;
const HEAT_DOUBT: f32 = 2048.0;
/// The same for the heat of an earlier run, which tells more: it is not what the count tells already.
const WARM_DOUBT: f32 = 50.0;
/// The chance of a member that was never used.
const CHANCE_MIN: f32 = 0.002;

/// Half-life of the heat, in tokens.
const HEAT_HALF_LIFE_TOKENS: f32 = 4096.0;
/// What the heat of an earlier run counts at most.
const WARM_TOKENS: f32 = 4096.0;

/// Tokens that a use may be later for being e times as likely.
const PATIENCE: f32 = 2.0;

pub struct Recall {
    shape: Shape,
    counts: Box<[f32]>,
    /// What a member that every visit of its group used would count.
    visits: Box<[f32]>,
    /// Uses of each member and visits of each group, over the long run.
    heats: Box<[f32]>,
    heat_visits: Box<[f32]>,
    /// Visits of a group below which its heat is hardly believed.
    heat_doubt: f32,
    /// Token after the one in which each member was last used; 0 for never.
    used: Box<[u64]>,
    /// When each member's next use is foreseen, in tokens.
    foreseen: Box<[f64]>,
    worths: Box<[f64]>,
    /// Token at which each group was last visited.
    visited: Box<[u64]>,
    memory: Memory,
    /// Of each member of the group being visited: what is compared, then what is recalled.
    shares: Box<[f32]>,
    token: u64,
}

impl Recall {
    pub fn new(shape: Shape) -> Recall {
        Recall {
            counts: vec![0.0; shape.members()].into(),
            visits: vec![0.0; shape.groups()].into(),
            heats: vec![0.0; shape.members()].into(),
            heat_visits: vec![0.0; shape.groups()].into(),
            heat_doubt: HEAT_DOUBT,
            used: vec![0; shape.members()].into(),
            foreseen: vec![0.0; shape.members()].into(),
            worths: vec![0.0; shape.members()].into(),
            visited: vec![0; shape.groups()].into(),
            memory: Memory::new(shape.groups()),
            shares: vec![0.0; shape.widest()].into(),
            token: 0,
            shape,
        }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(shape: &Shape) -> usize {
        shape.members() * (2 * size_of::<f32>() + size_of::<u64>() + 2 * size_of::<f64>())
            + shape.groups() * (2 * size_of::<f32>() + size_of::<u64>() + size_of::<u32>())
            + shape.widest() * size_of::<f32>()
            + Memory::heap_bytes(shape.groups())
    }

    /// When the member's next use is foreseen, in tokens on the clock of [`Recall::now`].
    pub fn foreseen(&self, member: usize) -> f64 {
        self.foreseen[member]
    }

    /// The time at which `group` is visited in the present token, in tokens.
    pub fn now(&self, group: usize) -> f64 {
        self.token as f64 + group as f64 / self.shape.groups() as f64
    }

    /// From now on the member never leaves.
    pub fn pin(&mut self, member: usize) {
        self.foreseen[member] = f64::NEG_INFINITY;
        self.worths[member] = f64::INFINITY;
    }

    /// Takes a use of the member, of `group`, for sure at the next visit of the group.
    pub fn expect(&mut self, group: usize, member: usize) {
        if !self.is_pinned(member) {
            let now = self.now(group);
            (self.foreseen[member], self.worths[member]) = (now + 1.0, -now);
        }
    }

    pub fn is_pinned(&self, member: usize) -> bool {
        self.worths[member] == f64::INFINITY
    }

    /// How often the member, of `group`, was used for each visit of it, over the last thousands of tokens.
    pub fn rate(&self, group: usize, member: usize) -> f32 {
        self.heats[member] / self.heat_visits[group].max(1e-6)
    }

    /// Tokens that the heat is made of; what is long ago counts less.
    pub fn heat_tokens(&self) -> f32 {
        self.heat_visits.iter().copied().fold(0.0, f32::max)
    }

    /// How often each member was used for each visit of its group, over the last thousands of tokens.
    pub fn heat(&self) -> Box<[f32]> {
        let rates =
            |group: usize| self.shape.range(group).map(move |member| self.rate(group, member).min(1.0));
        (0..self.shape.groups()).flat_map(rates).collect()
    }

    /// Begins with the heat of an earlier run, which then counts as much as that of `tokens`, at most 4096. A
    /// rate that cannot be is taken for 0 or 1, one that is missing for 0. The counts begin as if the last
    /// tokens had been of this heat.
    pub fn warm(&mut self, heat: &[f32], tokens: f32) {
        let tokens = if tokens > 0.0 { tokens.min(WARM_TOKENS) } else { return };
        self.heat_doubt = WARM_DOUBT;
        for group in 0..self.shape.groups() {
            self.heat_visits[group] = tokens;
            self.visits[group] = 1.0;
            for member in self.shape.range(group) {
                let rate = heat.get(member).copied().unwrap_or(0.0);
                let rate = if rate.is_finite() { rate.clamp(0.0, 1.0) } else { 0.0 };
                self.heats[member] = rate * tokens;
                self.counts[member] = rate;
            }
            self.shares.fill(0.0);
            self.foresee(group);
        }
    }

    /// Lets what was counted before the present token decay.
    fn age(&mut self, group: usize) {
        let elapsed = self.token - self.visited[group];
        self.visited[group] = self.token;
        if elapsed > 0 {
            let factor = (-(elapsed as f32) / HALF_LIFE_TOKENS).exp2();
            self.visits[group] *= factor;
            let slow = (-(elapsed as f32) / HEAT_HALF_LIFE_TOKENS).exp2();
            self.heat_visits[group] *= slow;
            let aged = |count: f32| if count < FORGOTTEN { 0.0 } else { count };
            for member in self.shape.range(group) {
                self.counts[member] = aged(self.counts[member] * factor);
                self.heats[member] = aged(self.heats[member] * slow);
            }
        }
    }

    /// Weights in a comparison: that two tokens share a member says more the rarer it is.
    fn weigh(&mut self, group: usize, members: &[u32]) {
        self.shares.fill(0.0);
        let counts = &self.counts[self.shape.range(group)];
        let visits = self.visits[group] + GAIN;
        let mut sum = 0.0;
        for &member in members {
            let weight = (visits / (counts[member as usize] + RARE * GAIN)).sqrt();
            self.shares[member as usize] = weight;
            sum += weight;
        }
        members.iter().for_each(|&member| self.shares[member as usize] /= sum);
    }

    fn foresee(&mut self, group: usize) {
        let now = self.now(group);
        let heated = HEATED / (self.heat_visits[group] + self.heat_doubt);
        let first = self.shape.range(group).start;
        for member in self.shape.range(group) {
            let recent = match self.used[member] {
                0 => 0.0,
                after => RECENT / (self.token + 2 - after) as f32,
            };
            let recalled = RECALLED * self.shares[member - first];
            let frequent = FREQUENT * self.counts[member] + heated * self.heats[member];
            let chance = frequent + recalled + recent + CHANCE_MIN;
            if !self.is_pinned(member) {
                self.foreseen[member] = now + f64::from(1.0 / chance.min(1.0));
                self.worths[member] = f64::from(PATIENCE * chance.ln()) - now;
            }
        }
    }
}

impl Policy for Recall {
    fn tick(&mut self) {
        self.token += 1;
        self.memory.tick();
    }

    fn visit(&mut self, group: usize, members: &[u32]) {
        self.age(group);
        self.weigh(group, members);
        self.memory.compare(group, &self.shares);
        let first = self.shape.range(group).start;
        self.visits[group] += GAIN;
        self.heat_visits[group] += 1.0;
        for &member in members {
            self.counts[first + member as usize] += GAIN;
            self.heats[first + member as usize] += 1.0;
            self.used[first + member as usize] = self.token + 1;
        }
        self.memory.remember(group, members);
        self.memory.recall(group, &mut self.shares);
        self.foresee(group);
    }

    fn worth(&self, member: usize) -> f64 {
        self.worths[member]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One group; tokens that use these members.
    fn after(tokens: &[&[u32]]) -> Recall {
        let mut recall = Recall::new(Shape::new([16]));
        for members in tokens {
            recall.tick();
            recall.visit(0, members);
        }
        recall
    }

    #[test]
    fn recent_use_and_frequent_use_both_keep_a_member() {
        let recall = after(&[&[0], &[2], &[1]]);
        assert!(recall.worth(1) > recall.worth(2) && recall.worth(2) > recall.worth(0));
        assert!(recall.worth(0) > recall.worth(9), "better than never used");
        let often: Vec<&[u32]> = [&[&[0][..]; 20][..], &[&[1][..], &[2][..]][..]].concat();
        let recall = after(&often);
        assert!(recall.worth(0) > recall.worth(1), "frequent, though not in the last tokens");
    }

    #[test]
    fn what_followed_a_token_like_this_one_is_recalled() {
        let recall = after(&[&[0, 1], &[5], &[2, 3], &[6], &[0, 1]]);
        assert!(recall.worth(5) > recall.worth(6), "older, but it came after this");
    }

    #[test]
    fn a_sure_use_is_foreseen_in_the_next_token_in_the_order_of_groups() {
        let mut recall = Recall::new(Shape::new([4, 4]));
        for _ in 0..100 {
            recall.tick();
            (0..2).for_each(|group| recall.visit(group, &[1]));
        }
        assert!(recall.worth(1) > recall.worth(5), "group 0 comes before group 1");
        assert!(recall.worth(5) > recall.worth(2));
        assert_eq!(recall.foreseen(1), recall.now(0) + 1.0);
    }

    #[test]
    fn long_lists_and_long_gaps_do_no_harm() {
        let mut recall = Recall::new(Shape::new([64]));
        let all: Vec<u32> = (0..64).collect();
        recall.visit(0, &all);
        (0..1000).for_each(|_| recall.tick());
        recall.visit(0, &[63]);
        recall.visit(0, &[1]);
        assert!((0..64).all(|member| recall.worth(member).is_finite()));
        assert!(recall.worth(63) > recall.worth(2));
    }

    #[test]
    fn heat_that_cannot_be_is_no_heat() {
        let mut recall = Recall::new(Shape::new([4, 4]));
        recall.warm(&[f32::NAN, f32::INFINITY, -3.0, 7.0, 0.25], f32::INFINITY);
        assert_eq!(&recall.heat()[..], [0.0, 0.0, 0.0, 1.0, 0.25, 0.0, 0.0, 0.0]);
        assert!(recall.worth(3) > recall.worth(4) && recall.worth(4) > recall.worth(5));
        assert!((0..8).all(|member| recall.worth(member).is_finite()));
    }
}
