//! Thousands of damaged variants of small valid files: each is either an error that names the file or a
//! model whose extents all lie in their files and apart. Nothing panics, and memory stays bounded.
//!
//! This binary counts all allocations, so everything runs in one test.

use std::alloc::System;
use std::fs;
use std::path::Path;

use adit_format::rng::Rng;
use adit_format::synth::{Family, Synth, Vocabulary};
use adit_format::{Gguf, TensorType};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// All that parsing takes for a file of one byte: a read buffer, paths, a message.
const FIXED_BYTES: usize = 128 << 10;
/// All that it takes, freed or not, for each byte of the file.
const BYTES_PER_BYTE: usize = 24;

/// Opens a damaged file and checks all that must hold whatever the damage.
fn open(path: &Path, bytes: &[u8]) -> bool {
    // A new file each time: some file systems wait for the disk where an old one is cut to nothing.
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
    let region = Region::new(ALLOCATOR);
    let opened = Gguf::open(path);
    let change = region.change();
    let taken = change.bytes_allocated + change.bytes_reallocated.max(0) as usize;
    assert!(taken <= FIXED_BYTES + BYTES_PER_BYTE * bytes.len(), "{taken} bytes for {}", bytes.len());
    match opened {
        Err(error) => {
            let message = error.to_string();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(message.contains(name) && message.len() < 2000, "{message}");
            false
        }
        Ok(model) => {
            let mut extents: Vec<(u64, u64)> =
                model.tensors().iter().map(|tensor| (tensor.offset, tensor.offset + tensor.bytes)).collect();
            extents.sort_unstable();
            assert!(extents.iter().all(|&(start, end)| start < end && end <= bytes.len() as u64));
            assert!(extents.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            // What callers do next must not fall either.
            model.metadata().iter().for_each(|(key, value)| assert!(value.to_string().len() < 2000, "{key}"));
            true
        }
    }
}

/// A small file and where its tensor data start.
fn valid_file(folder: &Path, model: &Synth) -> (Vec<u8>, usize) {
    let path = model.write(&folder.join("valid.gguf")).unwrap();
    let first = Gguf::open(&path).unwrap().tensors().iter().map(|tensor| tensor.offset).min().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    (bytes, first as usize)
}

fn small(family: Family, vocabulary: Vocabulary) -> Synth {
    Synth {
        layers: 1,
        embedding: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        feed_forward: 32,
        experts: if family.has_experts() { 2 } else { 0 },
        vocabulary,
        ..Synth::new(family).of_type(TensorType::Q4_0)
    }
}

#[test]
fn damage_is_an_error_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.gguf");
    let models = [
        small(Family::Llama, Vocabulary::Absent(8)),
        small(Family::Qwen3Moe, Vocabulary::Absent(8)),
        small(Family::Gemma3, Vocabulary::Spm),
        small(Family::Qwen2, Vocabulary::Bpe("qwen2")),
    ];
    let mut variants = 0;
    for (seed, model) in models.iter().enumerate() {
        let (bytes, data_start) = valid_file(folder.path(), model);
        assert!(open(&path, &bytes));
        variants += truncations(&path, &bytes, data_start);
        variants += flips(&path, &bytes, data_start);
        variants += absurd_numbers(&path, &bytes, data_start);
        variants += storms(&path, &bytes, data_start, seed as u64);
    }
    assert!(variants > 5_000, "{variants}");
    for dense in [dense_keys(), dense_tensors(), dense_arrays(), dense_strings()] {
        assert!(open(&path, &dense));
        open(&path, &dense[..dense.len() - 1]);
    }
}

/// Places in the header to damage: most of them in a small one, each 61st in one with a vocabulary.
fn places(data_start: usize) -> impl Iterator<Item = usize> {
    (0..data_start).step_by(if data_start < 4096 { 3 } else { 61 })
}

/// A header of this many tensors and keys.
fn head(tensors: u64, keys: u64) -> Vec<u8> {
    [b"GGUF\x03\0\0\0".as_slice(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

/// As many keys as possible in few bytes, and likewise below: what costs most memory for a byte of file.
fn dense_keys() -> Vec<u8> {
    const KEYS: u64 = 50_000;
    let mut bytes = head(0, KEYS);
    for key in 0..KEYS {
        let name = format!("{key:x}");
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend([name.as_bytes(), &0u32.to_le_bytes(), &[7]].concat());
    }
    bytes
}

fn dense_tensors() -> Vec<u8> {
    const TENSORS: u64 = 50_000;
    const I8: u32 = 24;
    let mut bytes = head(TENSORS, 1);
    bytes.extend([&17u64.to_le_bytes(), b"general.alignment".as_slice(), &[4, 0, 0, 0, 1, 0, 0, 0]].concat());
    for tensor in 0..TENSORS {
        let name = format!("{tensor:x}");
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend([name.as_bytes(), &0u32.to_le_bytes(), &I8.to_le_bytes()].concat());
        bytes.extend(tensor.to_le_bytes());
    }
    bytes.extend(vec![1; TENSORS as usize]);
    bytes
}

/// An array of empty arrays.
fn dense_arrays() -> Vec<u8> {
    const ARRAYS: u64 = 50_000;
    let opening = [&1u64.to_le_bytes(), b"k".as_slice(), &[9, 0, 0, 0, 9, 0, 0, 0], &ARRAYS.to_le_bytes()];
    [head(0, 1), opening.concat(), vec![0; 12 * ARRAYS as usize]].concat()
}

fn dense_strings() -> Vec<u8> {
    const STRINGS: u64 = 50_000;
    let opening = [&1u64.to_le_bytes(), b"k".as_slice(), &[9, 0, 0, 0, 8, 0, 0, 0], &STRINGS.to_le_bytes()];
    [head(0, 1), opening.concat(), vec![0; 8 * STRINGS as usize]].concat()
}

/// A file cut anywhere, but for the padding at its end, is an error.
fn truncations(path: &Path, bytes: &[u8], data_start: usize) -> usize {
    let padding = bytes.iter().rev().take(31).take_while(|&&byte| byte == 0).count();
    let cuts = places(data_start).chain((data_start..bytes.len() - padding).step_by(197));
    cuts.map(|cut| assert!(!open(path, &bytes[..cut]), "cut at {cut}")).count()
}

fn flips(path: &Path, bytes: &[u8], data_start: usize) -> usize {
    let mut damaged = bytes.to_vec();
    let mut count = 0;
    for place in places(data_start) {
        for mask in [0x01, 0x80, 0xff] {
            damaged[place] ^= mask;
            open(path, &damaged);
            damaged[place] = bytes[place];
            count += 1;
        }
    }
    count
}

/// Every eight bytes in turn become a number that no count, length or offset may be.
fn absurd_numbers(path: &Path, bytes: &[u8], data_start: usize) -> usize {
    let mut count = 0;
    for place in places(data_start - 8) {
        for number in [1 << 60, u64::MAX, 1 << 32, 0, 32] {
            let mut damaged = bytes.to_vec();
            damaged[place..place + 8].copy_from_slice(&u64::to_le_bytes(number));
            open(path, &damaged);
            count += 1;
        }
    }
    count
}

/// Many random changes at once, and pieces of the file copied over others.
fn storms(path: &Path, bytes: &[u8], data_start: usize, seed: u64) -> usize {
    const STORMS: usize = 200;
    let mut rng = Rng::new(seed);
    for _ in 0..STORMS {
        let mut damaged = bytes.to_vec();
        for _ in 0..rng.between(1, 8) {
            let place = rng.below(data_start as u64) as usize;
            let length = rng.between(1, 16).min((data_start - place) as i64) as usize;
            if rng.below(2) == 0 {
                rng.fill(&mut damaged[place..place + length]);
            } else {
                let from = rng.below((data_start - length) as u64) as usize;
                damaged.copy_within(from..from + length, place);
            }
        }
        open(path, &damaged);
    }
    STORMS
}
