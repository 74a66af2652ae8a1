//! How fast the products are on this machine: `cargo run --release -p adit-kernels --example speed -- 2`
//! prints, for each format, GB/s of weights met by 1 activation row and Gop/s at 2 to 512 rows, for 4096
//! columns, with 2 threads. Weights of the first come from memory (a turn walks through 128 MB of them) and,
//! to see what the instructions alone could do, from the second-level cache with one thread. A format named
//! behind the threads is measured alone, and columns behind it are taken for 4096; `ADIT_ISA` picks the
//! instruction set.

#[path = "../tests/common/random.rs"]
mod random;
#[path = "../tests/common/weights.rs"]
mod weights;

use std::time::Instant;

use adit_kernels::{Activations, Isa, Job, Matrix, Pool, Selection, activation_format, matmul};
use random::{Random, activations};
use weights::{KINDS, weights};

const BYTES: usize = 128 << 20;
const BATCHES: [usize; 7] = [2, 4, 7, 16, 23, 64, 512];
/// Weights of one timed turn.
const PART_BYTES: usize = 4 << 20;

/// Seconds that `f` takes in a good turn: one of the fastest tenth, because other programs disturb.
fn seconds(turns: usize, mut f: impl FnMut(usize)) -> f64 {
    let time = |turn| {
        let start = Instant::now();
        f(turn);
        start.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..turns).map(time).collect();
    times.sort_by(f64::total_cmp);
    times[turns / 10]
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |arg| arg.parse().expect("a number of threads"));
    let only = std::env::args().nth(2);
    let cols = std::env::args().nth(3).map_or(4096, |arg| arg.parse().expect("a number of columns"));
    let pool = Pool::new(threads);
    println!("{threads} threads, {}", Isa::best().name());
    let words = vec![1u64; BYTES / 8];
    let parts: Vec<&[u64]> = words.chunks_exact(PART_BYTES / 8).collect();
    let read = seconds(100, |turn| {
        let part = parts[turn % parts.len()];
        pool.ranges(part.len(), 1 << 12, |_, range| {
            std::hint::black_box(part[range].iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
    });
    println!("plain reading: {:.1} GB/s", PART_BYTES as f64 / read / 1e9);
    print!("{:8} {:>8} {:>8}", "format", "GB/s", "in cache");
    BATCHES.iter().for_each(|batch| print!(" {batch:>6}"));
    println!(" rows: Gop/s");
    for kind in KINDS.into_iter().filter(|kind| only.as_ref().is_none_or(|only| only == kind.name())) {
        let format = [activation_format(kind).expect("a format with kernels")];
        let row_bytes = kind.row_bytes(cols).expect("whole blocks");
        let pattern = weights(kind, 64, cols, &mut Random(1));
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(BYTES).collect();
        // Multiplies some rows, each turn the next ones; answers with the seconds of a turn.
        let speed = |pool: &Pool, batch: usize, rows: usize, parts: usize, turns: usize| {
            let x = activations(batch * cols, &mut Random(2));
            let mut quantised = Activations::new(batch, cols, &format);
            quantised.quantize(pool, &x, batch, cols, &format);
            let mut out = vec![0.0; batch * rows];
            seconds(turns, |turn| {
                let part = &bytes[turn % parts * rows * row_bytes..][..rows * row_bytes];
                let weights = Matrix::new(kind, rows, cols, part).expect("whole rows");
                let all = Selection::Run { first: 0, count: batch };
                matmul(pool, &quantised, &mut [Job { weights, rows: all, out: &mut out, out_stride: rows }]);
            })
        };
        let rows = PART_BYTES / row_bytes;
        let one = (rows * row_bytes) as f64 / speed(&pool, 1, rows, BYTES / PART_BYTES, 200) / 1e9;
        let rows = (256 << 10) / row_bytes;
        let cached = (rows * row_bytes) as f64 / speed(&Pool::new(1), 1, rows, 1, 1000) / 1e9;
        print!("{:8} {one:8.1} {cached:8.1}", kind.name());
        for batch in BATCHES {
            let turns = 40 + 1000 / batch;
            let many = (2 * batch * 512 * cols) as f64 / speed(&pool, batch, 512, 1, turns) / 1e9;
            print!(" {many:6.0}");
        }
        println!();
    }
}
