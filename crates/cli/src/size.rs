//! Owns how a person writes and reads a number of bytes: `1536MiB`, `6G`, `98.4 MB`.
//!
//! `K M G T` (with or without `B`) are powers of 1000 and `KiB MiB GiB TiB` powers of 1024, as in SI and
//! IEC. A budget of `1500M` then also fits a limit that was set in powers of 1024; the other reading
//! would exceed one set in powers of 1000, and a process over its limit is killed.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that a person wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tib", 1 << 40),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let unit = unit.trim().to_ascii_lowercase();
        let unit = if unit == "tb" { "t" } else { unit.as_str() };
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let scale =
            scale.ok_or_else(|| format!("unknown unit {unit:?}; write a size like 1536MiB, 1500M or 6G"))?;
        let bytes = decimal_times(number, scale)
            .ok_or_else(|| format!("{text:?} is not a size; write one like 1536MiB, 1500M or 6G"))?;
        if bytes == 0 {
            return Err("a size must be more than zero".into());
        }
        Ok(ByteSize(bytes))
    }
}

/// `number * scale` rounded down, exact where f64 would not be. `None` when it is no number or too large.
fn decimal_times(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 15 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction_bytes = match fraction {
        "" => 0,
        digits => {
            let numerator = u128::from(digits.parse::<u64>().ok()?) * u128::from(scale);
            (numerator / 10u128.pow(digits.len() as u32)) as u64
        }
    };
    whole.checked_mul(scale)?.checked_add(fraction_bytes)
}

impl fmt::Display for ByteSize {
    /// Decimal units with three or four digits, as disks and download pages show them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1000 => write!(f, "{} B", self.0),
            1000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        let cases = [
            ("1536MiB", 1536 << 20),
            ("6G", 6_000_000_000),
            ("1500M", 1_500_000_000),
            ("1500 mb", 1_500_000_000),
            ("1.5GiB", 3 << 29),
            ("0.1K", 100),
            ("2TB", 2_000_000_000_000),
            ("1TiB", 1 << 40),
            ("4096", 4096),
            ("512b", 512),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in ["", "G", "0", "0.0G", "-1G", "1.5.1G", "1.G", ".5G", "1e9", "6X", "99999999T", "NaN"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_with_the_unit_that_fits() {
        let shown = [999, 1000, 98_362_432, 4_330_000_000].map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(shown, ["999 B", "1.0 kB", "98.4 MB", "4.33 GB"]);
    }
}
