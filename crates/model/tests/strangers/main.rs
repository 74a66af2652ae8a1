//! Models of every family, made anew from seeds, against another implementation: those that llama.cpp's own
//! test program makes, and our own with all that is special about a family. What adit knows gives the
//! reference's logits; anything else is refused by name. `docs/families.md` tells which.
//!
//! One family with the difference of each row: `cargo test -p adit-model --test strangers glm4moe --
//! --nocapture`. Where it fails, `ADIT_KEEP=DIR` leaves the files in DIR for other tools.

/// A test for each model of a list, which `check` of the same file does, and one that none is missing.
macro_rules! tests {
    ($complete:ident: $list:expr, $table:expr; $($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn $complete() {
            let models: Vec<&str> = $list.iter().map(|model| model.name).collect();
            assert_eq!([$($name),*], models.as_slice());
            table::assert_rows($table, models);
        }
    };
}

#[path = "../tiny/common.rs"]
mod common;
mod files;
mod golden;
mod random;
mod strangers;
mod table;
mod zoo;

use std::path::{Path, PathBuf};

use adit_model::{Model, ModelError};

use common::Run;
use golden::{Golden, PROMPTS};

/// Tokens of a step, more than one block and not all of a prompt.
const CHUNK: usize = 16;

/// The prompts of `record.py`: no two alike, ids below the vocabulary's size.
fn prompts(vocabulary: usize) -> Vec<Vec<u32>> {
    let count = PROMPTS.iter().map(|(length, _)| length).sum();
    let mut tokens = common::tokens(count).into_iter().map(|token| token % vocabulary as u32);
    PROMPTS.map(|(length, _)| tokens.by_ref().take(length).collect()).into()
}

/// Where models are written: a temporary folder, or the one that the user wants to keep them in.
fn with_folder<T>(work: impl FnOnce(&Path) -> T) -> T {
    match std::env::var_os("ADIT_KEEP").map(PathBuf::from) {
        Some(kept) => work(&kept),
        None => work(tempfile::tempdir().expect("a temporary folder").path()),
    }
}

/// Why a file is refused; panics where the message does not name what is missing.
fn refusal(architecture: &str, path: &Path, error: &ModelError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{}: ", path.display())).expect("an error begins with the file");
    match error {
        ModelError::UnknownArchitecture { found, .. } => {
            assert_eq!(found, architecture);
            "unknown architecture".to_string()
        }
        ModelError::BadMetadata { .. }
        | ModelError::UnknownTensor { .. }
        | ModelError::MissingTensor { .. }
        | ModelError::WrongShape { .. } => text.split(';').next().unwrap_or(text).replace('`', ""),
        other => panic!("{}: refused for another reason: {other}", path.display()),
    }
}

/// What a model's logits are held to.
struct Bounds {
    /// Largest difference, as a share of the range of logits.
    difference: f32,
    /// Whether that holds for each row, and the best token of every position must be the reference's; else
    /// it holds for half of the rows.
    strict: bool,
}

/// The difference to the reference: the greatest of all prompts and kept rows, or their median where bounds
/// are not strict. Panics where it is beyond the bounds, or a bit depends on chunks or memory.
fn difference(path: &Path, goldens: &[Golden], vocabulary: usize, bounds: &Bounds) -> f32 {
    let (mut shares, mut other_best) = (Vec::new(), 0);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let whole = Run { chunk: 1, threads: 1, ..Run::default() };
    let mut streamed = streamed(path);
    for (tokens, golden) in prompts(vocabulary).iter().zip(goldens) {
        streamed.truncate(0, 0);
        let logits = common::logits_of(&mut streamed, CHUNK, tokens);
        assert!(
            logits == whole.logits(path, tokens),
            "{name}, {} tokens: token by token with all in memory gives other bits than chunks with experts \
             streamed",
            tokens.len()
        );
        let difference = golden.compare(&logits);
        for line in difference.lines {
            println!("{name}, {} tokens, {line}", tokens.len());
        }
        shares.extend(difference.rows);
        other_best += difference.other_best;
        if tokens.len() > 2 * CHUNK {
            goes_back(path, tokens, &logits);
        }
    }
    shares.sort_unstable_by(f32::total_cmp);
    let share = shares[if bounds.strict { shares.len() - 1 } else { shares.len() / 2 }];
    assert!(share <= bounds.difference, "{name} is off by {share:.1e} of the range");
    assert!(!bounds.strict || other_best == 0, "{name} has another best token at {other_best} positions");
    share
}

/// Panics where a lane that was cut, to its snapshot if it carries a state, and goes on from there gives
/// other bits than `logits`.
fn goes_back(path: &Path, tokens: &[u32], logits: &[f32]) {
    let mut model = Run { chunk: CHUNK, ..Run::default() }.load(path).expect("it has loaded before");
    let half = tokens.len() / 2;
    let go_on = |model: &mut Model, from: usize, to: usize| {
        let mut all = Vec::new();
        for first in (from..to).step_by(CHUNK) {
            let rows = common::rows(&tokens[first..to.min(first + CHUNK)], first);
            model.step(&rows, &mut |_, logits| all.extend_from_slice(logits)).expect("a step succeeds");
        }
        let width = logits.len() / tokens.len();
        assert!(all == logits[from * width..to * width], "{}: {from} to {to}", path.display());
    };
    go_on(&mut model, 0, half);
    model.snapshot(0);
    go_on(&mut model, half, tokens.len());
    let left = model.truncate(0, half + 3);
    assert_eq!(left, if model.config().has_state() { half } else { half + 3 }, "{}", path.display());
    go_on(&mut model, left, tokens.len());
}

/// The model in the smallest memory that its plan accepts: experts come and go.
fn streamed(path: &Path) -> Model {
    let mut run = Run { chunk: CHUNK, memory: Some(1), ..Run::default() };
    loop {
        // What the process has taken so far is a term of the plan and may grow meanwhile, so ask again.
        match run.load(path) {
            Ok(model) => return model,
            Err(ModelError::Plan(refused)) => run.memory = Some(refused.needed_bytes()),
            Err(other) => panic!("{other}"),
        }
    }
}
