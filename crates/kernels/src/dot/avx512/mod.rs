//! The AVX-512 kernels. Owns the choice of path; formats without one here run on AVX2.

mod blocks256;

mod tile256;
mod turn;

use adit_format::TensorType;
use adit_format::blocks::{BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};

use super::{Kernel, TILE_ROWS, WeightRows, avx2};
use crate::activations::Row;
use crate::isa::Avx512;
use blocks256::Wide256;

pub fn kernel(kind: TensorType) -> Kernel {
    match kind {
        TensorType::Q2K => rows256::<BlockQ2K>,
        TensorType::Q3K => rows256::<BlockQ3K>,
        TensorType::Q4K => rows256::<BlockQ4K>,
        TensorType::Q5K => rows256::<BlockQ5K>,
        TensorType::Q6K => rows256::<BlockQ6K>,
        TensorType::Iq4Xs => rows256::<BlockIq4Xs>,
        _ => avx2::kernel(kind),
    }
}

/// A kernel is a plain function, so it cannot carry the token: it asks again, which costs a cached load.
fn token() -> Avx512 {
    Avx512::new().expect("an AVX-512 kernel was chosen on a CPU that has it")
}

fn rows256<F: Wide256>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    match x {
        [_] => avx2::kernel(F::KIND)(w, x, out),
        // SAFETY: the token proves that the CPU has the features.
        _ => unsafe { tile256::multiply::<F>(token(), w, x, out) },
    }
}
