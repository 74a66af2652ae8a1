//! A conversation with a model that carries a state goes on from what the lane holds, or from a snapshot near
//! the end of an earlier prompt; nothing before that is computed again, and the answer is the same.

use std::path::{Path, PathBuf};

use adit_engine::{Answer, Engine, EngineError, LoadOptions, SamplerOptions, SpeculationOptions, When};
use adit_format::synth::{Family, Synth};

const ANSWER: usize = 24;
/// Where snapshots stand, and how far from a prompt's end they stand at least.
const BLOCK: usize = 64;
const TAIL: usize = 8;

fn model(folder: &Path) -> PathBuf {
    let synth = Synth { layers: 4, context: 4096, ..Synth::new(Family::Lfm2) };
    synth.write(&folder.join("lfm2.gguf")).unwrap()
}

fn options() -> LoadOptions {
    LoadOptions { threads: 2, chunk: Some(96), context: Some(4096), ..LoadOptions::default() }
}

fn load(path: &Path) -> Engine {
    Engine::load(path, &options(), &mut |_, _| {}).unwrap()
}

fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|at| (5 + (at * at * 13 + at * 7 + seed * 101) % 200) as u32).collect()
}

fn answer(engine: &mut Engine, prompt: &[u32]) -> Answer {
    engine.generate(prompt, ANSWER, SamplerOptions::greedy(), &mut |_| adit_engine::Flow::Continue).unwrap()
}

/// What the prompt is answered with, and how many of its tokens were computed.
fn counted(engine: &mut Engine, prompt: &[u32]) -> (Vec<u32>, usize) {
    let before = engine.stats().prompt_tokens;
    let answer = answer(engine, prompt);
    let computed = (engine.stats().prompt_tokens - before) as usize;
    assert_eq!(computed + answer.reused_tokens, prompt.len());
    (answer.tokens, computed)
}

/// The place of the snapshot that a prompt leaves behind.
fn snapshot(prompt: &[u32]) -> usize {
    (prompt.len() - TAIL) / BLOCK * BLOCK
}

#[test]
fn a_new_message_costs_its_own_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    let first = tokens(2000, 1);
    let (reply, computed) = counted(&mut engine, &first);
    assert_eq!(computed, 2000);
    // The last token of the reply was drawn, not computed.
    let message = tokens(50, 2);
    let second = [&first[..], &reply, &message].concat();
    let (resumed, computed) = counted(&mut engine, &second);
    assert_eq!(computed, 1 + message.len());
    assert_eq!(engine.stats().prompt_tokens_again, 0);
    assert_eq!(resumed, answer(&mut load(&path), &second).tokens, "all computed anew gives another answer");
}

#[test]
fn a_reply_that_is_dropped_or_edited_costs_what_is_behind_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    let first = tokens(2000, 1);
    let (reply, _) = counted(&mut engine, &first);
    let mut edited = reply.clone();
    edited[3] += 1;
    for reply in [&[][..], &edited] {
        let second = [&first[..], reply, &tokens(40, 3)].concat();
        let (resumed, computed) = counted(&mut engine, &second);
        assert_eq!(computed, second.len() - snapshot(&first));
        assert_eq!(resumed, answer(&mut load(&path), &second).tokens);
    }
    // The end of a prompt, where an answer's head may be rendered otherwise.
    let head = [&first[..first.len() - TAIL], &tokens(30, 4)].concat();
    let (resumed, computed) = counted(&mut engine, &head);
    assert_eq!(computed, head.len() - snapshot(&first));
    assert_eq!(resumed, answer(&mut load(&path), &head).tokens);
    assert!(engine.stats().prompt_tokens_again > 0);
}

#[test]
fn the_snapshot_of_the_turn_before_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    let first = tokens(500, 1);
    let (reply, _) = counted(&mut engine, &first);
    let second = [&first[..], &reply, &tokens(300, 2)].concat();
    counted(&mut engine, &second);
    // Another second message.
    let other = [&first[..], &tokens(300, 5)].concat();
    let (resumed, computed) = counted(&mut engine, &other);
    assert_eq!(computed, other.len() - snapshot(&first));
    assert_eq!(resumed, answer(&mut load(&path), &other).tokens);
}

#[test]
fn a_short_message_leaves_a_snapshot_before_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let mut engine = load(&path);
    let first = tokens(200, 1);
    let (reply, _) = counted(&mut engine, &first);
    let held = first.len() + reply.len() - 1;
    let second = [&first[..], &reply, &tokens(5, 2)].concat();
    let (reply, computed) = counted(&mut engine, &second);
    assert_eq!(computed, second.len() - held);
    let dropped = [&second[..], &tokens(6, 3)].concat();
    assert!(!reply.starts_with(&dropped[second.len()..]));
    let (resumed, computed) = counted(&mut engine, &dropped);
    assert_eq!(computed, dropped.len() - held);
    assert_eq!(resumed, answer(&mut load(&path), &dropped).tokens);
}

#[test]
fn guesses_are_refused_where_asked_for_and_left_out_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let always = SpeculationOptions { lookup: When::Always, ..SpeculationOptions::default() };
    let with_draft = SpeculationOptions { draft: Some(path.clone()), ..SpeculationOptions::default() };
    for speculation in [always, with_draft] {
        let refused = Engine::load(&path, &LoadOptions { speculation, ..options() }, &mut |_, _| {});
        assert!(matches!(refused, Err(EngineError::GuessesWithState)));
    }
    let plain = Synth::new(Family::Qwen3).write(&folder.path().join("qwen3.gguf")).unwrap();
    let speculation = SpeculationOptions { draft: Some(path), ..SpeculationOptions::default() };
    let refused = Engine::load(&plain, &LoadOptions { speculation, ..options() }, &mut |_, _| {});
    assert!(matches!(refused, Err(EngineError::DraftWithState { .. })));
    let mut engine = load(folder.path().join("lfm2.gguf").as_path());
    answer(&mut engine, &tokens(100, 1).repeat(3));
    assert_eq!(engine.stats().lookup_proposed, 0);
}
