//! Damaged files, run as far as they go: a clear error or a correct run, never a panic, a hang, or more
//! memory than the budget.

use std::fs;
use std::path::Path;

use crate::common::rows;
use adit_format::Gguf;
use adit_format::rng::Rng;
use adit_format::synth::{Family, Synth, WeightTypes};
use adit_model::{Blueprint, IoKind, KvFormat, Model, ModelError, Request, ScoutSet};

const BUDGET: u64 = 256 << 20;

/// Opens, plans, loads and computes one step.
fn run(path: &Path, kv: KvFormat) -> Result<usize, ModelError> {
    let blueprint = Blueprint::open(path, &IoKind::Auto)?;
    let context = blueprint.config.context_trained.min(512);
    let request = Request {
        memory: Some(BUDGET),
        context,
        lanes: 1,
        threads: 2,
        kv,
        chunk: None,
        scouts: ScoutSet::ALL,
        observer_bytes: 0,
        draft_bytes: 0,
    };
    let plan = blueprint.plan(&request)?;
    assert!(plan.total_bytes() <= BUDGET, "a plan keeps to its budget: {plan:?}");
    let mut model = Model::load(blueprint, plan, &mut |_| {})?;
    let mut count = 0;
    let rows = rows(&[3, 4, 5], 0);
    for row in rows {
        model.step(&[row], &mut |_, logits| count += logits.len())?;
    }
    Ok(count)
}

#[derive(Default)]
pub struct Outcomes {
    pub errors: usize,
    pub runs: usize,
}

impl Outcomes {
    pub fn check(&mut self, path: &Path, bytes: &[u8], what: &str) {
        fs::write(path, bytes).unwrap();
        let kv = if self.runs.is_multiple_of(2) { KvFormat::F16 } else { KvFormat::Q8_0 };
        match run(path, kv) {
            Ok(_) => self.runs += 1,
            Err(error) => {
                let message = error.to_string();
                assert!(message.len() > 20 && message.len() < 2000, "{what}: {message}");
                self.errors += 1;
            }
        }
    }
}

fn models() -> Vec<Synth> {
    let small = |family| Synth { types: WeightTypes::mixed(), layers: 2, ..Synth::new(family) };
    vec![small(Family::LlamaMoe), small(Family::Gemma3), small(Family::Qwen3)]
}

#[test]
fn truncated_and_flipped_files_fail_clearly_or_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    let mut random = Rng::new(17);
    for synth in models() {
        let path = folder.path().join(format!("{:?}.gguf", synth.family));
        let valid = fs::read(synth.write(&path).unwrap()).unwrap();
        let header = Gguf::open(&path).unwrap().tensors()[0].offset as usize;
        for piece in 0..30 {
            outcomes.check(&path, &valid[..valid.len() * piece / 30], "truncated");
        }
        for flip in 0..90 {
            let mut bytes = valid.clone();
            // Two of three in the header, where the numbers are.
            let reach = if flip % 3 == 0 { valid.len() } else { header };
            let at = random.below(reach as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            outcomes.check(&path, &bytes, &format!("bit flipped in byte {at}"));
        }
    }
    assert_eq!(outcomes.errors + outcomes.runs, 360);
    assert!(outcomes.errors >= 90 && outcomes.runs > 0, "{} errors, {} runs", outcomes.errors, outcomes.runs);
    println!("{} errors, {} runs", outcomes.errors, outcomes.runs);
}

#[test]
fn absurd_numbers_in_the_metadata_fail_clearly_or_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    for synth in models() {
        let path = folder.path().join(format!("{:?}.gguf", synth.family));
        let valid = fs::read(synth.write(&path).unwrap()).unwrap();
        let keys: Vec<String> =
            Gguf::open(&path).unwrap().metadata().iter().map(|(key, _)| key.to_string()).collect();
        let words =
            [0, 1, 3, 31, 255, 1 << 16, i32::MAX as u32, u32::MAX, f32::NAN.to_bits(), (-1.0f32).to_bits()];
        for key in keys.iter().filter(|key| !key.starts_with("tokenizer") && !key.starts_with("general")) {
            let find = valid.windows(key.len()).position(|window| window == key.as_bytes());
            // After the key: a type of 4 bytes, then the value; all these values have 4 bytes.
            let value = find.unwrap() + key.len() + 4;
            for word in words {
                let mut bytes = valid.clone();
                bytes[value..value + 4].copy_from_slice(&word.to_le_bytes());
                outcomes.check(&path, &bytes, &format!("{key} = {word}"));
            }
        }
    }
    assert!(
        outcomes.errors > 100 && outcomes.runs > 10,
        "{} errors, {} runs",
        outcomes.errors,
        outcomes.runs
    );
    println!("{} errors, {} runs", outcomes.errors, outcomes.runs);
}
