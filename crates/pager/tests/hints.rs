//! Hints move bytes early and change nothing else.

mod common;

use adit_pager::{Extent, Group, Pager, SOURCES_MAX, SimConfig};
use common::{Disk, backends, part, simulated, visit_and_check};

const MEMBERS: u32 = 16;
const MEMBER_BYTES: u64 = 30_001;

fn disk() -> Disk {
    Disk::new(&[3 * MEMBERS as usize * MEMBER_BYTES as usize + 100])
}

fn groups() -> Vec<Group> {
    let bytes = u64::from(MEMBERS) * MEMBER_BYTES;
    let group = |at: u64| Group { parts: vec![part(0, 100 + at * bytes, MEMBER_BYTES)], members: MEMBERS };
    (0..3).map(group).collect()
}

/// Asks for members of group 0 and then of group 1, with a hint for the latter before the former.
fn token(pager: &mut Pager, disk: &Disk, hint: &[u32], first: &[u32], second: &[u32]) {
    let groups = groups();
    pager.tick();
    pager.hint(0, 1, hint);
    visit_and_check(pager, disk, &groups, 0, first).unwrap();
    pager.read_hints();
    visit_and_check(pager, disk, &groups, 1, second).unwrap();
}

#[test]
fn a_true_hint_is_read_once_and_counts_as_a_miss_that_was_foreseen() {
    let disk = disk();
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups(), 24);
        token(&mut pager, &disk, &[5], &[1, 2], &[5, 6]);
        let stats = pager.stats();
        assert_eq!((stats.hits, stats.misses), (0, 4), "{name}");
        assert_eq!((stats.hints_issued, stats.hints_used), (1, 1), "{name}");
        let before = stats.bytes_read;
        token(&mut pager, &disk, &[], &[1, 2], &[5, 6]);
        assert_eq!((pager.stats().hits, pager.stats().bytes_read), (4, before), "{name}");
    }
}

#[test]
fn a_false_hint_is_accounted_for_and_its_source_switched_off() {
    let disk = disk();
    let mut pager = disk.pager(&simulated(SimConfig::default()), &groups(), 12);
    for round in 0..200u32 {
        let of = |first: u32| [(first + round) % MEMBERS, (first + 1 + round) % MEMBERS];
        token(&mut pager, &disk, &[(8 + round) % MEMBERS], &of(0), &of(0));
        // To foresee costs time; without use it is lost.
        pager.charge(0, 1000);
    }
    let account = pager.hint_accounts()[0];
    assert!(account.issued > 0 && account.used == 0, "{account:?}");
    assert_eq!(account.wasted_bytes, account.bytes, "{account:?}");
    assert!(account.switched_off > 0 && !pager.wants_hints(0), "{account:?}");
    assert!(pager.wants_hints(1), "others are not blamed");
}

#[test]
fn nothing_is_foreseen_when_everything_is_resident() {
    let disk = disk();
    let pager = disk.pager(&simulated(SimConfig::default()), &groups(), 3 * MEMBERS as usize);
    assert!((0..SOURCES_MAX).all(|source| !pager.wants_hints(source)));
}

#[test]
fn a_hint_takes_no_slot_of_a_member_that_is_needed_before() {
    let disk = disk();
    let groups = groups();
    let mut pager = disk.pager(&simulated(SimConfig::default()), &groups, 4);
    // Every token uses the same four members: each is foreseen for the next token.
    for _ in 0..200 {
        pager.tick();
        visit_and_check(&mut pager, &disk, &groups, 0, &[1, 2]).unwrap();
        visit_and_check(&mut pager, &disk, &groups, 1, &[3, 4]).unwrap();
    }
    let before = pager.stats();
    pager.tick();
    visit_and_check(&mut pager, &disk, &groups, 0, &[1, 2]).unwrap();
    pager.hint(0, 2, &[7]);
    pager.read_hints();
    // Group 2 comes before the next token's groups, so one of group 0 may go, but none of group 1.
    visit_and_check(&mut pager, &disk, &groups, 1, &[3, 4]).unwrap();
    assert_eq!(pager.stats().misses, before.misses);
}

#[test]
fn a_hint_that_cannot_be_read_is_no_error_unless_it_is_asked_for() {
    let disk = disk();
    let groups = groups();
    let start = 100 + (u64::from(MEMBERS) + 5) * MEMBER_BYTES;
    let broken = Extent { file: 0, offset: start, bytes: 10 };
    let config = SimConfig { broken: vec![broken], ..SimConfig::default() };
    let mut pager = disk.pager(&simulated(config), &groups, 24);
    token(&mut pager, &disk, &[5], &[1, 2], &[6]);
    let mut error = String::new();
    for _ in 0..3 {
        pager.tick();
        pager.hint(0, 1, &[5]);
        pager.read_hints();
        error = visit_and_check(&mut pager, &disk, &groups, 1, &[5]).unwrap_err().to_string();
    }
    assert!(error.contains("failed 4 times"), "{error}");
    token(&mut pager, &disk, &[], &[1, 2], &[6]);
}

#[test]
fn whatever_is_hinted_every_byte_is_true() {
    let disk = disk();
    let groups = groups();
    for (name, io) in backends() {
        for slots in [1, 2, 3, 8, 20, 47] {
            let mut pager = disk.pager(&io, &groups, slots);
            let mut state = 1u64;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            for _ in 0..60 {
                pager.tick();
                for group in 0..3 {
                    for _ in 0..random(3) {
                        let first = random(MEMBERS.into()) as u32;
                        let hinted: Vec<u32> = (first..MEMBERS).step_by(3).collect();
                        pager.hint(random(SOURCES_MAX as u64) as usize, random(3) as usize, &hinted);
                    }
                    if random(2) == 0 {
                        pager.read_hints();
                    }
                    let first = random(MEMBERS.into()) as u32;
                    let members: Vec<u32> = (first..MEMBERS.min(first + 5)).collect();
                    visit_and_check(&mut pager, &disk, &groups, group, &members)
                        .unwrap_or_else(|error| panic!("{name}, {slots} slots: {error}"));
                }
            }
            let stats = pager.stats();
            assert!(slots < 8 || stats.hints_issued > 0, "{name}, {slots} slots");
            let judged: u64 = pager.hint_accounts().iter().map(|account| account.used + account.wasted).sum();
            assert!(judged <= stats.hints_issued && stats.hits + stats.misses > 0);
        }
    }
}
