//! Several activation rows on formats of 32-blocks: two tiles of weight rows are unpacked once for each 256
//! columns, turned so that every 32-bit lane belongs to one row, and met by all activation rows.

use std::arch::x86_64::*;
use std::ops::Range;

use super::blocks32::*;
use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, TILES, WeightRows};
use crate::isa::Avx512;

/// Some columns of two tiles of weight rows.
struct Packed {
    codes: [[Group; TILES]; GROUPS],
    d: [[__m512; TILES]; GROUPS],
    m: [[__m512; TILES]; GROUPS],
    heads: [Heads; GROUPS],
}

/// Unpacks `G` blocks of one tile, from block `first` on, into the groups from `at` on.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn pack<F: Wide32, const G: usize>(
    isa: Avx512,
    rows: &[&[F]; TILE_ROWS],
    first: usize,
    tile: usize,
    at: usize,
    packed: &mut Packed,
) {
    let part = part(rows, first);
    let heads: &mut [_; G] = packed.heads.first_chunk_mut().expect("no more than GROUPS");
    read_heads(&part, heads);
    for (g, heads) in heads.iter().enumerate() {
        for row in &rows[g * TILE_ROWS / G..(g + 1) * TILE_ROWS / G] {
            ask_ahead(row, first + G);
        }
        packed.codes[at + g][tile] = codes(isa, &part, g, heads);
        (packed.d[at + g][tile], packed.m[at + g][tile]) = F::scales(heads, isa);
    }
}

/// Asks for the blocks of a row from `next` on, or behind its end for the first ones of the row that follows
/// when the tiles do. The hardware does not foresee them, for many short streams run side by side; and it
/// takes few such wishes at a time, so they come row by row between the work.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn ask_ahead<F>(row: &[F], next: usize) {
    let next = if next < row.len() { next } else { row.len() * TILES * TILE_ROWS };
    let start = row.as_ptr().wrapping_add(next).cast::<u8>();
    for line in 0..=(GROUPS * size_of::<F>()).div_ceil(64) {
        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * 64).cast());
    }
}

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Wide32>(isa: Avx512, w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let rows = [w.blocks::<F, TILE_ROWS>(0), w.blocks(TILE_ROWS)];
    let mut packed = Packed {
        codes: [[[_mm512_setzero_si512(); 8]; TILES]; GROUPS],
        d: [[_mm512_setzero_ps(); TILES]; GROUPS],
        m: [[_mm512_setzero_ps(); TILES]; GROUPS],
        heads: [Heads::EMPTY; GROUPS],
    };
    out.fill([0.0; TILE_ROWS]);
    let (first_out, second_out) = out.split_at_mut(x.len());
    let total = rows[0][0].len();
    for first in (0..total).step_by(GROUPS) {
        let blocks = first..total.min(first + GROUPS);
        for (tile, rows) in rows.iter().enumerate() {
            if blocks.len() == GROUPS {
                pack::<F, GROUPS>(isa, rows, first, tile, 0, &mut packed);
            } else {
                for at in 0..blocks.len() {
                    pack::<F, 1>(isa, rows, first + at, tile, at, &mut packed);
                }
            }
        }
        let out = [&mut *first_out, &mut *second_out];
        let (x, out) = meet_all::<F, 4>(&packed, blocks.clone(), x, out);
        let (x, out) = meet_all::<F, 2>(&packed, blocks.clone(), x, out);
        meet_all::<F, 1>(&packed, blocks, x, out);
    }
}

/// Multiplies with `N` activation rows at a time; gives back those that are left, fewer than `N`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet_all<'x, 'out, F: Wide32, const N: usize>(
    packed: &Packed,
    blocks: Range<usize>,
    x: &'x [Row<'x>],
    [first_out, second_out]: [&'out mut [[f32; TILE_ROWS]]; TILES],
) -> (&'x [Row<'x>], [&'out mut [[f32; TILE_ROWS]]; TILES]) {
    let (x, x_left) = x.as_chunks::<N>();
    let (first_out, first_left) = first_out.as_chunks_mut::<N>();
    let (second_out, second_left) = second_out.as_chunks_mut::<N>();
    for ((x, first_out), second_out) in x.iter().zip(first_out).zip(second_out) {
        meet::<F, N>(packed, blocks.clone(), x, [first_out, second_out]);
    }
    (x_left, [first_left, second_left])
}

/// Adds the products of some blocks to `out`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet<F: Wide32, const N: usize>(
    packed: &Packed,
    blocks: Range<usize>,
    x: &[Row<'_>; N],
    out: [&mut [[f32; TILE_ROWS]; N]; TILES],
) {
    let (mut codes, mut scales) = ([&[][..]; N], [&[][..]; N]);
    let mut acc = [[_mm512_setzero_ps(); TILES]; N];
    for n in 0..N {
        codes[n] = &x[n].codes.as_chunks::<32>().0[blocks.clone()];
        scales[n] = &x[n].q8[blocks.clone()];
        for t in 0..TILES {
            acc[n][t] = load_floats(&out[t][n]);
        }
    }
    for g in 0..blocks.len().min(GROUPS) {
        // Sums begin at what the offset of the codes makes too much.
        let mut sums = [[_mm512_setzero_si512(); TILES]; N];
        if F::OFFSET != 0 {
            for n in 0..N {
                sums[n] = [_mm512_set1_epi32(-F::OFFSET * scales[n][g].code_sum); TILES];
            }
        }
        for q in 0..8 {
            for n in 0..N {
                let x = codes[n][g].as_chunks::<4>().0[q];
                for (sum, group) in sums[n].iter_mut().zip(&packed.codes[g]) {
                    *sum = add_products(*sum, group[q], x);
                }
            }
        }
        for n in 0..N {
            let (x_d, x_sum) = (_mm512_set1_ps(scales[n][g].d), _mm512_set1_ps(scales[n][g].sum));
            for t in 0..TILES {
                let d = _mm512_mul_ps(packed.d[g][t], x_d);
                acc[n][t] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums[n][t]), acc[n][t]);
                if F::HAS_MIN {
                    acc[n][t] = _mm512_fmadd_ps(packed.m[g][t], x_sum, acc[n][t]);
                }
            }
        }
    }
    for n in 0..N {
        for t in 0..TILES {
            store_floats(acc[n][t], &mut out[t][n]);
        }
    }
}
