//! Dot products of tiles of weight rows with activation rows. Owns the choice of kernel for a format and
//! an instruction set; knows no threads.
//!
//! # The accumulation rule
//!
//! Every kernel on every instruction set computes an output as follows, so all agree bit for bit:
//!
//! * Quantised weights: the products of codes within a block (32 or 256 weights, with the sub-scales of the
//!   K types) are summed in integers, exactly. Blocks are then folded from left to right into one f32, from
//!   zero: `acc = fma(d_weight * d_activation, sum as f32, acc)`, and where the format has minimums, after
//!   that `acc = fma(m, sum of the activations, acc)` for blocks of 32 or
//!   `acc = fma(-(dmin * d_activation), sum of mins * run sums as f32, acc)` for super-blocks.
//! * F32, F16, BF16 weights: 16 lanes from zero, element `i` into lane `i % 16` from left to right by
//!   `lane = fma(weight, activation, lane)`; then lanes `l` and `l + 8` are added, `l` and `l + 4`, `l` and
//!   `l + 2`, and the last two.
//!
//! An output depends on its weight row and its activation row only.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod packed;
mod scalar;

pub use scalar::add_lanes;

use adit_format::TensorType;

use crate::activations::Row;
use crate::isa::Isa;
#[cfg(target_arch = "aarch64")]
use crate::isa::{Neon, NeonI8mm};

/// Weight rows of a tile, one to each 32-bit lane of the widest registers.
pub const TILE_ROWS: usize = 16;
/// Most tiles that a kernel takes at once.
pub const TILES: usize = 2;

/// Consecutive rows of one matrix.
pub struct WeightRows<'a> {
    pub bytes: &'a [u8],
    pub row_bytes: usize,
}

impl<'a> WeightRows<'a> {
    pub fn count(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }

    /// The blocks of `N` rows from `first`; beyond the last row, the last again.
    #[inline(always)]
    pub fn blocks<F: bytemuck::Pod, const N: usize>(&self, first: usize) -> [&'a [F]; N] {
        std::array::from_fn(|r| bytemuck::cast_slice(self.row((first + r).min(self.count() - 1))))
    }

    /// The rows from `first`, at most `count` of them.
    pub fn part(&self, first: usize, count: usize) -> WeightRows<'a> {
        let end = self.count().min(first + count);
        WeightRows { bytes: &self.bytes[first * self.row_bytes..end * self.row_bytes], ..*self }
    }
}

/// Sets `out[t * x.len() + i][r]` to the product of row `r` of the `t`th tile of weights with activation
/// row `x[i]`. `w` holds [`TILES`] tiles or less, `out` has room for so many; what belongs to no row is
/// undefined.
pub type Kernel = fn(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]);

/// Hands a kernel's work on tile by tile.
fn each_tile(
    w: &WeightRows<'_>,
    x: &[Row<'_>],
    out: &mut [[f32; TILE_ROWS]],
    multiply: impl Fn(&WeightRows<'_>, &mut [[f32; TILE_ROWS]]),
) {
    for (tile, out) in out.chunks_exact_mut(x.len()).enumerate().take(w.count().div_ceil(TILE_ROWS)) {
        multiply(&w.part(tile * TILE_ROWS, TILE_ROWS), out);
    }
}

/// The kernel for weights of type `kind`, which must have an activation format.
pub fn kernel(isa: Isa, kind: TensorType) -> Kernel {
    match isa {
        Isa::Scalar => scalar::kernel(kind),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => avx2::kernel(kind),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => avx512::kernel(kind),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) => neon::kernel::<Neon>(kind),
        #[cfg(target_arch = "aarch64")]
        Isa::NeonI8mm(_) => neon::kernel::<NeonI8mm>(kind),
    }
}
