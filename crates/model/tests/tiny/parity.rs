//! Full logits against another implementation, for every family on tiny models made from a seed.
//!
//! The golden rows come from llama.cpp (PyPI source package `llama-cpp-python` 0.3.36, F32 key-value
//! memory, no flash attention). To make them anew: `tests/tiny/golden/make.sh`, which describes itself.

use std::path::{Path, PathBuf};

use crate::common::{Run, tokens};
use adit_format::TensorType;
use adit_format::synth::{Family, RopeScaling, Synth, WeightTypes};

const TOKENS: usize = 48;
/// Rows kept of the golden run: the first, one past the window of the tiny gemma3, the last.
const GOLDEN_ROWS: [usize; 3] = [0, 37, 47];

struct Case {
    name: &'static str,
    synth: Synth,
    /// Largest difference allowed, as a share of the golden logits' range. F32 files differ by rounding
    /// only (gemma3 more: the peer looks its GELU up in an f16 table). In quantised files an activation
    /// near the middle between two codes may fall to either side, which moves later layers by a code.
    tolerance: f32,
}

fn case(name: &'static str, synth: Synth, tolerance: f32) -> Case {
    Case { name, synth, tolerance }
}

fn cases() -> Vec<Case> {
    let f32_of = |family| Synth { seed: 3, ..Synth::new(family).of_type(TensorType::F32) };
    let roped = |family, rope_scaling| Synth { seed: 4, rope_scaling, ..f32_of(family) };
    let yarn = RopeScaling::Yarn { factor: 4.0, original_context: 512 };
    let mixed = |family| Synth { seed: 6, types: WeightTypes::mixed(), ..Synth::new(family) };
    let exact = 2e-6;
    vec![
        case("llama", f32_of(Family::Llama), exact),
        case("llama-linear", roped(Family::Llama, RopeScaling::Linear(4.0)), exact),
        case("llama-yarn", roped(Family::Llama, yarn), exact),
        case("llama-factors", roped(Family::Llama, RopeScaling::Factors), exact),
        case("llama-tied", Synth { tied: true, ..f32_of(Family::Llama) }, exact),
        case("llama-moe", f32_of(Family::LlamaMoe), exact),
        case("qwen2", f32_of(Family::Qwen2), exact),
        case("qwen3", f32_of(Family::Qwen3), exact),
        case("qwen3-yarn", roped(Family::Qwen3, yarn), exact),
        case("qwen3moe", f32_of(Family::Qwen3Moe), exact),
        case("gemma3", f32_of(Family::Gemma3), 5e-4),
        case("gemma3-linear", roped(Family::Gemma3, RopeScaling::Linear(8.0)), 5e-4),
        case("gemma3-capped", Synth { final_soft_cap: Some(5.0), ..f32_of(Family::Gemma3) }, 5e-4),
        case("llama-mixed", mixed(Family::Llama), 0.02),
        case("qwen3moe-mixed", mixed(Family::Qwen3Moe), 0.02),
        case("gemma3-mixed", mixed(Family::Gemma3), 0.02),
    ]
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/golden").join(format!("{name}.f32"))
}

#[test]
fn logits_agree_with_another_implementation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // With ADIT_PARITY_MODELS=DIR the models stay there, for make.sh.
    let kept = std::env::var_os("ADIT_PARITY_MODELS").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(folder.path());
    let mut misses = Vec::new();
    for Case { name, synth, tolerance } in cases() {
        let path = synth.write(&folder.join(format!("{name}.gguf"))).expect("the model is written");
        let tokens = tokens(TOKENS);
        let chunked = Run::default().logits(&path, &tokens);
        let single = Run { chunk: 1, threads: 1, ..Run::default() }.logits(&path, &tokens);
        assert!(chunked == single, "{name}: token by token differs from chunks");
        let Ok(bytes) = std::fs::read(golden_path(name)) else {
            misses.push(format!("{name}: no golden file"));
            continue;
        };
        let golden: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let vocabulary = chunked.len() / TOKENS;
        assert_eq!(golden.len(), GOLDEN_ROWS.len() * vocabulary, "{name}: size of the golden file");
        for (row, golden) in GOLDEN_ROWS.into_iter().zip(golden.chunks_exact(vocabulary)) {
            let ours = &chunked[row * vocabulary..(row + 1) * vocabulary];
            let range = golden.iter().copied().fold(f32::MIN, f32::max)
                - golden.iter().copied().fold(f32::MAX, f32::min);
            let worst = ours.iter().zip(golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{name} row {row}: {:.1e} of the range", worst / range);
            if worst.is_nan() || worst > tolerance * range {
                misses.push(format!("{name}: row {row} is off by {worst} in a range of {range}"));
            }
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}
