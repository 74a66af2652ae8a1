//! A file on its way, which outlives whoever writes it: what was written before is compared and kept, only
//! what differs or is missing is written. Owns the name `X.partial`. Must not know what the bytes mean.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::FoundryError;

/// What is compared or written at once.
const PIECE_BYTES: usize = 1 << 20;
const ZEROS: [u8; 4096] = [0; 4096];

/// What a file is written to. The tests' one is faulty.
pub(crate) trait Medium {
    fn bytes(&self) -> io::Result<u64>;
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file off.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// Returns when all is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Lets what is on the disk be read from there again, as far as the system does that.
    fn forget_cached(&self);
}

impl Medium for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.read_exact(out)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn forget_cached(&self) {
        // Advice: a refusal means that the page cache is read instead of the disk.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// The name under which the file `path` grows.
pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Opens what an earlier run left at `path`, or an empty file, for this process alone.
pub(crate) fn open(path: &Path) -> Result<File, FoundryError> {
    let failed = |source| FoundryError::Partial { path: path.to_path_buf(), action: "open", source };
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let problem = "another adit is writing this file; wait for it".to_string();
            Err(FoundryError::Refused { path: path.to_path_buf(), problem })
        }
        // The other one has just finished: what we hold is its result.
        _ if fs::symlink_metadata(path).is_err() => Err(failed(io::ErrorKind::NotFound.into())),
        // Without locks, on some network disks, care is up to the user.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// A file that grows, or is found to be there already.
pub(crate) struct Partial<M> {
    path: PathBuf,
    medium: M,
    /// Where the next bytes belong.
    at: u64,
    /// Bytes that an earlier run left.
    left: u64,
    /// Bytes of those that were right.
    kept: u64,
    /// Size of the whole file.
    total: u64,
    found: Vec<u8>,
}

impl<M: Medium> Partial<M> {
    pub fn new(path: PathBuf, medium: M, total: u64) -> Result<Partial<M>, FoundryError> {
        let mut partial = Partial { path, medium, at: 0, left: 0, kept: 0, total, found: Vec::new() };
        partial.left = partial.medium.bytes().map_err(|source| partial.failed("read", source))?;
        Ok(partial)
    }

    /// Takes the file's head. Fails where an earlier run left a file with another one: it belongs to other
    /// work, unless `give_up_other` lets that go.
    pub fn begin(&mut self, head: &[u8], give_up_other: bool) -> Result<(), FoundryError> {
        let common = head.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if !self.has(&head[..common])? {
            if !give_up_other {
                return Err(FoundryError::OtherPartial { path: self.path.clone() });
            }
            self.medium.cut(0).map_err(|source| self.failed("empty", source))?;
            self.left = 0;
        }
        if self.left > self.total {
            self.medium.cut(self.total).map_err(|source| self.failed("shorten", source))?;
            self.left = self.total;
        }
        self.put(head)?;
        // What goes on later knows the work by its head, so that comes to the disk first.
        self.medium.sync().map_err(|source| self.failed("sync", source))
    }

    /// Appends bytes, or sees that they are there.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), FoundryError> {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.has(piece)? {
                self.kept += piece.len() as u64;
            } else {
                self.medium.write_at(self.at, piece).map_err(|source| self.write_failed(source))?;
            }
            self.at += piece.len() as u64;
        }
        Ok(())
    }

    pub fn put_zeros(&mut self, mut count: u64) -> Result<(), FoundryError> {
        while count > 0 {
            let bytes = count.min(ZEROS.len() as u64);
            self.put(&ZEROS[..bytes as usize])?;
            count -= bytes;
        }
        Ok(())
    }

    /// Whether the earlier run left exactly these bytes here.
    fn has(&mut self, bytes: &[u8]) -> Result<bool, FoundryError> {
        if self.at + bytes.len() as u64 > self.left {
            return Ok(false);
        }
        self.found.resize(bytes.len(), 0);
        let read = self.medium.read_at(self.at, &mut self.found);
        read.map_err(|source| self.failed("read", source))?;
        Ok(self.found == bytes)
    }

    /// Puts all on the disk, to be read from there.
    ///
    /// # Panics
    /// When bytes are missing.
    pub fn sync(&mut self) -> Result<(), FoundryError> {
        assert!(self.at == self.total, "the file is whole");
        self.medium.sync().map_err(|source| self.write_failed(source))?;
        self.medium.forget_cached();
        Ok(())
    }

    /// Reads back what was put.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FoundryError> {
        self.medium.read_at(offset, out).map_err(|source| self.failed("read back", source))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes put so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that an earlier run left and that need not be written again.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    fn failed(&self, action: &'static str, source: io::Error) -> FoundryError {
        FoundryError::Partial { path: self.path.clone(), action, source }
    }

    fn write_failed(&self, source: io::Error) -> FoundryError {
        let (path, done, missing) = (self.path.clone(), self.at, self.total - self.at);
        FoundryError::Write { path, done, missing, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full, or breaks, after so many bytes.
    struct Small {
        content: Vec<u8>,
        room: usize,
        writes: usize,
    }

    impl Medium for Small {
        fn bytes(&self) -> io::Result<u64> {
            Ok(self.content.len() as u64)
        }

        fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            out.copy_from_slice(&self.content[offset as usize..][..out.len()]);
            Ok(())
        }

        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.writes += 1;
            let end = offset as usize + bytes.len();
            // As a file system does: what fits is written.
            let fits = bytes.len().min(self.room.saturating_sub(offset as usize));
            self.content.resize(self.content.len().max(offset as usize + fits), 0);
            self.content[offset as usize..][..fits].copy_from_slice(&bytes[..fits]);
            if end > self.room { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.content.truncate(bytes as usize);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn forget_cached(&self) {}
    }

    const HEAD: &[u8] = b"the head of the file";

    fn whole() -> Vec<u8> {
        let body = (0..3 * PIECE_BYTES + 77).map(|at| (at * 31 % 251) as u8);
        HEAD.iter().copied().chain(body).chain([0; 10]).collect()
    }

    /// One run on a disk that holds `content`; what it left, and how it ended.
    fn run(
        content: Vec<u8>,
        room: usize,
        give_up_other: bool,
    ) -> (Vec<u8>, usize, Result<u64, FoundryError>) {
        let whole = whole();
        let medium = Small { content, room, writes: 0 };
        let mut partial = Partial::new("x.partial".into(), medium, whole.len() as u64).unwrap();
        let body = &whole[HEAD.len()..whole.len() - 10];
        let mut work = || {
            partial.begin(HEAD, give_up_other)?;
            body.chunks(500_000).try_for_each(|piece| partial.put(piece))?;
            partial.put_zeros(10)?;
            partial.sync()?;
            Ok(partial.kept())
        };
        let outcome = work();
        (partial.medium.content, partial.medium.writes, outcome)
    }

    #[test]
    fn a_full_disk_is_told_with_numbers_and_the_next_run_goes_on() {
        let (left, _, outcome) = run(Vec::new(), 1_000_000, false);
        let message = outcome.unwrap_err().to_string();
        for part in ["x.partial", "full", "500020 bytes", "2645815", "same command"] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
        let (left, writes, outcome) = run(left, usize::MAX, false);
        assert!(left == whole());
        assert_eq!((outcome.unwrap(), writes), (HEAD.len() as u64 + 500_000, 7));
        let (left, writes, outcome) = run(left, usize::MAX, false);
        assert!(left == whole());
        assert_eq!((outcome.unwrap(), writes), (left.len() as u64, 0), "nothing is written twice");
    }

    #[test]
    fn what_is_damaged_is_written_again_and_what_is_too_long_is_cut() {
        let mut left = whole();
        left[1_600_000] ^= 1;
        left.extend([7; 99]);
        let (left, writes, outcome) = run(left, usize::MAX, false);
        assert!(left == whole() && outcome.is_ok());
        assert_eq!(writes, 1);
    }

    #[test]
    fn a_file_of_other_work_is_left_alone_unless_told_to() {
        let other = b"another head of a file".to_vec();
        let (left, writes, outcome) = run(other.clone(), usize::MAX, false);
        assert!(left == other && writes == 0);
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("x.partial") && message.contains("other"), "{message}");
        let (left, _, outcome) = run(other, usize::MAX, true);
        assert!(left == whole() && outcome.is_ok());
    }
}
