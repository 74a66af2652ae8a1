//! How fast the products are on this machine: `cargo run --release -p adit-kernels --example speed -- 2`
//! prints, for each format, GB/s of weights met by 1 activation row and Gop/s at 64 rows, for 4096 columns,
//! with 2 threads. Weights come from memory, not from a cache: a turn walks through 128 MB of them.

#[path = "../tests/common/random.rs"]
mod random;
#[path = "../tests/common/weights.rs"]
mod weights;

use std::time::Instant;

use adit_kernels::{Activations, Isa, Job, Matrix, Pool, activation_format, matmul};
use random::{Random, activations};
use weights::{KINDS, weights};

const COLS: usize = 4096;
const BYTES: usize = 128 << 20;

/// Best time in seconds of some turns of `f`.
fn best_of(turns: usize, mut f: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..turns).map(time).fold(f64::INFINITY, f64::min)
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |arg| arg.parse().expect("a number of threads"));
    let only = std::env::args().nth(2);
    let pool = Pool::new(threads);
    println!("{threads} threads, {}", Isa::best().name());
    let words = vec![1u64; BYTES / 8];
    let read = best_of(5, || {
        pool.ranges(words.len(), 1 << 14, |_, range| {
            std::hint::black_box(words[range].iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
    });
    println!("plain reading: {:.1} GB/s", BYTES as f64 / read / 1e9);
    println!("{:8} {:>8} {:>8}", "format", "GB/s", "Gop/s");
    for kind in KINDS.into_iter().filter(|kind| only.as_ref().is_none_or(|only| only == kind.name())) {
        let format = [activation_format(kind).expect("a format with kernels")];
        let rows = BYTES / kind.row_bytes(COLS).expect("whole blocks");
        let pattern = weights(kind, 64, COLS, &mut Random(1));
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(rows / 64 * pattern.len()).collect();
        let matrix = Matrix::new(kind, rows / 64 * 64, COLS, &bytes).expect("whole rows");
        let speed = |batch: usize, matrix: Matrix<'_>, turns| {
            let x = activations(batch * COLS, &mut Random(2));
            let mut quantised = Activations::new(batch, COLS, &format);
            quantised.quantize(&pool, &x, batch, COLS, &format);
            let mut out = vec![0.0; batch * matrix.rows];
            best_of(turns, || {
                let out_stride = matrix.rows;
                matmul(&pool, &quantised, None, &mut [Job { weights: matrix, out: &mut out, out_stride }]);
            })
        };
        let one = bytes.len() as f64 / speed(1, matrix, 5) / 1e9;
        let small = Matrix::new(kind, 1024, COLS, &bytes[..1024 * kind.row_bytes(COLS).unwrap()]).unwrap();
        let many = (2 * 64 * 1024 * COLS) as f64 / speed(64, small, 3) / 1e9;
        println!("{:8} {one:8.1} {many:8.1}", kind.name());
    }
}
