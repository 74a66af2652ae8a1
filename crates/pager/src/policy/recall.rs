//! The engine's default: whoever is likely to be used last leaves.
//!
//! When a group is visited, each of its members gets an estimate of how likely the next token uses it, of
//! three parts: how often it was used lately (a decayed count), how long ago it was used, and *recall*:
//! how often it followed tokens that were routed as the present one was. A member with the chance `p` is
//! expected after `1 / p` tokens, so its next use is foreseen at the token of the visit, plus how far
//! through the token its group comes, plus `1 / p`; the latest leaves, as under the optimum (Belady). Since
//! that is a point in time, nothing has to be reckoned again until the group's next visit.
//!
//! The weights are fixed: on recorded routes of three models weights learnt online from every visit were
//! no better, and estimates made anew shortly before a group is visited were worse.

use super::{Policy, Shape};

/// Tokens that are remembered. A power of two.
const REMEMBERED: usize = 256;
/// Members of one visit that are remembered; a longer list is that of a prompt, not of a token.
const CHOSEN_MAX: usize = 16;
const NONE: u32 = u32::MAX;

/// Half-life of the count, in tokens.
const HALF_LIFE_TOKENS: f32 = 24.0;
/// What one use adds to the count, `1 - 2^(-1 / half-life)`: a use every token adds up to 1.
const GAIN: f32 = 0.028_468_1;
/// A count below this is forgotten: subnormal numbers are slow.
const FORGOTTEN: f32 = 1e-9;

/// What a chance is made of. `RECENT` over one more than the age in tokens.
const FREQUENT: f32 = 0.4;
const RECALLED: f32 = 0.5;
const RECENT: f32 = 0.2;
/// The chance of a member that was never used.
const CHANCE_MIN: f32 = 0.002;

/// How much of a likeness comes from the groups before the last one.
const LIKENESS_KEPT: f32 = 0.8;

pub struct Recall {
    shape: Shape,
    counts: Box<[f32]>,
    /// Token after the one in which each member was last used; 0 for never.
    used: Box<[u64]>,
    /// When each member's next use is foreseen, in tokens.
    foreseen: Box<[f64]>,
    /// Token at which each group was last visited.
    visited: Box<[u64]>,
    /// Members that each of the last tokens used: `[group][token][CHOSEN_MAX]`, each row ended by `NONE`.
    chosen: Box<[u32]>,
    /// How alike each remembered token and the present one were, up to the last visit.
    likeness: Box<[f32]>,
    /// Of each member of the group being visited: what is compared, then what is recalled.
    shares: Box<[f32]>,
    token: u64,
}

impl Recall {
    pub fn new(shape: Shape) -> Recall {
        Recall {
            counts: vec![0.0; shape.members()].into(),
            used: vec![0; shape.members()].into(),
            foreseen: vec![0.0; shape.members()].into(),
            visited: vec![0; shape.groups()].into(),
            chosen: vec![NONE; shape.groups() * REMEMBERED * CHOSEN_MAX].into(),
            likeness: vec![0.0; REMEMBERED].into(),
            shares: vec![0.0; shape.widest()].into(),
            token: 0,
            shape,
        }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(shape: &Shape) -> usize {
        shape.members() * (size_of::<f32>() + size_of::<u64>() + size_of::<f64>())
            + shape.groups() * (size_of::<u64>() + size_of::<u32>())
            + shape.groups() * REMEMBERED * CHOSEN_MAX * size_of::<u32>()
            + (REMEMBERED + shape.widest()) * size_of::<f32>()
    }

    fn place(&self, token: u64) -> usize {
        token as usize % REMEMBERED
    }

    /// Members of `group` that the token at `place` used.
    fn chosen(&self, group: usize, place: usize) -> impl Iterator<Item = usize> + '_ {
        let first = (group * REMEMBERED + place) * CHOSEN_MAX;
        let row = &self.chosen[first..first + CHOSEN_MAX];
        row.iter().take_while(|&&member| member != NONE).map(|&member| member as usize)
    }

    /// Compares what the present token uses of `group` with what each remembered token used.
    fn compare(&mut self, group: usize, members: &[u32]) {
        let present = self.place(self.token);
        self.shares.fill(0.0);
        members.iter().for_each(|&member| self.shares[member as usize] = 1.0 / members.len() as f32);
        for place in (0..REMEMBERED).filter(|&place| place != present) {
            if self.chosen(group, place).next().is_some() {
                let share: f32 = self.chosen(group, place).map(|member| self.shares[member]).sum();
                let before = self.likeness[place];
                self.likeness[place] = before * LIKENESS_KEPT + share * (1.0 - LIKENESS_KEPT);
            }
        }
    }

    /// What the followers of tokens like the present one used of `group`, as a share of all followers.
    fn recall(&mut self, group: usize) {
        self.shares.fill(0.0);
        let present = self.place(self.token);
        let mut sum = 1e-6;
        for place in (0..REMEMBERED).filter(|&place| place != present) {
            let next = self.place(place as u64 + 1);
            let weight = self.likeness[place] * self.likeness[place];
            let first = (group * REMEMBERED + next) * CHOSEN_MAX;
            let row = &self.chosen[first..first + CHOSEN_MAX];
            if weight > 0.0 && next != present && row[0] != NONE {
                sum += weight;
                for &member in row.iter().take_while(|&&member| member != NONE) {
                    self.shares[member as usize] += weight;
                }
            }
        }
        self.shares.iter_mut().for_each(|share| *share /= sum);
    }

    fn remember(&mut self, group: usize, members: &[u32]) {
        let first = (group * REMEMBERED + self.place(self.token)) * CHOSEN_MAX;
        let row = &mut self.chosen[first..first + CHOSEN_MAX];
        row.fill(NONE);
        for (chosen, &member) in row.iter_mut().zip(members) {
            *chosen = member;
        }
    }

    fn foresee(&mut self, group: usize) {
        let through = (group + 1) as f64 / self.shape.groups() as f64;
        let first = self.shape.range(group).start;
        for member in self.shape.range(group) {
            let recent = match self.used[member] {
                0 => 0.0,
                after => RECENT / (self.token + 2 - after) as f32,
            };
            let recalled = RECALLED * self.shares[member - first];
            let chance = FREQUENT * self.counts[member] + recalled + recent + CHANCE_MIN;
            self.foreseen[member] = self.token as f64 + through + f64::from(1.0 / chance.min(1.0));
        }
    }
}

impl Policy for Recall {
    fn tick(&mut self) {
        self.token += 1;
        let present = self.place(self.token);
        self.likeness.fill(0.0);
        // The oldest token gives its place up.
        for group in 0..self.shape.groups() {
            self.chosen[(group * REMEMBERED + present) * CHOSEN_MAX] = NONE;
        }
    }

    fn visit(&mut self, group: usize, members: &[u32]) {
        let range = self.shape.range(group);
        let elapsed = self.token - self.visited[group];
        self.visited[group] = self.token;
        if elapsed > 0 {
            let factor = (-(elapsed as f32) / HALF_LIFE_TOKENS).exp2();
            for count in &mut self.counts[range.clone()] {
                let aged = *count * factor;
                *count = if aged < FORGOTTEN { 0.0 } else { aged };
            }
        }
        for &member in members {
            self.counts[range.start + member as usize] += GAIN;
            self.used[range.start + member as usize] = self.token + 1;
        }
        self.compare(group, members);
        self.recall(group);
        self.remember(group, members);
        self.foresee(group);
    }

    fn worth(&self, member: usize) -> f64 {
        -self.foreseen[member]
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
        let due = -recall.worth(1) - recall.token as f64;
        assert!((1.0..2.0).contains(&due), "{due}");
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
}
