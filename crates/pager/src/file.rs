//! The files of a model, opened for direct I/O where that works, with the alignment it asks for.
//! Must not know what lies in them.

use crate::{
    FileChange, PagerError, SimConfig,
    layout::{ALIGN_MIN, Extent},
};
use std::{
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Which backend reads.
#[derive(Clone, Debug, Default)]
pub enum IoKind {
    /// io_uring where the system allows it, else plain reads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Positioned reads by a few threads.
    Plain,
    /// True bytes by way of a seeded, faulty disk.
    Simulated(SimConfig),
}

/// How long a disk may leave all reads unanswered before that is an error. A disk that sleeps wakes up
/// within 10 s; the kernel tries for as long as 30 s before it calls a disk dead.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How files are read.
#[derive(Clone, Debug)]
pub struct IoOptions {
    pub kind: IoKind,
    /// How long a disk may leave all reads unanswered before that is an error.
    pub read_timeout: Duration,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions { kind: IoKind::default(), read_timeout: READ_TIMEOUT }
    }
}

impl From<IoKind> for IoOptions {
    fn from(kind: IoKind) -> IoOptions {
        IoOptions { kind, ..IoOptions::default() }
    }
}

impl From<&IoKind> for IoOptions {
    fn from(kind: &IoKind) -> IoOptions {
        kind.clone().into()
    }
}

impl From<&IoOptions> for IoOptions {
    fn from(options: &IoOptions) -> IoOptions {
        options.clone()
    }
}

/// One open file.
pub(crate) struct OpenFile {
    pub path: PathBuf,
    pub file: File,
    pub bytes: u64,
    /// Reads pass the page cache by: offsets, lengths and memory must be aligned.
    pub direct: bool,
    identity: Identity,
}

/// What tells a file from others, and from itself before it was written to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    /// Device and number of the file, where there are such.
    number: Option<(u64, u64)>,
    modified: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        let number = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let number = None;
        Identity { number, modified: metadata.modified().ok() }
    }
}

/// The files that extents point into, by number. Cheap to clone; all clones share the descriptors.
#[derive(Clone)]
pub struct FileSet {
    inner: Arc<Inner>,
}

struct Inner {
    files: Vec<OpenFile>,
    /// Never `Auto`.
    io: IoKind,
    read_timeout: Duration,
    align: u64,
}

impl FileSet {
    pub fn open(paths: &[PathBuf], options: impl Into<IoOptions>) -> Result<FileSet, PagerError> {
        let IoOptions { kind, read_timeout } = options.into();
        let io = crate::io::choose(&kind)?;
        let simulated = matches!(io, IoKind::Simulated(_));
        let mut files = Vec::with_capacity(paths.len());
        let mut align = ALIGN_MIN;
        for path in paths {
            let failed = |source| PagerError::Open { path: path.clone(), source };
            let direct = if simulated { None } else { open_direct(path) };
            let (file, direct_align) = match direct {
                Some((file, own_align)) => (file, Some(own_align)),
                None => (open_buffered(path).map_err(failed)?, None),
            };
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(failed(io::Error::other("it is not a file")));
            }
            align = align.max(direct_align.unwrap_or(ALIGN_MIN));
            files.push(OpenFile {
                path: path.clone(),
                file,
                bytes: metadata.len(),
                direct: simulated || direct_align.is_some(),
                identity: Identity::of(&metadata),
            });
        }
        Ok(FileSet { inner: Arc::new(Inner { files, io, read_timeout, align }) })
    }

    /// Error when a file was cut, grown, rewritten or removed since it was opened. Reads through the
    /// open descriptors stay safe either way; this tells a user early and by name.
    pub fn check_unchanged(&self) -> Result<(), PagerError> {
        for (number, file) in self.inner.files.iter().enumerate() {
            if let Some(change) = self.change_of(number as u32) {
                return Err(PagerError::FileChanged { path: file.path.clone(), change });
            }
        }
        Ok(())
    }

    /// What has become of a file since it was opened, if anything has.
    pub(crate) fn change_of(&self, file: u32) -> Option<FileChange> {
        let file = self.file(file);
        let now = match std::fs::metadata(&file.path) {
            Ok(now) => now,
            Err(error) => return Some(FileChange::Gone { error: error.to_string() }),
        };
        let identity = Identity::of(&now);
        if identity.number != file.identity.number {
            return Some(FileChange::Replaced);
        }
        if now.len() != file.bytes {
            return Some(FileChange::Resized { opened: file.bytes, now: now.len() });
        }
        (identity != file.identity).then_some(FileChange::Rewritten)
    }

    /// What reads: "io_uring", "plain reads" or "simulated disk", for reports.
    pub fn backend(&self) -> &'static str {
        match self.inner.io {
            IoKind::Auto | IoKind::Plain => "plain reads",
            IoKind::Uring => "io_uring",
            IoKind::Simulated(_) => "simulated disk",
        }
    }

    /// Whether every file is read around the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.files.iter().all(|file| file.direct)
    }

    pub fn len(&self) -> usize {
        self.inner.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inner.files.is_empty()
    }

    /// The length of a file when it was opened.
    pub fn file_bytes(&self, file: u32) -> u64 {
        self.file(file).bytes
    }

    /// What offsets, lengths and memory of every read are multiples of.
    pub fn align(&self) -> u64 {
        self.inner.align
    }

    pub(crate) fn read_timeout(&self) -> Duration {
        self.inner.read_timeout
    }

    pub(crate) fn io(&self) -> &IoKind {
        &self.inner.io
    }

    #[cfg(all(target_os = "linux", not(loom)))]
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = std::os::fd::RawFd> {
        self.inner.files.iter().map(|file| std::os::fd::AsRawFd::as_raw_fd(&file.file))
    }

    pub(crate) fn file(&self, file: u32) -> &OpenFile {
        &self.inner.files[file as usize]
    }

    /// The smallest step at which a short read of this file can be continued.
    pub(crate) fn step(&self, file: u32) -> u64 {
        if self.file(file).direct { self.inner.align } else { 1 }
    }

    /// Refuses bytes that lie beyond the end of their file.
    pub(crate) fn check(&self, extent: Extent) -> Result<(), PagerError> {
        let file = self.file(extent.file);
        let end = extent.offset.checked_add(extent.bytes);
        if end.is_some_and(|end| end <= file.bytes) {
            return Ok(());
        }
        Err(PagerError::OutsideFile {
            path: file.path.clone(),
            offset: extent.offset,
            bytes: extent.bytes,
            file_bytes: file.bytes,
        })
    }

    /// Lets go of the cached pages of buffered files that were read once and are held in memory now.
    pub(crate) fn forget_cached(&self) {
        #[cfg(target_os = "linux")]
        for file in self.inner.files.iter().filter(|file| !file.direct) {
            // Advice: a refusal leaves pages that the kernel reclaims when it needs them.
            let _ = rustix::fs::fadvise(&file.file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Buffered: without read-ahead, which would read what no token asked for.
fn open_buffered(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    #[cfg(target_vendor = "apple")]
    let _ = rustix::fs::fcntl_nocache(&file, true);
    Ok(file)
}

/// The file and the alignment that direct reads of it need; None where they do not work.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<(File, u64)> {
    use crate::{layout::READ_BYTES_MAX, memory::AlignedBuf};
    use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
    use std::os::unix::fs::OpenOptionsExt;

    let flags = OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let mut align = ALIGN_MIN;
    if let Ok(stat) = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (offset, memory) = (u64::from(stat.stx_dio_offset_align), u64::from(stat.stx_dio_mem_align));
        let possible = offset.is_power_of_two() && offset <= READ_BYTES_MAX && memory <= ALIGN_MIN;
        if !possible {
            return None;
        }
        align = align.max(offset);
    }
    // Some file systems accept the flag and refuse the reads.
    let mut probe = AlignedBuf::new(align as usize).ok()?;
    crate::io::read_at(&file, &mut probe, 0).ok()?;
    Some((file, align))
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path) -> Option<(File, u64)> {
    None
}
