//! What this process may use and has used: memory available, control-group limits, resident peaks.
//!
//! Reads `/proc` and the control-group files of Linux; elsewhere everything is unknown (`None`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// More than any of these files holds that is read.
const FILE_BYTES: usize = 8192;

/// Highest resident size of this process so far, in bytes (`VmHWM`).
pub fn peak_resident_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Resident size of this process now, in bytes (`VmRSS`).
pub fn resident_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Memory that can be taken without swapping: the machine's available memory or what is left of the
/// tightest control-group limit, whichever is less.
pub fn available_bytes() -> Option<u64> {
    MemoryWatch::open().look().map(|room| room.available)
}

/// How much memory is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can be taken without swapping.
    pub available: u64,
    /// Bytes of the machine or the control group of which they are left.
    pub total: u64,
    /// Bytes of this process that are resident, and that were swapped out.
    pub resident: u64,
    pub swapped: u64,
}

/// The files that tell how much memory is left, open, so that looking allocates nothing.
pub struct MemoryWatch {
    machine: Option<File>,
    process: Option<File>,
    groups: Vec<ControlGroup>,
}

impl MemoryWatch {
    /// Finds the control groups of this process. They are looked for once: a process seldom moves.
    pub fn open() -> MemoryWatch {
        MemoryWatch {
            machine: File::open("/proc/meminfo").ok(),
            process: File::open("/proc/self/status").ok(),
            groups: control_groups(),
        }
    }

    /// The room there is now; `None` where nobody tells.
    pub fn look(&self) -> Option<Room> {
        let mut buffer = [0; FILE_BYTES];
        let machine = self.machine.as_ref().and_then(|file| {
            let text = read(file, &mut buffer)?;
            Some((field(text, "MemAvailable:")?, field(text, "MemTotal:")?))
        });
        let groups = self.groups.iter().filter_map(ControlGroup::room);
        let (available, total) = machine.into_iter().chain(groups).min()?;
        let status = self.process.as_ref().and_then(|file| read(file, &mut buffer));
        let own = |name| status.and_then(|text| field(text, name)).unwrap_or(0);
        Some(Room { available, total, resident: own("VmRSS:"), swapped: own("VmSwap:") })
    }
}

/// One group of processes with a limit of its own, perhaps.
struct ControlGroup {
    limit: File,
    usage: File,
    stat: Option<File>,
    /// Names in `stat` of page cache that can be dropped.
    cache: [&'static str; 2],
}

impl ControlGroup {
    fn open(folder: &Path, limit: &str, usage: &str, cache: [&'static str; 2]) -> Option<ControlGroup> {
        let open = |name: &str| File::open(folder.join(name)).ok();
        Some(ControlGroup { limit: open(limit)?, usage: open(usage)?, stat: open("memory.stat"), cache })
    }

    /// Limit less usage, page cache that can be dropped not counted as used, and the limit. `None` without
    /// a limit.
    fn room(&self) -> Option<(u64, u64)> {
        let mut buffer = [0; FILE_BYTES];
        let mut number = |file: &File| read(file, &mut buffer)?.trim().parse::<u64>().ok();
        let (limit, usage) = (number(&self.limit)?, number(&self.usage)?);
        // Version 1 writes "no limit" as a number near 2^63.
        if limit > 1 << 60 {
            return None;
        }
        let stat = self.stat.as_ref().and_then(|file| read(file, &mut buffer)).unwrap_or("");
        let cached = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            self.cache.contains(&name).then(|| bytes.parse::<u64>().ok()).flatten()
        };
        let cached: u64 = stat.lines().filter_map(cached).sum();
        Some((limit.saturating_sub(usage.saturating_sub(cached)), limit))
    }
}

/// The groups of this process and all above them: a limit on any of them binds.
fn control_groups() -> Vec<ControlGroup> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().flat_map(groups_of_line).collect()
}

/// One line `id:controllers:path` of `/proc/self/cgroup`.
fn groups_of_line(line: &str) -> Vec<ControlGroup> {
    let mut fields = line.splitn(3, ':').skip(1);
    let Some((controllers, path)) = fields.next().zip(fields.next()) else { return Vec::new() };
    let (root, limit, usage, cache) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max", "memory.current", ["active_file", "inactive_file"])
    } else if controllers.split(',').any(|name| name == "memory") {
        let cache = ["total_active_file", "total_inactive_file"];
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", cache)
    } else {
        return Vec::new();
    };
    let mut folder = PathBuf::from(root).join(path.trim_start_matches('/'));
    if !folder.is_dir() {
        // In a container the path is the host's, and the group's own files lie at the root.
        folder = PathBuf::from(root);
    }
    let ancestors = folder.ancestors().take_while(|ancestor| ancestor.starts_with(root));
    ancestors.filter_map(|ancestor| ControlGroup::open(ancestor, limit, usage, cache)).collect()
}

/// The file's text from its beginning, as far as the buffer reaches.
fn read<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    #[cfg(unix)]
    let bytes = std::os::unix::fs::FileExt::read_at(file, buffer, 0).ok()?;
    #[cfg(not(unix))]
    let bytes = std::io::Read::read(&mut &*file, buffer).ok()?;
    std::str::from_utf8(&buffer[..bytes]).ok()
}

/// A `Name:   123 kB` line of a proc file, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line[name.len()..].split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
