//! `adit bench`: it measures what it was asked to, in a form that people or scripts read.

use adit_format::synth::{Family, Synth};
use serde_json::Value;

use crate::home::Home;

#[test]
fn the_report_is_one_object_with_medians_and_counters() {
    let home = Home::new();
    Synth::new(Family::Qwen3Moe).write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["bench", "tiny.gguf", "-p", "9", "-n", "5", "-r", "3", "-o", "json"]).fine();
    let report: Value = serde_json::from_str(&text).unwrap();
    for (rate, samples) in [("prefill_tok_per_s", "prefill_samples"), ("decode_tok_per_s", "decode_samples")]
    {
        let mut sorted: Vec<f64> =
            report[samples].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
        sorted.sort_by(f64::total_cmp);
        assert_eq!(sorted.len(), 3, "{text}");
        assert_eq!(report[rate].as_f64(), Some(sorted[1]), "{text}");
    }
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} is not in {text}"));
    assert_eq!([number("prompt_tokens"), number("generated_tokens"), number("repetitions")], [9, 5, 3]);
    // Two layers, two experts each, in three runs of five tokens, and the prompts' experts besides.
    assert!(number("expert_hits") + number("expert_misses") >= 2 * 2 * 3 * 5, "{text}");
    assert!(number("memory_budget_bytes") > 0, "{text}");
    assert!(report["bytes_read"].is_u64(), "{text}");
}

#[test]
fn the_counters_are_those_of_the_repetitions_without_the_warm_up() {
    let home = Home::new();
    Synth::new(Family::Qwen3Moe).write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["bench", "tiny.gguf", "-p", "0", "-n", "5", "-r", "3", "-o", "json"]).fine();
    let report: Value = serde_json::from_str(&text).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} is not in {text}"));
    // Two layers, two experts each, in three runs of five tokens.
    assert_eq!(number("expert_hits") + number("expert_misses"), 2 * 2 * 3 * 5, "{text}");
}

#[test]
fn the_table_has_a_row_for_each_test() {
    let home = Home::new();
    Synth::new(Family::Llama).write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["bench", "tiny.gguf", "-p", "4", "-n", "0", "-r", "1"]).fine();
    assert!(text.lines().count() == 3 && text.contains("| pp4 |"), "{text}");
    home.run(&["bench", "tiny.gguf", "-p", "0", "-n", "0"]).failed(2);
    home.run(&["bench", "tiny.gguf", "-r", "0"]).failed(2);
}
