//! The AVX-512 kernels, which multiply quantised weights with VNNI. Owns the choice between the path for one
//! activation row and that for several.

mod blocks256;
mod blocks32;
mod floats;
mod lanes;
mod tile256;
mod tile32;
mod turn;
mod turned256;
mod vector256;
mod vector32;

use adit_format::TensorType;
use adit_format::blocks::BlockQ8_0;

use super::avx2;
use super::{Kernel, TILE_ROWS, WeightRows, each_tile};
use crate::activations::Row;
use crate::formats::function_for;
use crate::isa::Avx512;
use blocks32::Wide32;
use blocks256::Codes256;
use floats::WideFloat;
use turned256::Turned256;

pub fn kernel(kind: TensorType) -> Kernel {
    match kind {
        TensorType::Q8_0 => rows_q8_0,
        _ => function_for!(kind, floats, rows32, rows256),
    }
}

/// A kernel is a plain function, so it cannot carry the token: it asks again, which costs a cached load.
fn token() -> Avx512 {
    Avx512::new().expect("an AVX-512 kernel was chosen on a CPU that has it")
}

fn rows32<F: Wide32>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    match x {
        [x] => each_tile(w, std::slice::from_ref(x), out, |w, out| {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { vector32::multiply::<F>(token(), w, x, &mut out[0]) }
        }),
        // SAFETY: as above.
        _ => unsafe { tile32::multiply::<F>(token(), w, x, out) },
    }
}

/// One row runs at the speed of memory with AVX2: there is nothing to unpack, and four weight rows at a time
/// read memory in longer runs than 16.
fn rows_q8_0(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let kernel = if x.len() == 1 { avx2::kernel(TensorType::Q8_0) } else { rows32::<BlockQ8_0> };
    kernel(w, x, out);
}

fn rows256<F: Codes256 + Turned256>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    match x {
        [x] => each_tile(w, std::slice::from_ref(x), out, |w, out| {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { vector256::multiply::<F>(token(), w, x, &mut out[0]) }
        }),
        // SAFETY: as above.
        _ => unsafe { tile256::multiply::<F>(token(), w, x, out) },
    }
}

fn floats<F: WideFloat>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    // SAFETY: the token proves that the CPU has the features.
    each_tile(w, x, out, |w, out| unsafe { floats::multiply::<F>(token(), w, x, out) });
}
