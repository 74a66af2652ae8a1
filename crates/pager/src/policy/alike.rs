//! Which of the remembered tokens are most alike. What is recalled after few tokens is a handful of
//! experts that one token happened to use; tokens like that one tell what else its kind uses. Must not know
//! groups or members.

/// Tokens kept beside each token. On the recorded routes 2 close as much of the gap as 16.
const NEAREST: usize = 4;
/// A weight below this share of all is not followed further.
const NEGLIGIBLE: f32 = 1e-4;

#[derive(Clone, Copy, Default)]
struct Near {
    token: u64,
    /// Likeness above the mean; 0 where there is nobody.
    weight: f32,
}

/// For each of the last tokens those most like it. Tokens are numbered; ages count back from the present one.
pub struct Alike {
    /// The token `t` at `t % places`.
    near: Box<[[Near; NEAREST]]>,
    /// What the present token shares with the one of each age, summed over its groups.
    shared: Box<[f32]>,
}

impl Alike {
    /// Room for the last `places` tokens.
    pub fn new(places: usize) -> Alike {
        Alike { near: vec![[Near::default(); NEAREST]; places].into(), shared: vec![0.0; places].into() }
    }

    /// What it takes, in bytes.
    pub fn heap_bytes(places: usize) -> usize {
        places * (size_of::<[Near; NEAREST]>() + size_of::<f32>())
    }

    /// The present token shares so much with the one of `age` in one more group.
    pub fn add(&mut self, age: usize, shared: f32) {
        self.shared[age] += shared;
    }

    /// The token `present` is over: it and the `older` tokens before it learn of each other, unless it is
    /// not to be remembered.
    pub fn settle(&mut self, present: u64, older: usize, is_remembered: bool) {
        let places = self.near.len();
        let place = |token: u64| (token % places as u64) as usize;
        self.near[place(present)] = Default::default();
        let shared = &mut self.shared[1..=older];
        if is_remembered && older > 0 {
            let mean = shared.iter().sum::<f32>() / older as f32;
            for (&shared, age) in shared.iter().zip(1u64..).filter(|&(&shared, _)| shared > mean) {
                let (token, weight) = (present - age, shared - mean);
                let oldest = (present + 1).saturating_sub(places as u64);
                keep(&mut self.near[place(present)], Near { token, weight }, oldest);
                keep(&mut self.near[place(token)], Near { token: present, weight }, oldest);
            }
        }
        shared.fill(0.0);
    }

    /// Adds `share` of what each token weighs, by age from 0 on, to the tokens most like it.
    pub fn spread(&self, present: u64, share: f32, weights: &[f32], sums: &mut [f32]) {
        let age_of = |near: &Near| (present - near.token) as usize;
        for (age, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > NEGLIGIBLE) {
            let near = &self.near[((present - age as u64) % self.near.len() as u64) as usize];
            let known = || near.iter().filter(|near| near.weight > 0.0 && age_of(near) < weights.len());
            let all: f32 = known().map(|near| near.weight).sum();
            known().for_each(|near| sums[age_of(near)] += share * weight * near.weight / all);
        }
    }
}

/// Keeps `new` in place of the least, or of one from before `oldest`.
fn keep(near: &mut [Near; NEAREST], new: Near, oldest: u64) {
    let worth = |near: &Near| if near.token < oldest { 0.0 } else { near.weight };
    let least = near.iter_mut().min_by(|a, b| worth(a).total_cmp(&worth(b)));
    if let Some(least) = least.filter(|least| worth(least) < new.weight) {
        *least = new;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_of_those_most_like_it_and_they_of_it() {
        let mut alike = Alike::new(8);
        alike.settle(0, 0, true);
        alike.settle(1, 1, true);
        alike.add(1, 0.1);
        alike.add(2, 0.9);
        alike.settle(2, 2, true);
        let mut sums = [0.0; 4];
        // The present token is 3: ages 1, 2 and 3 are the tokens 2, 1 and 0.
        alike.spread(3, 0.5, &[0.0, 1.0, 0.0, 0.0], &mut sums);
        assert_eq!(sums, [0.0, 0.0, 0.0, 0.5]);
        alike.spread(3, 0.5, &[0.0, 0.0, 0.0, 1.0], &mut sums);
        assert_eq!(sums, [0.0, 0.5, 0.0, 0.5]);
        alike.spread(3, 0.5, &[0.0, 0.0, 1.0, 0.0], &mut sums);
        assert_eq!(sums, [0.0, 0.5, 0.0, 0.5], "token 1 is like nobody");
    }

    #[test]
    fn what_is_forgotten_or_not_remembered_is_told_of_no_more() {
        let mut alike = Alike::new(4);
        alike.settle(0, 0, true);
        alike.settle(1, 1, true);
        alike.add(2, 1.0);
        alike.settle(2, 2, true);
        (3..5).for_each(|token| alike.settle(token, 3, true));
        let mut sums = [0.0; 4];
        alike.spread(5, 1.0, &[1.0; 4], &mut sums);
        assert_eq!(sums, [0.0; 4], "of the two that are alike one is gone");
        alike.add(1, 1.0);
        alike.settle(5, 3, false);
        alike.spread(6, 1.0, &[1.0; 4], &mut sums);
        assert_eq!(sums, [0.0; 4]);
    }
}
