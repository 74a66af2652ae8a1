//! `docs/families.md`: the table of what runs and how near to the reference it is. Each test holds its row
//! to what it measured; with `ADIT_FAMILIES_DOC=write` it writes the row instead.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::files::{STRANGERS, Stranger};

const HEAD: &str = "| file | architecture | mixer | feed-forward | largest difference |";
const RULE: &str = "| --- | --- | --- | --- | --- |";

/// What came of a family.
pub enum Outcome {
    /// Greatest difference to the reference, as a share of the range of logits.
    Runs(f32),
    /// The error's text, without the file.
    Refused(String),
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/families.md")
}

fn read() -> String {
    std::fs::read_to_string(path()).expect("docs/families.md can be read")
}

fn start(stranger: &Stranger) -> String {
    let Stranger { name, architecture, .. } = stranger;
    format!("| {name} | {architecture} | {} | {} | ", mixer(stranger), feed_forward(stranger))
}

/// What mixes positions, told from the names of each layer's tensors.
fn mixer(stranger: &Stranger) -> String {
    let mut found = Vec::new();
    for layer in 0.. {
        let start = format!("blk.{layer}.");
        let parts: Vec<&str> = stranger.tensors.iter().filter_map(|t| t.name.strip_prefix(&start)).collect();
        if parts.is_empty() {
            break;
        }
        let has = |sign: &str| parts.iter().any(|part| part.starts_with(sign));
        let kimi = has("ssm_f_a");
        let delta = has("ssm_beta") || has("ssm_ba");
        let keys = ["attn_k.", "attn_kv.", "attn_qkv."].into_iter().any(has);
        let kinds = [
            (has("attn_kv_a_mqa"), "latent attention"),
            (keys && !kimi && !delta, "attention"),
            (kimi, "Kimi delta attention"),
            (delta && !kimi, "gated delta rule"),
            (has("ssm_x"), "Mamba"),
            (has("ssm_in") && !has("ssm_x") && !delta, "Mamba-2"),
            (has("shortconv"), "short convolution"),
            (has("attn_sinks"), "sinks"),
            (has("indexer"), "indexer"),
            (has("hc_"), "hyper-connections"),
            (has("attn_gate") && !delta, "gate"),
        ];
        for (is, kind) in kinds {
            if is && !found.contains(&kind) {
                found.push(kind);
            }
        }
    }
    found.join(", ")
}

fn feed_forward(stranger: &Stranger) -> &'static str {
    match (stranger.has_tensor("_exps."), stranger.has_tensor("_shexp.")) {
        (false, _) => "dense",
        (true, false) => "experts",
        (true, true) => "experts, shared expert",
    }
}

/// The power of ten that is at least twice `worst`.
fn bound(worst: f32) -> i32 {
    (2.0 * worst.max(1e-9)).log10().ceil() as i32
}

fn is_written() -> bool {
    std::env::var("ADIT_FAMILIES_DOC").is_ok_and(|action| action == "write")
}

/// Panics where the table does not say what came out.
pub fn check(stranger: &Stranger, outcome: &Outcome) {
    let start = start(stranger);
    if is_written() {
        let end = match outcome {
            Outcome::Runs(worst) => format!("below 1e{}", bound(*worst)),
            Outcome::Refused(why) => format!("refused: {why}"),
        };
        return write(stranger.name, &format!("{start}{end} |"));
    }
    let doc = read();
    let row = doc.lines().find(|line| line.starts_with(&format!("| {} |", stranger.name)));
    let row = row.unwrap_or_else(|| panic!("docs/families.md has no row for {}", stranger.name));
    let end = row.strip_prefix(&start).and_then(|end| end.strip_suffix(" |"));
    let agrees = match (outcome, end) {
        (_, None) => false,
        (Outcome::Refused(why), Some(end)) => end.strip_prefix("refused: ") == Some(why),
        // Another processor may round otherwise, but not by much.
        (Outcome::Runs(worst), Some(end)) => end.strip_prefix("below ").is_some_and(|bound| {
            let bound: f32 = bound.parse().expect("a bound is a number");
            (bound / 100.0..=bound).contains(&worst.max(1e-9))
        }),
    };
    let outcome = match outcome {
        Outcome::Runs(worst) => format!("differs by {worst:.1e}"),
        Outcome::Refused(why) => format!("is refused: {why}"),
    };
    assert!(
        agrees,
        "docs/families.md says `{row}`, but {} {outcome}; run this test with ADIT_FAMILIES_DOC=write",
        stranger.name
    );
}

/// Puts `row` in its place among the rows of the table, which are in order of their names.
fn write(name: &str, row: &str) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    let doc = read();
    let (before, rows) = doc.split_once(&format!("{HEAD}\n{RULE}\n")).expect("the table's head");
    let (rows, after) = rows.split_once("\n\n").map_or((rows, None), |(rows, after)| (rows, Some(after)));
    let old = format!("| {name} |");
    let mut rows: Vec<&str> = rows.lines().filter(|line| !line.starts_with(&old)).chain([row]).collect();
    rows.sort_unstable();
    let after = after.map_or(String::new(), |after| format!("\n{after}"));
    let doc = format!("{before}{HEAD}\n{RULE}\n{}\n{after}", rows.join("\n"));
    std::fs::write(path(), doc).expect("docs/families.md can be written");
}

#[test]
fn the_table_has_a_row_for_each_file_and_no_other() {
    if is_written() {
        return;
    }
    let doc = read();
    let rows = doc.lines().skip_while(|&line| line != RULE).skip(1).take_while(|line| !line.is_empty());
    let named: Vec<&str> = rows.map(|row| row.split(' ').nth(1).expect("a name")).collect();
    let mut files: Vec<&str> = STRANGERS.iter().map(|stranger| stranger.name).collect();
    files.sort_unstable_by_key(|name| format!("| {name} |"));
    assert_eq!(named, files);
}
