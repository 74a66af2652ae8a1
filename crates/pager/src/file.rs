//! The files of a model, opened for direct I/O where that works, with the alignment it asks for.
//! Must not know what lies in them.

use crate::{
    DiskChoice, FileChange, IoKind, IoOptions, PagerError,
    layout::{ALIGN_MIN, Extent, READ_BYTES_MAX},
};
use std::{
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// One open file.
pub(crate) struct OpenFile {
    pub path: PathBuf,
    pub file: File,
    pub bytes: u64,
    /// Reads pass the page cache by: offsets, lengths and memory must be aligned.
    pub direct: bool,
    /// Which of the set's devices it lies on.
    pub device: usize,
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
///
/// There may be several copies of all of them, mirrors of each other. Numbers of files name the first copy;
/// inside the pager file `f` of copy `c` of `n` files is `c * n + f`.
#[derive(Clone)]
pub struct FileSet {
    inner: Arc<Inner>,
}

struct Inner {
    files: Vec<OpenFile>,
    /// Files of one copy.
    count: usize,
    devices: Vec<Device>,
    /// Never `Auto`.
    io: IoKind,
    read_timeout: Duration,
    align: u64,
}

/// A disk, as far as we can tell: what files of one device number lie on.
pub(crate) struct Device {
    /// `st_dev`; on a simulated disk the number of the copy, on systems without such numbers 0.
    number: u64,
    pub choice: DiskChoice,
}

impl FileSet {
    /// Opens the only copy of some files. `options.mirrors` is not looked at.
    pub fn open(paths: &[PathBuf], options: impl Into<IoOptions>) -> Result<FileSet, PagerError> {
        FileSet::open_copies(&[paths.to_vec()], options)
    }

    /// Opens copies of the same files, in the same order; the first has the names that errors tell first.
    /// Reads go to all copies, in proportion to the speed of their disks, and to another copy when they fail.
    /// Refuses copies of other sizes; that the bytes are the same is for the caller to know.
    pub fn open_copies(
        copies: &[Vec<PathBuf>],
        options: impl Into<IoOptions>,
    ) -> Result<FileSet, PagerError> {
        let options = options.into();
        let io = crate::io::choose(&options.kind)?;
        let count = copies.first().map_or(0, Vec::len);
        let mut inner = Inner {
            files: Vec::with_capacity(copies.len() * count),
            count,
            devices: Vec::new(),
            io,
            read_timeout: options.read_timeout,
            align: ALIGN_MIN,
        };
        for (copy, paths) in copies.iter().enumerate() {
            assert_eq!(paths.len(), count, "a copy has all files");
            for path in paths {
                inner.open(path, copy, &options)?;
            }
        }
        Ok(FileSet { inner: Arc::new(inner) })
    }

    /// Error when a file was cut, grown, rewritten or removed since it was opened. Reads through the
    /// open descriptors stay safe either way; this tells a user early and by name.
    pub fn check_unchanged(&self) -> Result<(), PagerError> {
        for (number, file) in self.inner.files.iter().enumerate() {
            let Some(change) = self.change_of(number as u32) else { continue };
            // A mirror on a disk that was removed is not missed.
            let is_gone = |change: &FileChange| matches!(change, FileChange::Gone { .. });
            let mut others = self.copies_of(number as u32).skip(1);
            if !is_gone(&change) || others.all(|other| self.change_of(other).is_some()) {
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

    /// Files of one copy.
    pub fn len(&self) -> usize {
        self.inner.count
    }

    pub fn is_empty(&self) -> bool {
        self.inner.count == 0
    }

    /// How many copies there are of each file.
    pub fn copies(&self) -> usize {
        self.inner.files.len().checked_div(self.inner.count).unwrap_or(1)
    }

    /// The numbers of all copies of a file, this one first.
    pub(crate) fn copies_of(&self, file: u32) -> impl Iterator<Item = u32> + use<> {
        let (all, count) = (self.inner.files.len() as u32, self.inner.count as u32);
        (0..all / count).map(move |copy| (file + copy * count) % all)
    }

    /// The disks that the files lie on.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.inner.devices
    }

    /// The shortest parts that the files' disks like a long read to be split into.
    pub(crate) fn read_bytes_min(&self) -> u64 {
        let sizes = self.inner.devices.iter().map(|device| device.choice.read_bytes);
        sizes.min().unwrap_or(READ_BYTES_MAX).max(self.inner.align)
    }

    /// How the disk of the first file is read.
    pub fn choice(&self) -> DiskChoice {
        self.inner.devices.first().map_or_else(DiskChoice::default, |device| device.choice)
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

impl Inner {
    fn open(&mut self, path: &Path, copy: usize, options: &IoOptions) -> Result<(), PagerError> {
        let failed = |source| PagerError::Open { path: path.into(), source };
        let simulated = matches!(self.io, IoKind::Simulated(_));
        let buffered = open_buffered(path).map_err(failed)?;
        let metadata = buffered.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is not a file")));
        }
        let identity = Identity::of(&metadata);
        let number = match (simulated, identity.number) {
            (true, _) => copy as u64,
            (false, number) => number.map_or(0, |(device, _)| device),
        };
        let choice = options.choice_for(number);
        let direct = if choice.direct && !simulated { open_direct(path) } else { None };
        let (file, direct_align) = match direct {
            Some((file, own_align)) => (file, Some(own_align)),
            None => (buffered, None),
        };
        if let Some(first) = self.files.get(self.files.len() % self.count).filter(|_| copy > 0)
            && first.bytes != metadata.len()
        {
            return Err(PagerError::OtherMirror {
                path: path.into(),
                first: first.path.clone(),
                difference: format!("it has {} bytes, not {}", metadata.len(), first.bytes),
            });
        }
        let known = self.devices.iter().position(|device| device.number == number);
        let device = known.unwrap_or_else(|| {
            self.devices.push(Device { number, choice });
            self.devices.len() - 1
        });
        self.align = self.align.max(direct_align.unwrap_or(ALIGN_MIN));
        self.files.push(OpenFile {
            path: path.into(),
            file,
            bytes: metadata.len(),
            direct: simulated || direct_align.is_some(),
            device,
            identity,
        });
        Ok(())
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
    use crate::memory::AlignedBuf;
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
