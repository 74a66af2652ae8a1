//! Heat, pins and prewarming: what is read before anybody asks, and what never leaves.

mod common;

use adit_pager::{Extent, Group, Pager, PagerError, SimConfig};
use common::{Disk, backends, part, simulated, visit_and_check};

const MEMBERS: u32 = 16;
const MEMBER_BYTES: u64 = 30_001;

fn disk() -> Disk {
    Disk::new(&[2 * MEMBERS as usize * MEMBER_BYTES as usize + 100])
}

fn groups() -> Vec<Group> {
    let bytes = u64::from(MEMBERS) * MEMBER_BYTES;
    let group = |at: u64| Group { parts: vec![part(0, 100 + at * bytes, MEMBER_BYTES)], members: MEMBERS };
    (0..2).map(group).collect()
}

/// Of group 0 members 3 and 5, of group 1 member 7, the hottest last.
fn heat() -> Vec<f32> {
    let mut rates = vec![0.0; 2 * MEMBERS as usize];
    (rates[3], rates[5], rates[16 + 7]) = (0.1, 0.2, 0.3);
    rates
}

fn prewarm_all(pager: &mut Pager) -> usize {
    let mut read = 0;
    loop {
        match pager.prewarm(usize::MAX).unwrap() {
            0 => return read,
            more => read += more,
        }
    }
}

#[test]
fn the_hottest_are_read_into_free_slots_pins_first_and_then_nothing_more() {
    let disk = disk();
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups(), 4);
        assert_eq!(prewarm_all(&mut pager), 0, "{name}: nothing is known");
        pager.warm(&heat(), 4096.0);
        pager.pin(1, 9);
        assert_eq!(pager.prewarmable(), 4);
        assert_eq!(pager.prewarm(2).unwrap(), 2, "{name}");
        assert!(pager.is_resident(1, 9) && pager.is_resident(1, 7), "{name}: pinned, then hottest");
        assert_eq!(prewarm_all(&mut pager), 2, "{name}");
        assert!(pager.is_resident(0, 3) && pager.is_resident(0, 5), "{name}");
        let read = (pager.stats().reads, pager.stats().bytes_read);
        assert_eq!((prewarm_all(&mut pager), pager.prewarmable()), (0, 0), "{name}");
        assert_eq!((pager.stats().reads, pager.stats().bytes_read), read, "{name}: all slots are filled");
        visit_and_check(&mut pager, &disk, &groups(), 0, &[3, 5]).unwrap();
        visit_and_check(&mut pager, &disk, &groups(), 1, &[7, 9]).unwrap();
        let stats = pager.stats();
        assert_eq!((stats.hits, stats.misses, stats.prewarmed), (4, 0, 4), "{name}");
        assert_eq!(stats.reads, read.0, "{name}");
    }
}

#[test]
fn what_was_prewarmed_stays_until_its_groups_turn_while_others_come_and_go() {
    let disk = disk();
    let mut pager = disk.pager(&simulated(SimConfig::default()), &groups(), 5);
    let mut rates = heat();
    (rates[3], rates[5], rates[16 + 8]) = (0.0, 0.0, 0.01);
    pager.warm(&rates, 4096.0);
    assert_eq!(prewarm_all(&mut pager), 2);
    pager.tick();
    for some in [[0, 1, 2], [3, 4, 5], [13, 14, 15]] {
        visit_and_check(&mut pager, &disk, &groups(), 0, &some).unwrap();
        assert!(pager.is_resident(1, 7) && pager.is_resident(1, 8));
    }
    visit_and_check(&mut pager, &disk, &groups(), 1, &[7, 8]).unwrap();
    assert_eq!(pager.stats().hits, 2);
    visit_and_check(&mut pager, &disk, &groups(), 1, &[9]).unwrap();
    visit_and_check(&mut pager, &disk, &groups(), 0, &[0, 1, 2]).unwrap();
    assert!(!pager.is_resident(1, 7) || !pager.is_resident(1, 8), "after its turn it counts as others do");
}

#[test]
fn what_was_never_used_is_not_read_and_nothing_leaves_for_what_was() {
    let disk = disk();
    let mut pager = disk.pager(&simulated(SimConfig::default()), &groups(), 8);
    pager.warm(&heat(), 4096.0);
    assert_eq!((prewarm_all(&mut pager), pager.resident()), (3, 3));
    let mut pager = disk.pager(&simulated(SimConfig::default()), &groups(), 2);
    visit_and_check(&mut pager, &disk, &groups(), 0, &[1, 2]).unwrap();
    pager.warm(&heat(), 4096.0);
    assert_eq!((prewarm_all(&mut pager), pager.stats().evictions), (0, 0));
}

#[test]
fn a_pinned_member_never_leaves_whatever_is_asked_for_and_however_few_slots_are_left() {
    let disk = disk();
    let groups = groups();
    let all: Vec<u32> = (0..MEMBERS).collect();
    for (name, io) in backends() {
        for slots in [4, 5, 9] {
            let mut pager = disk.pager(&io, &groups, slots);
            [(0, 2), (1, 2), (0, 11)].into_iter().for_each(|(group, member)| pager.pin(group, member));
            pager.pin(1, 2);
            assert_eq!(pager.pinned(), 3, "what is pinned twice counts once");
            let is_there = |pager: &Pager| pager.is_resident(0, 2) && pager.is_resident(1, 2);
            for round in 0..40u32 {
                pager.tick();
                let hinted = [2, 11, round % MEMBERS, (round + 1) % MEMBERS];
                pager.hint(0, 1, &hinted);
                pager.read_hints();
                let mut some = vec![2, round % MEMBERS, (round * 7 + 1) % MEMBERS];
                some.sort();
                some.dedup();
                let some = if round % 3 == 0 { &all } else { &some };
                visit_and_check(&mut pager, &disk, &groups, 0, some).unwrap();
                visit_and_check(&mut pager, &disk, &groups, 1, some).unwrap();
                assert!(is_there(&pager), "{name}, {slots} slots, round {round}");
                if round == 20 {
                    assert_eq!(pager.resize(1), 4, "{name}: the pinned ones and one for all others");
                }
            }
            let stats = pager.stats();
            assert!(stats.evictions > 0 && is_there(&pager), "{name}: {stats:?}");
        }
    }
}

#[test]
fn a_broken_place_ends_prewarming_with_an_error_and_the_pager_goes_on() {
    let disk = disk();
    let broken = vec![Extent { file: 0, offset: 100 + 5 * MEMBER_BYTES, bytes: MEMBER_BYTES }];
    let config = SimConfig { broken, broken_times: Some(12), rest_ms: 0, ..SimConfig::default() };
    let mut pager = disk.pager(&simulated(config), &groups(), 8);
    pager.warm(&heat(), 100.0);
    let outcome: Result<usize, PagerError> = pager.prewarm(usize::MAX);
    assert!(outcome.unwrap_err().to_string().contains("offset"));
    assert!(!pager.is_resident(0, 5) && pager.stats().prewarmed == 0);
    for _ in 0..4 {
        let _ = visit_and_check(&mut pager, &disk, &groups(), 0, &[5]);
    }
    visit_and_check(&mut pager, &disk, &groups(), 0, &[3, 5]).unwrap();
}
