//! What the last tokens used of each group, and how alike each of them and the present one are. From this
//! comes what is *recalled*: what followed tokens that were routed as the present one is, and what tokens
//! like those that followed used. Must not know what a member is worth.

use super::alike::Alike;

/// Tokens that are remembered, a power of two. On the recorded routes 128 closed 1.1 points less of the
/// gap between LRU and the optimum than 256, and no route is longer than 300.
const REMEMBERED: usize = 512;
/// Members of one visit that are remembered; a longer list is that of a prompt, not of a few tokens. A row
/// is a cache line.
const CHOSEN_MAX: usize = 32;

/// How much of a likeness comes from the groups before the last one: the last six or so count.
const LIKENESS_KEPT: f32 = 0.85;
/// How much of its likeness a pair of tokens hands to the pair that follows it.
const LIKENESS_CARRIED: f32 = 0.3;
/// Likeness below this share of the mean is none: any two tokens have experts in common.
const LIKENESS_COMMON: f32 = 0.5;
/// What a follower counts for each token that it is further away.
const FOLLOWED: f32 = 0.4;
/// Likeness of the one most like the present token at which its followers count in full.
const LIKENESS_SURE: f32 = 0.3;
/// What the tokens most like a follower count, beside the follower itself.
const AKIN: f32 = 0.4;
/// A row that counts less than this changes nothing.
const NEGLIGIBLE: f32 = 1e-5;

pub struct Memory {
    /// `[group][token][CHOSEN_MAX]`, the token at `token % REMEMBERED`.
    chosen: Box<[u16]>,
    /// How many of each row there are: `[group][token]`.
    lengths: Box<[u8]>,
    /// How alike the present token, up to the last visit, and the one of each age are, from 0 to 1.
    likeness: Box<[f32]>,
    alike: Alike,
    /// What the token of each age counts as a follower, and in all.
    follows: Box<[f32]>,
    counts: Box<[f32]>,
    token: u64,
    is_remembered: bool,
}

impl Memory {
    pub fn new(groups: usize) -> Memory {
        Memory {
            chosen: vec![0; groups * REMEMBERED * CHOSEN_MAX].into(),
            lengths: vec![0; groups * REMEMBERED].into(),
            likeness: vec![0.0; REMEMBERED].into(),
            alike: Alike::new(REMEMBERED),
            follows: vec![0.0; REMEMBERED].into(),
            counts: vec![0.0; REMEMBERED].into(),
            token: 0,
            is_remembered: false,
        }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(groups: usize) -> usize {
        let rows = groups * REMEMBERED * (CHOSEN_MAX * size_of::<u16>() + 1);
        rows + 3 * REMEMBERED * size_of::<f32>() + Alike::heap_bytes(REMEMBERED)
    }

    /// The next token begins; the oldest gives its place up.
    pub fn tick(&mut self) {
        self.alike.settle(self.token, self.oldest(), std::mem::take(&mut self.is_remembered));
        self.token += 1;
        // A pair of tokens and the pair that follows it are of one age.
        self.likeness.iter_mut().for_each(|likeness| *likeness *= LIKENESS_CARRIED);
        let present = self.place(0);
        self.lengths.iter_mut().skip(present).step_by(REMEMBERED).for_each(|length| *length = 0);
    }

    fn place(&self, age: usize) -> usize {
        (self.token as usize).wrapping_sub(age) % REMEMBERED
    }

    /// Members of `group` that the token of `age` used.
    fn chosen(&self, group: usize, age: usize) -> &[u16] {
        let row = group * REMEMBERED + self.place(age);
        &self.chosen[row * CHOSEN_MAX..][..self.lengths[row] as usize]
    }

    /// Ages of the tokens before the present one.
    fn ages(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.oldest()
    }

    fn oldest(&self) -> usize {
        self.token.min(REMEMBERED as u64 - 1) as usize
    }

    /// Compares what the present token uses of `group` with what the others used: `weights` of the group's
    /// members, which add up to 1, 0 for what is not used.
    pub fn compare(&mut self, group: usize, weights: &[f32]) {
        for age in self.ages() {
            let chosen = self.chosen(group, age);
            if !chosen.is_empty() {
                let shared: f32 = chosen.iter().map(|&member| weights[member as usize]).sum();
                self.alike.add(age, shared);
                let likeness = &mut self.likeness[age];
                *likeness = *likeness * LIKENESS_KEPT + shared * (1.0 - LIKENESS_KEPT);
            }
        }
    }

    /// The present token uses `members` of `group`.
    pub fn remember(&mut self, group: usize, members: &[u32]) {
        if members.len() > CHOSEN_MAX || members.iter().any(|&member| member > u32::from(u16::MAX)) {
            return;
        }
        self.is_remembered = true;
        let row = group * REMEMBERED + self.place(0);
        self.lengths[row] = members.len() as u8;
        for (chosen, &member) in self.chosen[row * CHOSEN_MAX..].iter_mut().zip(members) {
            *chosen = member as u16;
        }
    }

    /// What the followers of tokens like the present one used of `group`, and what tokens like those
    /// followers did: for each member a share, with followers further behind counting less, and all
    /// the less the likeness; 0 where there is nothing to recall.
    pub fn recall(&mut self, group: usize, shares: &mut [f32]) {
        shares.fill(0.0);
        let oldest = self.oldest();
        let sure = self.follow();
        for (count, follows) in self.counts.iter_mut().zip(&self.follows[..=oldest]) {
            *count = sure * follows;
        }
        self.alike.spread(self.token, AKIN, &self.follows[..=oldest], &mut self.counts[..=oldest]);
        for age in 0..=oldest {
            let count = self.counts[age];
            if count > NEGLIGIBLE {
                for &member in self.chosen(group, age) {
                    shares[member as usize] += count;
                }
            }
        }
    }

    /// Weighs each token by how much it follows tokens like the present one. Returns how sure that is.
    fn follow(&mut self) -> f32 {
        let likeness = &self.likeness[self.ages()];
        let common = LIKENESS_COMMON * likeness.iter().sum::<f32>() / likeness.len().max(1) as f32;
        let weight = |likeness: f32| (likeness - common).max(0.0).powi(2);
        let sum: f32 = likeness.iter().map(|&likeness| weight(likeness)).sum();
        let scale = 1.0 / (sum + 1e-6);
        let most = likeness.iter().copied().fold(0.0, f32::max);
        // From the oldest on: what follows a token follows, further behind, those before it.
        self.follows[self.oldest()] = 0.0;
        let mut follows = 0.0;
        for age in self.ages().rev() {
            follows = follows * FOLLOWED + weight(self.likeness[age]) * scale;
            self.follows[age - 1] = follows;
        }
        (most / LIKENESS_SURE).sqrt()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One group of eight members; the weights of what is used are equal.
    fn visit(memory: &mut Memory, members: &[u32]) -> [f32; 8] {
        let mut shares = [0.0; 8];
        let weight = 1.0 / members.len() as f32;
        members.iter().filter(|&&member| member < 8).for_each(|&member| shares[member as usize] = weight);
        memory.compare(0, &shares);
        memory.remember(0, members);
        memory.recall(0, &mut shares);
        shares
    }

    fn after(tokens: &[&[u32]]) -> [f32; 8] {
        let mut memory = Memory::new(1);
        let visits = tokens.iter().map(|members| {
            memory.tick();
            visit(&mut memory, members)
        });
        visits.last().unwrap_or_default()
    }

    #[test]
    fn what_followed_is_recalled_the_nearest_most() {
        let shares = after(&[&[0, 1], &[2], &[3], &[4], &[5], &[0, 1]]);
        assert!(shares[2] > shares[3] && shares[3] > shares[4] && shares[4] > shares[5], "{shares:?}");
        assert!(shares[2] > 0.7 && shares[6] == 0.0);
    }

    #[test]
    fn what_tokens_like_a_follower_used_is_recalled_too() {
        let shares = after(&[&[0, 1], &[2, 3], &[5], &[2, 4], &[6], &[0, 1]]);
        assert!(shares[4] > shares[5], "{shares:?}");
    }

    #[test]
    fn with_nothing_alike_or_nothing_before_nothing_is_recalled() {
        assert_eq!(after(&[&[0, 1]]), [0.0; 8]);
        assert_eq!(after(&[&[0], &[1], &[2]]), [0.0; 8]);
        assert_eq!(after(&[&[], &[], &[]]), [0.0; 8]);
    }

    #[test]
    fn a_prompt_is_not_remembered_and_an_old_token_is_forgotten() {
        let prompt: Vec<u32> = (0..CHOSEN_MAX as u32 + 1).collect();
        assert_eq!(after(&[&[0], &prompt, &[0]])[1], 0.0);
        let mut memory = Memory::new(1);
        for _ in 0..2 {
            memory.tick();
            visit(&mut memory, &[0]);
            memory.tick();
            visit(&mut memory, &[1]);
            (0..REMEMBERED).for_each(|_| memory.tick());
        }
        memory.tick();
        assert_eq!(visit(&mut memory, &[0]), [0.0; 8]);
    }
}
