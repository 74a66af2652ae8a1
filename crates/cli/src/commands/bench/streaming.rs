//! Where the time of a token went when experts were streamed: arithmetic, waiting, hints; what was read, at
//! which pace, against the disk's own; and the least that any replacement could have read with as many slots,
//! which takes knowing the future: the route of the whole run is kept and replayed.

use std::any::Any;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use adit_engine::Stats;
use adit_model::{Blueprint, IoKind, Model, Observer, Plan, Routing, Row, Scout};
use adit_pager::probe::{self, Effort};
use serde::Serialize;

use crate::simulation::{Route, optimum_of};
use crate::size::ByteSize;

/// One token of a test, on the average of all repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Streaming {
    pub ms_per_token: f64,
    /// Time inside steps that was not waited, with what scouts took to foresee.
    pub compute_ms: f64,
    /// Time in which nothing could be computed for want of experts.
    pub wait_ms: f64,
    /// What scouts took to foresee.
    pub hint_ms: f64,
    /// Time in which the disk had reads under way (of several disks, the sum).
    pub disk_busy_ms: f64,
    pub misses_per_token: f64,
    pub optimum_misses_per_token: f64,
    /// All that was read, hints included that nobody needed.
    pub bytes_per_token: f64,
    /// The same without the latter.
    pub missed_bytes_per_token: f64,
    pub optimum_bytes_per_token: f64,
    /// 10^9 bytes a second, on the average of the test's whole time.
    pub gb_per_s: f64,
    /// What the disk gives for reads alone, measured after the test; null where it could not be measured.
    pub probe_gb_per_s: Option<f64>,
    /// The longer one of arithmetic alone and of reading the missed bytes at the disk's pace.
    pub bound_ms: Option<f64>,
    /// `ms_per_token` over that.
    pub over_bound: Option<f64>,
}

/// What was counted of one test, and in which steps.
#[derive(Clone, Default)]
pub struct Counted {
    pub steps: Range<usize>,
    pub tokens: u64,
    pub before: Stats,
    pub after: Stats,
}

impl Streaming {
    fn new(counted: &Counted, optimum_misses: u64, optimum_bytes: u64) -> Streaming {
        let tokens = counted.tokens as f64;
        let per_token = |of: &dyn Fn(&Stats) -> f64| (of(&counted.after) - of(&counted.before)) / tokens;
        let wasted = |stats: &Stats| stats.scouts.iter().map(|scout| scout.bytes_wasted as f64).sum::<f64>();
        let spent = |stats: &Stats| stats.scouts.iter().map(|scout| scout.spent_s).sum::<f64>();
        let bytes = per_token(&|stats| stats.bytes_read as f64);
        let (compute_ms, wait_ms) =
            (1e3 * per_token(&|stats| stats.compute_s), 1e3 * per_token(&|stats| stats.io_wait_s));
        Streaming {
            ms_per_token: compute_ms + wait_ms,
            compute_ms,
            wait_ms,
            hint_ms: 1e3 * per_token(&spent),
            disk_busy_ms: 1e3 * per_token(&|stats| stats.disk_busy_s),
            misses_per_token: per_token(&|stats| stats.expert_misses as f64),
            optimum_misses_per_token: optimum_misses as f64 / tokens,
            bytes_per_token: bytes,
            missed_bytes_per_token: bytes - per_token(&wasted),
            optimum_bytes_per_token: optimum_bytes as f64 / tokens,
            gb_per_s: bytes / (compute_ms + wait_ms) / 1e6,
            probe_gb_per_s: None,
            bound_ms: None,
            over_bound: None,
        }
    }

    /// Holds the test against what the disk gives.
    fn against(self, gb_per_s: f64) -> Streaming {
        let bound_ms = self.compute_ms.max(self.missed_bytes_per_token / gb_per_s / 1e6);
        Streaming {
            probe_gb_per_s: Some(gb_per_s),
            bound_ms: Some(bound_ms),
            over_bound: Some(self.ms_per_token / bound_ms),
            ..self
        }
    }

    pub fn print(&self, test: &str, out: &mut impl Write) -> std::io::Result<()> {
        let size = |bytes: f64| ByteSize(bytes as u64);
        let Streaming { ms_per_token, compute_ms, wait_ms, hint_ms, disk_busy_ms, gb_per_s, .. } = self;
        writeln!(
            out,
            "\n{test}: {ms_per_token:.2} ms a token = {compute_ms:.2} computing ({hint_ms:.2} for hints) \
             + {wait_ms:.2} waiting for the disk, which had reads under way for {disk_busy_ms:.2}"
        )?;
        let (read, missed) = (size(self.bytes_per_token), size(self.missed_bytes_per_token));
        let optimum = size(self.optimum_bytes_per_token);
        writeln!(
            out,
            "    {read} read a token, {missed} of it needed; the optimum of as many slots reads {optimum}"
        )?;
        if let (Some(probe), Some(bound), Some(over)) = (self.probe_gb_per_s, self.bound_ms, self.over_bound)
        {
            writeln!(
                out,
                "    {gb_per_s:.2} GB/s of {probe:.2} that the disk gives; {over:.2} times the {bound:.2} ms \
                 that the longer of arithmetic and needed bytes takes"
            )?;
        }
        Ok(())
    }
}

/// Holds tests against what the disk of `path` gives now.
pub fn against_disk(path: &Path, kind: &IoKind, tests: [Option<Streaming>; 2]) -> [Option<Streaming>; 2] {
    if tests.iter().all(Option::is_none) {
        return tests;
    }
    let effort = Effort {
        read_bytes: vec![1 << 20, 4 << 20],
        depths: vec![8, 16, 32],
        buffered: false,
        each: Duration::from_millis(300),
        limit: Duration::from_secs(3),
    };
    let probe = probe::measure(path, kind, &effort, &mut |_| std::ops::ControlFlow::Continue(()));
    let fastest =
        probe.ok().and_then(|probe| probe.cells.iter().map(|cell| cell.bytes_per_s).max_by(f64::total_cmp));
    tests.map(|test| match (test, fastest) {
        (Some(test), Some(bytes_per_s)) => Some(test.against(bytes_per_s / 1e9)),
        (test, _) => test,
    })
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

/// What is to be told of two tests, when the route was watched and is whole.
pub fn tell(model: &mut Model, tests: [Counted; 2]) -> [Option<Streaming>; 2] {
    let watched: Option<Box<dyn Any>> = model.observe(None).map(|observer| observer as Box<dyn Any>);
    let both = watched.and_then(|watched| watched.downcast::<Both>().ok());
    let Some(route) = both.and_then(|both| both.route).filter(|route| !route.is_full()) else {
        return [None; 2];
    };
    let mut trace = route.into_trace();
    trace.expert_bytes = model.expert_layers().iter().map(|layer| layer.bytes).collect();
    tests.map(|counted| {
        let optimum = optimum_of(&trace, model.plan().slots, counted.steps.clone());
        (counted.tokens > 0).then(|| Streaming::new(&counted, optimum.misses, optimum.bytes))
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
