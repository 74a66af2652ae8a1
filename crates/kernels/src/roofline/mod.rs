//! The most that the machine can do, for the kernels to be held against: loops that only read memory, or
//! only multiply and add in registers, spread over a pool as products are. Owns the loops; the caller takes
//! the time.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::isa::Isa;
use crate::pool::Pool;

/// Bytes that one thread reads at a time: long runs, as products read weights.
const PIECE_BYTES: usize = 128 * 1024;
const LINE_BYTES: usize = 64;
type Line = [u8; LINE_BYTES];
/// Steps of a chain that a thread takes at a time: some microseconds.
const PIECE_STEPS: usize = 1024;

/// How memory may be read: which way is fastest differs between machines, and with their neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Places of a piece that are read in turn: 1 or 4.
    pub streams: usize,
    /// How far ahead of itself each stream asks for its lines; 0 leaves that to the processor.
    pub ahead_bytes: usize,
}

impl Reading {
    pub const WAYS: [Reading; 4] = [
        Reading { streams: 1, ahead_bytes: 0 },
        Reading { streams: 4, ahead_bytes: 0 },
        Reading { streams: 1, ahead_bytes: 4096 },
        Reading { streams: 4, ahead_bytes: 2048 },
    ];
}

/// Reads all whole pieces of 128 KiB of `bytes` once and says how many bytes that were.
pub fn read(pool: &Pool, bytes: &[u8], reading: Reading) -> usize {
    let pieces = bytes.as_chunks::<PIECE_BYTES>().0;
    let ahead = reading.ahead_bytes / LINE_BYTES;
    let run = match reading.streams {
        1 => xor_of::<1>,
        4 => xor_of::<4>,
        streams => panic!("{streams} streams"),
    };
    // Always with all threads, here and below: what help was worth before must not count.
    pool.helped_ranges(pieces.len(), 1, |_, range| {
        for piece in &pieces[range] {
            black_box(run(pool.isa(), piece.as_chunks().0, ahead));
        }
    });
    size_of_val(pieces)
}

/// All words of the lines, read in `STREAMS` places in turn.
fn xor_of<const STREAMS: usize>(isa: Isa, lines: &[Line], ahead: usize) -> u64 {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(isa) => x86::xor_of::<STREAMS>(isa.avx2(), lines, ahead),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(isa) => x86::xor_of::<STREAMS>(isa, lines, ahead),
        _ => {
            // Portable code has no way to ask for lines.
            let _ = ahead;
            let words =
                |line: &Line| line.as_chunks().0.iter().fold(0, |xor, w| xor ^ u64::from_ne_bytes(*w));
            lines.iter().fold(0, |xor, line| xor ^ words(line))
        }
    }
}

/// Multiplies bytes and adds the products on all threads, `pieces` pieces of work, with the instructions that
/// the integer kernels of the pool's instruction set are built on. Says how many operations that were: two
/// for each product.
pub fn integer_products(pool: &Pool, pieces: usize) -> u64 {
    match pool.isa() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(isa) => repeat(pool, pieces, |steps| x86::dpbusd(isa, steps)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(isa) => repeat(pool, pieces, |steps| x86::maddubs(isa, steps)),
        _ => repeat(pool, pieces, portable_integers),
    }
}

/// As [`integer_products`], for floats by fused multiply-adds.
pub fn float_products(pool: &Pool, pieces: usize) -> u64 {
    match pool.isa() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(isa) => repeat(pool, pieces, |steps| x86::fma_512(isa, steps)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(isa) => repeat(pool, pieces, |steps| x86::fma_256(isa, steps)),
        _ => repeat(pool, pieces, portable_floats),
    }
}

/// `chain` does so many steps and says how many operations they were.
fn repeat(pool: &Pool, pieces: usize, chain: impl Fn(usize) -> u64 + Sync) -> u64 {
    let done = AtomicU64::new(0);
    pool.helped_ranges(pieces, 1, |_, range| {
        for _ in range {
            done.fetch_add(chain(PIECE_STEPS), Ordering::Relaxed);
        }
    });
    done.into_inner()
}

const LANES: usize = 64;

/// What the compiler makes of bytes multiplied and added in the plain way.
fn portable_integers(steps: usize) -> u64 {
    let (codes, others) = (black_box([3i8; LANES]), black_box([5i8; LANES]));
    let mut sums = [0i32; LANES];
    for _ in 0..steps {
        for ((sum, code), other) in sums.iter_mut().zip(black_box(&codes)).zip(&others) {
            *sum = sum.wrapping_add(*code as i32 * *other as i32);
        }
    }
    black_box(sums);
    (steps * LANES * 2) as u64
}

/// The same for floats.
fn portable_floats(steps: usize) -> u64 {
    let (factors, others) = (black_box([0.5f32; LANES]), black_box([1.0f32; LANES]));
    let mut sums = [0.0f32; LANES];
    for _ in 0..steps {
        for ((sum, factor), other) in sums.iter_mut().zip(&factors).zip(&others) {
            *sum = sum.mul_add(*factor, *other);
        }
    }
    black_box(sums);
    (steps * LANES * 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_reading_reads_all() {
        let bytes = vec![1u8; 5 * PIECE_BYTES + 100];
        let mut piece = [0u8; PIECE_BYTES];
        // One word in each place that a stream may begin or end with.
        for place in [0, PIECE_BYTES / 8, PIECE_BYTES / 2, PIECE_BYTES - 8] {
            piece[place] = 1 << (place % 7);
        }
        let words = bytemuck::cast_slice::<u8, u64>(&piece);
        let all = words.iter().fold(0, |all, word| all ^ word);
        for isa in Isa::all() {
            let lines = piece.as_chunks().0;
            for ahead in [0, 4, 5000] {
                let found = [xor_of::<1>, xor_of::<4>].map(|xor_of| xor_of(isa, lines, ahead));
                assert_eq!(found, [all; 2], "{}", isa.name());
            }
            let pool = Pool::with_isa(2, isa);
            for way in Reading::WAYS {
                assert_eq!(read(&pool, &bytes, way), 5 * PIECE_BYTES);
            }
        }
    }

    #[test]
    fn operations_are_counted_in_proportion_to_the_pieces() {
        for isa in Isa::all() {
            let pool = Pool::with_isa(2, isa);
            for products in [integer_products, float_products] {
                let one = products(&pool, 1);
                assert!(one > 0);
                assert_eq!(products(&pool, 7), 7 * one, "{}", isa.name());
            }
        }
    }
}
