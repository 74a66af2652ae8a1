//! `--heat` and `--pin`: what a run leaves for the next one, and what a damaged file does, which is nothing.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::{Home, Said, said};

const LONG: [&str; 8] = ["run", "tiny.gguf", "-p", "Once upon a time", "--temp", "0", "-n", "60"];

/// A model of three layers of 64 experts, and memory for a few of them.
fn home() -> (Home, String) {
    let home = Home::new();
    let synth = Synth { layers: 3, experts: 64, ..Synth::new(Family::Qwen3Moe) };
    synth.write(&home.path("tiny.gguf")).unwrap();
    let refused = home.run(&["plan", "tiny.gguf", "-c", "128", "--memory", "1M"]).failed(1);
    let needed: u64 =
        refused.split("raise --memory to ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
    (home, format!("{}MiB", needed + 5))
}

fn run(home: &Home, memory: &str, extra: &[&str]) -> Said {
    home.run(&[&LONG[..], &["-c", "128", "--raw", "--memory", memory], extra].concat())
}

fn heat_files(home: &Home) -> Vec<PathBuf> {
    let folder = fs::read_dir(home.path("cache/heat"));
    folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_run_is_remembered_if_it_is_long_enough_and_nobody_forbids_it() {
    let (home, memory) = home();
    let answer = run(&home, &memory, &["--heat", "off"]).fine();
    let short = [&LONG[..7], &["5", "-c", "128", "--raw", "--memory", &memory]].concat();
    home.run(&short).fine();
    assert!(heat_files(&home).is_empty(), "nothing is known from so few tokens");
    assert_eq!(run(&home, &memory, &[]).fine(), answer);
    let files = heat_files(&home);
    let [file] = &files[..] else { panic!("{files:?}") };
    let first = fs::read(file).unwrap();
    assert_eq!(first.len(), 52 + 2 * 3 * 64 + 32);
    let again = run(&home, &memory, &[]);
    assert_eq!((&again.stdout, &again.stderr[..]), (&answer, ""));
    assert_ne!(fs::read(file).unwrap(), first, "the second run counts as well");
    assert_eq!(run(&home, &memory, &["--heat", "off"]).fine(), answer);
    assert_eq!(heat_files(&home), files);
}

#[test]
fn a_damaged_heat_file_is_told_of_once_ignored_and_made_anew() {
    let (home, memory) = home();
    let answer = run(&home, &memory, &[]).fine();
    let file = heat_files(&home).remove(0);
    let good = fs::read(&file).unwrap();
    let long = [&good[..], &[0; 100_000]].concat();
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    for bad in [&flipped[..], &long, &[], b"something else"] {
        fs::write(&file, bad).unwrap();
        let said = run(&home, &memory, &[]);
        assert_eq!((said.code, &said.stdout), (Some(0), &answer));
        assert!(said.stderr.lines().count() == 1 && said.stderr.contains("it is ignored"), "{said:?}");
        assert_eq!(fs::read(&file).unwrap(), good, "as after the first run");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let said = run(&home, &memory, &[]);
    assert_eq!((said.code, &said.stdout), (Some(0), &answer), "{said:?}");
}

#[test]
fn pins_change_no_answer_and_what_cannot_be_pinned_is_refused_with_numbers() {
    let (home, memory) = home();
    let nothing = run(&home, &memory, &["--pin", "heat:8"]).failed(1);
    assert!(nothing.contains("nothing is known of earlier runs"), "{nothing}");
    let answer = run(&home, &memory, &[]).fine();
    fs::write(home.path("pins"), "# some\n0 1 2 3\n2 63\n").unwrap();
    for pins in ["pins", "heat:8"] {
        assert_eq!(run(&home, &memory, &["--pin", pins]).fine(), answer, "{pins}");
    }
    let refused = |plan: &str| {
        fs::write(home.path("pins"), plan).unwrap();
        run(&home, &memory, &["--pin", "pins"]).failed(1)
    };
    for (plan, told) in [
        ("3 1", "layer 3 has no experts to pin"),
        ("0 64", "layer 0 has no expert 64 to pin; it has 64"),
        ("0 1 1", "expert 1 of layer 0 is pinned twice"),
        ("0 one", "pins: line 1: \"one\" is no whole number"),
    ] {
        let error = refused(plan);
        assert!(error.contains(told), "{error}");
    }
    let all: Vec<String> = (0..64).map(|expert| expert.to_string()).collect();
    let all = all.join(" ");
    let error = refused(&format!("0 {all}\n1 {all}\n2 {all}"));
    assert!(error.contains("192 experts are to be pinned, but memory holds"), "{error}");
    let off = run(&home, &memory, &["--pin", "heat:8", "--heat", "off"]).failed(2);
    assert!(off.contains("--heat is off"), "{off}");
}

#[test]
fn a_conversation_that_begins_warm_gives_the_same_answers() {
    let (home, memory) = home();
    let talk = |heat: &str| {
        let mut command = home.command();
        command.args(["run", "tiny.gguf", "--temp", "0", "-n", "40", "-c", "128", "--memory", &memory]);
        command.args(["--heat", heat, "--stats", "s.json"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Who?\nWhy?\n").unwrap();
        said(child.wait_with_output().unwrap()).fine()
    };
    let answers = talk("off");
    assert!((0..3).all(|_| talk("on") == answers));
    let stats: Value = serde_json::from_slice(&fs::read(home.path("s.json")).unwrap()).unwrap();
    let (read, slots) = (stats["experts_prewarmed"].as_u64().unwrap(), stats["slots"].as_u64().unwrap());
    assert!(read <= slots, "no more than there are free slots: {stats}");
}
