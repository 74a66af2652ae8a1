//! The AVX2 kernels. Owns the choice between the path for one activation row and that for several.

/// `scales` of a type whose blocks have a scale only.
macro_rules! scale_only {
    () => {
        #[inline(always)]
        fn scales(blocks: [&Self; 4], _: Avx2) -> (__m128, __m128) {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { (halves4([blocks[0].d, blocks[1].d, blocks[2].d, blocks[3].d]), _mm_setzero_ps()) }
        }
    };
}

/// The same for types whose blocks have a minimum, in the field `$min`.
macro_rules! scale_and_min {
    ($min:ident) => {
        #[inline(always)]
        fn scales(blocks: [&Self; 4], _: Avx2) -> (__m128, __m128) {
            // SAFETY: the token proves that the CPU has the features.
            unsafe {
                let [a, b, c, d] = blocks;
                half_pairs4([(a.d, a.$min), (b.d, b.$min), (c.d, c.$min), (d.d, d.$min)])
            }
        }
    };
}

mod blocks256;
mod blocks32;
mod floats;
mod lanes;
mod tile;
mod vector;

use adit_format::TensorType;

use super::{Kernel, TILE_ROWS, WeightRows, each_tile};
use crate::activations::Row;
use crate::formats::function_for;
use crate::isa::Avx2;
use blocks32::Wide32;
pub use blocks256::Wide256;
use floats::WideFloat;
pub use lanes::{add_up4, store_floats4};
pub use vector::ask_ahead;

pub fn kernel(kind: TensorType) -> Kernel {
    function_for!(kind, floats, rows32, rows256)
}

/// A kernel is a plain function, so it cannot carry the token: it asks again, which costs a cached load.
fn token() -> Avx2 {
    Avx2::new().expect("an AVX2 kernel was chosen on a CPU that has it")
}

fn rows32<F: Wide32>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let isa = token();
    each_tile(w, x, out, |w, out| match x {
        // SAFETY: the token proves that the CPU has the features.
        [x] => unsafe { vector::multiply32::<F>(isa, w, x, &mut out[0]) },
        _ => {
            for part in 0..w.count().div_ceil(tile::ROWS) {
                let w = w.part(part * tile::ROWS, tile::ROWS);
                // SAFETY: as above.
                unsafe { tile::multiply32::<F>(isa, &w, x, out, part) };
            }
        }
    });
}

fn rows256<F: Wide256>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let isa = token();
    each_tile(w, x, out, |w, out| match x {
        // SAFETY: the token proves that the CPU has the features.
        [x] => unsafe { vector::multiply256::<F>(isa, w, x, &mut out[0]) },
        _ => {
            for part in 0..w.count().div_ceil(tile::ROWS) {
                let w = w.part(part * tile::ROWS, tile::ROWS);
                // SAFETY: as above.
                unsafe { tile::multiply256::<F>(isa, &w, x, out, part) };
            }
        }
    });
}

fn floats<F: WideFloat>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let isa = token();
    each_tile(w, x, out, |w, out| {
        for (x, out) in x.iter().zip(out) {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { floats::multiply::<F>(isa, w, x.floats, out) };
        }
    });
}
