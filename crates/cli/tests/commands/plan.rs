//! `adit plan`: a sum that adds up, a refusal that helps, and flags that mean something.

use adit_format::synth::{Family, Synth};

use crate::home::Home;

/// `12.0 MiB` in bytes.
fn bytes(text: &str) -> f64 {
    let (number, unit) = text.trim().split_once(' ').expect("a number and a unit");
    number.parse::<f64>().unwrap() * if unit.starts_with("GiB") { 1073741824.0 } else { 1048576.0 }
}

#[test]
fn the_terms_add_up_to_a_sum_within_the_budget() {
    let home = Home::new();
    Synth::new(Family::LlamaMoe).write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["plan", "tiny.gguf", "--memory", "64M", "-c", "256"]).fine();
    let terms: Vec<(&str, f64)> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| (line[..10].trim(), bytes(&line[10..22])))
        .collect();
    let value = |name: &str| {
        terms.iter().find(|(term, _)| *term == name).unwrap_or_else(|| panic!("{name}: {text}")).1
    };
    let added: f64 = terms.iter().map(|(_, bytes)| bytes).sum::<f64>() - value("sum") - value("budget");
    assert!((added - value("sum")).abs() < 0.2 * 1048576.0, "{text}");
    assert!(value("sum") <= value("budget") + 0.1 * 1048576.0, "{text}");
    for word in ["backbone", "kv", "scratch", "slots", "token cycles", "disk:", "as a prompt does", "speed:"]
    {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

#[test]
fn a_budget_that_cannot_work_is_refused_with_one_that_does() {
    let home = Home::new();
    Synth::new(Family::LlamaMoe).write(&home.path("tiny.gguf")).unwrap();
    let error = home.run(&["plan", "tiny.gguf", "--memory", "1M"]).failed(1);
    let (advice, sum) = error.split_once("; ").expect("the way out, then the sum");
    let needed = advice.split("--memory to ").nth(1).and_then(|rest| rest.split("MiB").next());
    let needed: f64 = needed.expect("a size").parse().unwrap();
    let (_, sum) = sum.split_once("needs ").expect("the sum");
    let added: f64 = sum.split(" + ").map(|term| bytes(term.split_once(' ').expect("a size").1)).sum();
    assert!((needed - added / 1048576.0 - 0.5).abs() < 1.0, "{error}");
    assert!(error.len() < 300, "{error}");
}

#[test]
fn nonsense_is_wrong_usage() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    for extra in [["--memory", "0"], ["-t", "0"], ["-c", "0"], ["--kv", "q4_0"], ["-t", "x"]] {
        let error = home.run(&["plan", "tiny.gguf", extra[0], extra[1]]).failed(2);
        assert!(error.contains(extra[0]) || error.contains(extra[1]), "{error}");
    }
}

#[test]
fn the_budget_that_a_refusal_names_is_enough_for_plan_and_for_run() {
    let home = Home::new();
    Synth::new(Family::LlamaMoe).write(&home.path("tiny.gguf")).unwrap();
    let refusal = home.run(&["plan", "tiny.gguf", "--memory", "1M"]).failed(1);
    let (_, named) = refusal.split_once("raise --memory to ").expect("a way out");
    let budget = named.split([',', ';']).next().expect("a size");
    home.run(&["plan", "tiny.gguf", "--memory", budget]).fine();
    home.run(&["run", "tiny.gguf", "-p", "a", "-n", "2", "--memory", budget]).fine();
}
