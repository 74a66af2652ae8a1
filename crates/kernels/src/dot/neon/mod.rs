//! The NEON kernels, for CPUs with dot products. Owns the choice between the path for one activation row and
//! that for several.
//!
//! NEON itself belongs to every CPU that this is compiled for, so only what goes beyond it asks for a token.

/// `scales` of a type whose blocks have a scale only.
macro_rules! scale_only {
    () => {
        #[inline(always)]
        fn scales(blocks: [&Self; 4]) -> (float32x4_t, float32x4_t) {
            let [a, b, c, d] = blocks;
            // SAFETY: every aarch64 CPU has NEON.
            unsafe { (halves4([a.d, b.d, c.d, d.d]), vdupq_n_f32(0.0)) }
        }
    };
}

/// The same for types whose blocks have a minimum, in the field `$min`.
macro_rules! scale_and_min {
    ($min:ident) => {
        #[inline(always)]
        fn scales(blocks: [&Self; 4]) -> (float32x4_t, float32x4_t) {
            let [a, b, c, d] = blocks;
            // SAFETY: every aarch64 CPU has NEON.
            unsafe { half_pairs4([(a.d, a.$min), (b.d, b.$min), (c.d, c.$min), (d.d, d.$min)]) }
        }
    };
}

mod blocks256;
mod blocks32;
mod floats;
mod lanes;
mod products;
mod tile;
mod vector;

use adit_format::TensorType;

use super::{Kernel, TILE_ROWS, WeightRows, each_tile};
use crate::activations::Row;
use crate::formats::function_for;
use blocks32::Wide32;
use blocks256::Wide256;
use floats::WideFloat;
use products::Products;

/// The kernels whose tiles are multiplied by `P`.
pub fn kernel<P: Products>(kind: TensorType) -> Kernel {
    function_for!(kind, floats, rows32, rows256, P)
}

/// A kernel is a plain function, so it cannot carry the token: it asks again, which costs a cached load.
fn token<P: Products>() -> P {
    P::new().expect("a NEON kernel was chosen on a CPU that has it")
}

fn rows32<F: Wide32, P: Products>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let isa = token::<P>();
    each_tile(w, x, out, |w, out| match x {
        // SAFETY: every aarch64 CPU has NEON.
        [x] => unsafe { vector::multiply32::<F>(isa.neon(), w, x, &mut out[0]) },
        _ => {
            for part in 0..w.count().div_ceil(tile::ROWS) {
                let w = w.part(part * tile::ROWS, tile::ROWS);
                // SAFETY: as above.
                unsafe { tile::multiply32::<F, P>(isa, &w, x, out, part) };
            }
        }
    });
}

fn rows256<F: Wide256, P: Products>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let isa = token::<P>();
    each_tile(w, x, out, |w, out| match x {
        // SAFETY: every aarch64 CPU has NEON.
        [x] => unsafe { vector::multiply256::<F>(isa.neon(), w, x, &mut out[0]) },
        _ => {
            for part in 0..w.count().div_ceil(tile::ROWS) {
                let w = w.part(part * tile::ROWS, tile::ROWS);
                // SAFETY: as above.
                unsafe { tile::multiply256::<F, P>(isa, &w, x, out, part) };
            }
        }
    });
}

fn floats<F: WideFloat>(w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    // SAFETY: every aarch64 CPU has NEON.
    each_tile(w, x, out, |w, out| unsafe { floats::multiply::<F>(w, x, out) });
}
