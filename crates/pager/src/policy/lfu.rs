//! Least frequently used, with and without dynamic ageing (LFUDA, Arlitt et al. 2000).

use super::{Policy, Shape};

/// Uses count for ever, or, with ageing, while the member is resident, on top of what the last member to
/// leave was worth. Among equals the longest unused leaves.
pub struct Lfu {
    shape: Shape,
    /// Uses, with ageing since the member last came.
    counts: Box<[u64]>,
    /// What a member had to be worth to stay when it was last used.
    floors: Box<[u64]>,
    used: Box<[u64]>,
    uses: u64,
    floor: u64,
    is_ageing: bool,
}

/// More uses than any run has: makes the last use a fraction of one count.
const USES_MAX: f64 = (1u64 << 32) as f64;

impl Lfu {
    pub fn new(shape: Shape) -> Lfu {
        Lfu::with_ageing(shape, false)
    }

    /// LFUDA.
    pub fn ageing(shape: Shape) -> Lfu {
        Lfu::with_ageing(shape, true)
    }

    fn with_ageing(shape: Shape, is_ageing: bool) -> Lfu {
        let zeros = || vec![0; shape.members()].into_boxed_slice();
        Lfu { counts: zeros(), floors: zeros(), used: zeros(), uses: 0, floor: 0, is_ageing, shape }
    }
}

impl Policy for Lfu {
    fn visit(&mut self, group: usize, members: &[u32]) {
        let first = self.shape.range(group).start;
        for &member in members {
            let member = first + member as usize;
            self.uses += 1;
            self.used[member] = self.uses;
            self.counts[member] += 1;
            self.floors[member] = self.floor;
        }
    }

    fn worth(&self, member: usize) -> f64 {
        (self.counts[member] + self.floors[member]) as f64 + self.used[member] as f64 / USES_MAX
    }

    fn leave(&mut self, member: usize) {
        if self.is_ageing {
            self.floor = self.counts[member] + self.floors[member];
            self.counts[member] = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_less_used_is_worth_less_however_recent() {
        let mut lfu = Lfu::new(Shape::new([3]));
        lfu.visit(0, &[0]);
        lfu.visit(0, &[0, 1]);
        lfu.visit(0, &[2]);
        assert!(lfu.worth(0) > lfu.worth(2) && lfu.worth(2) > lfu.worth(1));
    }

    #[test]
    fn ageing_lifts_newcomers_over_what_was_once_popular() {
        let worths = |mut lfu: Lfu| {
            (0..5).for_each(|_| lfu.visit(0, &[0]));
            for _ in 0..8 {
                lfu.visit(0, &[1]);
                lfu.leave(1);
            }
            lfu.visit(0, &[2]);
            (lfu.worth(0), lfu.worth(2))
        };
        let (popular, new) = worths(Lfu::new(Shape::new([3])));
        assert!(popular > new);
        let (popular, new) = worths(Lfu::ageing(Shape::new([3])));
        assert!(new > popular);
    }
}
