//! A route recorded in memory while a model runs, to hold what was read against the least that any
//! replacement could have read.

use std::ops::Range;

use adit_model::{Observer, Routing, Row, Scout};

use super::pool::{Kind, Outcome, simulate_steps};
use super::trace::{Phase, Step, Trace};

/// Watches a run and keeps which experts each step asked for, in memory that it takes at once.
pub struct Route {
    trace: Trace,
    /// Union of the visit under way; as long as a layer has experts.
    is_picked: Box<[bool]>,
    union: Vec<u32>,
    wait_ns: u64,
    is_full: bool,
}

impl Route {
    /// Room for steps of so many rows in a model of `layers` layers with `experts` each, of which a row uses
    /// `used`.
    pub fn new(rows: impl IntoIterator<Item = usize>, layers: usize, experts: usize, used: usize) -> Route {
        let (mut steps, mut uses) = (0, 0);
        for rows in rows {
            (steps, uses) = (steps + 1, uses + layers * experts.min(rows * used));
        }
        let mut trace = Trace::default();
        (trace.layers, trace.experts_per_layer) = (layers, experts);
        trace.reserve(steps, steps * layers, uses);
        Route {
            trace,
            is_picked: vec![false; experts].into(),
            union: Vec::with_capacity(experts),
            wait_ns: 0,
            is_full: false,
        }
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.trace.heap_bytes() + (self.is_picked.len() * (1 + size_of::<u32>())) as u64
    }

    /// Whether more happened than there was room for.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// What was recorded.
    pub fn into_trace(self) -> Trace {
        self.trace
    }
}

impl Observer for Route {
    fn begin_step(&mut self, rows: &[Row]) {
        self.wait_ns = 0;
        let has_room = self.trace.has_room_for_step() && !self.is_full;
        self.is_full = !has_room;
        if has_room {
            let is_decode = rows.iter().all(|row| row.wants_logits);
            self.trace.steps.push(Step {
                phase: if is_decode { Phase::Decode } else { Phase::Prefill },
                tokens: rows.len() as u32,
                compute_ns: None,
            });
        }
    }

    fn predicted(&mut self, _layer: usize, _scout: Scout, _experts: &[u32]) {}

    fn routed(&mut self, routing: &Routing<'_>) {
        if self.is_full {
            return;
        }
        self.union.clear();
        for &expert in routing.picked {
            if !std::mem::replace(&mut self.is_picked[expert as usize], true) {
                self.union.push(expert);
            }
        }
        self.union.iter().for_each(|&expert| self.is_picked[expert as usize] = false);
        self.union.sort_unstable();
        if !self.trace.has_room_for(self.union.len()) {
            self.is_full = true;
            return;
        }
        let step = self.trace.steps.len() - 1;
        self.is_full = self.trace.push_distinct(step, routing.layer, &self.union).is_err();
    }

    fn streamed(&mut self, wait_ns: u64) {
        self.wait_ns += wait_ns;
    }

    fn end_step(&mut self, step_ns: u64) {
        if let (false, Some(step)) = (self.is_full, self.trace.steps.last_mut()) {
            step.compute_ns = Some(step_ns.saturating_sub(self.wait_ns));
        }
    }
}

/// What the clairvoyant optimum would have read in the steps `counted` of `trace`, with `slots` slots that
/// are empty at first: a run that warms up passes through them uncounted. The bytes are those of the misses
/// where the trace's `expert_bytes` are filled in, else 0.
pub fn optimum_of(trace: &Trace, slots: usize, counted: Range<usize>) -> Outcome {
    simulate_steps(trace, slots, Kind::Optimum, counted).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: usize, wants_logits: bool) -> Row {
        Row { lane: 0, token: 0, position, wants_logits }
    }

    fn visit(route: &mut Route, layer: usize, used: usize, picked: &[u32]) {
        let weights = vec![0.5; picked.len()];
        let is_resident = &|_| false;
        route.routed(&Routing { layer, used, picked, weights: &weights, missing_bytes: 0, is_resident });
        route.streamed(10);
    }

    #[test]
    fn a_route_keeps_unions_until_its_room_is_used_up() {
        let mut route = Route::new([2, 1], 1, 4, 2);
        let bytes = route.bytes();
        route.begin_step(&[row(0, false), row(1, true)]);
        visit(&mut route, 0, 2, &[3, 1, 1, 0]);
        route.end_step(100);
        route.begin_step(&[row(2, true)]);
        visit(&mut route, 0, 2, &[2, 0]);
        route.end_step(100);
        assert!(!route.is_full());
        route.begin_step(&[row(3, true)]);
        visit(&mut route, 0, 2, &[2, 0]);
        route.end_step(100);
        assert!(route.is_full());
        assert_eq!(route.bytes(), bytes, "memory was taken after the beginning");
        let trace = route.into_trace();
        let visits: Vec<_> = trace.visits().map(|(visit, experts)| (visit.step, experts.to_vec())).collect();
        assert_eq!(visits, [(0, vec![0, 1, 3]), (1, vec![0, 2])]);
        let steps: Vec<_> =
            trace.steps.iter().map(|step| (step.phase, step.tokens, step.compute_ns)).collect();
        assert_eq!(steps, [(Phase::Prefill, 2, Some(90)), (Phase::Decode, 1, Some(90))]);
    }

    #[test]
    fn the_optimum_counts_only_the_steps_asked_for() {
        let mut trace = Trace::default();
        [0, 1, 2, 0, 1, 0].iter().enumerate().for_each(|(step, &e)| trace.push(step, 0, &[e]).unwrap());
        trace.expert_bytes = vec![5];
        let all = optimum_of(&trace, 2, 0..6);
        // 0, 1 and 2 come for the first time; one of 0 and 1 had to leave for 2.
        assert_eq!((all.hits, all.misses, all.bytes), (2, 4, 20));
        let warm = optimum_of(&trace, 2, 3..6);
        assert_eq!((warm.hits, warm.misses, warm.bytes), (2, 1, 5));
    }
}
