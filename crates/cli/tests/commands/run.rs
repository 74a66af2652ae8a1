//! `adit run`: one answer on stdout, or a conversation typed into a pipe.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::{Home, Said, said};

fn home_with(family: Family) -> Home {
    let home = Home::new();
    Synth::new(family).write(&home.path("tiny.gguf")).unwrap();
    home
}

/// Types `lines` into a conversation and closes it.
fn typed(home: &Home, arguments: &[&str], lines: &[&str]) -> Said {
    let mut command = home.command();
    command.args(["run", "tiny.gguf", "--temp", "0"]).args(arguments);
    let pipes = Stdio::piped;
    let mut child = command.stdin(pipes()).stdout(pipes()).stderr(pipes()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    said(child.wait_with_output().unwrap())
}

fn stats(home: &Home) -> Value {
    serde_json::from_slice(&fs::read(home.path("stats.json")).unwrap()).unwrap()
}

#[test]
fn an_answer_is_all_that_stdout_gets_and_it_is_the_same_in_every_budget() {
    let home = home_with(Family::Qwen3Moe);
    let answer = |extra: &[&str]| {
        let mut arguments = vec!["run", "tiny.gguf", "-p", "Who goes there?", "-n", "12", "--temp", "0"];
        arguments.extend(extra);
        let said = home.run(&arguments);
        assert_eq!(said.stderr, "", "{said:?}");
        said.fine()
    };
    let expected = answer(&[]);
    assert!(expected.len() > 1 && expected.ends_with('\n'), "{expected:?}");
    for extra in [&["--memory", "40M"][..], &["-t", "1"], &["-c", "64"], &["--io", "plain"]] {
        assert_eq!(answer(extra), expected, "{extra:?}");
    }
    assert_ne!(answer(&["--raw"]), expected, "the template makes no difference");
}

#[test]
fn guesses_change_no_answer_and_are_counted() {
    let home = home_with(Family::Qwen3Moe);
    Synth { seed: 2, ..Synth::new(Family::Qwen3Moe) }.write(&home.path("other.gguf")).unwrap();
    let answer = |extra: &[&str]| {
        let flags = ["run", "tiny.gguf", "-p", "Who goes there?", "-n", "60", "--seed", "3"];
        home.run(&[&flags[..], &["--stats", "stats.json"], extra].concat()).fine()
    };
    let expected = answer(&["--lookup", "off"]);
    assert_eq!(stats(&home)["lookup_proposed"], 0);
    assert_eq!(answer(&["--lookup", "on"]), expected);
    let counted = stats(&home);
    assert!(counted["lookup_proposed"].as_u64() >= counted["lookup_accepted"].as_u64(), "{counted}");
    assert!(counted["lookup_steps"].as_u64() > Some(0), "{counted}");
    for extra in [&["--draft", "other.gguf"][..], &["--draft", "tiny.gguf", "--draft-max", "2"]] {
        assert_eq!(answer(extra), expected, "{extra:?}");
        assert!(stats(&home)["draft_switched_off"].is_number());
    }
    let plan = home.run(&["plan", "tiny.gguf", "--draft", "other.gguf"]).fine();
    assert!(plan.lines().any(|line| line.starts_with("draft ")), "{plan}");
    Synth::new(Family::Gemma3).write(&home.path("stranger.gguf")).unwrap();
    let refused = home.run(&["run", "tiny.gguf", "-p", "Hello", "--draft", "stranger.gguf"]).failed(1);
    assert!(refused.contains("stranger.gguf") && refused.contains("vocabulary"), "{refused}");
}

#[test]
fn a_seed_makes_an_answer_repeatable() {
    let home = home_with(Family::Llama);
    let answer = |seed: &str| {
        home.run(&["run", "tiny.gguf", "-p", "Hello", "-n", "24", "--temp", "1.5", "--seed", seed]).fine()
    };
    assert_eq!(answer("7"), answer("7"));
    assert_ne!(answer("7"), answer("8"));
}

#[test]
fn a_prompt_may_come_from_a_file_or_from_standard_input() {
    let home = home_with(Family::Llama);
    let flags = ["run", "tiny.gguf", "-n", "8", "--temp", "0"];
    fs::write(home.path("prompt.txt"), "-- of the sea").unwrap();
    let expected = home.run(&[&flags[..], &["-p", "-- of the sea"]].concat()).fine();
    assert_eq!(home.run(&[&flags[..], &["-f", "prompt.txt"]].concat()).fine(), expected);
    let file = fs::File::open(home.path("prompt.txt")).unwrap();
    let piped = home.command().args(flags).args(["-f", "-"]).stdin(file).output().unwrap();
    assert_eq!(said(piped).fine(), expected);
}

#[test]
fn the_counters_have_the_names_that_scripts_rely_on() {
    let home = home_with(Family::LlamaMoe);
    home.run(&["run", "tiny.gguf", "-p", "Hello", "-n", "5", "--temp", "0", "--stats", "stats.json"]).fine();
    let stats = stats(&home);
    let keys = "decode_tok_per_s prefill_tok_per_s prompt_tokens generated_tokens bytes_read expert_hits \
        expert_misses hints_issued hints_used io_wait_s compute_s peak_rss_bytes memory_budget_bytes";
    for key in keys.split_whitespace() {
        assert!(stats[key].is_number(), "{key} is not in {stats}");
    }
    assert_eq!(stats["generated_tokens"], 5);
    assert!(stats["expert_misses"].as_u64() > Some(0), "{stats}");
}

#[test]
fn a_conversation_is_saved_and_loaded_and_never_overwrites() {
    let home = home_with(Family::Llama);
    let first =
        typed(&home, &["-n", "6"], &["Hello \\", "there", "/save talk.json", "/save talk.json", "/nonsense"]);
    assert!(first.stderr.contains("not saved") && first.stderr.contains("/nonsense"), "{first:?}");
    let answer = first.fine();
    let saved = fs::read(home.path("talk.json")).unwrap();
    let talk: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(talk["messages"][0]["content"], "Hello \nthere");
    assert_eq!(talk["messages"][1]["role"], "assistant");
    assert_eq!(
        format!("{}\n", talk["messages"][1]["content"].as_str().unwrap().trim_end_matches('\n')),
        answer
    );

    let again =
        typed(&home, &["-n", "6"], &["/load talk.json", "And now?", "/save more.json", "/bye", "unheard"]);
    assert!(again.stderr.contains("2 messages"), "{again:?}");
    let more: Value = serde_json::from_slice(&fs::read(home.path("more.json")).unwrap()).unwrap();
    assert_eq!(more["messages"].as_array().unwrap().len(), 4);
    assert_eq!(more["messages"][0], talk["messages"][0]);
    assert_eq!(fs::read(home.path("talk.json")).unwrap(), saved);
}

#[test]
fn files_that_are_no_conversations_are_refused_and_the_talk_goes_on() {
    let home = home_with(Family::Llama);
    fs::write(home.path("bad.json"), "{\"messages\": [{\"role\": \"king\", \"content\": \"hi\"}]}").unwrap();
    fs::write(home.path("open.json"), "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}").unwrap();
    let lines = ["/load bad.json", "/load open.json", "/load missing.json", "/load", "Hello"];
    let said = typed(&home, &["-n", "4"], &lines);
    for word in ["bad.json", "never answered", "missing.json", "needs a file name"] {
        assert!(said.stderr.contains(word), "{word} is not in {said:?}");
    }
    assert!(said.fine().len() > 1);
}

#[test]
fn a_turn_computes_its_new_words_only() {
    let home = home_with(Family::Qwen3);
    let long = "the sea and the land and ".repeat(20);
    let flags = ["-n", "10", "--stats", "stats.json"];
    typed(&home, &flags, &[&long]).fine();
    let first = stats(&home)["prompt_tokens"].as_u64().unwrap();
    typed(&home, &flags, &[&long, "and?", "or?"]).fine();
    let all = stats(&home)["prompt_tokens"].as_u64().unwrap();
    assert!(first > 100, "{first}");
    assert!(all > first && all < first + 120, "three turns computed {all} tokens, the first one {first}");
}

#[test]
fn a_question_that_does_not_fit_is_told_and_forgotten() {
    let home = home_with(Family::Llama);
    let long = "word ".repeat(200);
    let error = home.run(&["run", "tiny.gguf", "-c", "128", "-p", &long]).failed(1);
    assert!(error.contains("128") && error.contains("-c"), "{error}");
    let said = typed(&home, &["-c", "128", "-n", "4"], &[&long, "Hi", "/save talk.json"]);
    assert!(said.stderr.contains("128"), "{said:?}");
    said.fine();
    let talk: Value = serde_json::from_slice(&fs::read(home.path("talk.json")).unwrap()).unwrap();
    assert_eq!(talk["messages"][0]["content"], "Hi");
}

#[test]
fn a_full_context_is_told_with_the_way_out_that_there_is() {
    let home = home_with(Family::Llama);
    let hints = |said: &Said| [said.stderr.contains("/clear"), said.stderr.contains("-c")];
    let once = home.run(&["run", "tiny.gguf", "-c", "24", "-p", "a", "--temp", "0"]);
    assert_eq!(hints(&once), [false, true], "{once:?}");
    let talk = typed(&home, &["-c", "24"], &["a"]);
    assert_eq!(hints(&talk), [true, false], "{talk:?}");
    let talk = typed(&home, &["-c", "64"], &[&"word ".repeat(100)]);
    assert_eq!(hints(&talk), [true, true], "{talk:?}");
}

#[test]
fn a_length_of_minus_one_is_no_limit() {
    let home = home_with(Family::Llama);
    let answer = |extra: &[&str]| {
        home.run(&[&["run", "tiny.gguf", "-p", "a", "-c", "40", "--temp", "0"], extra].concat()).fine()
    };
    assert_eq!(answer(&["-n", "-1"]), answer(&[]));
}

#[test]
fn a_context_beyond_what_the_model_was_trained_for_is_told_in_one_line() {
    let home = Home::new();
    Synth { context: 96, ..Synth::new(Family::Llama) }.write(&home.path("tiny.gguf")).unwrap();
    for command in [&["run", "tiny.gguf", "-p", "a", "-n", "2"][..], &["plan", "tiny.gguf"]] {
        let with = |context| home.run(&[command, &["-c", context]].concat());
        assert_eq!(with("96").stderr, "");
        let beyond = with("97");
        assert!(beyond.stderr.lines().count() == 1 && beyond.stderr.contains("96 tokens"), "{beyond:?}");
        beyond.fine();
    }
}

#[test]
fn counters_that_cannot_be_written_are_refused_before_the_answer() {
    let home = home_with(Family::Llama);
    fs::create_dir(home.path("folder")).unwrap();
    for path in ["missing/stats.json", "folder"] {
        let error = home.run(&["run", "tiny.gguf", "-p", "a", "-n", "2", "--stats", path]).failed(1);
        assert!(error.contains("cannot write") && error.contains(path), "{error}");
    }
    assert_eq!(fs::read_dir(home.path("folder")).unwrap().count(), 0);
}

#[test]
fn clearing_begins_anew() {
    let home = home_with(Family::Llama);
    let said = typed(&home, &["-n", "6"], &["Hello", "/clear", "Hello"]).fine();
    let (first, second) = said.split_at(said.len() / 2);
    assert_eq!(first, second);
}

#[test]
fn nonsense_is_wrong_usage() {
    let home = home_with(Family::Llama);
    let bad: [&[&str]; 13] = [
        &["-p", "a", "-f", "b"],
        &["-p", "a", "--temp", "NaN"],
        &["-p", "a", "--temp", "-1"],
        &["-p", "a", "--top-p", "-0.5"],
        &["-p", "a", "--top-k", "-2"],
        &["-p", "a", "-n", "-2"],
        &["-p", "a", "--seed", "-1"],
        &["-p", "a", "-c", "-1"],
        &["-p", "a", "--top-p", "1.5"],
        &["-p", "a", "--min-p", "x"],
        &["-p", "a", "-n", "many"],
        &["-p", "a", "--memory", "0"],
        &["-p", "a", "-t", "0"],
    ];
    for arguments in bad {
        let error = home.run(&[&["run", "tiny.gguf"], arguments].concat()).failed(2);
        assert!(!error.contains("tip:"), "a flag was taken for another: {error}");
    }
    let unread = home.run(&["run", "tiny.gguf", "-f", "missing.txt"]).failed(1);
    assert!(unread.contains("missing.txt"), "{unread}");
}

#[test]
fn damaged_weights_end_in_an_error_and_not_in_an_empty_answer() {
    let home = Home::new();
    let model = Synth { tied: true, ..Synth::new(Family::Llama).of_type(adit_format::TensorType::F32) };
    model.write(&home.path("tiny.gguf")).unwrap();
    let mut bytes = fs::read(home.path("tiny.gguf")).unwrap();
    // In the last layer's weights every value becomes a NaN.
    let end = bytes.len() - 4096;
    bytes[end - 40_000..end].fill(0xff);
    fs::write(home.path("tiny.gguf"), bytes).unwrap();
    let refused = home.run(&["run", "tiny.gguf", "-p", "Who?", "-n", "4"]).failed(1);
    assert!(refused.contains("no number"), "{refused}");
    let said = typed(&home, &["-n", "4"], &["Who?", "Why?"]).failed(1);
    assert!(said.contains("2 of 2 questions were not answered"), "{said}");
}
