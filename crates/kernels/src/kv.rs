//! How keys and values are stored between steps. Owns the three formats of a row and the map from position
//! to place; knows no attention.

use half::f16;

use crate::isa::Isa;

/// The element format of stored keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    F32,
    F16,
    /// Blocks of 32: an f16 scale and 32 codes, laid out as the weight type Q8_0.
    Q8_0,
}

impl KvFormat {
    /// Bytes of `len` elements; for Q8_0 `len` must be a multiple of 32.
    pub fn row_bytes(self, len: usize) -> usize {
        assert!(len.is_multiple_of(self.block_len()), "{len} elements are not whole blocks of {self:?}");
        match self {
            KvFormat::F32 => len * 4,
            KvFormat::F16 => len * 2,
            KvFormat::Q8_0 => len / 32 * Q8_BYTES,
        }
    }

    /// A head's length must be a multiple of this.
    pub fn block_len(self) -> usize {
        if self == KvFormat::Q8_0 { 32 } else { 1 }
    }
}

const Q8_BYTES: usize = 34;

/// Stores `x` (any number of whole heads) in `out`, which must be `format.row_bytes(x.len())` long.
pub fn encode_row(format: KvFormat, x: &[f32], out: &mut [u8]) {
    assert!(out.len() == format.row_bytes(x.len()), "{} bytes for {} elements", out.len(), x.len());
    match format {
        KvFormat::F32 => {
            for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *out = x.to_le_bytes();
            }
        }
        KvFormat::F16 => {
            for (out, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *out = f16::from_f32(*x).to_le_bytes();
            }
        }
        KvFormat::Q8_0 => {
            for (out, x) in out.as_chunks_mut::<Q8_BYTES>().0.iter_mut().zip(x.chunks_exact(32)) {
                let mut scale = [crate::activations::Q8Scale::default()];
                let (d, codes) = out.split_at_mut(2);
                let codes = bytemuck::cast_slice_mut(codes);
                crate::activations::quantize_q8(Isa::best(), x, codes, &mut scale);
                d.copy_from_slice(&f16::from_f32(scale[0].d).to_le_bytes());
            }
        }
    }
}

/// Keys and values of one layer: blocks of `block_len` positions, each position all heads of a row.
pub struct KvView<'a> {
    pub format: KvFormat,
    /// `[blocks][block_len][kv_heads * head_dim]`.
    pub keys: &'a [u8],
    /// `[blocks][block_len][kv_heads * value_dim]`.
    pub values: &'a [u8],
    pub block_len: usize,
}

/// Widens stored elements to floats, exactly.
#[inline(always)]
pub(crate) fn decode(format: KvFormat, bytes: &[u8], out: &mut [f32]) {
    match format {
        KvFormat::F32 => {
            for (out, x) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*x);
            }
        }
        KvFormat::F16 => {
            for (out, x) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = f16::from_le_bytes(*x).to_f32();
            }
        }
        KvFormat::Q8_0 => {
            let blocks = bytes.as_chunks::<Q8_BYTES>().0.iter().zip(out.as_chunks_mut::<32>().0);
            for (block, out) in blocks {
                let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
                for (out, code) in out.iter_mut().zip(&block[2..]) {
                    *out = *code as i8 as f32 * d;
                }
            }
        }
    }
}

/// As [`decode`] with the 8-wide f16 conversion.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(crate) fn decode_avx2(format: KvFormat, bytes: &[u8], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    if format != KvFormat::F16 {
        return decode(format, bytes, out);
    }
    let (packed, packed_tail) = bytes.as_chunks::<16>();
    let (wide, wide_tail) = out.as_chunks_mut::<8>();
    for (wide, packed) in wide.iter_mut().zip(packed) {
        // SAFETY: 16 readable and 32 writable bytes; the unaligned forms ask for no more.
        unsafe {
            _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(packed.as_ptr().cast())))
        };
    }
    decode(format, packed_tail, wide_tail);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.73).sin() * 3.0).collect()
    }

    #[test]
    fn rows_come_back_within_the_precision_of_their_format() {
        for (format, len, error) in
            [(KvFormat::F32, 77, 0.0), (KvFormat::F16, 77, 2e-3), (KvFormat::Q8_0, 96, 1.3e-2)]
        {
            let x = values(len);
            let mut bytes = vec![0; format.row_bytes(len)];
            encode_row(format, &x, &mut bytes);
            let mut back = vec![0.0; len];
            decode(format, &bytes, &mut back);
            assert!(x.iter().zip(&back).all(|(x, back)| (x - back).abs() <= error), "{format:?}");
        }
    }

    #[test]
    fn a_q8_row_is_a_row_of_the_weight_type() {
        let x = values(64);
        let mut bytes = vec![0; KvFormat::Q8_0.row_bytes(64)];
        encode_row(KvFormat::Q8_0, &x, &mut bytes);
        let (mut back, mut weights) = (vec![0.0; 64], vec![0.0; 64]);
        decode(KvFormat::Q8_0, &bytes, &mut back);
        crate::dequantize_row(adit_format::TensorType::Q8_0, &bytes, &mut weights);
        assert_eq!(back, weights);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_wide_decoder_agrees_with_the_plain_one() {
        if crate::isa::Avx2::new().is_none() {
            return;
        }
        for len in 1..=40 {
            let mut bytes = vec![0; len * 2];
            encode_row(KvFormat::F16, &values(len), &mut bytes);
            let (mut plain, mut wide) = (vec![0.0; len], vec![0.0; len]);
            decode(KvFormat::F16, &bytes, &mut plain);
            // SAFETY: the features were just checked.
            unsafe { decode_avx2(KvFormat::F16, &bytes, &mut wide) };
            assert_eq!(plain, wide);
        }
    }
}
