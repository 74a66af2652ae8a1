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
use adit_format::blocks::{
    BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0,
    BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
};

use super::{Kernel, TILE_ROWS, WeightRows, each_tile};
use crate::activations::Row;
use crate::isa::Avx2;
use blocks32::Wide32;
pub use blocks256::Wide256;
pub use floats::Brain;
use floats::WideFloat;
pub use lanes::{add_up4, store_floats4};
pub use vector::ask_ahead;

pub fn kernel(kind: TensorType) -> Kernel {
    match kind {
        TensorType::F32 => floats::<[u8; 4]>,
        TensorType::F16 => floats::<[u8; 2]>,
        TensorType::Bf16 => floats::<Brain>,
        TensorType::Q4_0 => rows32::<BlockQ4_0>,
        TensorType::Q4_1 => rows32::<BlockQ4_1>,
        TensorType::Q5_0 => rows32::<BlockQ5_0>,
        TensorType::Q5_1 => rows32::<BlockQ5_1>,
        TensorType::Q8_0 => rows32::<BlockQ8_0>,
        TensorType::Iq4Nl => rows32::<BlockIq4Nl>,
        TensorType::Mxfp4 => rows32::<BlockMxfp4>,
        TensorType::Q2K => rows256::<BlockQ2K>,
        TensorType::Q3K => rows256::<BlockQ3K>,
        TensorType::Q4K => rows256::<BlockQ4K>,
        TensorType::Q5K => rows256::<BlockQ5K>,
        TensorType::Q6K => rows256::<BlockQ6K>,
        TensorType::Iq4Xs => rows256::<BlockIq4Xs>,
        TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64 | TensorType::F64 => {
            panic!("no kernel for weights of type {kind}")
        }
    }
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
