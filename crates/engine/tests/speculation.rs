//! Guesses change the speed, never the answer: token by token, event by event, and what the lane holds.

use std::path::{Path, PathBuf};

use adit_engine::{
    Answer, Engine, EngineError, Event, Finish, Flow, LoadOptions, SamplerOptions, SpeculationOptions, When,
};
use adit_format::synth::{Family, Synth, Vocabulary, WeightTypes};
use adit_model::{IoKind, ModelError, SimConfig};

const ANSWER: usize = 48;

fn model(folder: &Path, family: Family, seed: u64) -> PathBuf {
    let experts = if family.has_experts() { 16 } else { 0 };
    let synth = Synth { seed, experts, types: WeightTypes::mixed(), ..Synth::new(family) };
    let path = folder.join(format!("{family:?}-{seed}.gguf"));
    if path.exists() { path } else { synth.write(&path).unwrap() }
}

/// Loads within the smallest budget that the plan accepts, or within a large one.
fn load(path: &Path, mut options: LoadOptions, roomy: bool) -> Engine {
    options.context = options.context.or(Some(256));
    options.memory = if roomy { None } else { Some(1) };
    loop {
        match Engine::load(path, &options, &mut |_, _| {}) {
            Ok(engine) => return engine,
            Err(EngineError::Model(ModelError::Plan(refused))) => {
                options.memory = Some(refused.needed_bytes());
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn options(speculation: SpeculationOptions) -> LoadOptions {
    LoadOptions { threads: 2, chunk: Some(16), speculation, ..LoadOptions::default() }
}

fn always(draft: Option<&Path>, guesses_max: usize) -> SpeculationOptions {
    SpeculationOptions {
        lookup: if draft.is_some() { When::Never } else { When::Always },
        draft: draft.map(Path::to_path_buf),
        draft_when: When::Always,
        guesses_max,
    }
}

/// What a caller sees of one answer: tokens, why it ended, every piece of text, and the lane afterwards.
type Seen = (Vec<u32>, Finish, Vec<String>, usize);

fn answer(engine: &mut Engine, prompt: &[u32], most: usize, sampling: SamplerOptions) -> Seen {
    stopped(engine, prompt, most, sampling, usize::MAX)
}

/// As [`answer`], by a caller that says stop at the text event number `stop`.
fn stopped(engine: &mut Engine, prompt: &[u32], most: usize, sampling: SamplerOptions, stop: usize) -> Seen {
    let mut pieces = Vec::new();
    let answer = engine.generate(prompt, most, sampling, &mut |event| {
        if let Event::Text { text, .. } = event {
            pieces.push(text.to_owned());
        }
        if pieces.len() >= stop { Flow::Stop } else { Flow::Continue }
    });
    let Answer { tokens, finish, .. } = answer.unwrap();
    (tokens, finish, pieces, engine.model().lane_len(0))
}

fn prompt() -> Vec<u32> {
    (0..20).map(|at| 5 + at * 7 % 10).collect()
}

fn sampled(seed: u64) -> SamplerOptions {
    SamplerOptions { temperature: 0.7, seed, ..SamplerOptions::default() }
}

#[test]
fn every_proposer_number_of_guesses_and_budget_gives_the_same_answer() {
    let folder = tempfile::tempdir().unwrap();
    for family in [Family::Llama, Family::Gemma3, Family::Qwen3Moe] {
        let path = model(folder.path(), family, 1);
        let (alike, other) = (path.clone(), model(folder.path(), family, 2));
        let mut plain = load(&path, options(SpeculationOptions::off()), true);
        let wanted = [SamplerOptions::greedy(), sampled(3)]
            .map(|sampling| answer(&mut plain, &prompt(), ANSWER, sampling));
        let mut accepted = 0;
        for (draft, guesses, threads, roomy) in [
            (None, 8, 2, true),
            (None, 3, 1, false),
            (Some(&alike), 8, 2, false),
            (Some(&alike), 1, 1, true),
            (Some(&other), 5, 2, false),
        ] {
            let speculation = always(draft.map(PathBuf::as_path), guesses);
            let mut engine = load(&path, LoadOptions { threads, ..options(speculation) }, roomy);
            let seen = [SamplerOptions::greedy(), sampled(3)]
                .map(|sampling| answer(&mut engine, &prompt(), ANSWER, sampling));
            assert_eq!(seen, wanted, "{family:?}, draft {draft:?}, {guesses} guesses, {threads} threads");
            let stats = engine.stats();
            accepted += stats.lookup_accepted + stats.draft_accepted;
            assert!(stats.lookup_proposed + stats.draft_proposed > 0);
        }
        assert!(accepted > 0, "{family:?}: not one guess came through, so this shows nothing");
    }
}

#[test]
fn accounts_that_decide_by_the_clock_give_the_same_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::Qwen3Moe, 1);
    let mut plain = load(&path, options(SpeculationOptions::off()), false);
    let draft = Some(path.clone());
    let mut engine = load(&path, options(SpeculationOptions { draft, ..Default::default() }), false);
    for seed in 0..4 {
        let sampling = if seed == 0 { SamplerOptions::greedy() } else { sampled(seed) };
        let (expected, seen) =
            (answer(&mut plain, &prompt(), 120, sampling), answer(&mut engine, &prompt(), 120, sampling));
        assert_eq!(seen, expected, "seed {seed}");
    }
}

#[test]
fn an_answer_ends_where_plain_decoding_ends_it_and_leaves_the_same_lane() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::LlamaMoe, 1);
    let small = |speculation| LoadOptions { context: Some(48), ..options(speculation) };
    let mut plain = load(&path, small(SpeculationOptions::off()), true);
    let mut engine = load(&path, small(always(Some(&path), 8)), true);
    let greedy = SamplerOptions::greedy();
    for most in [1, 2, 3, 5, 9, 10, 27, 28, 29, 40] {
        let expected = answer(&mut plain, &prompt(), most, greedy);
        assert_eq!(answer(&mut engine, &prompt(), most, greedy), expected, "at most {most} tokens");
    }
    assert_eq!(answer(&mut engine, &prompt(), 99, greedy).1, Finish::ContextFull);
    for stop in 1..14 {
        let expected = stopped(&mut plain, &prompt(), 20, greedy, stop);
        let seen = stopped(&mut engine, &prompt(), 20, greedy, stop);
        assert_eq!(seen, expected, "stopped at event {stop}");
        assert_eq!(seen.1, Finish::Stopped);
    }
    // A next turn goes on from what the lane holds.
    let first = answer(&mut plain, &prompt(), 6, greedy);
    answer(&mut engine, &prompt(), 6, greedy);
    let next = [&prompt()[..], &first.0, &[9, 8, 7]].concat();
    assert_eq!(answer(&mut engine, &next, 6, greedy), answer(&mut plain, &next, 6, greedy));
}

#[test]
fn a_guess_at_the_end_of_the_turn_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::Llama, 1);
    let mut plain = load(&path, options(SpeculationOptions::off()), true);
    let mut engine = load(&path, options(always(Some(&path), 8)), true);
    let hot = |seed| SamplerOptions { temperature: 20.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed };
    let mut ended = 0;
    for seed in 0..12 {
        let expected = answer(&mut plain, &prompt(), 60, hot(seed));
        assert_eq!(answer(&mut engine, &prompt(), 60, hot(seed)), expected, "seed {seed}");
        ended += u32::from(expected.1 == Finish::EndOfTurn);
    }
    assert!(ended > 0, "no answer ended by itself, so this shows nothing");
}

#[test]
fn a_disk_that_fails_for_a_guess_fails_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::Qwen3Moe, 1);
    let faults = |seed| SimConfig {
        seed,
        reorder: true,
        short_per_mille: 200,
        transient_per_mille: 100,
        transient_times: 2,
        ..SimConfig::default()
    };
    let mut plain = load(&path, options(SpeculationOptions::off()), true);
    let expected = answer(&mut plain, &prompt(), ANSWER, SamplerOptions::greedy());
    for seed in 1..4 {
        let io = IoKind::Simulated(faults(seed)).into();
        let mut engine = load(&path, LoadOptions { io, ..options(always(None, 8)) }, false);
        assert_eq!(answer(&mut engine, &prompt(), ANSWER, SamplerOptions::greedy()), expected, "seed {seed}");
    }
}

/// Two-sample chi-square over the tokens at one place; tokens seen fewer than 10 times count as one.
fn chi_square(one: &[u32], other: &[u32]) -> (f64, usize) {
    let mut tokens: Vec<u32> = one.iter().chain(other).copied().collect();
    tokens.sort_unstable();
    tokens.dedup();
    let count = |sample: &[u32], token| sample.iter().filter(|&&seen| seen == token).count() as f64;
    let mut cells: Vec<[f64; 2]> = Vec::new();
    let mut rare = [0.0; 2];
    for token in tokens {
        let cell = [count(one, token), count(other, token)];
        match cell[0] + cell[1] >= 10.0 {
            true => cells.push(cell),
            false => rare = [rare[0] + cell[0], rare[1] + cell[1]],
        }
    }
    if rare[0] + rare[1] >= 10.0 {
        cells.push(rare);
    }
    let statistic = |[a, b]: &[f64; 2]| (a - b).powi(2) / (a + b);
    (cells.iter().map(statistic).sum(), cells.len() - 1)
}

#[test]
fn speculative_and_plain_answers_come_from_the_same_distribution() {
    const RUNS: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::LlamaMoe, 1);
    let sampling = |seed| SamplerOptions { temperature: 2.0, top_k: 4, top_p: 1.0, min_p: 0.0, seed };
    let draws = |speculation, seeds: std::ops::Range<u64>| {
        let mut engine = load(&path, options(speculation), true);
        let answers: Vec<_> = seeds.map(|seed| answer(&mut engine, &prompt(), 4, sampling(seed)).0).collect();
        (answers, engine.stats())
    };
    // Other seeds for each, or the answers would be the same.
    let (plain, _) = draws(SpeculationOptions::off(), 0..RUNS);
    let (speculative, stats) = draws(always(Some(&path), 3), RUNS..2 * RUNS);
    assert!(stats.draft_accepted > RUNS / 4 && stats.draft_accepted < stats.draft_proposed, "{stats:?}");
    for place in 1..4 {
        let at = |answers: &[Vec<u32>]| -> Vec<u32> {
            answers.iter().filter_map(|tokens| tokens.get(place).copied()).collect()
        };
        let (statistic, freedom) = chi_square(&at(&plain), &at(&speculative));
        // Mean and deviation of the distribution; 4 deviations are crossed once in some thousand tries.
        let most = freedom as f64 + 4.0 * (2.0 * freedom as f64).sqrt();
        assert!(freedom >= 3 && statistic < most, "place {place}: {statistic:.1} of {freedom} degrees");
    }
}

#[test]
fn a_draft_with_another_vocabulary_is_refused_by_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::Llama, 1);
    let message = |draft: &Path| {
        let refused = Engine::load(&path, &options(always(Some(draft), 8)), &mut |_, _| {});
        refused.err().expect("it is refused").to_string()
    };
    let other = model(folder.path(), Family::Gemma3, 1);
    let size = message(&other);
    assert!(size.contains("Gemma3-1.gguf") && size.contains("tokens, the model"), "{size}");
    let none = Synth { vocabulary: Vocabulary::Absent(281), ..Synth::new(Family::Llama) };
    let none = none.write(&folder.path().join("none.gguf")).unwrap();
    assert!(message(&none).contains("tokenizer.ggml.tokens"), "{}", message(&none));
    let missing = message(&folder.path().join("missing.gguf"));
    assert!(missing.contains("draft model") && missing.contains("missing.gguf"), "{missing}");
}

#[test]
fn a_draft_is_a_term_of_the_plan_and_is_refused_where_it_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path(), Family::Qwen3Moe, 1);
    let engine = load(&path, options(always(Some(&path), 8)), false);
    let plan = engine.plan();
    let draft = plan.terms.iter().find(|term| term.name == "draft").expect("a term of its own");
    assert!(draft.bytes > 1 << 20 && plan.total_bytes() <= plan.budget, "{plan:?}");
    let tight = LoadOptions {
        memory: Some(plan.total_bytes() - draft.bytes / 2),
        context: Some(256),
        ..options(always(Some(&path), 8))
    };
    let refused = Engine::load(&path, &tight, &mut |_, _| {}).err().expect("it is refused").to_string();
    assert!(refused.contains("draft") && refused.contains("--memory"), "{refused}");
}
