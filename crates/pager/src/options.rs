//! How files are read: by which backend, in which sizes, how many at once, how long to wait.

use crate::{SimConfig, layout::READ_BYTES_MAX};
use std::{path::PathBuf, time::Duration};

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

/// How a disk is read best; `probe` finds it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskChoice {
    /// Longer reads are split. A power of two, 64 KiB to 4 MiB.
    pub read_bytes: u64,
    /// Reads in flight, 1 to 64. Plain reads have at most 4.
    pub depth: usize,
    /// Bytes in flight at which no further read is begun. No more than keeps the disk busy: of reads that
    /// share the disk the first is done hardly before the last.
    pub flight_bytes: u64,
    /// Past the page cache, where the file system allows it.
    pub direct: bool,
}

impl DiskChoice {
    pub const READ_BYTES_MIN: u64 = 64 << 10;
    pub const READ_BYTES_MAX: u64 = READ_BYTES_MAX;

    /// The nearest choice that can be kept to.
    pub(crate) fn kept(self) -> DiskChoice {
        let read_bytes = self.read_bytes.clamp(Self::READ_BYTES_MIN, Self::READ_BYTES_MAX);
        DiskChoice {
            read_bytes: 1 << read_bytes.ilog2(),
            depth: self.depth.clamp(1, crate::io::DEPTH_MAX),
            flight_bytes: self.flight_bytes.max(1),
            direct: self.direct,
        }
    }
}

/// For a disk that nobody has probed: keeps most SSDs busy with reads of a megabyte.
impl Default for DiskChoice {
    fn default() -> DiskChoice {
        DiskChoice { read_bytes: READ_BYTES_MAX, depth: 32, flight_bytes: 8 << 20, direct: true }
    }
}

/// How files are read.
#[derive(Clone, Debug)]
pub struct IoOptions {
    pub kind: IoKind,
    /// Disks that were probed, by the device number of their files (`st_dev`).
    pub disks: Vec<(u64, DiskChoice)>,
    /// For all other disks.
    pub choice: DiskChoice,
    /// Past the page cache or through it, whatever the choices say.
    pub direct: Option<bool>,
    /// Other copies of the model, each by its first file. Whoever knows the parts opens them with
    /// [`FileSet::open_copies`](crate::FileSet::open_copies).
    pub mirrors: Vec<PathBuf>,
    /// How long a disk may leave all reads unanswered before that is an error.
    pub read_timeout: Duration,
}

impl IoOptions {
    /// How the disk with this device number is read.
    pub(crate) fn choice_for(&self, device: u64) -> DiskChoice {
        let known = self.disks.iter().find(|(known, _)| *known == device);
        let choice = known.map_or(self.choice, |&(_, choice)| choice).kept();
        DiskChoice { direct: self.direct.unwrap_or(choice.direct), ..choice }
    }
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            kind: IoKind::default(),
            disks: Vec::new(),
            choice: DiskChoice::default(),
            direct: None,
            mirrors: Vec::new(),
            read_timeout: READ_TIMEOUT,
        }
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
