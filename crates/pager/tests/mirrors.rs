//! Several disks, copies of the same files, and reads in the sizes that a disk likes: the true bytes of every
//! member, also when one copy is dead.

mod common;

use adit_pager::{
    Backbone, DiskChoice, Extent, FileSet, Group, IoKind, IoOptions, Pager, PagerError, SimConfig, probe,
};
use common::{Disk, backends, part, visit_and_check};
use std::{ops::ControlFlow, path::PathBuf, time::Duration};

fn groups() -> Vec<Group> {
    vec![Group { parts: vec![part(0, 1000, 40_000), part(1, 7, 20_001)], members: 8 }]
}

/// Two files, and a copy of each.
fn mirrored() -> (Disk, Vec<Vec<PathBuf>>) {
    let disk = Disk::new(&[400_000, 300_000]);
    let copy = |path: &PathBuf| {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        copy
    };
    let copies = vec![disk.paths.clone(), disk.paths.iter().map(copy).collect()];
    (disk, copies)
}

fn everyone() -> Vec<u32> {
    (0..8).collect()
}

#[test]
fn a_mirror_changes_no_byte_on_any_backend() {
    let (disk, copies) = mirrored();
    for (name, io) in backends() {
        let files = FileSet::open_copies(&copies, &io).unwrap();
        assert_eq!((files.len(), files.copies()), (2, 2), "{name}");
        for slots in [1, 3, 8] {
            let mut pager = Pager::new(files.clone(), groups(), slots).unwrap();
            for _ in 0..3 {
                visit_and_check(&mut pager, &disk, &groups(), 0, &everyone()).unwrap();
            }
        }
    }
}

/// All of the files of one copy.
fn whole(copy: u32) -> Vec<Extent> {
    (0..2).map(|file| Extent { file: copy * 2 + file, offset: 0, bytes: 1 << 30 }).collect()
}

#[test]
fn a_dead_copy_is_read_around_and_two_dead_copies_are_an_error() {
    let (disk, copies) = mirrored();
    for dead in 0..2 {
        let config = SimConfig { seed: 4, reorder: true, broken: whole(dead), ..SimConfig::default() };
        let files = FileSet::open_copies(&copies, IoKind::Simulated(config)).unwrap();
        let mut pager = Pager::new(files.clone(), groups(), 3).unwrap();
        for _ in 0..3 {
            visit_and_check(&mut pager, &disk, &groups(), 0, &everyone()).unwrap();
        }
        let retries = pager.stats().retries;
        visit_and_check(&mut pager, &disk, &groups(), 0, &everyone()).unwrap();
        assert_eq!(pager.stats().retries, retries, "a copy that failed is asked no more");
        let extents = [Extent { file: 0, offset: 5, bytes: 399_000 }];
        let backbone = Backbone::load(&files, &extents, &mut |_| {}).unwrap();
        assert!(backbone.bytes(0) == &disk.contents[0][5..399_005]);
    }
    let config = SimConfig { broken: [whole(0), whole(1)].concat(), ..SimConfig::default() };
    let files = FileSet::open_copies(&copies, IoKind::Simulated(config)).unwrap();
    let mut pager = Pager::new(files, groups(), 3).unwrap();
    let error = visit_and_check(&mut pager, &disk, &groups(), 0, &everyone()).unwrap_err();
    assert!(matches!(error, PagerError::Read { .. }), "{error}");
}

#[test]
fn a_mirror_that_is_cut_or_removed_is_read_around() {
    for (name, io) in backends() {
        let (disk, copies) = mirrored();
        let files = FileSet::open_copies(&copies, &io).unwrap();
        let mut pager = Pager::new(files, groups(), 2).unwrap();
        std::fs::File::options().write(true).open(&copies[1][0]).unwrap().set_len(5000).unwrap();
        visit_and_check(&mut pager, &disk, &groups(), 0, &everyone()).unwrap();
        assert!(pager.check_unchanged().is_err(), "{name}: cut");
        std::fs::remove_file(&copies[1][0]).unwrap();
        pager.check_unchanged().unwrap();
        std::fs::remove_file(&copies[0][0]).unwrap();
        assert!(pager.check_unchanged().is_err(), "{name}: none is left");
    }
}

#[test]
fn a_mirror_of_another_size_is_refused() {
    let (_disk, copies) = mirrored();
    std::fs::File::options().write(true).open(&copies[1][1]).unwrap().set_len(299_999).unwrap();
    let Err(error) = FileSet::open_copies(&copies, &IoKind::Auto) else { panic!("it was opened") };
    let text = error.to_string();
    assert!(text.contains("1.copy") && text.contains("299999") && text.contains("1.bin"), "{text}");
}

#[test]
fn neighbours_are_read_together_and_long_pieces_in_parts() {
    let disk = Disk::new(&[2 << 20]);
    // Three parts, one after the other in the file and in the slot.
    let parts = vec![part(0, 0, 64 << 10), part(0, 256 << 10, 8192), part(0, 512 << 10, 200 << 10)];
    let touching = vec![part(0, 4096, 8192), part(0, 12_288, 4096), part(0, 16_384, 3000)];
    let one = |parts: Vec<_>| vec![Group { parts, members: 1 }];
    for (parts, read_bytes, reads) in [
        (touching.clone(), 4 << 20, 1),
        (touching, 64 << 10, 1),
        (parts.clone(), 4 << 20, 3),
        (parts, 64 << 10, 1 + 1 + 4),
    ] {
        for (name, kind) in backends() {
            if name == "simulated rough" {
                continue; // It counts reads that it cut short.
            }
            let choice = DiskChoice { read_bytes, depth: 2, flight_bytes: 3 << 20, direct: true };
            let files = disk.open(IoOptions { kind, choice, ..IoOptions::default() });
            let groups = one(parts.clone());
            let mut pager = Pager::new(files, groups.clone(), 1).unwrap();
            visit_and_check(&mut pager, &disk, &groups, 0, &[0]).unwrap();
            assert_eq!(pager.stats().reads, reads, "{name}, {read_bytes}");
        }
    }
}

#[test]
fn a_probe_measures_every_combination_and_only_reads() {
    let disk = Disk::new(&[3 << 20]);
    let effort = probe::Effort {
        read_bytes: vec![64 << 10, 1 << 20],
        depths: vec![1, 4],
        buffered: true,
        each: Duration::from_millis(5),
        limit: Duration::from_secs(60),
    };
    for (name, io) in backends() {
        let mut done = 0;
        let probe = probe::measure(&disk.paths[0], &io, &effort, &mut |cells| {
            done = cells;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(done == 4 || done == 8, "{name}: {done}");
        let plausible = |cell: &probe::Cell| {
            cell.bytes_per_s > 0.0 && cell.median_us > 0.0 && cell.p99_us >= cell.median_us
        };
        assert!(probe.cells.len() == done && probe.cells.iter().all(plausible), "{name}: {probe:?}");
        assert!(probe.bytes_per_s > 0.0 && probe.choice.depth <= 4, "{name}: {:?}", probe.choice);
    }
    assert!(std::fs::read(&disk.paths[0]).unwrap() == disk.contents[0]);
    let tiny = Disk::new(&[100]);
    let mut go_on = |_| ControlFlow::Continue(());
    let measured = probe::measure(&tiny.paths[0], &IoKind::Auto, &effort, &mut go_on);
    assert!(measured.is_err());
}
