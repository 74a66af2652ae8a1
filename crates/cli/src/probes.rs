//! What `adit probe` found out, kept in the cache folder: one file for each disk, which is told from others
//! by its device number, model, serial number and size. Another disk under the same number is not mistaken
//! for it.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use adit_pager::DiskChoice;
use adit_pager::probe::{Cell, Probe};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::pull::cache;
use crate::whole_file;

/// A probe takes a few kilobytes; what is longer is none of ours.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One probe of one disk: what `-o json` prints and the cache keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The file or folder that was probed.
    pub path: PathBuf,
    /// Device number of the file system, `st_dev`.
    pub device: u64,
    /// What else tells the disk from others.
    pub disk: String,
    pub measured_unix_s: u64,
    pub backend: String,
    pub read_bytes: u64,
    pub depth: usize,
    pub flight_bytes: u64,
    pub direct: bool,
    /// At the choice.
    pub bytes_per_s: f64,
    pub cells: Vec<Measured>,
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub direct: bool,
    pub read_bytes: u64,
    pub depth: usize,
    pub bytes_per_s: f64,
    pub median_us: f64,
    pub p99_us: f64,
}

impl From<Cell> for Measured {
    fn from(cell: Cell) -> Measured {
        let Cell { direct, read_bytes, depth, bytes_per_s, median_us, p99_us } = cell;
        Measured { direct, read_bytes, depth, bytes_per_s, median_us, p99_us }
    }
}

impl Known {
    pub fn new(path: &Path, probe: &Probe) -> Result<Known> {
        let device = device_number(&fs::metadata(path)?);
        Ok(Known {
            path: fs::canonicalize(path)?,
            device,
            disk: identity(device),
            measured_unix_s: unix_s(),
            backend: probe.backend.into(),
            read_bytes: probe.choice.read_bytes,
            depth: probe.choice.depth,
            flight_bytes: probe.choice.flight_bytes,
            direct: probe.choice.direct,
            bytes_per_s: probe.bytes_per_s,
            cells: probe.cells.iter().copied().map(Measured::from).collect(),
        })
    }

    pub fn choice(&self) -> DiskChoice {
        let Known { read_bytes, depth, flight_bytes, direct, .. } = *self;
        DiskChoice { read_bytes, depth, flight_bytes, direct }
    }

    /// How long ago it was measured, as people say it.
    pub fn age(&self) -> String {
        let seconds = unix_s().saturating_sub(self.measured_unix_s);
        match seconds {
            0..120 => "just now".into(),
            120..7200 => format!("{} minutes ago", seconds / 60),
            7200..172_800 => format!("{} hours ago", seconds / 3600),
            _ => format!("{} days ago", seconds / 86_400),
        }
    }

    /// Keeps it for later runs; returns the file.
    pub fn keep(&self) -> Result<PathBuf> {
        let path = folder()?.join(format!("{}.json", self.device));
        cache::make_parent(&path)?;
        whole_file::write(&path, |out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            Ok(writeln!(out)?)
        })?;
        Ok(path)
    }
}

impl fmt::Display for Known {
    /// The choice, and what it gives.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, mode, rate) = (size(self.read_bytes), mode(self.direct), self.bytes_per_s / 1e9);
        let flight = self.flight_bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "reads of {read}, up to {} or {flight:.1} MiB in flight, {mode}: {rate:.2} GB/s",
            self.depth
        )
    }
}

pub fn mode(direct: bool) -> &'static str {
    if direct { "past the page cache" } else { "through the page cache" }
}

/// A read size, which is a power of two.
pub fn size(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// All disks that were probed and are still there. A cache that cannot be read knows nothing.
pub fn known() -> Vec<Known> {
    let entries = folder().ok().and_then(|folder| fs::read_dir(folder).ok());
    let paths = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let known = paths.filter_map(|path| read(&path));
    known.filter(|known| known.disk == identity(known.device)).collect()
}

/// What is known of the disk on which `path` lies.
pub fn of_path(path: &Path) -> Option<Known> {
    let device = device_number(&fs::metadata(path).ok()?);
    known().into_iter().find(|known| known.device == device)
}

fn folder() -> Result<PathBuf> {
    Ok(cache::cache_folder()?.join("probes"))
}

fn read(path: &Path) -> Option<Known> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(unix)]
fn device_number(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::dev(metadata)
}

/// One for all: there is no number to tell disks by.
#[cfg(not(unix))]
fn device_number(_metadata: &fs::Metadata) -> u64 {
    0
}

/// What Linux says of a block device, or of the disk that it is a part of; elsewhere and for file systems
/// without a device of their own nothing.
fn identity(device: u64) -> String {
    let (major, minor) = (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & !0xff);
    let Ok(mut folder) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return String::new();
    };
    if folder.join("partition").exists() {
        folder.pop();
    }
    let told = ["device/model", "device/serial", "serial", "wwid", "size"];
    let told = told.iter().filter_map(|name| fs::read_to_string(folder.join(name)).ok());
    let words: Vec<String> =
        told.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let cell = Cell {
            direct: true,
            read_bytes: 1 << 20,
            depth: 8,
            bytes_per_s: 1.5e9,
            median_us: 700.25,
            p99_us: 2000.0,
        };
        let choice = DiskChoice { read_bytes: 1 << 20, depth: 8, flight_bytes: 4 << 20, direct: true };
        let probe = Probe { cells: vec![cell], choice, bytes_per_s: 1.5e9, backend: "io_uring" };
        let known = Known::new(folder.path(), &probe).unwrap();
        assert_eq!(known.choice(), choice);
        assert_eq!(known.age(), "just now");
        assert_eq!(Known { measured_unix_s: unix_s() - 300_000, ..known.clone() }.age(), "3 days ago");
        let path = folder.path().join("probe.json");
        fs::write(&path, serde_json::to_string(&known).unwrap()).unwrap();
        assert_eq!(read(&path), Some(known));
        fs::write(&path, "{").unwrap();
        assert_eq!(read(&path), None);
    }
}
