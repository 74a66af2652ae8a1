//! Files that are wrong in one known way: the error names the file, the field, the place, and what to do.

use std::fs;
use std::path::{Path, PathBuf};

use adit_format::synth::{Family, Synth};
use adit_format::writer::{Existing, Layout, Writer};
use adit_format::{Gguf, Metadata, Value};
use tempfile::TempDir;

/// A header made by hand, so that it can be wrong.
struct Raw {
    bytes: Vec<u8>,
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

impl Raw {
    fn new(tensors: u64, keys: u64) -> Raw {
        Raw { bytes: b"GGUF".to_vec() }.u32(3).u64(tensors).u64(keys)
    }

    fn u32(mut self, number: u32) -> Raw {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Raw {
        self.bytes.extend(number.to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Raw {
        self.bytes.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Raw {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Raw {
        let named = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(named, |raw, &dim| raw.u64(dim)).u32(kind).u64(offset)
    }

    /// Up to the start of the data, and `bytes` bytes of those.
    fn data(mut self, bytes: usize) -> Raw {
        self.bytes.resize(self.bytes.len().next_multiple_of(32) + bytes, 0);
        self
    }

    /// What opening the file says.
    fn error(&self) -> String {
        let folder = tempfile::tempdir().unwrap();
        error_of(&folder, "model.gguf", &self.bytes)
    }
}

fn error_of(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let message = Gguf::open(&path).unwrap_err().to_string();
    assert!(message.contains(name), "names the file: {message}");
    message
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "expected {part:?} in: {message}");
    }
}

#[test]
fn other_versions_are_refused_by_name() {
    let version = |bytes: [u8; 4]| Raw { bytes: b"GGUF".to_vec() }.raw(&bytes).u64(0).u64(0).error();
    assert_says(&version([1, 0, 0, 0]), &["GGUF version 1", "newer conversion"]);
    assert_says(&version([0, 0, 0, 3]), &["big-endian"]);
    assert_says(&version([9, 0, 0, 0]), &["version 9", "byte 4", "expected 2 or 3"]);
    assert!(Raw { bytes: b"GGUF".to_vec() }.u32(2).u64(0).u64(0).opens(), "version 2 is read");
}

impl Raw {
    fn opens(&self) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, &self.bytes).unwrap();
        Gguf::open(&path).is_ok()
    }
}

#[test]
fn things_that_are_no_model_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let html = error_of(&folder, "page.gguf", b"<!doctype html><html><body>Sign in</body></html>");
    assert_says(&html, &["web page", "direct download link"]);
    assert_says(&error_of(&folder, "empty.gguf", b""), &["empty", "download it again"]);
    assert_says(&error_of(&folder, "short.gguf", b"GG"), &["expected it to start with \"GGUF\""]);
    let folder_error = Gguf::open(folder.path()).unwrap_err().to_string();
    assert_says(&folder_error, &["is a folder"]);
    let missing = Gguf::open(&folder.path().join("absent.gguf")).unwrap_err().to_string();
    assert_says(&missing, &["absent.gguf", "cannot open"]);
}

#[test]
fn absurd_counts_are_refused_before_memory_is_taken() {
    const ABSURD: u64 = 1 << 60;
    assert_says(&Raw::new(ABSURD, 0).error(), &["number of tensors", "byte 8", "1152921504606846976"]);
    assert_says(&Raw::new(0, ABSURD).error(), &["number of metadata keys", "byte 16"]);
    assert_says(&Raw::new(1000, 0).error(), &["number of tensors (1000)", "ends"]);
    assert_says(&Raw::new(0, 1).u64(ABSURD).data(64).error(), &["metadata key 0", "byte 24"]);
    assert_says(&Raw::new(0, 1).u64(60000).data(64).error(), &["metadata key 0", "needs 60000 bytes"]);
    let value = Raw::new(0, 1).text("a.key").u32(STRING).u64(ABSURD).data(64).error();
    assert_says(&value, &["value of metadata key \"a.key\"", "byte 49", "needs 1152921504606846976"]);
    let array = |element: u32| Raw::new(0, 1).text("a.key").u32(ARRAY).u32(element).u64(ABSURD).data(64);
    for element in 0..=12 {
        assert_says(&array(element).error(), &["value of metadata key \"a.key\" at byte 53"]);
    }
    let inner = Raw::new(0, 1).text("k").u32(ARRAY).u32(STRING).u64(2).text("ok").u64(ABSURD).data(64);
    assert_says(&inner.error(), &["string 1 of the value of metadata key \"k\""]);
    assert_says(&Raw::new(1, 0).text("w").u32(u32::MAX).data(64).error(), &["dimensions", "\"w\""]);
    let dims = [1 << 40, 1 << 40];
    assert_says(&Raw::new(1, 0).tensor("w", &dims, 0, 0).data(64).error(), &["dimensions", "2^63"]);
    let far = u64::MAX - 31;
    assert_says(&Raw::new(1, 0).tensor("w", &[8], 0, far).data(64).error(), &["offset", "\"w\""]);
}

#[test]
fn arrays_in_arrays_are_read_but_not_without_end() {
    let nested = |depth: usize| {
        let open = Raw::new(0, 1).text("k").u32(ARRAY);
        let deep = (1..depth).fold(open, |raw, _| raw.u32(ARRAY).u64(1));
        deep.u32(0).u64(1).raw(&[7])
    };
    assert!(nested(8).opens());
    assert_says(&nested(9).error(), &["\"k\"", "deep"]);
    assert_says(&nested(50_000).error(), &["\"k\"", "deep"]);
}

#[test]
fn bad_metadata_are_named() {
    let twice = Raw::new(0, 2).text("k").u32(0).raw(&[1]).text("k").u32(0).raw(&[1]);
    assert_says(&twice.error(), &["metadata key 1", "byte 38", "\"k\" came before"]);
    assert_says(&Raw::new(0, 1).text("k").u32(13).data(64).error(), &["value type", "found 13", "byte 33"]);
    assert_says(&Raw::new(0, 1).text("k").u32(7).raw(&[2]).error(), &["expected a bool", "found 2"]);
    assert_says(&Raw::new(0, 1).text("").data(64).error(), &["metadata key 0", "length of 0"]);
    assert_says(&Raw::new(0, 1).u64(1).raw(b"\xff").data(64).error(), &["metadata key 0", "UTF-8"]);
    for alignment in [0, 3] {
        let raw = Raw::new(0, 1).text("general.alignment").u32(4).u32(alignment);
        assert_says(&raw.error(), &["general.alignment at byte 49", "power of two"]);
    }
}

#[test]
fn bad_tensors_are_named() {
    let unknown = Raw::new(1, 0).tensor("w", &[256], 16, 0).data(256).error();
    assert_says(&unknown, &["type of tensor \"w\"", "IQ2_XXS (type 16)", "another quantisation"]);
    assert_says(&Raw::new(1, 0).tensor("w", &[256], 99, 0).data(256).error(), &["\"w\"", "unknown type 99"]);
    assert_says(&Raw::new(1, 0).tensor("w", &[4, 0], 0, 0).data(64).error(), &["\"w\"", "is 0"]);
    assert_says(&Raw::new(1, 0).tensor("w", &[40], 2, 0).data(64).error(), &["\"w\"", "blocks of 32"]);
    assert_says(&Raw::new(1, 0).tensor("w", &[4], 0, 5).data(64).error(), &["offset of tensor \"w\"", "32"]);
    assert_says(&Raw::new(1, 0).tensor("w", &[1; 5], 0, 0).data(64).error(), &["at most 4, found 5"]);
    let twice = Raw::new(2, 0).tensor("w", &[8], 0, 0).tensor("w", &[8], 0, 32).data(64).error();
    assert_says(&twice, &["tensor \"w\"", "of this name already"]);
    let overlap = Raw::new(2, 0).tensor("a", &[16], 0, 0).tensor("b", &[8], 0, 32).data(128).error();
    assert_says(&overlap, &["tensor \"b\" at byte 128", "overlaps tensor \"a\"", "160"]);
    assert!(Raw::new(1, 0).tensor("scalar", &[], 0, 0).data(4).opens(), "no dimensions is one number");
}

#[test]
fn a_half_download_says_what_is_missing() {
    let message = Raw::new(1, 0).tensor("w", &[100], 0, 0).data(100).error();
    assert_says(&message, &["expected 464 bytes", "found 164", "300 bytes are missing", "resume"]);
}

#[test]
fn hostile_names_cannot_write_to_the_terminal() {
    let message = Raw::new(0, 1).text("\u{1b}[2J\n").u32(99).data(64).error();
    assert!(!message.contains('\u{1b}') && !message.contains('\n'), "{message:?}");
}

fn split_model(folder: &TempDir) -> Vec<PathBuf> {
    let model = Synth { parts: 3, ..Synth::new(Family::Llama) };
    model.write(&folder.path().join("m.gguf")).unwrap();
    (1..=3).map(|part| folder.path().join(format!("m-{part:05}-of-00003.gguf"))).collect()
}

fn error(path: &Path) -> String {
    Gguf::open(path).unwrap_err().to_string()
}

#[test]
fn split_models_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let parts = split_model(&folder);
    assert_says(&error(&parts[1]), &["part 2 of 3", "open its first part", "m-00001-of-00003.gguf"]);

    let renamed = folder.path().join("renamed.gguf");
    fs::copy(&parts[0], &renamed).unwrap();
    assert_says(&error(&renamed), &["ends in -00001-of-00003.gguf"]);

    let third = fs::read(&parts[2]).unwrap();
    fs::copy(&parts[1], &parts[2]).unwrap();
    assert_says(&error(&parts[0]), &["m-00003-of-00003.gguf", "split.no: expected 2, found 1"]);

    fs::write(&parts[2], &third[..third.len() - 64]).unwrap();
    assert_says(&error(&parts[0]), &["m-00003-of-00003.gguf", "bytes are missing"]);

    fs::remove_file(&parts[2]).unwrap();
    assert_says(&error(&parts[0]), &["m-00003-of-00003.gguf is missing"]);
}

#[test]
fn a_split_model_with_a_part_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let parts = split_model(&folder);
    let mut metadata = Metadata::new();
    metadata.set("split.no", Value::U16(2));
    metadata.set("split.count", Value::U16(3));
    let layout = Layout::new(&metadata, &[]).unwrap();
    Writer::create(&parts[2], layout, Existing::Replace).unwrap().finish().unwrap();
    assert_says(&error(&parts[0]), &["split.tensors.count", "in all 3 parts", "different models"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket.gguf");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_says(&error(&socket), &["not a regular file"]);
}
