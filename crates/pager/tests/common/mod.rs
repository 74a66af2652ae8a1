//! Files of known bytes and the backends to read them with.

#![allow(dead_code)] // each test binary uses its part

use adit_pager::{Extent, FileSet, Group, IoKind, IoOptions, Pager, PagerError, Part, Ready, SimConfig};
use std::path::PathBuf;

/// A folder of files that no two places of look alike.
pub struct Disk {
    pub folder: tempfile::TempDir,
    pub paths: Vec<PathBuf>,
    pub contents: Vec<Vec<u8>>,
}

impl Disk {
    pub fn new(sizes: &[usize]) -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk { folder, paths: Vec::new(), contents: Vec::new() };
        for (file, &bytes) in sizes.iter().enumerate() {
            let path = disk.folder.path().join(format!("{file}.bin"));
            let content = noise(file as u64 + 1, bytes);
            std::fs::write(&path, &content).unwrap();
            disk.paths.push(path);
            disk.contents.push(content);
        }
        disk
    }

    pub fn open(&self, io: impl Into<IoOptions>) -> FileSet {
        FileSet::open(&self.paths, io).unwrap()
    }

    pub fn pager(&self, io: &IoKind, groups: &[Group], slots: usize) -> Pager {
        Pager::new(self.open(io), groups.to_vec(), slots).unwrap()
    }

    /// What `part` of `member` must be.
    pub fn expected(&self, part: &Part, member: u32) -> &[u8] {
        let Extent { file, offset, bytes } = part.extent(member);
        &self.contents[file as usize][offset as usize..(offset + bytes) as usize]
    }
}

pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes).map(|_| (next() >> 32) as u8).collect()
}

/// Every backend that works here, with its name.
pub fn backends() -> Vec<(&'static str, IoKind)> {
    let rough = SimConfig {
        seed: 7,
        delay_steps_max: 20,
        reorder: true,
        short_per_mille: 300,
        transient_per_mille: 300,
        transient_times: 2,
        ..SimConfig::default()
    };
    let all = [
        ("automatic", IoKind::Auto),
        ("plain", IoKind::Plain),
        ("io_uring", IoKind::Uring),
        ("simulated perfect", IoKind::Simulated(SimConfig::default())),
        ("simulated rough", IoKind::Simulated(rough)),
    ];
    all.into_iter().filter(|(_, io)| FileSet::open(&[], io).is_ok()).collect()
}

pub fn simulated(config: SimConfig) -> IoKind {
    IoKind::Simulated(config)
}

pub fn part(file: u32, offset: u64, member_bytes: u64) -> Part {
    Part::array(file, offset, member_bytes)
}

/// Asks for `members` and compares every byte; returns the order of the visits.
pub fn visit_and_check(
    pager: &mut Pager,
    disk: &Disk,
    groups: &[Group],
    group: usize,
    members: &[u32],
) -> Result<Vec<usize>, PagerError> {
    let mut order = Vec::new();
    pager.stream(group, members, |ready| {
        for &Ready { index, parts } in ready {
            order.push(index);
            assert_eq!(parts.count(), groups[group].parts.len());
            for (p, part) in groups[group].parts.iter().enumerate() {
                assert!(
                    parts.part(p) == disk.expected(part, members[index]),
                    "group {group} part {p} of {index}"
                );
            }
        }
        Ok::<(), PagerError>(())
    })?;
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(sorted, (0..members.len()).collect::<Vec<_>>(), "each member is visited exactly once");
    Ok(order)
}
