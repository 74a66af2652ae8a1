//! Whoever watches is told what happened, and changes nothing.

use std::any::Any;

use crate::common::{Run, logits_of, tokens};
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_model::{Model, Observer, Routing, Row, Scout, ScoutSet};

/// Sums of what it was told.
#[derive(Default)]
struct Watcher {
    rows: usize,
    layers: Vec<usize>,
    hits: u64,
    misses: u64,
    missing_bytes: u64,
    wait_ns: u64,
    step_ns: u64,
}

impl Observer for Watcher {
    fn begin_step(&mut self, rows: &[Row]) {
        self.rows += rows.len();
        self.layers.clear();
    }

    fn predicted(&mut self, _layer: usize, _scout: Scout, _experts: &[u32]) {}

    fn routed(&mut self, routing: &Routing<'_>) {
        self.layers.push(routing.layer);
        assert_eq!((routing.picked.len(), routing.weights.len() % routing.used), (routing.weights.len(), 0));
        for weights in routing.weights.chunks(routing.used) {
            assert!(weights.is_sorted_by(|a, b| a >= b), "{weights:?} are not in order of rank");
        }
        let mut union = routing.picked.to_vec();
        union.sort_unstable();
        union.dedup();
        let hits = union.iter().filter(|&&expert| (routing.is_resident)(expert)).count() as u64;
        self.hits += hits;
        self.misses += union.len() as u64 - hits;
        self.missing_bytes += routing.missing_bytes;
    }

    fn streamed(&mut self, wait_ns: u64) {
        self.wait_ns += wait_ns;
    }

    fn end_step(&mut self, step_ns: u64) {
        self.step_ns += step_ns;
    }
}

fn with_half_of_the_slots(run: &Run, path: &std::path::Path) -> Model {
    let blueprint = adit_model::Blueprint::open(path, &run.io).unwrap();
    let mut plan = blueprint.plan(&run.request()).unwrap();
    plan.slots /= 2;
    Model::load(blueprint, plan, &mut |_| {}).unwrap()
}

#[test]
fn what_an_observer_is_told_is_what_the_counters_say() {
    let folder = tempfile::tempdir().unwrap();
    let synth = Synth { layers: 3, experts: 16, types: WeightTypes::mixed(), ..Synth::new(Family::Qwen3Moe) };
    let path = synth.write(&folder.path().join("tiny.gguf")).unwrap();
    // What a hint has brought is resident to an observer, and a miss to the counters.
    let (run, tokens) = (Run { scouts: ScoutSet::NONE, ..Run::default() }, tokens(30));
    let mut model = with_half_of_the_slots(&run, &path);
    let expected = logits_of(&mut model, run.chunk, &tokens);

    let mut model = with_half_of_the_slots(&run, &path);
    assert!(model.observe(Some(Box::new(Watcher::default()))).is_none());
    assert!(logits_of(&mut model, run.chunk, &tokens) == expected, "watching changed the result");
    let watcher: Box<dyn Any> = model.observe(None).unwrap();
    let watcher = watcher.downcast::<Watcher>().unwrap();
    let (pager, steps) = (model.pager_stats(), model.step_stats());
    assert_eq!((watcher.rows, watcher.layers.as_slice()), (30, &[0, 1, 2][..]));
    assert_eq!((watcher.hits, watcher.misses), (pager.hits, pager.misses));
    assert!(watcher.misses > 0 && watcher.hits > 0);
    assert_eq!(watcher.missing_bytes, pager.bytes_read);
    assert_eq!((watcher.wait_ns, watcher.step_ns), (pager.wait_ns, steps.step_ns));
    let layers: Vec<_> = model.expert_layers().iter().map(|layer| (layer.layer, layer.experts)).collect();
    assert_eq!(layers, [(0, 16), (1, 16), (2, 16)]);
}

#[test]
fn another_budget_is_divided_as_a_plan_divides_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = Synth { experts: 64, ..Synth::new(Family::Qwen3Moe) };
    let path = path.write(&folder.path().join("tiny.gguf")).unwrap();
    let blueprint = adit_model::Blueprint::open(&path, &Run::default().io).unwrap();
    let request = |memory| adit_model::Request { memory, chunk: None, ..Run::default().request() };
    let everything = blueprint.plan(&request(None)).unwrap();
    let smallest = everything.division.fixed_bytes;
    let mut chosen = std::collections::BTreeSet::new();
    for budget in (smallest..everything.total_bytes()).step_by(100_000) {
        let Ok(plan) = blueprint.plan(&request(Some(budget))) else { continue };
        // What the process has taken meanwhile is a term of the plan.
        let fixed_bytes = plan.division.fixed_bytes;
        let division = adit_model::Division { fixed_bytes, ..everything.division.clone() };
        assert_eq!(division.choose(budget), Some((plan.chunk, plan.slots)), "{budget} bytes");
        chosen.insert((plan.chunk, plan.slots));
    }
    assert!(chosen.len() > 3, "{chosen:?}");
}
