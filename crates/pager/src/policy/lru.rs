//! Least recently used.

use super::{Policy, Shape};

pub struct Lru {
    shape: Shape,
    /// Number of the use at which each member was used last.
    used: Box<[u64]>,
    uses: u64,
}

impl Lru {
    pub fn new(shape: Shape) -> Lru {
        Lru { used: vec![0; shape.members()].into(), uses: 0, shape }
    }
}

impl Policy for Lru {
    fn visit(&mut self, group: usize, members: &[u32]) {
        let used = &mut self.used[self.shape.range(group)];
        for &member in members {
            self.uses += 1;
            used[member as usize] = self.uses;
        }
    }

    fn worth(&self, member: usize) -> f64 {
        self.used[member] as f64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_is_worth_least() {
        let mut lru = Lru::new(Shape::new([2, 2]));
        lru.visit(0, &[1, 0]);
        lru.visit(1, &[1]);
        lru.visit(0, &[1]);
        let mut order = [0, 1, 3];
        order.sort_by(|&a, &b| lru.worth(a).total_cmp(&lru.worth(b)));
        assert_eq!(order, [0, 3, 1]);
    }
}
