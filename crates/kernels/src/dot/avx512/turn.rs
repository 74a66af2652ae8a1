//! Blocks of 16 weight rows turned so that every 32-bit lane belongs to one row. Knows no format.

use std::arch::x86_64::*;

use super::lanes::*;

/// One block of each of 16 weight rows.
pub struct Blocks<'a, B> {
    pub of_rows: [&'a B; 16],
    /// As many bytes as these blocks have are asked for from here, because the hardware does not foresee what
    /// sixteen short streams side by side read next.
    pub ahead: *const u8,
}

impl<B: bytemuck::Pod> Blocks<'_, B> {
    /// `N` bytes of the block of row `r`, from byte `at`.
    #[inline(always)]
    fn part<const N: usize>(&self, r: usize, at: usize) -> &[u8; N] {
        let part: &[u8; N] =
            bytemuck::bytes_of(self.of_rows[r])[at..].first_chunk().expect("inside the block");
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.ahead.wrapping_add(r * size_of::<B>() + at).cast()) };
        part
    }

    /// 16 bytes of each of 16 blocks, from byte `at`: register `q` holds bytes `4q..4q + 4` of block `r` in
    /// lane `r`.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    pub fn turn16(&self, at: usize) -> [__m512i; 4] {
        let mut rows = [_mm512_setzero_si512(); 4];
        for (r, row) in rows.iter_mut().enumerate() {
            let low = _mm512_castsi128_si512(load_quarter(self.part(r, at)));
            let low = _mm512_inserti32x4::<1>(low, load_quarter(self.part(r + 4, at)));
            let low = _mm512_inserti32x4::<2>(low, load_quarter(self.part(r + 8, at)));
            *row = _mm512_inserti32x4::<3>(low, load_quarter(self.part(r + 12, at)));
        }
        turn_quarters(rows)
    }

    /// The same for 32 bytes.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    pub fn turn32(&self, at: usize) -> [__m512i; 8] {
        let mut halves = [[_mm512_setzero_si512(); 4]; 2];
        for (half, rows) in halves.iter_mut().enumerate() {
            for (r, row) in rows.iter_mut().enumerate() {
                let low = _mm512_castsi256_si512(load_half(self.part(half * 8 + r, at)));
                *row = _mm512_inserti64x4::<1>(low, load_half(self.part(half * 8 + 4 + r, at)));
            }
        }
        let (a, b) = (turn_quarters(halves[0]), turn_quarters(halves[1]));
        let mut out = [_mm512_setzero_si512(); 8];
        for q in 0..4 {
            out[q] = _mm512_shuffle_i32x4::<0x88>(a[q], b[q]);
            out[4 + q] = _mm512_shuffle_i32x4::<0xdd>(a[q], b[q]);
        }
        out
    }

    /// The same for 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
    pub fn turn64(&self, at: usize) -> [__m512i; 16] {
        let mut fours = [[_mm512_setzero_si512(); 4]; 4];
        for (four, rows) in fours.iter_mut().enumerate() {
            for (r, row) in rows.iter_mut().enumerate() {
                *row = load(self.part(four * 4 + r, at));
            }
            *rows = turn_quarters(*rows);
        }
        let [a, b, c, d] = fours;
        let mut out = [_mm512_setzero_si512(); 16];
        for q in 0..4 {
            let low = _mm512_shuffle_i32x4::<0x44>(a[q], b[q]);
            let high = _mm512_shuffle_i32x4::<0xee>(a[q], b[q]);
            let low2 = _mm512_shuffle_i32x4::<0x44>(c[q], d[q]);
            let high2 = _mm512_shuffle_i32x4::<0xee>(c[q], d[q]);
            out[q] = _mm512_shuffle_i32x4::<0x88>(low, low2);
            out[4 + q] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
            out[8 + q] = _mm512_shuffle_i32x4::<0x88>(high, high2);
            out[12 + q] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
        }
        out
    }
}
