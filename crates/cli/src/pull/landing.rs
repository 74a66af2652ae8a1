//! How a file arrives in the cache folder: whole and verified, or not at all.
//!
//! `X.lock` admits one writer, `X.part` holds what has come so far, `X.part.json` says what it is a part of,
//! and a rename makes it `X`. The lock file stays: deleting it would let two writers hold two locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cache::make_parent;
use super::digest::{Digest, Hasher};
use crate::progress::note;

/// What we find when it is our turn.
pub enum Arrival {
    /// Somebody else brought the file while we waited.
    Landed,
    Ours(Landing),
}

/// The right to bring one file; held until dropped.
pub struct Landing {
    target: PathBuf,
    _lock: File,
}

/// What a partial file is a part of; without it no one may go on with it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    pub url: String,
    /// A strong ETag or a date, to be sent as `If-Range`.
    pub validator: Option<String>,
    pub total_bytes: Option<u64>,
    /// The digest that the hub announced.
    pub sha256: Option<String>,
}

impl Landing {
    /// Waits until no other process brings the same file.
    pub fn begin(target: &Path) -> Result<Arrival> {
        make_parent(target)?;
        let path = beside(target, ".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.with_context(|| format!("cannot create {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                note("another adit is pulling this file; waiting for it");
                lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        if target.is_file() {
            return Ok(Arrival::Landed);
        }
        Ok(Arrival::Ours(Landing { target: target.to_owned(), _lock: lock }))
    }

    /// Opens the partial file at its end, taking in what it already holds.
    pub fn resume(&self) -> Result<Part> {
        let path = self.part_path();
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut part = Part::new(file.with_context(|| format!("cannot create {}", path.display()))?, path);
        if self.journal().is_some() {
            part.take_in()?;
        } else {
            part.restart()?;
        }
        Ok(part)
    }

    /// Opens the partial file empty.
    pub fn start_over(&self) -> Result<Part> {
        self.set_journal(&Journal::default())?;
        let mut part = self.resume()?;
        part.restart()?;
        Ok(part)
    }

    pub fn journal(&self) -> Option<Journal> {
        let text = fs::read(self.journal_path()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn set_journal(&self, journal: &Journal) -> Result<()> {
        let path = self.journal_path();
        let text = serde_json::to_vec(journal).context("cannot write a journal as JSON")?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A folder for what a source needs on the way; gone once the file has landed.
    pub fn side_folder(&self) -> PathBuf {
        beside(&self.target, ".source")
    }

    /// Throws away what has come so far.
    pub fn discard(&mut self) -> Result<()> {
        for path in [self.part_path(), self.journal_path()] {
            remove_file(&path)?;
        }
        Ok(())
    }

    /// Gives the complete, synced partial file its name. Returns its size.
    pub fn land(self) -> Result<u64> {
        let part = self.part_path();
        let put = |()| -> std::io::Result<u64> {
            fs::rename(&part, &self.target)?;
            sync_folder(&self.target)?;
            Ok(fs::metadata(&self.target)?.len())
        };
        let bytes = put(()).with_context(|| format!("cannot move {} into place", part.display()))?;
        remove_file(&self.journal_path())?;
        // Left-overs cost space, not correctness.
        let _ = fs::remove_dir_all(self.side_folder());
        Ok(bytes)
    }

    fn part_path(&self) -> PathBuf {
        beside(&self.target, ".part")
    }

    fn journal_path(&self) -> PathBuf {
        beside(&self.target, ".part.json")
    }
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot delete {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A rename is safe from a power cut once the folder is on disk; only unix lets a folder be synced.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// A file on its way, with its running digest.
pub struct Part {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    bytes: u64,
    start: [u8; 4],
}

impl Part {
    fn new(file: File, path: PathBuf) -> Part {
        Part { file, path, hasher: Hasher::new(), bytes: 0, start: [0; 4] }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first four bytes, zeros where there are fewer.
    pub fn start(&self) -> [u8; 4] {
        self.start
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.note(bytes);
        Ok(())
    }

    /// Forgets what has come so far.
    pub fn restart(&mut self) -> Result<()> {
        let cut = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.with_context(|| format!("cannot truncate {}", self.path.display()))?;
        (self.hasher, self.bytes, self.start) = (Hasher::new(), 0, [0; 4]);
        Ok(())
    }

    /// Puts everything on disk and returns the digest.
    pub fn finish(self) -> Result<Digest> {
        self.file.sync_all().with_context(|| format!("cannot sync {}", self.path.display()))?;
        Ok(self.hasher.finish())
    }

    /// Reads what an earlier run left, and stands at its end.
    fn take_in(&mut self) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            let length = std::io::Read::read(&mut self.file, &mut buffer);
            match length.with_context(|| format!("cannot read {}", self.path.display()))? {
                0 => return Ok(()),
                length => self.note(&buffer[..length]),
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        let known = self.start.len().min(self.bytes as usize);
        for (slot, byte) in self.start[known..].iter_mut().zip(bytes) {
            *slot = *byte;
        }
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}
