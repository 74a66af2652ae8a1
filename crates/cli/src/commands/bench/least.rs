//! What was read for a token against the least that any replacement could have read with as many slots, which
//! takes knowing the future: the route of the whole run is kept and replayed.

use std::any::Any;
use std::ops::Range;

use adit_model::{Blueprint, Model, Observer, Plan, Routing, Row, Scout};
use serde::Serialize;

use crate::simulation::{Route, optimum_of};

/// What one token of a test read, all repetitions together, and what the optimum would have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Least {
    pub misses_per_token: f64,
    pub optimum_misses_per_token: f64,
    pub bytes_per_token: f64,
    pub optimum_bytes_per_token: f64,
}

/// What was counted of one test, and in which steps.
#[derive(Clone, Default)]
pub struct Counted {
    pub steps: Range<usize>,
    pub tokens: u64,
    pub misses: u64,
    pub bytes: u64,
}

/// The route that a run will take, of steps of so many rows; `None` where everything stays in memory.
pub fn route(blueprint: &Blueprint, plan: &Plan, rows: impl IntoIterator<Item = usize>) -> Option<Route> {
    let experts = blueprint.config.experts.as_ref()?;
    let layers = blueprint.weights.groups.len();
    (plan.slots < plan.experts).then(|| Route::new(rows, layers, experts.count, experts.used))
}

/// Steps of a test: `tokens` of them in steps of `chunk`, so often.
pub fn rows(tokens: usize, chunk: usize, times: usize) -> impl Iterator<Item = usize> {
    (0..times).flat_map(move |_| (0..tokens).step_by(chunk).map(move |first| chunk.min(tokens - first)))
}

/// Lets both watch, as far as there are any.
pub fn watch(model: &mut Model, route: Option<Route>, other: Option<Box<dyn Observer>>) {
    if route.is_some() || other.is_some() {
        model.observe(Some(Box::new(Both { route, other })));
    }
}

/// What the route says of two tests, when it was watched and is whole.
pub fn least(model: &mut Model, tests: [Counted; 2]) -> [Option<Least>; 2] {
    let watched: Option<Box<dyn Any>> = model.observe(None).map(|observer| observer as Box<dyn Any>);
    let both = watched.and_then(|watched| watched.downcast::<Both>().ok());
    let Some(route) = both.and_then(|both| both.route).filter(|route| !route.is_full()) else {
        return [None; 2];
    };
    let mut trace = route.into_trace();
    trace.expert_bytes = model.expert_layers().iter().map(|layer| layer.bytes).collect();
    tests.map(|counted| {
        let tokens = counted.tokens as f64;
        let optimum = optimum_of(&trace, model.plan().slots, counted.steps);
        (counted.tokens > 0).then(|| Least {
            misses_per_token: counted.misses as f64 / tokens,
            optimum_misses_per_token: optimum.misses as f64 / tokens,
            bytes_per_token: counted.bytes as f64 / tokens,
            optimum_bytes_per_token: optimum.bytes as f64 / tokens,
        })
    })
}

/// A route, and whoever else watches.
struct Both {
    route: Option<Route>,
    other: Option<Box<dyn Observer>>,
}

impl Both {
    fn each(&mut self, mut tell: impl FnMut(&mut dyn Observer)) {
        if let Some(route) = &mut self.route {
            tell(route);
        }
        if let Some(other) = &mut self.other {
            tell(&mut **other);
        }
    }
}

impl Observer for Both {
    fn begin_step(&mut self, rows: &[Row]) {
        self.each(|observer| observer.begin_step(rows));
    }

    fn predicted(&mut self, layer: usize, scout: Scout, experts: &[u32]) {
        self.each(|observer| observer.predicted(layer, scout, experts));
    }

    fn routed(&mut self, routing: &Routing<'_>) {
        self.each(|observer| observer.routed(routing));
    }

    fn streamed(&mut self, wait_ns: u64) {
        self.each(|observer| observer.streamed(wait_ns));
    }

    fn end_step(&mut self, step_ns: u64) {
        self.each(|observer| observer.end_step(step_ns));
    }
}
