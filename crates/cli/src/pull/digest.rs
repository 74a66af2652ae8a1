//! SHA-256 of a file, as hexadecimal text and as bytes.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest([u8; 32]);

impl Digest {
    /// A digest written down in our own tables; a malformed one does not compile.
    pub const fn pinned(hex: &str) -> Digest {
        let hex = hex.as_bytes();
        assert!(hex.len() == 64, "a SHA-256 has 64 hexadecimal digits");
        let mut bytes = [0; 32];
        let mut i = 0;
        while i < 32 {
            bytes[i] = nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]);
            i += 1;
        }
        Digest(bytes)
    }

    pub fn of_file(path: &Path) -> Result<Digest> {
        let read = |path| -> std::io::Result<Digest> {
            let mut file = File::open(path)?;
            let mut hasher = Hasher::new();
            hasher.read_from(&mut file)?;
            Ok(hasher.finish())
        };
        read(path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    pub fn of_text(text: &str) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(text.as_bytes());
        hasher.finish()
    }
}

const fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => panic!("not a lower-case hexadecimal digit"),
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Digest, String> {
        let text = text.trim().to_ascii_lowercase();
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("a SHA-256 has 64 hexadecimal digits".into());
        }
        Ok(Digest::pinned(&text))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A SHA-256 under way.
pub struct Hasher(Sha256);

impl Hasher {
    pub fn new() -> Hasher {
        Hasher(Sha256::new())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes in the rest of `reader`.
    pub fn read_from(&mut self, reader: &mut impl Read) -> std::io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(()),
                length => self.0.update(&buffer[..length]),
            }
        }
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_known_text_prints_as_published() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of_text("abc").to_string(), abc);
        assert_eq!(abc.to_uppercase().parse(), Ok(Digest::of_text("abc")));
    }

    #[test]
    fn text_that_is_no_digest_is_refused() {
        let long = "a".repeat(65);
        for text in ["", "abc", &long, &"g".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
