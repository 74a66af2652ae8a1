//! Chains of the instructions that x86 kernels multiply and add with: enough of them side by side to hide how
//! long each takes, nothing else in the loop. Knows no threads and no time.

use std::arch::x86_64::*;
use std::hint::black_box;

use crate::isa::{Avx2, Avx512};

/// Sums side by side with 16 registers, of which the factors take some.
const SUMS_256: usize = 12;
/// The same with 32 registers.
const SUMS_512: usize = 24;
/// Pairs of products that 16 bits hold for codes of 4 bits, as the AVX2 kernels sum them.
const PAIRS: usize = 8;

/// The xor of all words of `lines`: equal parts of them, one for each stream, are walked side by side.
/// With `ahead`, each line is asked for that many lines before it is read.
pub fn xor_of<const STREAMS: usize>(_: Avx2, lines: &[[u8; 64]], ahead: usize) -> u64 {
    #[target_feature(enable = "avx2")]
    fn walk<const STREAMS: usize>(lines: &[[u8; 64]], ahead: usize) -> u64 {
        let run = lines.len() / STREAMS;
        let mut sums = [[_mm256_setzero_si256(); 2]; STREAMS];
        for index in 0..run {
            for (stream, sum) in sums.iter_mut().enumerate() {
                let place = stream * run + index;
                if ahead > 0 {
                    let line = lines[(place + ahead).min(lines.len() - 1)].as_ptr();
                    _mm_prefetch::<_MM_HINT_T0>(line.cast());
                }
                for (sum, half) in sum.iter_mut().zip(lines[place].as_chunks::<32>().0) {
                    // SAFETY: `half` is 32 bytes, and the load needs no alignment.
                    let words = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
                    *sum = _mm256_xor_si256(*sum, words);
                }
            }
        }
        let mut xor = _mm256_setzero_si256();
        for sum in sums.as_flattened() {
            xor = _mm256_xor_si256(xor, *sum);
        }
        let low = _mm256_extract_epi64::<0>(xor) ^ _mm256_extract_epi64::<1>(xor);
        let high = _mm256_extract_epi64::<2>(xor) ^ _mm256_extract_epi64::<3>(xor);
        (low ^ high) as u64
    }
    assert!(lines.len().is_multiple_of(STREAMS));
    // SAFETY: the token proves that the CPU has the features.
    unsafe { walk::<STREAMS>(lines, ahead) }
}

/// `steps` times 64 bytes into each of the sums by vpdpbusd. Returns the operations.
pub fn dpbusd(_: Avx512, steps: usize) -> u64 {
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn chain(steps: usize) {
        let (codes, others) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        let mut sums = [_mm512_setzero_si512(); SUMS_512];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, codes, others);
            }
        }
        black_box(sums);
    }
    // SAFETY: the token proves that the CPU has the features.
    unsafe { chain(steps) };
    (steps * SUMS_512 * 64 * 2) as u64
}

/// `steps` times 32 bytes into each of the sums by vpmaddubsw, [`PAIRS`] of them for each that is widened by
/// vpmaddwd. The sums themselves are the codes, so that no product is that of the step before.
pub fn maddubs(_: Avx2, steps: usize) -> u64 {
    #[target_feature(enable = "avx2")]
    fn chain(steps: usize) {
        let (others, ones) = (_mm256_set1_epi8(black_box(5)), _mm256_set1_epi16(black_box(1)));
        let mut sums = [_mm256_set1_epi8(black_box(3)); SUMS_256];
        let mut wide = _mm256_setzero_si256();
        for _ in 0..steps.div_ceil(PAIRS) {
            for _ in 0..PAIRS {
                for sum in &mut sums {
                    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, others));
                }
            }
            for sum in &sums {
                wide = _mm256_add_epi32(wide, _mm256_madd_epi16(*sum, ones));
            }
        }
        black_box((sums, wide));
    }
    // SAFETY: the token proves that the CPU has the features.
    unsafe { chain(steps) };
    (steps.next_multiple_of(PAIRS) * SUMS_256 * 32 * 2) as u64
}

/// `steps` times 16 floats into each of the sums.
pub fn fma_512(_: Avx512, steps: usize) -> u64 {
    #[target_feature(enable = "avx512f")]
    fn chain(steps: usize) {
        let (factor, other) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(1.0)));
        let mut sums = [_mm512_setzero_ps(); SUMS_512];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, other);
            }
        }
        black_box(sums);
    }
    // SAFETY: the token proves that the CPU has the features.
    unsafe { chain(steps) };
    (steps * SUMS_512 * 16 * 2) as u64
}

/// `steps` times 8 floats into each of the sums.
pub fn fma_256(_: Avx2, steps: usize) -> u64 {
    #[target_feature(enable = "avx2,fma")]
    fn chain(steps: usize) {
        let (factor, other) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(1.0)));
        let mut sums = [_mm256_setzero_ps(); SUMS_256];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, other);
            }
        }
        black_box(sums);
    }
    // SAFETY: the token proves that the CPU has the features.
    unsafe { chain(steps) };
    (steps * SUMS_256 * 8 * 2) as u64
}
