//! The clairvoyant optimum (Belady 1966): whoever is used again last leaves.

use adit_pager::policy::{Policy, Shape};

use super::Trace;

const NEVER: u32 = u32::MAX;

pub struct Optimum {
    shape: Shape,
    /// Of each use in the trace, the visit of the member's next use.
    following: Vec<u32>,
    /// Uses seen so far.
    seen: usize,
    /// Visit of each member's next use.
    next: Box<[u32]>,
}

impl Optimum {
    pub fn new(trace: &Trace, shape: Shape) -> Optimum {
        let visits: Vec<_> = trace.visits().collect();
        let mut next = vec![NEVER; shape.members()];
        let mut following = Vec::with_capacity(trace.uses());
        for (place, (visit, experts)) in visits.into_iter().enumerate().rev() {
            let first = shape.range(visit.layer as usize).start;
            for &expert in experts.iter().rev() {
                let next = &mut next[first + expert as usize];
                following.push(std::mem::replace(next, place as u32));
            }
        }
        following.reverse();
        Optimum { following, seen: 0, next: next.into(), shape }
    }
}

impl Policy for Optimum {
    fn visit(&mut self, group: usize, members: &[u32]) {
        let first = self.shape.range(group).start;
        for &member in members {
            self.next[first + member as usize] = self.following[self.seen];
            self.seen += 1;
        }
    }

    fn worth(&self, member: usize) -> f64 {
        -f64::from(self.next[member])
    }
}
