//! After construction nothing is allocated or freed, on the engine's thread or on an I/O thread.
//! Alone in its binary: the counting allocator counts every thread of the process.

mod common;

use adit_pager::{Group, PagerError};
use common::{Disk, backends, part};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn streaming_allocates_and_frees_nothing() {
    let disk = Disk::new(&[600_000, 600_000]);
    let groups = [
        Group { parts: vec![part(0, 77, 30_001), part(1, 5, 9_000)], members: 16 },
        Group { parts: vec![part(1, 200_000, 25_000)], members: 16 },
    ];
    let some: Vec<u32> = vec![3, 1, 15, 7];
    let all: Vec<u32> = (0..16).collect();
    for (name, io) in backends() {
        for slots in [1, 5, 32] {
            let mut pager = disk.pager(&io, &groups, slots);
            let heat: Vec<f32> = (0..32).map(|member| member as f32 / 100.0).collect();
            pager.warm(&heat, 100.0);
            if slots > 1 {
                pager.pin(0, 3);
            }
            let region = Region::new(ALLOCATOR);
            let mut sum = 0u64;
            while pager.prewarm(slots / 2).unwrap() > 0 {}
            for round in 0..20 {
                let members = if round % 4 == 0 { &all } else { &some };
                for group in 0..groups.len() {
                    let outcome: Result<(), PagerError> = pager.stream(group, members, |ready| {
                        sum += ready.iter().map(|ready| u64::from(ready.parts.part(0)[0])).sum::<u64>();
                        Ok(())
                    });
                    outcome.unwrap();
                }
                pager.tick();
            }
            let change = region.change();
            let counts = (change.allocations, change.deallocations, change.reallocations);
            assert_eq!(counts, (0, 0, 0), "{name}, {slots} slots, sum {sum}");
        }
    }
}
