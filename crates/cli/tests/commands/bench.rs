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
    let text = home.run(&["bench", "tiny.gguf", "-p", "4", "-n", "3", "-d", "70", "-r", "2"]).fine();
    assert!(text.contains("| pp4 @ d70 |") && text.contains("| tg3 @ d70 |"), "{text}");
    home.run(&["bench", "tiny.gguf", "-p", "0", "-n", "0"]).failed(2);
    home.run(&["bench", "tiny.gguf", "-r", "0"]).failed(2);
}

#[test]
fn products_alone_are_held_against_both_roofs() {
    let home = Home::new();
    let arguments = ["bench", "--kernels", "--formats", "q8_0,F16,Q4_K", "--shapes", "64x256,8x32"];
    let few = ["--rows", "1,3", "-r", "1", "-t", "1", "-o", "json"];
    let text = home.run(&[&arguments[..], &few[..]].concat()).fine();
    let report: Value = serde_json::from_str(&text).unwrap();
    let results = report["results"].as_array().unwrap();
    // Q4_K has no rows of 32.
    assert_eq!(results.len(), 2 + 4 + 4, "{text}");
    for line in results {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} is not in {line}"));
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{line}");
        near(number("ops"), 2.0 * number("weight_rows") * number("cols") * number("rows"));
        near(
            number("weight_bytes") * 8.0,
            number("weight_rows") * number("cols") * number("bits_per_weight"),
        );
        near(number("gb_per_s") * number("seconds"), number("weight_bytes") / 1e9);
        near(number("gop_per_s") * number("seconds"), number("ops") / 1e9);
        near(number("memory_share") * number("memory_gb_per_s"), number("gb_per_s"));
        near(number("peak_share") * number("peak_gop_per_s"), number("gop_per_s"));
        near(number("bound_share"), number("memory_share").max(number("peak_share")));
    }
    assert_eq!([&report["threads"], &report["repetitions"]], [1, 1], "{text}");
}

#[test]
fn products_alone_and_a_model_do_not_mix() {
    let home = Home::new();
    home.run(&["bench"]).failed(2);
    home.run(&["bench", "--kernels", "tiny.gguf"]).failed(2);
    home.run(&["bench", "--kernels", "-p", "5"]).failed(2);
    home.run(&["bench", "tiny.gguf", "--formats", "Q4_0"]).failed(2);
    home.run(&["bench", "tiny.gguf", "-o", "markdown"]).failed(2);
    home.run(&["bench", "--kernels", "--isa", "mmx"]).failed(2);
    home.run(&["bench", "--kernels", "--formats", "Q4_K", "--shapes", "1536x576"]).failed(2);
    let many = home.run(&["bench", "--kernels", "--shapes", "1x1048576", "--rows", "1,65536"]).failed(2);
    assert!(many.contains("65536 rows"), "{many}");
}
