//! Reads the whole repository as text and holds it to the house rules that no compiler checks: what a file
//! opens with, how long things grow, where `unsafe` may live, which crate may use which.
//!
//! A file longer than [`FILE_LINES_MAX`] gives its reason in its header: `//! Long because: ...`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LINE_CHARS_MAX: usize = 110;
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 80;

/// The layers, from the bottom up: a crate may use only those before it.
const LAYERS: [&str; 10] =
    ["format", "pager", "kernels", "model", "adapters", "engine", "foundry", "grid", "server", "cli"];

/// Crates in which `unsafe` may stand.
const UNSAFE_CRATES: [&str; 2] = ["pager", "kernels"];

/// What must not be left in code. Split, so that this file does not offend.
const LEFT_OVERS: [&str; 6] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("allow(dead", "_code)"),
    concat!("allow(un", "used"),
];

/// Folders that exist on the machine of whoever wrote the code only.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

const TEXT_KINDS: [&str; 8] = ["rs", "md", "toml", "sh", "py", "yml", "json", "run"];

struct Source {
    /// Relative to the repository's root, with `/` between its names.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// `pager` for `crates/pager/src/lib.rs`.
    fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository's root")
}

fn sources() -> Vec<Source> {
    let root = root();
    let mut paths = Vec::new();
    gather(&root, &mut paths);
    paths.sort();
    assert!(paths.len() > 10, "only {} files found below {}", paths.len(), root.display());
    let read = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        path: path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/"),
    };
    paths.into_iter().map(read).collect()
}

fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder that can be listed") {
        let path = entry.expect("a folder that can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kind =
            path.extension().map_or(name.clone(), |extension| extension.to_string_lossy().into_owned());
        if path.is_dir() {
            if !["target", ".git"].contains(&name.as_str()) {
                gather(&path, paths);
            }
        } else if TEXT_KINDS.contains(&kind.as_str()) {
            paths.push(path);
        }
    }
}

/// Fails with every offence at once: who has to tidy up wants the whole list.
#[track_caller]
fn assert_tidy(offences: Vec<String>) {
    assert!(offences.is_empty(), "{} offences:\n{}", offences.len(), offences.join("\n"));
}

#[test]
fn every_source_file_says_what_it_owns_first() {
    let silent = |source: &Source| {
        let header = source.text.lines().next().unwrap_or_default();
        !header.starts_with("//! ")
    };
    let sources = sources();
    let silent = sources.iter().filter(|source| source.is_rust() && silent(source));
    assert_tidy(silent.map(|source| format!("{}: does not open with a //! header", source.path)).collect());
}

#[test]
fn files_are_short_enough_to_read_in_one_go() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        let header = source.text.lines().take_while(|line| line.starts_with("//!"));
        let has_reason = header.into_iter().any(|line| line.starts_with("//! Long because: "));
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX && !has_reason {
            offences.push(format!("{}: {lines} lines and no reason given", source.path));
        }
    }
    assert_tidy(offences);
}

#[test]
fn lines_are_short_and_end_where_their_text_ends() {
    let mut offences = Vec::new();
    for source in &sources() {
        for (number, line) in source.lines() {
            // A table or a link in prose cannot be wrapped, and data is what it is.
            if source.is_rust() && line.chars().count() > LINE_CHARS_MAX {
                offences.push(format!("{}:{number}: longer than {LINE_CHARS_MAX} characters", source.path));
            }
            if line.ends_with([' ', '\t']) {
                offences.push(format!("{}:{number}: white space at its end", source.path));
            }
        }
        if !source.text.is_empty() && !source.text.ends_with('\n') {
            offences.push(format!("{}: its last line does not end", source.path));
        }
    }
    assert_tidy(offences);
}

#[test]
fn functions_can_be_seen_whole() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (name, start, lines) in functions(&source.text) {
            if lines > FUNCTION_LINES_MAX {
                offences.push(format!("{}:{start}: fn {name} has {lines} lines", source.path));
            }
        }
    }
    assert_tidy(offences);
}

/// Name, first line and length of each function. rustfmt puts the closing brace under the first word.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "fn") else { continue };
        let modifiers = ["const", "unsafe", "extern", "\"C\"", "async"];
        if !words[..at].iter().all(|word| word.starts_with("pub") || modifiers.contains(word)) {
            continue;
        }
        let name = words.get(at + 1).map_or("", |word| word.split(['(', '<']).next().unwrap_or_default());
        let closes = |line: &&str| line.starts_with(&format!("{}}}", " ".repeat(indent)));
        if !line.trim_end().ends_with('}')
            && let Some(length) = lines[index + 1..].iter().position(closes)
        {
            found.push((name.to_owned(), index + 1, length + 2));
        }
    }
    found
}

#[test]
fn nothing_is_left_over_from_the_work() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        // Each test file uses another part of what a shared folder offers.
        let shared = source.path.contains("/tests/common/");
        for (number, line) in source.lines() {
            for word in LEFT_OVERS.iter().filter(|word| line.contains(**word)) {
                if shared && word.starts_with("allow") {
                    continue;
                }
                offences.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    assert_tidy(offences);
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let mut offences = Vec::new();
    for source in &sources() {
        for (number, line) in source.lines() {
            for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
                offences.push(format!("{}:{number}: {path}", source.path));
            }
        }
    }
    assert_tidy(offences);
}

#[test]
fn unsafe_stays_in_the_crates_that_may_hold_it() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        if source.crate_name().is_some_and(|name| UNSAFE_CRATES.contains(&name)) {
            continue;
        }
        for (number, line) in source.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let uses = ["{", "fn ", "impl ", "trait ", "extern "];
            if uses.iter().any(|what| code.contains(&format!("{} {what}", concat!("uns", "afe")))) {
                offences.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_tidy(offences);
}

#[test]
fn a_crate_uses_only_the_layers_below_it() {
    let mut offences = Vec::new();
    let layer = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    for source in &sources() {
        // Fuzzers and the like below a crate are no layer.
        let Some(name) =
            source.crate_name().filter(|name| source.path == format!("crates/{name}/Cargo.toml"))
        else {
            continue;
        };
        let Some(own) = layer(name) else {
            offences.push(format!("{}: {name} is not among the layers of this test", source.path));
            continue;
        };
        for (number, line) in source.lines() {
            let used = line.strip_prefix("adit-").and_then(|rest| rest.split([' ', '.', '=']).next());
            if let Some(used) = used
                && layer(used).is_none_or(|layer| layer >= own)
            {
                offences.push(format!("{}:{number}: {name} must not use {used}", source.path));
            }
        }
    }
    assert_tidy(offences);
}

#[test]
fn every_source_file_belongs_to_a_crate() {
    let sources = sources();
    let rust: Vec<&Source> = sources.iter().filter(|source| source.is_rust()).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut to_visit: Vec<&Source> =
        rust.iter().copied().filter(|source| is_crate_root(&source.path)).collect();
    while let Some(source) = to_visit.pop() {
        if reached.insert(source.path.clone()) {
            let children = child_paths(source);
            to_visit.extend(rust.iter().copied().filter(|other| children.contains(&other.path)));
        }
    }
    let lost = rust.iter().filter(|source| !reached.contains(&source.path));
    assert_tidy(lost.map(|source| format!("{}: no mod declaration leads to it", source.path)).collect());
}

/// `src/lib.rs`, `src/main.rs`, and each file directly in `tests`, `benches`, `examples` or `src/bin`; also a
/// `main.rs` one folder further down.
fn is_crate_root(path: &str) -> bool {
    let inside: Vec<&str> = path.split('/').skip(2).collect();
    match inside[..] {
        ["src", "lib.rs" | "main.rs"] | ["build.rs"] | ["src", "bin", _] => true,
        ["fuzz", "fuzz_targets", _] => true,
        ["tests" | "benches" | "examples", _] | ["tests" | "benches" | "examples", _, "main.rs"] => true,
        _ => !path.starts_with("crates/"),
    }
}

/// Where the modules may lie that `source` declares without a body.
fn child_paths(source: &Source) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').expect("a file in a folder");
    let own_folder = match file {
        "mod.rs" => folder.to_owned(),
        _ if is_crate_root(&source.path) => folder.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let mut children = Vec::new();
    for (_, line) in source.lines() {
        let line = line.trim();
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            children.push(format!("{folder}/{path}"));
        }
        let declared = line.strip_suffix(';').and_then(|line| line.split("mod ").nth(1));
        if let Some(name) = declared {
            children.push(format!("{own_folder}/{name}.rs"));
            children.push(format!("{own_folder}/{name}/mod.rs"));
        }
    }
    children
}
