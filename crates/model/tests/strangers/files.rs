//! The headers of the strangers' files as `files.txt` has them, and the files themselves, drawn anew.

use std::path::Path;
use std::sync::LazyLock;

use adit_format::writer::{Layout, TensorSpec};
use adit_format::{Array, Metadata, Strings, TensorType, Value};
use sha2::{Digest, Sha256};

use crate::random;

const TEXT: &str = include_str!("files.txt");

/// One family's file: the same header for each seed.
pub struct Stranger {
    pub name: &'static str,
    pub architecture: &'static str,
    /// Per seed the start of the file's SHA-256, in hex.
    digests: Vec<&'static str>,
    pub metadata: Metadata,
    pub tensors: Vec<TensorSpec>,
}

pub static STRANGERS: LazyLock<Vec<Stranger>> = LazyLock::new(parse);

pub fn find(name: &str) -> &'static Stranger {
    let found = STRANGERS.iter().find(|stranger| stranger.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in files.txt"))
}

fn parse() -> Vec<Stranger> {
    let mut table: Vec<&str> = Vec::new();
    let mut strangers = Vec::new();
    let mut lines = TEXT.lines().filter(|line| !line.starts_with('#'));
    while let Some(line) = lines.next() {
        let Some(file) = line.strip_prefix("file ") else {
            table.push(line);
            continue;
        };
        let mut words = file.split(' ');
        let (name, architecture) = (words.next().unwrap(), words.next().unwrap());
        let mut stranger = Stranger {
            name,
            architecture,
            digests: words.collect(),
            metadata: Metadata::new(),
            tensors: Vec::new(),
        };
        stranger.metadata.set("general.architecture", Value::string(architecture));
        let runs = lines.next().and_then(|line| line.strip_prefix("lines ")).expect("a file has lines");
        for run in runs.split(' ') {
            let number = |text: &str| text.parse::<usize>().expect("the number of a line");
            let (first, end) = run
                .split_once('-')
                .map_or_else(|| (number(run), number(run) + 1), |(first, end)| (number(first), number(end)));
            table[first..end].iter().for_each(|line| stranger.add(line));
        }
        strangers.push(stranger);
    }
    strangers
}

impl Stranger {
    /// Takes a line `tensor NAME DIMS` or `KEY TYPE VALUE`.
    fn add(&mut self, line: &str) {
        let (first, rest) = line.split_once(' ').expect("a line of several words");
        let (second, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if first == "tensor" {
            let dims = rest.split(' ').map(|dim| dim.parse().expect("a dimension")).collect();
            self.tensors.push(TensorSpec { name: second.to_string(), kind: TensorType::F32, dims });
            return;
        }
        let key = match first.strip_prefix('@') {
            Some(key) => format!("{}{key}", self.architecture),
            None => first.to_string(),
        };
        self.metadata.set(&key, value(second, rest));
    }

    pub fn vocabulary(&self) -> usize {
        let key = format!("{}.vocab_size", self.architecture);
        self.metadata.require_u32(&key).expect("a vocabulary's size") as usize
    }

    pub fn has_tensor(&self, part: &str) -> bool {
        self.tensors.iter().any(|tensor| tensor.name.contains(part))
    }

    /// Writes the file of `seed`, counted from 1.
    pub fn write(&self, seed: u64, path: &Path) {
        std::fs::write(path, self.bytes(seed)).expect("the model is written");
    }

    /// The file, byte for byte what the stranger wrote: its digest says so.
    fn bytes(&self, seed: u64) -> Vec<u8> {
        let layout = Layout::new(&self.metadata, &self.tensors).expect("a header that can be");
        let mut bytes = layout.head().to_vec();
        for (tensor, (_, padding)) in self.tensors.iter().zip(layout.tensors()) {
            let count = tensor.dims.iter().product();
            let data = random::tensor_data(seed, &tensor.name, count);
            data.for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
            bytes.resize(bytes.len() + *padding as usize, 0);
        }
        let digest = Sha256::digest(&bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(digest, self.digests[seed as usize - 1], "{}: not the bytes of seed {seed}", self.name);
        bytes
    }

    /// Writes a file with the header only and holes for the data.
    pub fn write_hollow(&self, path: &Path) {
        let layout = Layout::new(&self.metadata, &self.tensors).expect("a header that can be");
        std::fs::write(path, layout.head()).expect("the header is written");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file is there");
        file.set_len(layout.file_bytes()).expect("the file has its length");
    }
}

/// `TYPE VALUE`, or `[TYPE] VALUE VALUE*COUNT ...`.
fn value(kind: &str, text: &str) -> Value {
    if let Some(kind) = kind.strip_prefix('[') {
        return Value::Array(array(kind.trim_end_matches(']'), text));
    }
    match array(kind, text) {
        Array::U32(values) => Value::U32(values[0]),
        Array::I32(values) => Value::I32(values[0]),
        Array::U64(values) => Value::U64(values[0]),
        Array::F32(values) => Value::F32(values[0]),
        Array::Bool(values) => Value::Bool(values[0]),
        Array::Str(values) => Value::Str(values.get(0).expect("one string").to_vec()),
        other => panic!("no file has {other:?} alone"),
    }
}

fn array(kind: &str, text: &str) -> Array {
    match kind {
        "u8" => Array::U8(list(text)),
        "u32" => Array::U32(list(text)),
        "i32" => Array::I32(list(text)),
        "u64" => Array::U64(list(text)),
        "f32" => Array::F32(list(text)),
        "bool" => Array::Bool(list(text)),
        "str" => Array::Str(strings(text)),
        other => panic!("no file has values of type {other}"),
    }
}

/// Words with how many times each comes.
fn runs(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.split_whitespace().map(|word| match word.split_once('*') {
        Some((word, count)) => (word, count.parse().expect("a count")),
        None => (word, 1),
    })
}

fn list<T: std::str::FromStr + Clone>(text: &str) -> Vec<T> {
    let parsed = |word: &str| word.parse().unwrap_or_else(|_| panic!("{word} is not of its type"));
    runs(text).flat_map(|(word, count)| vec![parsed(word); count]).collect()
}

/// A `#` stands for the string's number.
fn strings(text: &str) -> Strings {
    let numbered = |(word, count): (&str, usize)| {
        (0..count).map(|number| word.replace('#', &number.to_string())).collect::<Vec<_>>()
    };
    runs(text).flat_map(numbered).collect()
}

#[test]
#[ignore = "draws 3 GB, in a quarter of a minute"]
fn every_file_is_what_the_stranger_wrote() {
    for stranger in STRANGERS.iter() {
        (1..=stranger.digests.len() as u64).for_each(|seed| _ = stranger.bytes(seed));
    }
}
