//! The two ways in which a tile of weights meets activation rows: `sdot` by element with dot products alone,
//! `smmla` where the CPU has matrix products. Owns the order in which weights are packed for them; knows no
//! formats.

use std::arch::aarch64::*;

use super::lanes::*;
use crate::isa::{Neon, NeonI8mm};

/// 16 columns of eight weight rows, in the order that a kind of products wants.
pub type Run = [int8x16_t; 8];

/// Integer sums of `N` activation rows, an even number, with eight weight rows. While products are added, the
/// lanes stand in the order of the products: see [`Products::in_rows`].
pub type Sums<const N: usize> = [[int32x4_t; 2]; N];

/// A way to multiply; its value proves that this CPU has it.
pub trait Products: Copy {
    fn new() -> Option<Self>;
    fn neon(self) -> Neon;

    /// Packs 16 columns of eight weight rows.
    fn pack(rows: [int8x16_t; 8]) -> Run;

    /// Adds the products of 16 columns.
    fn add<const N: usize>(self, run: &Run, x: &[int8x16_t; N], sums: &mut Sums<N>);

    /// What belongs to eight weight rows, as sums of two activation rows have it.
    fn spread(rows: [int32x4_t; 2]) -> Sums<2>;

    /// Sums put in order: lane `l` of `[n][half]` is that of weight row `4 * half + l`.
    fn in_rows<const N: usize>(sums: Sums<N>) -> Sums<N>;
}

/// Register `2q + half` of a run holds columns `4q..4q + 4` of weight row `4 * half + l` in lane `l`.
impl Products for Neon {
    fn new() -> Option<Neon> {
        Neon::new()
    }

    fn neon(self) -> Neon {
        self
    }

    #[inline(always)]
    fn pack(rows: [int8x16_t; 8]) -> Run {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let mut run = rows;
            for half in 0..2 {
                let row = |r: usize| vreinterpretq_s32_s8(rows[4 * half + r]);
                let columns = transpose4([row(0), row(1), row(2), row(3)]);
                for q in 0..4 {
                    run[2 * q + half] = vreinterpretq_s8_s32(columns[q]);
                }
            }
            run
        }
    }

    #[inline(always)]
    fn add<const N: usize>(self, run: &Run, x: &[int8x16_t; N], sums: &mut Sums<N>) {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            add_quad::<0, N>(self, run, x, sums);
            add_quad::<1, N>(self, run, x, sums);
            add_quad::<2, N>(self, run, x, sums);
            add_quad::<3, N>(self, run, x, sums);
        }
    }

    #[inline(always)]
    fn spread(rows: [int32x4_t; 2]) -> Sums<2> {
        [rows; 2]
    }

    #[inline(always)]
    fn in_rows<const N: usize>(sums: Sums<N>) -> Sums<N> {
        sums
    }
}

/// Adds the products of four columns.
#[inline]
#[target_feature(enable = "neon")]
fn add_quad<const QUAD: usize, const N: usize>(isa: Neon, run: &Run, x: &[int8x16_t; N], sums: &mut Sums<N>) {
    for n in 0..N {
        for half in 0..2 {
            sums[n][half] = dot_quad::<QUAD>(isa, sums[n][half], run[2 * QUAD + half], x[n]);
        }
    }
}

/// Register `4e + pair` of a run holds columns `8e..8e + 8` of weight rows `2 * pair` and `2 * pair + 1`. The
/// four registers of the sums of activation rows `n` and `n + 1`, `n` even, hold one such pair each: lanes 0
/// and 1 for the first activation row, 2 and 3 for the second.
impl Products for NeonI8mm {
    fn new() -> Option<NeonI8mm> {
        NeonI8mm::new()
    }

    fn neon(self) -> Neon {
        NeonI8mm::neon(self)
    }

    #[inline(always)]
    fn pack(rows: [int8x16_t; 8]) -> Run {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe {
            let mut run = rows;
            for pair in 0..4 {
                [run[pair], run[4 + pair]] = zip_eights(rows[2 * pair], rows[2 * pair + 1]);
            }
            run
        }
    }

    #[inline(always)]
    fn add<const N: usize>(self, run: &Run, x: &[int8x16_t; N], sums: &mut Sums<N>) {
        const { assert!(N.is_multiple_of(2)) };
        for n in (0..N).step_by(2) {
            // SAFETY: every aarch64 CPU has NEON.
            unsafe {
                let eights = zip_eights(x[n], x[n + 1]);
                for e in 0..2 {
                    for pair in 0..4 {
                        let sum = &mut sums[n + pair / 2][pair % 2];
                        *sum = dot_rows(self, *sum, eights[e], run[4 * e + pair]);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn spread(rows: [int32x4_t; 2]) -> Sums<2> {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { [zip_halves(rows[0], rows[0]), zip_halves(rows[1], rows[1])] }
    }

    #[inline(always)]
    fn in_rows<const N: usize>(mut sums: Sums<N>) -> Sums<N> {
        for n in (0..N).step_by(2) {
            let (first, second) = (sums[n], sums[n + 1]);
            // SAFETY: every aarch64 CPU has NEON.
            unsafe {
                [sums[n][0], sums[n + 1][0]] = zip_halves(first[0], first[1]);
                [sums[n][1], sums[n + 1][1]] = zip_halves(second[0], second[1]);
            }
        }
        sums
    }
}

/// Eight columns of two rows side by side, then the next eight.
#[inline]
#[target_feature(enable = "neon")]
fn zip_eights(a: int8x16_t, b: int8x16_t) -> [int8x16_t; 2] {
    let [first, second] = zip_halves(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b));
    [vreinterpretq_s8_s32(first), vreinterpretq_s8_s32(second)]
}
