//! What the last tokens used of each group, and how alike each of them and the present one are. From this
//! comes what is *recalled*: what followed tokens that were routed as the present one is. Must not know
//! what a member is worth.

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

pub struct Memory {
    /// `[group][token][CHOSEN_MAX]`, the token at `token % REMEMBERED`.
    chosen: Box<[u16]>,
    /// How many of each row there are: `[group][token]`.
    lengths: Box<[u8]>,
    /// How alike the present token, up to the last visit, and the one of each age are, from 0 to 1.
    likeness: Box<[f32]>,
    token: u64,
}

impl Memory {
    pub fn new(groups: usize) -> Memory {
        Memory {
            chosen: vec![0; groups * REMEMBERED * CHOSEN_MAX].into(),
            lengths: vec![0; groups * REMEMBERED].into(),
            likeness: vec![0.0; REMEMBERED].into(),
            token: 0,
        }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(groups: usize) -> usize {
        groups * REMEMBERED * (CHOSEN_MAX * size_of::<u16>() + 1) + REMEMBERED * size_of::<f32>()
    }

    /// The next token begins; the oldest gives its place up.
    pub fn tick(&mut self) {
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
        1..=self.token.min(REMEMBERED as u64 - 1) as usize
    }

    /// Compares what the present token uses of `group` with what the others used: `weights` of the group's
    /// members, which add up to 1, 0 for what is not used.
    pub fn compare(&mut self, group: usize, weights: &[f32]) {
        for age in self.ages() {
            let chosen = self.chosen(group, age);
            if !chosen.is_empty() {
                let shared: f32 = chosen.iter().map(|&member| weights[member as usize]).sum();
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
        let row = group * REMEMBERED + self.place(0);
        self.lengths[row] = members.len() as u8;
        for (chosen, &member) in self.chosen[row * CHOSEN_MAX..].iter_mut().zip(members) {
            *chosen = member as u16;
        }
    }

    /// What the followers of tokens like the present one used of `group`: for each member the share of the
    /// followers, with those further behind counting less; 0 where there is nothing to recall.
    pub fn recall(&self, group: usize, shares: &mut [f32]) {
        shares.fill(0.0);
        let likeness = &self.likeness[self.ages()];
        let common = LIKENESS_COMMON * likeness.iter().sum::<f32>() / likeness.len().max(1) as f32;
        let weight = |likeness: f32| (likeness - common).max(0.0).powi(2);
        let sum: f32 = likeness.iter().map(|&likeness| weight(likeness)).sum();
        let scale = 1.0 / (sum + 1e-6);
        // From the oldest on: what follows a token follows, further behind, those before it.
        let mut follows = 0.0;
        for age in self.ages().rev() {
            follows = follows * FOLLOWED + weight(self.likeness[age]) * scale;
            for &member in self.chosen(group, age - 1) {
                shares[member as usize] += follows;
            }
        }
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
        assert!(shares[2] > 0.9 && shares[6] == 0.0);
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
