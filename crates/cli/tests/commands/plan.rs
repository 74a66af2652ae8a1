//! `adit plan`: a sum that adds up, a refusal that helps, and flags that mean something.

use std::fs::{self, OpenOptions};

use adit_format::synth::{Family, Synth};
use adit_format::writer::{Layout, TensorSpec};
use adit_format::{Metadata, TensorType, Value};
use serde_json::Value as Json;

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

/// The shape of a published model with latent attention of 512 + 64 values.
struct Shape {
    layers: u32,
    leading_dense: u32,
    width: u64,
    heads: u64,
    /// Experts of a layer, those that a token uses, and their inner width.
    experts: (u64, u32, u64),
    /// Values between the two matrices that make queries; 0 where one makes them.
    query_rank: u64,
    vocabulary: u64,
}

const V2_LITE: Shape = Shape {
    layers: 27,
    leading_dense: 1,
    width: 2048,
    heads: 16,
    experts: (64, 6, 1408),
    query_rank: 0,
    vocabulary: 102_400,
};

const V3: Shape = Shape {
    layers: 61,
    leading_dense: 3,
    width: 7168,
    heads: 128,
    experts: (256, 8, 2048),
    query_rank: 1536,
    vocabulary: 129_280,
};

impl Shape {
    /// Writes a header, and holes in place of the weights: the file takes some kilobytes.
    fn write(&self, home: &Home, name: &str) {
        let layout = Layout::new(&self.metadata(), &self.tensors()).unwrap();
        let path = home.path(name);
        fs::write(&path, layout.head()).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(layout.file_bytes()).unwrap();
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", Value::string("deepseek2"));
        let (count, used, inner) = self.experts;
        for (key, value) in [
            ("block_count", self.layers),
            ("leading_dense_block_count", self.leading_dense),
            ("context_length", 163_840),
            ("embedding_length", self.width as u32),
            ("feed_forward_length", 4 * self.width as u32),
            ("attention.head_count", self.heads as u32),
            ("attention.head_count_kv", 1),
            ("attention.kv_lora_rank", 512),
            ("attention.q_lora_rank", self.query_rank as u32),
            ("attention.key_length", 512 + 64),
            ("attention.value_length", 512),
            ("attention.key_length_mla", 128 + 64),
            ("attention.value_length_mla", 128),
            ("rope.dimension_count", 64),
            ("expert_count", count as u32),
            ("expert_used_count", used),
            ("expert_feed_forward_length", inner as u32),
            ("expert_gating_func", 2),
        ] {
            metadata.set(&format!("deepseek2.{key}"), Value::U32(value));
        }
        metadata.set("deepseek2.attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        metadata
    }

    fn tensors(&self) -> Vec<TensorSpec> {
        let &Shape { width, heads, query_rank, vocabulary, .. } = self;
        let (count, _, inner) = self.experts;
        let mut tensors = Vec::new();
        let mut add = |name: String, kind, dims: &[u64]| {
            tensors.push(TensorSpec { name, kind, dims: dims.to_vec() });
        };
        let (norm, matrix) = (TensorType::F32, TensorType::Q8_0);
        add("token_embd.weight".into(), matrix, &[width, vocabulary]);
        add("output_norm.weight".into(), norm, &[width]);
        add("output.weight".into(), matrix, &[width, vocabulary]);
        for layer in 0..self.layers {
            let mut add = |name: &str, kind, dims: &[u64]| {
                add(format!("blk.{layer}.{name}.weight"), kind, dims);
            };
            if query_rank > 0 {
                add("attn_q_a", matrix, &[width, query_rank]);
                add("attn_q_a_norm", norm, &[query_rank]);
                add("attn_q_b", matrix, &[query_rank, heads * 192]);
            } else {
                add("attn_q", matrix, &[width, heads * 192]);
            }
            add("attn_norm", norm, &[width]);
            add("attn_kv_a_mqa", matrix, &[width, 512 + 64]);
            add("attn_kv_a_norm", norm, &[512]);
            add("attn_k_b", matrix, &[128, 512, heads]);
            add("attn_v_b", matrix, &[512, 128, heads]);
            add("attn_output", matrix, &[heads * 128, width]);
            add("ffn_norm", norm, &[width]);
            if layer < self.leading_dense {
                add("ffn_gate", matrix, &[width, 4 * width]);
                add("ffn_up", matrix, &[width, 4 * width]);
                add("ffn_down", matrix, &[4 * width, width]);
                continue;
            }
            add("ffn_gate_inp", norm, &[width, count]);
            add("ffn_gate_exps", matrix, &[width, inner, count]);
            add("ffn_up_exps", matrix, &[width, inner, count]);
            add("ffn_down_exps", matrix, &[inner, width, count]);
        }
        tensors
    }
}

fn json(home: &Home, arguments: &[&str]) -> Json {
    let said = home.run(&[&["plan", "-o", "json"], arguments].concat()).fine();
    serde_json::from_str(&said).expect("one JSON object")
}

#[test]
fn a_token_of_context_takes_its_latents_and_far_less_than_full_heads() {
    let home = Home::new();
    for (shape, least_saved) in [(V2_LITE, 0.85), (V3, 0.95)] {
        shape.write(&home, "model.gguf");
        let arguments = ["model.gguf", "--memory", "64G", "-c", "4096"];
        let plan = json(&home, &arguments);
        let latents = u64::from(shape.layers) * (512 + 64);
        assert_eq!(plan["kv_bytes_per_token"], 2 * latents);
        let full = u64::from(shape.layers) * shape.heads * (192 + 128);
        let saved = plan["latent"]["saved"].as_f64().unwrap();
        assert!((saved - (1.0 - latents as f64 / full as f64)).abs() < 1e-12);
        assert!(saved >= least_saved, "{saved}");
        let text = home.run(&[&["plan"], &arguments[..]].concat()).fine();
        let told = format!("a token of context takes {} bytes: latents of 512 + 64 values", 2 * latents);
        assert!(text.contains(&told) && text.contains(&format!("{:.1} % less", 100.0 * saved)), "{text}");
        let kv = plan["terms"].as_array().unwrap().iter().find(|term| term["name"] == "kv").unwrap();
        assert_eq!(kv["bytes"], 4096 * 2 * latents);
    }
}

#[test]
fn a_budget_beyond_this_machine_is_planned_as_asked() {
    let home = Home::new();
    V3.write(&home, "v3.gguf");
    let plan = json(&home, &["v3.gguf", "--memory", "512TB"]);
    assert_eq!(plan["budget_bytes"], 512_000_000_000_000u64);
    assert!(plan["budget_source"].as_str().unwrap().contains("here a run gets at most"), "{plan}");
    assert_eq!(plan["experts"]["slots"], 58 * 256);
}

#[test]
fn expected_speed_follows_from_the_disk_the_hits_and_the_computing() {
    let home = Home::new();
    V3.write(&home, "v3.gguf");
    let arguments = ["v3.gguf", "--memory", "64G", "--disk", "3.7GB/s", "--compute", "500"];
    let experts = &json(&home, &arguments)["experts"];
    let number = |value: &Json| value.as_f64().unwrap_or_else(|| panic!("{value} in {experts}"));
    assert_eq!(number(&experts["disk_bytes_per_s"]), 3.7e9);
    // Three matrices of 7168 x 2048 in blocks of 34 bytes for 32 weights; 8 experts in 58 layers.
    let cycle = 3.0 * 7168.0 * 2048.0 / 32.0 * 34.0 * 8.0 * 58.0;
    assert_eq!(number(&experts["token_cycle_bytes"]), cycle);
    let residency = number(&experts["slots"]) / (58.0 * 256.0);
    let speeds = experts["speeds"].as_array().unwrap();
    assert_eq!(number(&speeds[0]["hit_rate"]), residency);
    assert!(number(&speeds[1]["hit_rate"]) > residency);
    for speed in speeds {
        let disk = cycle * (1.0 - number(&speed["hit_rate"])) / 3.7e9;
        assert!((number(&speed["tok_per_s"]) * disk.max(0.5) - 1.0).abs() < 1e-9);
        assert!((number(&speed["pessimistic_tok_per_s"]) * (disk + 0.5) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn holes_are_not_taken_for_a_fast_disk() {
    let home = Home::new();
    V2_LITE.write(&home, "lite.gguf");
    let text = home.run(&["plan", "lite.gguf", "--memory", "4G"]).fine();
    assert!(text.contains("disk: not measured") && text.contains("--disk"), "{text}");
    for wrong in ["0", "-1", "fast", "3.7MB/s"] {
        let error = home.run(&["plan", "lite.gguf", "--disk", wrong]).failed(2);
        assert!(error.contains("--disk"), "{error}");
    }
}
