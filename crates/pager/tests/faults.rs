//! A disk that is slow, out of order, cut short or broken: true bytes or an error that names the place,
//! never a hang, and a pager that still works afterwards.

mod common;

use adit_pager::{
    Backbone, Extent, FileChange, FileSet, Group, IoKind, IoOptions, Pager, PagerError, ReadCause, SimConfig,
};
use common::{Disk, part, simulated, visit_and_check};
use std::time::Duration;

const MEMBERS: u32 = 8;

fn disk() -> Disk {
    Disk::new(&[400_000, 300_000])
}

/// Members of two parts in two files; member m of part 0 begins at 1000 + m * 40_000.
fn groups() -> Vec<Group> {
    vec![Group { parts: vec![part(0, 1000, 40_000), part(1, 7, 20_001)], members: MEMBERS }]
}

fn everyone() -> Vec<u32> {
    (0..MEMBERS).collect()
}

/// A place inside member 3 of part 0, and the aligned offset at which it is read.
const BROKEN: Extent = Extent { file: 0, offset: 130_000, bytes: 10 };
const BROKEN_READ_AT: u64 = (1000 + 3 * 40_000) / 4096 * 4096;

#[test]
fn delays_reordering_short_reads_and_transient_errors_change_no_byte() {
    let disk = disk();
    let groups = groups();
    for seed in 0..60 {
        let config = SimConfig {
            seed,
            delay_steps_max: seed as u32 % 50,
            reorder: seed % 2 == 0,
            short_per_mille: 700,
            transient_per_mille: 500,
            transient_times: 3,
            ..SimConfig::default()
        };
        for slots in [1, 3, 8] {
            let mut pager = disk.pager(&simulated(config.clone()), &groups, slots);
            for _ in 0..3 {
                visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap();
                pager.tick();
            }
            let stats = pager.stats();
            assert!(stats.short_reads > 0 && stats.hits + stats.misses == 24, "{stats:?}");
        }
    }
}

#[test]
fn a_transient_error_is_retried_and_counted() {
    let disk = disk();
    let groups = groups();
    let config = SimConfig { transient_per_mille: 1000, transient_times: 3, ..SimConfig::default() };
    let mut pager = disk.pager(&simulated(config), &groups, 8);
    visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap();
    let stats = pager.stats();
    assert_eq!((stats.retries, stats.reads), (3 * 16, 4 * 16), "16 reads, each failing three times");
}

#[test]
fn an_error_that_lasts_names_file_offset_and_cause_and_the_rest_stays_usable() {
    let disk = disk();
    let groups = groups();
    for slots in [1, 2, 8] {
        let config = SimConfig { seed: 5, reorder: true, broken: vec![BROKEN], ..SimConfig::default() };
        let mut pager = disk.pager(&simulated(config), &groups, slots);
        for _ in 0..3 {
            let error = visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap_err();
            let text = error.to_string();
            let PagerError::Read { path, offset, cause, attempts, .. } = error else { panic!("{text}") };
            assert_eq!((path, offset), (disk.paths[0].clone(), BROKEN_READ_AT));
            assert_eq!((cause, attempts), (ReadCause::Os(5), 4));
            assert!(text.contains("0.bin") && text.contains(&BROKEN_READ_AT.to_string()), "{text}");
            visit_and_check(&mut pager, &disk, &groups, 0, &[0, 1, 2, 4, 5, 6, 7]).unwrap();
            pager.tick();
        }
    }
}

#[test]
fn a_place_that_recovers_is_read_by_the_next_call() {
    let disk = disk();
    let groups = groups();
    let broken_times = Some(4);
    let config = SimConfig { broken: vec![BROKEN], broken_times, ..SimConfig::default() };
    let mut pager = disk.pager(&simulated(config), &groups, 2);
    assert!(visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).is_err());
    visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap();
}

#[test]
fn many_failures_at_once_are_one_error() {
    let disk = disk();
    let groups = groups();
    let whole = |file| Extent { file, offset: 0, bytes: 1 << 30 };
    let config = SimConfig {
        seed: 3,
        reorder: true,
        delay_steps_max: 9,
        broken: vec![whole(0), whole(1)],
        broken_times: Some(64),
        ..SimConfig::default()
    };
    let mut pager = disk.pager(&simulated(config), &groups, 8);
    assert!(matches!(
        visit_and_check(&mut pager, &disk, &groups, 0, &everyone()),
        Err(PagerError::Read { .. })
    ));
    assert_eq!(pager.resident(), 0, "nothing arrived whole");
    visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap();
}

#[test]
fn a_file_that_is_cut_while_in_use_is_an_error_on_every_backend() {
    for (name, io) in common::backends() {
        let disk = disk();
        let groups = groups();
        let mut pager = disk.pager(&io, &groups, 8);
        visit_and_check(&mut pager, &disk, &groups, 0, &[0, 1]).unwrap();
        let file = std::fs::File::options().write(true).open(&disk.paths[0]).unwrap();
        file.set_len(150_000).unwrap();
        let error = visit_and_check(&mut pager, &disk, &groups, 0, &[0, 6, 1]).unwrap_err();
        let text = error.to_string();
        let PagerError::Read { path, cause, change, .. } = error else { panic!("{name}: {text}") };
        assert_eq!((path, cause), (disk.paths[0].clone(), ReadCause::EndOfFile), "{name}");
        assert_eq!(change, Some(FileChange::Resized { opened: 400_000, now: 150_000 }), "{name}");
        assert!(text.contains("truncated") && text.contains("150000"), "{name}: {text}");
        // Half of member 3 is left: not enough.
        assert!(visit_and_check(&mut pager, &disk, &groups, 0, &[3]).is_err(), "{name}");
        visit_and_check(&mut pager, &disk, &groups, 0, &[0, 1, 2]).unwrap();
    }
}

#[test]
fn a_dead_io_thread_is_an_error_for_every_waiter_and_no_hang() {
    let disk = disk();
    let groups = groups();
    for panic_at_read in [1, 2, 7, 16] {
        for slots in [1, 8] {
            let config = SimConfig { panic_at_read: Some(panic_at_read), ..SimConfig::default() };
            let mut pager = disk.pager(&simulated(config.clone()), &groups, slots);
            for _ in 0..3 {
                let error = visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap_err();
                assert!(matches!(error, PagerError::ReaderDied), "{error}");
            }
        }
        if panic_at_read == 1 {
            let config = SimConfig { panic_at_read: Some(1), ..SimConfig::default() };
            let extents = [Extent { file: 0, offset: 0, bytes: 400_000 }];
            let loaded = Backbone::load(&disk.open(simulated(config)), &extents, &mut |_| {});
            assert!(matches!(loaded, Err(PagerError::ReaderDied)));
        }
    }
}

/// A disk that gives up after this long.
fn impatient(config: SimConfig) -> IoOptions {
    IoOptions { read_timeout: Duration::from_millis(50), ..simulated(config).into() }
}

#[test]
fn real_delays_errors_that_pass_short_reads_and_reordering_change_no_byte() {
    let disk = disk();
    let groups = groups();
    let config = SimConfig {
        seed: 9,
        delay_ms_max: 50,
        reorder: true,
        short_per_mille: 300,
        transient_per_mille: 200,
        transient_times: 1,
        rest_ms: 1,
        ..SimConfig::default()
    };
    let mut pager = disk.pager(&simulated(config), &groups, 3);
    visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap();
    let stats = pager.stats();
    assert!(stats.retries > 0 && stats.short_reads > 0, "{stats:?}");
}

#[test]
fn a_read_that_never_returns_is_an_error_that_names_it_and_letting_go_is_no_hang() {
    let disk = disk();
    let groups = groups();
    for reorder in [false, true] {
        let config = SimConfig { reorder, lost: vec![BROKEN], ..SimConfig::default() };
        let mut pager = Pager::new(disk.open(impatient(config)), groups.clone(), 8).unwrap();
        visit_and_check(&mut pager, &disk, &groups, 0, &[0, 1, 2, 4]).unwrap();
        for _ in 0..2 {
            let error = visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap_err();
            let text = error.to_string();
            let PagerError::Stalled { place, limit } = error else { panic!("{text}") };
            assert_eq!(place.0, Some((disk.paths[0].clone(), BROKEN_READ_AT)));
            assert_eq!(limit, Duration::from_millis(50));
            assert!(text.contains("0.bin") && text.contains("50ms"), "{text}");
        }
    }
}

#[test]
fn a_disk_that_answers_nothing_ends_loading_and_streaming_with_an_error() {
    let disk = disk();
    let groups = groups();
    let dead = SimConfig { lost_per_mille: 1000, ..SimConfig::default() };
    let mut pager = Pager::new(disk.open(impatient(dead.clone())), groups.clone(), 2).unwrap();
    let error = visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap_err();
    assert!(matches!(error, PagerError::Stalled { .. }), "{error}");
    let extents = [Extent { file: 1, offset: 5000, bytes: 200_000 }];
    let loaded = Backbone::load(&disk.open(impatient(dead)), &extents, &mut |_| {});
    let Err(PagerError::Stalled { place, .. }) = loaded else { panic!("it was loaded") };
    assert_eq!(place.0, Some((disk.paths[1].clone(), 4096)));
}

#[test]
fn a_disk_on_which_every_read_fails_is_an_error_after_four_tries() {
    let disk = disk();
    let groups = groups();
    let broken = (0..2).map(|file| Extent { file, offset: 0, bytes: 1 << 30 }).collect();
    let config = SimConfig { broken, rest_ms: 1, ..SimConfig::default() };
    let mut pager = disk.pager(&simulated(config), &groups, 8);
    let error = visit_and_check(&mut pager, &disk, &groups, 0, &everyone()).unwrap_err();
    assert!(matches!(error, PagerError::Read { attempts: 4, .. }), "{error}");
    assert!(error.to_string().contains("the disk is failing, or was removed"), "{error}");
    assert_eq!(pager.stats().reads, 4 * 16);
}

#[test]
fn other_reads_go_on_while_one_rests_before_its_next_try() {
    let disk = disk();
    let groups = groups();
    // A rest that no test would wait for.
    let config = SimConfig { broken: vec![BROKEN], rest_ms: 1 << 30, ..SimConfig::default() };
    let mut pager = Pager::new(disk.open(impatient(config)), groups.clone(), 8).unwrap();
    let mut visited = 0;
    let outcome = pager.stream(0, &everyone(), |ready| {
        visited += ready.len();
        Ok::<(), PagerError>(())
    });
    assert!(matches!(outcome, Err(PagerError::Stalled { .. })), "{outcome:?}");
    assert_eq!(visited, 7, "all but the member that cannot be read");
}

#[test]
fn a_backbone_from_a_rough_disk_is_true() {
    let disk = Disk::new(&[11_000_003]);
    for seed in 0..10 {
        let config = SimConfig {
            seed,
            delay_steps_max: 30,
            reorder: true,
            short_per_mille: 900,
            transient_per_mille: 900,
            transient_times: 3,
            ..SimConfig::default()
        };
        let extents = [Extent { file: 0, offset: 5, bytes: 10_999_998 }];
        let backbone = Backbone::load(&disk.open(simulated(config)), &extents, &mut |_| {}).unwrap();
        assert!(backbone.bytes(0) == &disk.contents[0][5..]);
    }
}

#[test]
fn a_missing_file_a_folder_and_a_changed_file_are_named() {
    let disk = disk();
    for path in [disk.folder.path().join("missing.gguf"), disk.folder.path().to_path_buf()] {
        let Err(error) = FileSet::open(std::slice::from_ref(&path), &IoKind::Auto) else {
            panic!("{} was opened", path.display());
        };
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    }
    let files = disk.open(&IoKind::Auto);
    files.check_unchanged().unwrap();
    let file = std::fs::File::options().append(true).open(&disk.paths[1]).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    let text = files.check_unchanged().unwrap_err().to_string();
    assert!(text.contains("1.bin") && text.contains("300000") && text.contains("300004"), "{text}");
    let copy = disk.folder.path().join("copy");
    std::fs::copy(&disk.paths[0], &copy).unwrap();
    std::fs::rename(&copy, &disk.paths[0]).unwrap();
    let text = files.check_unchanged().unwrap_err().to_string();
    assert!(text.contains("0.bin") && text.contains("replaced"), "{text}");
    std::fs::remove_file(&disk.paths[0]).unwrap();
    let text = files.check_unchanged().unwrap_err().to_string();
    assert!(text.contains("0.bin") && text.contains("removed"), "{text}");
}
