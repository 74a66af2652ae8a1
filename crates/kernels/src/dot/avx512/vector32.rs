//! One activation row on formats of 32-blocks: 16 weight rows are unpacked in registers, turned so that every
//! 32-bit lane belongs to one row, and multiplied on the spot. Decode runs here, at the speed of memory.

use std::arch::x86_64::*;

use super::blocks32::*;
use super::lanes::*;
use crate::activations::{Q8Scale, Row};
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx512;

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Wide32>(isa: Avx512, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    let rows = tile_rows::<F>(w, 0);
    let (codes, codes_left) = x.codes.as_chunks::<32>().0.as_chunks::<GROUPS>();
    let (scales, scales_left) = x.q8.as_chunks::<GROUPS>();
    let mut heads = [Heads::EMPTY; GROUPS];
    let mut acc = _mm512_setzero_ps();
    for (index, (x, scales)) in codes.iter().zip(scales).enumerate() {
        ask_ahead(rows[0], index);
        acc = add_part(isa, &part::<F, GROUPS>(&rows, index * GROUPS), x, scales, &mut heads, acc);
    }
    let first = codes.len() * GROUPS;
    for (index, (x, scale)) in (first..).zip(codes_left.iter().zip(scales_left)) {
        let (x, scale) = (std::array::from_ref(x), std::array::from_ref(scale));
        let heads = std::array::from_mut(&mut heads[0]);
        acc = add_part(isa, &part::<F, 1>(&rows, index), x, scale, heads, acc);
    }
    store_floats(acc, out);
}

/// Asks for as much of the next 16 rows as is worked on of these, `row` being the first: the hardware does
/// not foresee them, because many short streams run side by side.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn ask_ahead<F>(row: &[F], index: usize) {
    let part_bytes = TILE_ROWS * GROUPS * size_of::<F>();
    let ahead = (TILE_ROWS * size_of_val(row)).clamp(8 * 1024, 32 * 1024);
    let start = row.as_ptr().cast::<u8>().wrapping_add(ahead + index * part_bytes);
    for line in 0..part_bytes.div_ceil(64) {
        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * 64).cast());
    }
}

/// Adds the products of `G` blocks to `acc`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn add_part<F: Wide32, const G: usize>(
    isa: Avx512,
    part: &Part<'_, F, G>,
    x: &[[i8; 32]; G],
    scales: &[Q8Scale; G],
    heads: &mut [Heads; G],
    mut acc: __m512,
) -> __m512 {
    read_heads(part, heads);
    for g in 0..G {
        let group = codes(isa, part, g, &heads[g]);
        let mut sums = _mm512_set1_epi32(-F::OFFSET * scales[g].code_sum);
        for (codes, x) in group.iter().zip(x[g].as_chunks::<4>().0) {
            sums = add_products(sums, *codes, *x);
        }
        let (d, m) = F::scales(&heads[g], isa);
        let d = _mm512_mul_ps(d, _mm512_set1_ps(scales[g].d));
        acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums), acc);
        if F::HAS_MIN {
            acc = _mm512_fmadd_ps(m, _mm512_set1_ps(scales[g].sum), acc);
        }
    }
    acc
}
