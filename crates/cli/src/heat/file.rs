//! The heat file: little-endian numbers, `docs/streaming.md` lists them. What is not exactly what was written
//! is refused as a whole.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use adit_model::{FileHeader, Heat};
use anyhow::Result;

use crate::pull::{Digest, Hasher};

const MAGIC: &[u8; 8] = b"aditheat";
const VERSION: u32 = 1;
/// Magic, version, tokens, experts, fingerprint.
const HEADER_BYTES: usize = 8 + 4 + 4 + 4 + 32;
const DIGEST_BYTES: usize = 32;
/// A rate of 1.
const ONE: f32 = 65_535.0;
/// Older tokens count less and less: more than this says the same.
const TOKENS_MAX: f32 = 1e6;

/// Tells a model from others: the digest of its files' headers, up to the first tensor, and their sizes.
pub fn fingerprint(files: &[FileHeader]) -> Result<Digest> {
    let mut hasher = Hasher::new();
    for file in files {
        hasher.update(&file.header_bytes.to_le_bytes());
        hasher.update(&file.bytes.to_le_bytes());
        hasher.read_from(&mut File::open(&file.path)?.take(file.header_bytes))?;
    }
    Ok(hasher.finish())
}

pub fn encode(heat: &Heat, fingerprint: Digest) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [VERSION, heat.tokens.clamp(0.0, TOKENS_MAX) as u32, heat.rates.len() as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(fingerprint.bytes());
    // The `as` keeps a rate that cannot be within bounds.
    bytes.extend(heat.rates.iter().flat_map(|rate| ((rate * ONE).round() as u16).to_le_bytes()));
    let digest = digest(&bytes);
    bytes.extend(digest.bytes());
    bytes
}

/// The heat in `bytes`, of the model of that fingerprint with so many experts, or what is wrong with it.
pub fn decode(bytes: &[u8], fingerprint: Digest, experts: usize) -> Result<Heat, String> {
    let expected = HEADER_BYTES + 2 * experts + DIGEST_BYTES;
    if !bytes.starts_with(MAGIC) {
        return Err("this is no heat file".into());
    }
    let number =
        |at: usize| bytes.get(at..at + 4).and_then(|four| Some(u32::from_le_bytes(four.try_into().ok()?)));
    let (version, tokens) = (number(8), number(12));
    if let Some(version) = version.filter(|version| *version != VERSION) {
        return Err(format!("this heat file has version {version}, expected {VERSION}"));
    }
    if bytes.len() != expected {
        return Err(format!("this heat file has {} bytes, expected {expected}", bytes.len()));
    }
    let (body, sum) = bytes.split_at(expected - DIGEST_BYTES);
    if digest(body).bytes() != sum {
        return Err("this heat file is damaged".into());
    }
    if number(16) != Some(experts as u32) || body[20..HEADER_BYTES] != fingerprint.bytes() {
        return Err("this heat file belongs to another model".into());
    }
    let rates =
        body[HEADER_BYTES..].chunks_exact(2).map(|two| f32::from(u16::from_le_bytes([two[0], two[1]])) / ONE);
    Ok(Heat { tokens: tokens.unwrap_or(0) as f32, rates: rates.collect() })
}

/// What is kept at `path`; `None` when nothing is.
pub fn read(path: &Path, fingerprint: Digest, experts: usize) -> Result<Option<Heat>, String> {
    // Before it is opened: to open a pipe waits for whoever writes to it.
    let opened = std::fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true => File::open(path),
        false => Err(ErrorKind::InvalidInput.into()),
    });
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err("expected a heat file here, found a folder, a pipe or a device; move it away".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    // One byte more than there should be tells a longer one.
    let most = HEADER_BYTES + 2 * experts + DIGEST_BYTES + 1;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    decode(&bytes, fingerprint, experts).map(Some)
}

/// What two runs used, each counted by its tokens.
pub fn merge(a: &Heat, b: &Heat) -> Heat {
    let tokens = a.tokens + b.tokens;
    let share = if tokens > 0.0 { a.tokens / tokens } else { 0.5 };
    let rates = a.rates.iter().zip(&*b.rates).map(|(a, b)| share * a + (1.0 - share) * b);
    Heat { tokens, rates: rates.collect() }
}

fn digest(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use adit_format::rng::Rng;

    use super::*;

    const EXPERTS: usize = 40;

    fn heat(seed: u64) -> Heat {
        let mut rng = Rng::new(seed);
        let rates = (0..EXPERTS).map(|_| rng.below(65_536) as f32 / ONE);
        Heat { tokens: 100.0 + seed as f32, rates: rates.collect() }
    }

    fn model() -> Digest {
        Digest::of_text("a model")
    }

    #[test]
    fn heat_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heat");
        assert_eq!(read(&path, model(), EXPERTS), Ok(None));
        std::fs::write(&path, encode(&heat(1), model())).unwrap();
        assert_eq!(read(&path, model(), EXPERTS), Ok(Some(heat(1))));
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path(), model(), EXPERTS).unwrap_err().contains("found a folder"));
    }

    #[test]
    fn another_model_another_version_and_a_long_file_are_refused_for_what_they_are() {
        let bytes = encode(&heat(1), model());
        let refused = |bytes: &[u8], model, experts| decode(bytes, model, experts).unwrap_err();
        assert!(refused(&bytes, Digest::of_text("b"), EXPERTS).contains("another model"));
        assert!(refused(&bytes, model(), EXPERTS + 1).contains("expected 166"));
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert!(refused(&newer, model(), EXPERTS).contains("version 2, expected 1"));
        assert!(refused(b"GGUF", model(), EXPERTS).contains("no heat file"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heat");
        std::fs::write(&path, [&bytes[..], &[0; 9999]].concat()).unwrap();
        assert!(read(&path, model(), EXPERTS).unwrap_err().contains("expected 164"));
    }

    #[test]
    fn no_damage_goes_unseen_and_none_panics() {
        let bytes = encode(&heat(2), model());
        let mut rng = Rng::new(3);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], model(), EXPERTS).is_err(), "{length} bytes");
            let mut flipped = bytes.clone();
            flipped[length] ^= 1 << rng.below(8);
            assert!(decode(&flipped, model(), EXPERTS).is_err(), "byte {length}");
        }
        for _ in 0..2000 {
            let mut noise: Vec<u8> = (0..rng.below(300)).map(|_| rng.below(256) as u8).collect();
            if rng.below(2) == 0 {
                noise.splice(..noise.len().min(12), bytes[..12].iter().copied());
            }
            assert!(decode(&noise, model(), rng.below(64) as usize).is_err());
        }
    }

    #[test]
    fn two_runs_count_by_their_tokens() {
        let of = |tokens, rate| Heat { tokens, rates: [rate].into() };
        assert_eq!(merge(&of(300.0, 0.0), &of(100.0, 1.0)), of(400.0, 0.25));
        assert_eq!(merge(&of(0.0, 0.0), &of(0.0, 1.0)), of(0.0, 0.5));
    }
}
