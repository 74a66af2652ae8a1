//! What stays when there are fewer slots than a token touches, seen through the pager's own counts.

mod common;

use adit_pager::{Group, IoKind};
use common::{Disk, backends, part, visit_and_check};

const GROUPS: usize = 6;
const MEMBERS: u32 = 16;
const MEMBER_BYTES: u64 = 64;

fn disk_and_groups() -> (Disk, Vec<Group>) {
    let group_bytes = u64::from(MEMBERS) * MEMBER_BYTES;
    let groups = (0..GROUPS as u64)
        .map(|i| Group { parts: vec![part(0, i * group_bytes, MEMBER_BYTES)], members: MEMBERS })
        .collect();
    (Disk::new(&[GROUPS * group_bytes as usize]), groups)
}

/// Runs tokens, each a list of members for each group; returns the pager's hits.
fn hits(slots: usize, tokens: &[Vec<Vec<u32>>]) -> u64 {
    let (disk, groups) = disk_and_groups();
    let mut pager = disk.pager(&IoKind::Auto, &groups, slots);
    for token in tokens {
        for (group, members) in token.iter().enumerate() {
            visit_and_check(&mut pager, &disk, &groups, group, members).unwrap();
        }
        pager.tick();
    }
    pager.stats().hits
}

/// The same under LRU.
fn lru_hits(slots: usize, tokens: &[Vec<Vec<u32>>]) -> u64 {
    let mut order: Vec<(usize, u32)> = Vec::new();
    let mut hits = 0;
    for (group, members) in tokens.iter().flat_map(|token| token.iter().enumerate()) {
        for &member in members {
            match order.iter().position(|&resident| resident == (group, member)) {
                Some(at) => {
                    hits += 1;
                    order.remove(at);
                }
                None if order.len() == slots => drop(order.remove(0)),
                None => {}
            }
            order.push((group, member));
        }
    }
    hits
}

fn token(members: impl Fn(usize) -> Vec<u32>) -> Vec<Vec<u32>> {
    (0..GROUPS).map(members).collect()
}

#[test]
fn below_one_token_cycle_a_repeated_token_hits_where_lru_never_does() {
    // 24 members a token, always the same ones.
    let tokens = vec![token(|group| vec![1, 4, 9, group as u32 % 3 + 10]); 20];
    for slots in [6, 12, 18, 23] {
        assert_eq!(lru_hits(slots, &tokens), 0);
        // All but the first token can hit at most in the slots that the current layer does not need.
        let possible = 19 * (slots as u64 - 4);
        let hits = hits(slots, &tokens);
        assert!(hits >= possible / 2, "{slots} slots: {hits} of {possible}");
    }
    assert_eq!(hits(24, &tokens), 19 * 24, "with a whole cycle of slots everything hits");
}

#[test]
fn a_skewed_trace_hits_more_than_under_lru_at_every_size() {
    let noise = common::noise(11, 1 << 16);
    let mut bytes = noise.into_iter();
    let mut tokens = vec![token(|_| Vec::new()); 200];
    for members in tokens.iter_mut().flatten() {
        while members.len() < 3 {
            // Half of the uses go to a quarter of the members.
            let byte = u32::from(bytes.next().unwrap());
            let member = if byte.is_multiple_of(2) { byte / 2 % 4 } else { byte / 2 % MEMBERS };
            if !members.contains(&member) {
                members.push(member);
            }
        }
    }
    for slots in [9, 18, 36, 72] {
        let (ours, lru) = (hits(slots, &tokens), lru_hits(slots, &tokens));
        assert!(ours >= lru, "{slots} slots: {ours} against {lru}");
    }
}

#[test]
fn slots_can_be_given_up_and_taken_back_at_any_time() {
    let disk = Disk::new(&[400_000]);
    let groups = [
        Group { parts: vec![part(0, 7, 10_000)], members: 16 },
        Group { parts: vec![part(0, 200_000, 10_000)], members: 16 },
    ];
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups, 20);
        for round in 0..60usize {
            pager.tick();
            let wanted = [20, 1, 7, 19, 2, 13][round % 6];
            let slots = pager.resize(wanted);
            assert!(slots >= wanted.min(20) && slots <= 20, "{name}: {slots} of {wanted}");
            assert_eq!(slots, pager.slots());
            let first = round as u32 % 12;
            let members: Vec<u32> = (first..first + 4).collect();
            for group in 0..2 {
                pager.hint(0, 1, &members);
                visit_and_check(&mut pager, &disk, &groups, group, &members).unwrap();
            }
            assert!(pager.resident() <= slots, "{name}");
        }
        assert_eq!(pager.resize(1000), 20, "{name}: no more than it was made with");
        assert_eq!(pager.resize(0), 1, "{name}: a pager without slots cannot work");
    }
}
