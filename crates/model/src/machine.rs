//! What this process may use and has used: memory available, control-group limits, resident peaks.
//!
//! Reads `/proc` and the control-group files of Linux; elsewhere everything is unknown (`None`).

use std::fs;
use std::path::{Path, PathBuf};

/// Highest resident size of this process so far, in bytes (`VmHWM`).
pub fn peak_resident_bytes() -> Option<u64> {
    status_field("/proc/self/status", "VmHWM:")
}

/// Resident size of this process now, in bytes (`VmRSS`).
pub fn resident_bytes() -> Option<u64> {
    status_field("/proc/self/status", "VmRSS:")
}

/// Memory that can be taken without swapping: the machine's available memory or what is left of the
/// tightest control-group limit, whichever is less.
pub fn available_bytes() -> Option<u64> {
    let machine = status_field("/proc/meminfo", "MemAvailable:");
    let group = control_group_room();
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// A `Name:   123 kB` line of a proc file, in bytes.
fn status_field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line[name.len()..].split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn control_group_room() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(group_room_of_line).min()
}

/// One line `id:controllers:path` of `/proc/self/cgroup`.
fn group_room_of_line(line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (root, limit, usage, cache) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max", "memory.current", ["active_file", "inactive_file"])
    } else if controllers.split(',').any(|name| name == "memory") {
        let cache = ["total_active_file", "total_inactive_file"];
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", cache)
    } else {
        return None;
    };
    let mut folder = PathBuf::from(root).join(path.trim_start_matches('/'));
    if !folder.is_dir() {
        // In a container the path is the host's, and the group's own files lie at the root.
        folder = PathBuf::from(root);
    }
    let mut room: Option<u64> = None;
    // A limit on any ancestor binds as well.
    for ancestor in folder.ancestors().take_while(|ancestor| ancestor.starts_with(root)) {
        if let Some(here) = room_in(ancestor, limit, usage, cache) {
            room = Some(room.map_or(here, |room| room.min(here)));
        }
    }
    room
}

/// Limit less usage, page cache that can be dropped not counted as used. `None` without a limit.
fn room_in(folder: &Path, limit: &str, usage: &str, cache: [&str; 2]) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(limit)?;
    // Version 1 writes "no limit" as a number near 2^63.
    if limit > 1 << 60 {
        return None;
    }
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        cache.contains(&name).then(|| bytes.parse::<u64>().ok()).flatten()
    };
    let cached: u64 = stat.lines().filter_map(cached).sum();
    Some(limit.saturating_sub(number(usage)?.saturating_sub(cached)))
}
