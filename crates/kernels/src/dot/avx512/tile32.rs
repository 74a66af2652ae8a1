//! Several activation rows on formats of 32-blocks: 16 weight rows are unpacked once for each 256 columns,
//! turned so that every 32-bit lane belongs to one row, and met by all activation rows.

use std::arch::x86_64::*;
use std::ops::Range;

use super::blocks32::{Group, Heads, Wide32};
use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx512;

/// Groups of 32 columns unpacked at once.
const GROUPS: usize = 8;

/// Some columns of 16 rows.
struct Packed {
    codes: [Group; GROUPS],
    d: [__m512; GROUPS],
    m: [__m512; GROUPS],
}

/// The rows of the tile; beyond the last, the last again.
fn sixteen_rows<'a, F: bytemuck::Pod>(w: &WeightRows<'a>) -> [&'a [F]; TILE_ROWS] {
    std::array::from_fn(|r| bytemuck::cast_slice(w.row(r.min(w.count() - 1))))
}

#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn pack<F: Wide32>(isa: Avx512, rows: &[&[F]; TILE_ROWS], blocks: Range<usize>, packed: &mut Packed) {
    let count = blocks.len().min(GROUPS);
    // All heads come before the first use of one: a load of what has just been stored in pieces would wait.
    let mut heads = [Heads { scales: [0; TILE_ROWS], high_bits: [0; TILE_ROWS] }; GROUPS];
    for (r, row) in rows.iter().enumerate() {
        for (block, heads) in row[blocks.clone()].iter().zip(&mut heads) {
            heads.scales[r] = block.scale_bits();
            if let Some(bits) = block.high_bits() {
                heads.high_bits[r] = bits;
            }
        }
    }
    for g in 0..count {
        let mut group = [&rows[0][blocks.start + g]; TILE_ROWS];
        for r in 1..TILE_ROWS {
            group[r] = &rows[r][blocks.start + g];
        }
        packed.codes[g] = F::codes(&group, &heads[g], isa);
        (packed.d[g], packed.m[g]) = F::scales(&heads[g], isa);
    }
}

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Wide32>(isa: Avx512, w: &WeightRows<'_>, x: &[Row<'_>], out: &mut [[f32; TILE_ROWS]]) {
    let rows = sixteen_rows::<F>(w);
    let mut packed = Packed {
        codes: [[_mm512_setzero_si512(); 8]; GROUPS],
        d: [_mm512_setzero_ps(); GROUPS],
        m: [_mm512_setzero_ps(); GROUPS],
    };
    out.fill([0.0; TILE_ROWS]);
    for first in (0..rows[0].len()).step_by(GROUPS) {
        let blocks = first..rows[0].len().min(first + GROUPS);
        pack(isa, &rows, blocks.clone(), &mut packed);
        let (x, out) = meet_all::<F, 8>(&packed, blocks.clone(), x, out);
        let (x, out) = meet_all::<F, 4>(&packed, blocks.clone(), x, out);
        let (x, out) = meet_all::<F, 2>(&packed, blocks.clone(), x, out);
        meet_all::<F, 1>(&packed, blocks, x, out);
    }
}

/// Multiplies with `N` activation rows at a time; gives back the rows that are left, fewer than `N`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet_all<'x, 'out, F: Wide32, const N: usize>(
    packed: &Packed,
    blocks: Range<usize>,
    x: &'x [Row<'x>],
    out: &'out mut [[f32; TILE_ROWS]],
) -> (&'x [Row<'x>], &'out mut [[f32; TILE_ROWS]]) {
    let ((x, x_left), (out, out_left)) = (x.as_chunks::<N>(), out.as_chunks_mut::<N>());
    for (x, out) in x.iter().zip(out) {
        meet::<F, N>(packed, blocks.clone(), x, out);
    }
    (x_left, out_left)
}

/// Adds the products of some blocks to `out`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn meet<F: Wide32, const N: usize>(
    packed: &Packed,
    blocks: Range<usize>,
    x: &[Row<'_>; N],
    out: &mut [[f32; TILE_ROWS]; N],
) {
    let (mut acc, mut codes, mut scales) = ([_mm512_setzero_ps(); N], [&[][..]; N], [&[][..]; N]);
    for n in 0..N {
        acc[n] = load_floats(&out[n]);
        codes[n] = &x[n].codes.as_chunks::<32>().0[blocks.clone()];
        scales[n] = &x[n].q8[blocks.clone()];
    }
    for g in 0..blocks.len().min(GROUPS) {
        // Sums begin at what the offset of the codes makes too much.
        let mut sums = [_mm512_setzero_si512(); N];
        if F::OFFSET != 0 {
            for n in 0..N {
                sums[n] = _mm512_set1_epi32(-F::OFFSET * scales[n][g].code_sum);
            }
        }
        for q in 0..8 {
            for n in 0..N {
                sums[n] = add_products(sums[n], packed.codes[g][q], codes[n][g].as_chunks::<4>().0[q]);
            }
        }
        for n in 0..N {
            let scale = &scales[n][g];
            let d = _mm512_mul_ps(packed.d[g], _mm512_set1_ps(scale.d));
            acc[n] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sums[n]), acc[n]);
            if F::HAS_MIN {
                acc[n] = _mm512_fmadd_ps(packed.m[g], _mm512_set1_ps(scale.sum), acc[n]);
            }
        }
    }
    for n in 0..N {
        store_floats(acc[n], &mut out[n]);
    }
}
