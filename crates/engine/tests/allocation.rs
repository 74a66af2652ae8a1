//! After loading, a step allocates and frees nothing: not in the forward pass, not in the pager and its
//! I/O threads, not in the worker pool, not in sampling, not in detokenising, not in guessing.
//!
//! One test only, because the counters are the whole process's: nobody else may run beside it.

use std::alloc::System;
use std::path::Path;
use std::sync::Arc;

use adit_engine::{
    ControlTokens, Detokenizer, Engine, Event, Flow, LoadOptions, Sampler, SamplerOptions,
    SpeculationOptions, Tokenizer, When,
};
use adit_format::Gguf;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_model::{
    Blueprint, IoKind, KvFormat, Model, ModelError, Observer, Plan, Request, Routing, Row, Scout, ScoutSet,
    SimConfig,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHUNK: usize = 16;
const CONTEXT: usize = 640;
/// Rows of each step: a prompt of more than a segment of attention, few rows whose past the threads share,
/// single tokens.
const STEPS: [(usize, usize); 3] = [(34, CHUNK), (2, 7), (20, 1)];

/// Somebody who watches, as whoever writes a trace does.
#[derive(Default)]
struct Watcher {
    residents: usize,
    ns: u64,
}

impl Observer for Watcher {
    fn begin_step(&mut self, _rows: &[Row]) {}

    fn predicted(&mut self, _layer: usize, _scout: Scout, _experts: &[u32]) {}

    fn routed(&mut self, routing: &Routing<'_>) {
        self.residents += routing.picked.iter().filter(|&&expert| (routing.is_resident)(expert)).count();
    }

    fn streamed(&mut self, wait_ns: u64) {
        self.ns += wait_ns;
    }

    fn end_step(&mut self, step_ns: u64) {
        self.ns += step_ns;
    }
}

/// The plan for a budget that suffices, or for the smallest, so that experts are evicted all the time.
fn plan(blueprint: &Blueprint, kv: KvFormat, roomy: bool) -> Plan {
    let mut memory = if roomy { None } else { Some(1) };
    loop {
        let request = Request {
            memory,
            context: CONTEXT,
            lanes: 1,
            threads: 2,
            kv,
            chunk: Some(CHUNK),
            observer_bytes: 0,
            draft_bytes: 0,
            scouts: ScoutSet::ALL,
        };
        match blueprint.plan(&request) {
            Ok(plan) => return plan,
            Err(ModelError::Plan(refused)) => memory = Some(refused.needed_bytes()),
            Err(other) => panic!("{other}"),
        }
    }
}

/// [`STEPS`], sampling both greedily and not.
fn steps(model: &mut Model, sampler: &mut Sampler, text: &mut Detokenizer, rows: &mut Vec<Row>) -> usize {
    let mut position = 0;
    let mut length = 0;
    let mut token = 5;
    for count in STEPS.into_iter().flat_map(|(steps, rows)| std::iter::repeat_n(rows, steps)) {
        rows.clear();
        for at in 0..count {
            let token = if count == 1 { token } else { 3 + (position + at) as u32 * 7 % 200 };
            rows.push(Row { lane: 0, token, position: position + at, wants_logits: at + 1 == count });
        }
        sampler.reset(match position % 2 {
            0 => SamplerOptions::greedy(),
            _ => SamplerOptions { seed: position as u64, ..SamplerOptions::default() },
        });
        model.step(rows, &mut |_, logits| token = sampler.sample(logits)).expect("a step succeeds");
        length += text.push(token).len();
        position += count;
    }
    model.snapshot(0);
    model.truncate(0, position - 1);
    model.truncate(0, 0);
    length
}

fn check(path: &Path, io: IoKind, kv: KvFormat, roomy: bool) {
    let gguf = Gguf::open(path).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_metadata(gguf.metadata()).unwrap());
    let blueprint = Blueprint::from_gguf(gguf, &io).unwrap();
    let plan = plan(&blueprint, kv, roomy);
    let mut model = Model::load(blueprint, plan, &mut |_| {}).unwrap();
    model.observe(Some(Box::new(Watcher::default())));
    let mut sampler = Sampler::new(model.config().vocabulary);
    let mut text = Detokenizer::new(tokenizer, ControlTokens::Shown);
    let mut rows = Vec::with_capacity(CHUNK);
    for round in 0..3 {
        let region = Region::new(ALLOCATOR);
        steps(&mut model, &mut sampler, &mut text, &mut rows);
        let change = region.change();
        let counts = (change.allocations, change.deallocations, change.reallocations);
        assert_eq!(counts, (0, 0, 0), "round {round}, {io:?}, {}: {change:?}", path.display());
    }
    let stats = model.pager_stats();
    println!("{}: {} misses, {} evictions, 0 allocations", path.display(), stats.misses, stats.evictions);
}

/// An answer with guesses, from its first token to its last, chosen by the clock or always.
fn check_speculation(path: &Path, when: When) {
    let speculation = SpeculationOptions {
        lookup: when,
        draft: Some(path.to_path_buf()),
        draft_when: when,
        ..SpeculationOptions::default()
    };
    let options = LoadOptions { context: Some(CONTEXT), threads: 2, speculation, ..LoadOptions::default() };
    let mut engine = Engine::load(path, &options, &mut |_, _| {}).unwrap();
    let prompt: Vec<u32> = (0..40).map(|at| 3 + at * 7 % 20).collect();
    for sampling in [SamplerOptions::greedy(), SamplerOptions::default()] {
        engine.clear();
        let mut region = None;
        let mut last = None;
        let mut count = |event: Event<'_>| {
            if let Event::Text { .. } = event {
                let region = region.get_or_insert_with(|| Region::new(ALLOCATOR));
                last = Some(region.change());
            }
            Flow::Continue
        };
        engine.generate(&prompt, 300, sampling, &mut count).unwrap();
        let change = last.expect("an answer has tokens");
        let counts = (change.allocations, change.deallocations, change.reallocations);
        assert_eq!(counts, (0, 0, 0), "{when:?}, {}: {change:?}", path.display());
    }
    let stats = engine.stats();
    let proposed = stats.lookup_proposed + stats.draft_proposed;
    println!("{}: {when:?}, {proposed} guesses, 0 allocations", path.display());
}

#[test]
fn a_step_allocates_and_frees_nothing_on_any_thread() {
    let folder = tempfile::tempdir().unwrap();
    for family in Family::ALL {
        let synth = Synth { layers: 3, types: WeightTypes::mixed(), ..Synth::new(family) };
        let experts = if family.has_experts() { 16 } else { 0 };
        let path = Synth { experts, ..synth }.write(&folder.path().join(format!("{family:?}.gguf"))).unwrap();
        check(&path, IoKind::Auto, KvFormat::F16, false);
        check(&path, IoKind::Plain, KvFormat::Q8_0, false);
        check(&path, IoKind::Auto, KvFormat::Bf16, true);
        let faults = SimConfig {
            reorder: true,
            delay_steps_max: 9,
            short_per_mille: 200,
            transient_per_mille: 50,
            transient_times: 1,
            rest_ms: 1,
            ..SimConfig::default()
        };
        check(&path, IoKind::Simulated(faults), KvFormat::F32, false);
        // A state cannot take guesses back.
        if family != Family::Lfm2 {
            check_speculation(&path, When::Auto);
            check_speculation(&path, When::Always);
        }
    }
}
