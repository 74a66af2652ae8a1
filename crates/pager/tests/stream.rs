//! The pager gives the true bytes of every member, whatever the backend, the sizes and the slots.

mod common;

use adit_pager::{Group, Pager, PagerError, Part};
use common::{Disk, backends, part, visit_and_check};

/// Three parts in two files, at odd offsets, of odd sizes, the last member ending with its file.
fn odd_groups(disk: &Disk) -> Vec<Group> {
    let second_bytes = disk.contents[1].len() as u64;
    vec![
        Group { parts: vec![part(0, 13, 5001), part(0, 80_000, 4096), part(1, 1, 12_289)], members: 9 },
        Group { parts: vec![part(0, 33_333, 777), part(1, second_bytes - 6 * 3001, 3001)], members: 6 },
    ]
}

fn odd_disk() -> Disk {
    Disk::new(&[150_001, 131_113])
}

#[test]
fn every_byte_is_true_on_every_backend_at_every_number_of_slots() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    for (name, io) in backends() {
        for slots in [1, 2, 3, 7, 15, 100] {
            let mut pager = disk.pager(&io, &groups, slots);
            assert_eq!(pager.slots(), slots.min(15), "{name}: no more slots than members");
            for round in 0..4 {
                visit_and_check(&mut pager, &disk, &groups, 0, &[8, 0, 3, 5, 1, 2, 4, 7, 6]).unwrap();
                visit_and_check(&mut pager, &disk, &groups, 1, &[5, round, 4])
                    .unwrap_or_else(|_| visit_and_check(&mut pager, &disk, &groups, 1, &[5]).unwrap());
                visit_and_check(&mut pager, &disk, &groups, 1, &[]).unwrap();
                pager.tick();
            }
            assert_eq!(pager.resident(), pager.slots(), "{name}");
        }
    }
}

#[test]
fn a_member_longer_than_one_read_is_read_in_pieces() {
    let bytes = 9 * (1 << 20) + 17;
    let disk = Disk::new(&[2 * bytes + 100]);
    let groups = [Group { parts: vec![part(0, 99, bytes as u64)], members: 2 }];
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups, 2);
        visit_and_check(&mut pager, &disk, &groups, 0, &[1, 0]).unwrap();
        assert!(pager.stats().reads >= 6, "{name}: three pieces each");
    }
}

/// One group, the parts of each member elsewhere: one behind the other on blocks of their own, the same in
/// another order, sharing blocks, apart, in two files.
fn listed_group() -> Group {
    let gate = vec![(0, 4096), (0, 40_960 + 8192), (0, 70_001), (0, 90_000), (1, 131_113 - 5000)];
    let up = vec![(0, 4096 + 8192), (0, 40_960 + 16_384), (0, 75_001), (0, 120_000), (0, 150_001 - 3000)];
    let down = vec![(0, 4096 + 12_288), (0, 40_960), (0, 78_001), (1, 13), (1, 0)];
    let parts =
        [(gate, 5000), (up, 3000), (down, 8192)].map(|(places, bytes)| Part::listed(places, bytes)).into();
    Group { parts, members: 5 }
}

#[test]
fn parts_that_touch_are_read_together_and_others_apart() {
    let disk = odd_disk();
    let groups = vec![Group { parts: vec![part(0, 9, 100)], members: 2 }, listed_group()];
    for (name, io) in backends() {
        for slots in [1, 2, 7] {
            let mut pager = disk.pager(&io, &groups, slots);
            for _ in 0..3 {
                visit_and_check(&mut pager, &disk, &groups, 1, &[0, 1, 2, 3, 4]).unwrap();
                visit_and_check(&mut pager, &disk, &groups, 0, &[1]).unwrap();
            }
        }
        let Some(io) = (name != "simulated rough").then_some(io) else { continue };
        for (member, reads) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 3)] {
            let mut pager = disk.pager(&io, &groups, 1);
            visit_and_check(&mut pager, &disk, &groups, 1, &[member]).unwrap();
            assert_eq!(pager.stats().reads, reads, "{name}: member {member}");
        }
    }
    let files = disk.open(&adit_pager::IoKind::Auto);
    let blocks = |bytes: u64| bytes.next_multiple_of(files.align());
    let apart = blocks(5000 + 4096) + blocks(3000 + 4096) + blocks(8192 + 4096);
    assert!(Pager::slot_bytes(&files, &groups) <= apart, "a slot has room for the parts of one member");
}

#[test]
fn hits_are_not_read_again() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups, 15);
        visit_and_check(&mut pager, &disk, &groups, 0, &[1, 2, 3]).unwrap();
        let before = pager.stats();
        assert_eq!((before.hits, before.misses), (0, 3), "{name}");
        visit_and_check(&mut pager, &disk, &groups, 0, &[3, 1]).unwrap();
        let after = pager.stats();
        assert_eq!((after.hits, after.misses, after.evictions), (2, 3, 0), "{name}");
        assert_eq!((after.reads, after.bytes_read), (before.reads, before.bytes_read), "{name}");
    }
}

#[test]
fn hits_are_visited_before_misses_that_still_load() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    let mut pager = disk.pager(&common::simulated(Default::default()), &groups, 15);
    visit_and_check(&mut pager, &disk, &groups, 0, &[4, 6]).unwrap();
    let order = visit_and_check(&mut pager, &disk, &groups, 0, &[0, 4, 1, 6]).unwrap();
    // Member 0 may be there before the first look; the hits are in any case ahead of what follows them.
    let place = |index| order.iter().position(|&visited| visited == index).unwrap();
    assert!(place(1) < place(3) && place(3) < 4, "{order:?}");
}

#[test]
fn residents_are_visited_together_unless_others_wait_for_their_slots() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    for (slots, first) in [(15, 5), (2, 1)] {
        let mut pager = disk.pager(&common::simulated(Default::default()), &groups, slots);
        visit_and_check(&mut pager, &disk, &groups, 0, &[0, 1, 2, 3, 4]).unwrap();
        let mut batches = Vec::new();
        let outcome: Result<(), PagerError> = pager.stream(0, &[4, 3, 2, 1, 0], |ready| {
            batches.push(ready.len());
            Ok(())
        });
        outcome.unwrap();
        assert_eq!(batches[0], first, "{batches:?}");
        assert_eq!(batches.iter().sum::<usize>(), 5);
    }
}

#[test]
fn an_error_of_the_visitor_ends_the_call_and_leaves_the_pager_usable() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    #[derive(Debug)]
    enum Stopped {
        Here,
        Pager,
    }
    impl From<PagerError> for Stopped {
        fn from(_: PagerError) -> Stopped {
            Stopped::Pager
        }
    }
    for (name, io) in backends() {
        for slots in [1, 4, 15] {
            let mut pager = disk.pager(&io, &groups, slots);
            let (mut visited, mut told) = (0, 0);
            let stopped = pager.stream(0, &[0, 1, 2, 3, 4, 5], |ready| {
                visited += ready.len();
                told += usize::from(visited >= 2);
                if visited >= 2 { Err(Stopped::Here) } else { Ok(()) }
            });
            assert!(matches!(stopped, Err(Stopped::Here)), "{name}: {stopped:?}");
            assert_eq!(told, 1, "{name}: visited after an error");
            visit_and_check(&mut pager, &disk, &groups, 0, &[5, 4, 3, 2, 1, 0]).unwrap();
        }
    }
}

#[test]
fn a_panic_of_the_visitor_leaves_the_pager_usable() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    for (_, io) in backends() {
        let mut pager = disk.pager(&io, &groups, 4);
        let broken_off = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ =
                pager.stream(0, &[0, 1, 2, 3, 4, 5], |_| -> Result<(), PagerError> { panic!("expected") });
        }));
        assert!(broken_off.is_err());
        visit_and_check(&mut pager, &disk, &groups, 1, &[5, 4, 3, 2, 1, 0]).unwrap();
        visit_and_check(&mut pager, &disk, &groups, 0, &[5, 4, 3, 2, 1, 0]).unwrap();
    }
}

#[test]
#[should_panic(expected = "asked for once")]
fn a_member_asked_for_twice_in_one_call_is_our_own_bug() {
    let disk = odd_disk();
    let mut pager = disk.pager(&common::simulated(Default::default()), &odd_groups(&disk), 4);
    let _ = pager.stream(0, &[1, 2, 1], |_| Ok::<(), PagerError>(()));
}

#[test]
fn no_slot_and_no_room_in_the_file_are_refused() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    let files = disk.open(&adit_pager::IoKind::Auto);
    assert!(matches!(Pager::new(files.clone(), groups, 0), Err(PagerError::NoSlots { groups: 2 })));
    for (offset, bytes) in [(130_000, 1000), (u64::MAX, 10), (0, u64::MAX / 2)] {
        let wrong = part(1, offset, bytes);
        let groups = vec![Group { parts: vec![wrong.clone()], members: 5 }];
        let _ = Pager::slot_bytes(&files, &groups);
        let Err(error) = Pager::new(files.clone(), groups, 1) else { panic!("{wrong:?} was accepted") };
        let text = error.to_string();
        assert!(text.contains(".bin") && text.contains("bytes at offset"), "{text}");
    }
}

#[test]
fn without_groups_there_is_nothing_to_carve() {
    let disk = odd_disk();
    let files = disk.open(&adit_pager::IoKind::Auto);
    assert_eq!((Pager::slot_bytes(&files, &[]), Pager::overhead_bytes(&files, &[], 0)), (0, 0));
    let mut pager = Pager::new(files, vec![], 0).unwrap();
    pager.tick();
    assert_eq!((pager.slots(), pager.stats()), (0, Default::default()));
}

#[test]
fn a_pager_moves_to_the_thread_that_owns_the_model_and_bytes_are_shared_by_workers() {
    fn moves<T: Send>() {}
    fn is_shared<T: Sync>() {}
    moves::<Pager>();
    moves::<adit_pager::Backbone>();
    is_shared::<adit_pager::Backbone>();
    is_shared::<adit_pager::Parts<'static>>();
}

#[test]
fn what_is_asked_for_is_read_before_it_is_visited_and_may_be_left() {
    let disk = odd_disk();
    let groups = odd_groups(&disk);
    for (name, io) in backends() {
        let mut pager = disk.pager(&io, &groups, 4);
        let asked = pager.ask(0, &[2, 6, 4]).unwrap();
        let mut seen = Vec::new();
        let visited: Result<(), PagerError> = asked.visit(|ready| {
            seen.extend(ready.iter().map(|ready| ready.index));
            Ok(())
        });
        visited.unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2], "{name}: each once");
        assert_eq!(pager.stats().misses, 3, "{name}");
        assert!(pager.ask(0, &[7, 8]).is_ok());
        visit_and_check(&mut pager, &disk, &groups, 0, &[8, 7, 1, 0]).unwrap();
    }
}
