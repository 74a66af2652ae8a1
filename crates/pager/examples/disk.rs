//! How fast the backends read: random parts of 1 MiB through a pager with a few slots, so that nearly
//! every part is a miss, and the whole file as a backbone.
//!
//! `cargo run --release -p adit-pager --example disk -- FILE [MiB to read]`

use adit_pager::{Backbone, Extent, FileSet, Group, IoKind, Pager, PagerError, Part};
use std::{path::PathBuf, time::Instant};

const PART_BYTES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: disk FILE [MiB]")?);
    let total_mib: u64 = arguments.next().map_or(Ok(2048), |text| text.parse())?;
    for io in [IoKind::Uring, IoKind::Plain] {
        match FileSet::open(std::slice::from_ref(&path), &io) {
            Ok(files) => measure(files, total_mib)?,
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

fn measure(files: FileSet, total_mib: u64) -> Result<(), PagerError> {
    let (name, direct) = (files.backend(), if files.is_direct() { "direct" } else { "buffered" });
    let bytes = files.file_bytes(0);
    let whole = [Extent { file: 0, offset: 0, bytes: bytes.min(total_mib << 20) }];
    // Twice: memory that a virtual machine touches for the first time is slower than most disks.
    for turn in ["first", "again"] {
        let start = Instant::now();
        Backbone::load(&files, &whole, &mut |_| {})?;
        let rate = whole[0].bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("{name:12} {direct:9} backbone, {turn} {rate:.2} GB/s");
    }

    // As a layer asks: a handful of members at once, all of them before the next layer.
    let members = (bytes / PART_BYTES) as u32;
    let group = Group { parts: vec![Part::array(0, 0, PART_BYTES)], members };
    for together in [1, 8, 32] {
        let mut pager = Pager::new(files.clone(), vec![group.clone()], 64)?;
        let mut random = 1u64;
        let start = Instant::now();
        while pager.stats().bytes_read < total_mib << 20 {
            let mut wanted = Vec::new();
            while wanted.len() < together.min(members as usize) {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let member = (random >> 33) as u32 % members;
                if !wanted.contains(&member) {
                    wanted.push(member);
                }
            }
            pager.stream(0, &wanted, |ready| {
                std::hint::black_box(ready[0].parts.part(0)[0]);
                Ok::<(), PagerError>(())
            })?;
            pager.tick();
        }
        let stats = pager.stats();
        let rate = stats.bytes_read as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("{name:12} {direct:9} random 1 MiB, {together:2} together {rate:.2} GB/s");
    }
    Ok(())
}
