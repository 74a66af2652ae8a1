//! `--trace`: what a run did, as a file that `adit simulate` and a script in Python read.

use std::fs;
use std::path::Path;
use std::process::Command;

use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::{Home, said};

/// Tokens, those of prompts, layers, experts, and those of a token, in the golden trace.
const GOLDEN: [u64; 5] = [2, 13, 3, 192, 6];
/// Misses of LRU and the optimum for a token of it.
const GOLDEN_MISSES: [f64; 2] = [5.5, 4.5];

const RUN: [&str; 11] =
    ["run", "tiny.gguf", "-p", "Once upon a time", "-n", "20", "--temp", "0", "-c", "64", "--raw"];

/// A model of many experts, and memory for a few of them.
fn home() -> (Home, String) {
    let home = Home::new();
    let synth = Synth { layers: 3, experts: 64, ..Synth::new(Family::Qwen3Moe) };
    synth.write(&home.path("tiny.gguf")).unwrap();
    let refused = home.run(&["plan", "tiny.gguf", "-c", "64", "--memory", "1M"]).failed(1);
    let needed: u64 =
        refused.split("raise --memory to ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
    (home, format!("{}MiB", needed + 5))
}

fn json(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&home.run(arguments).fine()).unwrap()
}

#[test]
fn a_trace_changes_no_answer_and_tells_what_the_counters_tell() {
    let (home, memory) = home();
    let answer = home.run(&[&RUN[..], &["--memory", &memory]].concat()).fine();
    // What a hint has brought is resident to a trace, and a miss to the counters.
    let traced =
        [&RUN[..], &["--memory", &memory, "--trace", "t", "--stats", "s.json", "--scouts", "none"]].concat();
    assert_eq!(home.run(&traced).fine(), answer);
    let stats: Value = serde_json::from_slice(&fs::read(home.path("s.json")).unwrap()).unwrap();
    let (hits, misses) = (stats["expert_hits"].as_u64().unwrap(), stats["expert_misses"].as_u64().unwrap());
    assert!(hits > 0 && misses > 0, "{stats}");
    let out = said(python(&home, &["t"]));
    let reader = out.fine();
    let sum = |place: usize| -> u64 {
        let lines = reader.lines().skip(1).map(|line| line.split(": ").nth(1).unwrap());
        lines.map(|line| line.split(' ').nth(place).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum(0), sum(2)), (hits, hits + misses), "{reader}");
    let bytes =
        reader.lines().skip(1).map(|line| line.split(", ").nth(2).unwrap().split(' ').nth(1).unwrap());
    let bytes: Vec<&str> = bytes.collect();
    assert!(!bytes.is_empty(), "{reader}");
    let tokens = json(&home, &["simulate", "t", "-o", "json"])["cases"][0]["tokens"].as_u64().unwrap();
    assert_eq!(tokens + 1, stats["generated_tokens"].as_u64().unwrap(), "the first comes out of the prompt");
}

/// Runs the reader that strangers get.
fn python(home: &Home, arguments: &[&str]) -> std::process::Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/read_trace.py");
    let mut command = Command::new("python3");
    command.arg(script).args(arguments).current_dir(home.path(""));
    command.output().expect("python3 is there")
}

#[test]
fn the_same_slots_and_policy_hit_what_the_run_hit() {
    let (home, memory) = home();
    let more = ["--memory", &memory, "--trace", "t", "--stats", "s.json", "--scouts", "none"];
    home.run(&[&RUN[..], &more].concat()).fine();
    let header = said(python(&home, &["t"])).fine();
    let slots =
        header.lines().next().unwrap().split(", ").nth(2).unwrap().split(' ').next().unwrap().to_owned();
    let stats: Value = serde_json::from_slice(&fs::read(home.path("s.json")).unwrap()).unwrap();
    let asked = ["simulate", "t", "--slots", &slots, "--policy", "default", "-o", "json"];
    let case = json(&home, &asked)["cases"][0].clone();
    let line = &case["policies"][0];
    let tokens = case["tokens"].as_f64().unwrap();
    let read = line["prefill_gb"].as_f64().unwrap() + line["gb_per_token"].as_f64().unwrap() * tokens;
    let was = stats["bytes_read"].as_f64().unwrap() / 1e9;
    assert!((read / was - 1.0).abs() < 0.02, "{read} GB simulated, {was} GB read");
    assert!(case["compute_ms"].as_f64().unwrap() > 0.0);
    assert!(line["expected_tok_per_s"].as_f64() >= line["pessimistic_tok_per_s"].as_f64());
}

#[test]
fn memory_means_the_same_to_simulate_as_to_plan() {
    let (home, memory) = home();
    home.run(&[&RUN[..], &["--trace", "t"]].concat()).fine();
    let plan = home.run(&["plan", "tiny.gguf", "-c", "64", "--memory", &memory]).fine();
    let line = plan.lines().find(|line| line.starts_with("slots ")).unwrap();
    let planned: f64 =
        line.split("MiB").nth(1).unwrap().split(" of ").next().unwrap().trim().parse().unwrap();
    let case = json(&home, &["simulate", "t", "--memory", &memory, "-o", "json"])["cases"][0].clone();
    // What the process has taken when it plans differs by some pages from run to run and command to command.
    let slot_mib: f64 = line.rsplit(' ').nth(1).unwrap().parse().unwrap();
    let slots = case["slots"].as_f64().unwrap();
    let most = 0.5 / slot_mib + 1.0;
    assert!((slots - planned).abs() <= most, "{slots} slots simulated, {planned} planned: {line}");
    home.run(&["simulate", "t", "--memory", "1M"]).failed(2);
}

#[test]
fn a_file_that_is_there_stays_as_it_is() {
    let (home, _) = home();
    fs::write(home.path("t"), "mine").unwrap();
    for command in [&RUN[..], &["bench", "tiny.gguf", "-p", "8", "-n", "2"]] {
        let error = home.run(&[command, &["--trace", "t"]].concat()).failed(2);
        assert!(error.contains("exists"), "{error}");
    }
    assert_eq!(fs::read(home.path("t")).unwrap(), b"mine");
    home.run(&[&RUN[..], &["--trace", "nowhere/t"]].concat()).failed(1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_trace_but_not_the_answer() {
    let (home, _) = home();
    let answer = home.run(&RUN).fine();
    let full = home.run(&[&RUN[..], &["--trace", "/dev/full"]].concat());
    assert_eq!((full.code, full.stdout), (Some(1), answer));
    assert!(full.stderr.starts_with("error: ") && full.stderr.contains("/dev/full"), "{}", full.stderr);
}

#[test]
fn a_bench_tells_what_the_optimum_would_have_read() {
    let (home, memory) = home();
    let asked = ["bench", "tiny.gguf", "-p", "8", "-n", "12", "-r", "2", "--memory", &memory, "-o", "json"];
    for extra in [&[][..], &["--trace", "t"]] {
        let report = json(&home, &[&asked[..], extra].concat());
        for test in ["prefill_streaming", "decode_streaming"] {
            let of =
                |key: &str| report[test][key].as_f64().unwrap_or_else(|| panic!("{test} {key}: {report}"));
            assert!(of("optimum_misses_per_token") <= of("misses_per_token"), "{report}");
            assert!(of("optimum_bytes_per_token") > 0.0, "{report}");
        }
    }
    let case = json(&home, &["simulate", "t", "-o", "json"])["cases"][0].clone();
    assert_eq!((case["tokens"].as_u64(), case["prefill_tokens"].as_u64()), (Some(36), Some(24)), "{case}");
    let roomy = json(&home, &["bench", "tiny.gguf", "-p", "8", "-n", "2", "-r", "1", "-o", "json"]);
    assert!(roomy["decode_streaming"].is_null(), "{roomy}");
}

/// Made with `adit run tiny.gguf -p "Once upon a time" -n 3 --temp 0 -c 64 --raw --memory 40M -t 1
/// --trace FILE` of `Synth { layers: 3, experts: 64, ..Synth::new(Family::Qwen3Moe) }`.
#[test]
fn a_trace_of_today_will_be_readable() {
    let home = Home::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/golden.trace");
    fs::copy(golden, home.path("golden")).unwrap();
    let asked =
        ["simulate", "golden", "--slots", "20", "--policy", "lru,optimum", "--disk", "1", "-o", "json"];
    let case = json(&home, &asked)["cases"][0].clone();
    let figures =
        ["tokens", "prefill_tokens", "layers", "experts", "token_cycle"].map(|key| case[key].as_u64());
    assert_eq!(figures, GOLDEN.map(Some));
    let misses = [0, 1].map(|at| case["policies"][at]["misses_per_token"].as_f64().unwrap());
    assert_eq!(misses, GOLDEN_MISSES);
}
