//! One activation row on formats of 32-blocks: 16 weight rows are unpacked in registers, turned so that every
//! 32-bit lane belongs to one row, and multiplied on the spot. Decode runs here, at the speed of memory.

use std::arch::x86_64::*;

use super::blocks32::*;
use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx512;

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Wide32>(isa: Avx512, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    let rows = w.blocks::<F, TILE_ROWS>(0);
    let whole = rows[0].len() / GROUPS * GROUPS;
    let mut heads = [Heads::EMPTY; GROUPS];
    let mut acc = _mm512_setzero_ps();
    for first in (0..whole).step_by(GROUPS) {
        acc = add_blocks::<F, GROUPS>(isa, &rows, first, x, &mut heads, acc);
    }
    for first in whole..rows[0].len() {
        acc = add_blocks::<F, 1>(isa, &rows, first, x, std::array::from_mut(&mut heads[0]), acc);
    }
    store_floats(acc, out);
}

/// Adds the products of `G` blocks from block `first` to `acc`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn add_blocks<F: Wide32, const G: usize>(
    isa: Avx512,
    rows: &[&[F]; TILE_ROWS],
    first: usize,
    x: &Row<'_>,
    heads: &mut [Heads; G],
    mut acc: __m512,
) -> __m512 {
    let part = part::<F, G>(rows, first);
    let x_codes: &[_; G] = blocks_from(x.codes.as_chunks::<32>().0, first);
    let x_scales: &[_; G] = blocks_from(x.q8, first);
    read_heads(&part, heads);
    for (g, heads) in heads.iter().enumerate() {
        ask_ahead(rows[0], first + g);
        let mut sums = _mm512_set1_epi32(-F::OFFSET * x_scales[g].code_sum);
        for (codes, x) in codes(isa, &part, g, heads).iter().zip(x_codes[g].as_chunks::<4>().0) {
            sums = add_products(sums, *codes, *x);
        }
        let (d, m) = F::scales(heads, isa);
        let d = _mm512_mul_ps(d, _mm512_set1_ps(x_scales[g].d));
        acc = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums), acc);
        if F::HAS_MIN {
            acc = _mm512_fmadd_ps(m, _mm512_set1_ps(x_scales[g].sum), acc);
        }
    }
    acc
}

/// Asks for as much of the next 16 rows as one block of these rows is, `row` being the first and `index` the
/// block. The hardware does not foresee them, for many short streams run side by side; and it takes few such
/// wishes at a time, so they come block by block.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn ask_ahead<F>(row: &[F], index: usize) {
    let bytes = TILE_ROWS * size_of::<F>();
    let ahead = (TILE_ROWS * size_of_val(row)).max(8 * 1024);
    let start = row.as_ptr().cast::<u8>().wrapping_add(ahead + index * bytes);
    for line in 0..bytes.div_ceil(64) {
        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * 64).cast());
    }
}
