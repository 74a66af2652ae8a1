//! One activation row: four weight rows at a time, their sums side by side in one register. Decode runs
//! here, at the speed of memory.

use std::arch::x86_64::*;

use super::blocks32::Wide32;
use super::blocks256::Wide256;
use super::lanes::*;
use crate::activations::Row;
use crate::dot::{TILE_ROWS, WeightRows};
use crate::isa::Avx2;

/// Asks for the four rows after these while the `index`th blocks of these are worked on: the hardware does
/// not foresee them, because four short streams run side by side. `rows` is the first of the four.
#[inline]
#[target_feature(enable = "avx2")]
pub fn ask_ahead<F>(rows: &[F], index: usize) {
    // Short rows are asked for earlier, for memory needs its time; of long ones the caches hold no more.
    let ahead = (4 * size_of_val(rows)).clamp(8 * 1024, 32 * 1024);
    let bytes = 4 * size_of::<F>();
    for line in 0..bytes.div_ceil(64) {
        let place = rows.as_ptr().cast::<u8>().wrapping_add(ahead + index * bytes + line * 64);
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub fn multiply32<F: Wide32>(isa: Avx2, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = w.blocks::<F, 4>(first);
        let first_row = a;
        let mut acc = _mm_setzero_ps();
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        let x = x.codes.as_chunks::<32>().0.iter().zip(x.q8);
        for (index, (((a, b), (c, d)), (x, scale))) in rows.zip(x).enumerate() {
            ask_ahead(first_row, index);
            let (x, blocks) = (load_codes(x), [a, b, c, d]);
            let mut sums = [_mm256_setzero_si256(); 4];
            for r in 0..4 {
                let pairs = match F::SIGNED {
                    true => pair_products::<true>(blocks[r].codes(isa), x),
                    false => pair_products::<false>(blocks[r].codes(isa), x),
                };
                sums[r] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            }
            let mut sum = add_up4(sums);
            if F::OFFSET != 0 {
                sum = _mm_sub_epi32(sum, _mm_set1_epi32(F::OFFSET * scale.code_sum));
            }
            let (d, m) = F::scales(blocks, isa);
            acc = _mm_fmadd_ps(_mm_mul_ps(d, _mm_set1_ps(scale.d)), _mm_cvtepi32_ps(sum), acc);
            if F::HAS_MIN {
                acc = _mm_fmadd_ps(m, _mm_set1_ps(scale.sum), acc);
            }
        }
        store_floats4(acc, out);
    }
}

/// For each group of 32, the mask that spreads its two scale words over their halves.
static SPREAD: [[u8; 32]; 8] = {
    let mut masks = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        masks[i / 32][i % 32] = (i / 32 * 2 + i % 2) as u8;
        i += 1;
    }
    masks
};

#[target_feature(enable = "avx2,fma,f16c")]
pub fn multiply256<F: Wide256>(isa: Avx2, w: &WeightRows<'_>, x: &Row<'_>, out: &mut [f32; TILE_ROWS]) {
    // The compiler must not see the masks: it would make two shuffles of one.
    let spread = std::hint::black_box(&SPREAD);
    for (first, out) in (0..w.count()).step_by(4).zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = w.blocks::<F, 4>(first);
        let first_row = a;
        let mut acc = _mm_setzero_ps();
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        let x = x.codes.as_chunks::<256>().0.iter().zip(x.q8k);
        for (index, (((a, b), (c, d)), (x, scale))) in rows.zip(x).enumerate() {
            ask_ahead(first_row, index);
            let (blocks, run_sums) = ([a, b, c, d], load_words(&scale.run_sums));
            let (mut sums, mut min_sums) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
            for r in 0..4 {
                sums[r] = sum256(isa, blocks[r], x, run_sums, spread);
                if F::HAS_MIN {
                    min_sums[r] = _mm256_madd_epi16(blocks[r].min_words(isa), run_sums);
                }
            }
            let (d, dmin) = F::scales(blocks, isa);
            let x_d = _mm_set1_ps(scale.d);
            acc = _mm_fmadd_ps(_mm_mul_ps(d, x_d), _mm_cvtepi32_ps(add_up4(sums)), acc);
            if F::HAS_MIN {
                acc = _mm_fnmadd_ps(_mm_mul_ps(dmin, x_d), _mm_cvtepi32_ps(add_up4(min_sums)), acc);
            }
        }
        store_floats4(acc, out);
    }
}

/// The scaled products of one super-block, in 8 partial sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum256<F: Wide256>(
    isa: Avx2,
    block: &F,
    x: &[i8; 256],
    run_sums: __m256i,
    spread: &[[u8; 32]; 8],
) -> __m256i {
    let words = block.scale_words(isa);
    let mut sum = _mm256_setzero_si256();
    for (group, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let pairs = match F::SIGNED {
            true => pair_products::<true>(block.codes(group, isa), load_codes(x)),
            false => pair_products::<false>(block.codes(group, isa), load_codes(x)),
        };
        let scale = _mm256_shuffle_epi8(words, load(&spread[group]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale));
    }
    if F::OFFSET_BITS != 0 {
        let excess = _mm256_madd_epi16(words, run_sums);
        sum = _mm256_sub_epi32(sum, _mm256_sll_epi32(excess, _mm_cvtsi32_si128(F::OFFSET_BITS)));
    }
    sum
}
