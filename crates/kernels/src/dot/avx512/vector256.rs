//! One activation row on formats of super-blocks: four weight rows at a time, each block in four registers of
//! 64 codes in their natural order. Decode runs here, at the speed of memory. Scales and minimums are those
//! of AVX2.
//!
//! Rows are not turned as in `tile256`: that costs more than it saves for one activation row, and memory
//! delivers four rows, which lie one after the other, faster than it does sixteen.
//!
//! 32 bits suffice: before the offset is taken off, the largest sum is that of Q6_K,
//! `256 * (63 * 127) * 128 < 2^28`.

use std::arch::x86_64::*;

use super::blocks256::Codes256;
use super::lanes::*;
use crate::activations::{Row, run_place};
use crate::dot::avx2::{self, add_up4};
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx512;

/// For each part of 64 columns, which word of the scales belongs to each pair of them.
static SPREAD: [[u16; 32]; 4] = {
    let mut places = [[0; 32]; 4];
    let mut i = 0;
    while i < 128 {
        places[i / 32][i % 32] = run_place(i / 8) as u16;
        i += 1;
    }
    places
};

#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn multiply<F: Codes256>(isa: Avx512, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    let mut spread = [_mm512_setzero_si512(); 4];
    for part in 0..4 {
        spread[part] = load(bytemuck::cast_ref(&SPREAD[part]));
    }
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = w.blocks::<F, 4>(first);
        let first_row = a;
        let mut acc = _mm_setzero_ps();
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        let x = x.codes.as_chunks::<256>().0.iter().zip(x.q8k);
        for (index, (((a, b), (c, d)), (x, scale))) in rows.zip(x).enumerate() {
            avx2::ask_ahead(first_row, index);
            let (blocks, run_sums) = ([a, b, c, d], load_half(bytemuck::cast_ref(&scale.run_sums)));
            let (mut sums, mut min_sums) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
            for r in 0..4 {
                sums[r] = sum256(isa, blocks[r], x, run_sums, &spread);
                if F::HAS_MIN {
                    min_sums[r] = _mm256_madd_epi16(blocks[r].min_words(isa.avx2()), run_sums);
                }
            }
            let (d, dmin) = F::scales(blocks, isa.avx2());
            let x_d = _mm_set1_ps(scale.d);
            acc = _mm_fmadd_ps(_mm_mul_ps(d, x_d), _mm_cvtepi32_ps(add_up4(sums)), acc);
            if F::HAS_MIN {
                acc = _mm_fnmadd_ps(_mm_mul_ps(dmin, x_d), _mm_cvtepi32_ps(add_up4(min_sums)), acc);
            }
        }
        avx2::store_floats4(acc, out);
    }
}

/// The scaled products of one super-block, in 8 partial sums.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn sum256<F: Codes256>(
    isa: Avx512,
    block: &F,
    x: &[i8; 256],
    run_sums: __m256i,
    spread: &[__m512i; 4],
) -> __m256i {
    let words = block.scale_words(isa.avx2());
    let scales = _mm512_castsi256_si512(words);
    let mut sum = _mm512_setzero_si512();
    for (part, x) in x.as_chunks::<64>().0.iter().enumerate() {
        let (codes, x) = (block.codes64(part, isa), load(bytemuck::cast_ref(x)));
        let scales = _mm512_permutexvar_epi16(spread[part], scales);
        if F::PAIRS_FIT {
            sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(codes, x), scales);
        } else {
            let products = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, x);
            let scales = _mm512_srai_epi32::<16>(scales);
            sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(products, scales));
        }
    }
    let mut sum = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    if F::OFFSET != 0 {
        let excess = _mm256_madd_epi16(words, run_sums);
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(excess, _mm256_set1_epi32(F::OFFSET)));
    }
    sum
}
