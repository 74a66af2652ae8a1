//! How keys and values are stored between steps. Owns the formats and the map from a position to its place;
//! knows no attention and no sequences.
//!
//! Positions are stored in blocks of [`KV_BLOCK`], within a block one head after the other. Values lie
//! position after position, as a row of weights would. Keys lie in tiles of [`KEY_TILE`] positions, turned
//! so that one element of all of them is one load: scores then need no sums across a register.

use half::{bf16, f16};

use crate::isa::Isa;

/// Positions in a block.
pub const KV_BLOCK: usize = 64;
/// Positions whose keys lie together.
pub const KEY_TILE: usize = 16;
/// Elements that share a scale in Q8_0.
const RUN: usize = 32;
/// Bytes of a Q8_0 row's run: an f16 scale and the codes.
pub(crate) const Q8_BYTES: usize = 2 + RUN;
/// Bytes of a Q8_0 key tile's run: 16 scales, then `[32][16]` codes.
pub(crate) const Q8_TILE_BYTES: usize = KEY_TILE * Q8_BYTES;

/// The element format of stored keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    F32,
    F16,
    /// The upper half of an f32, rounded to nearest even.
    Bf16,
    /// Runs of 32 elements share an f16 scale, as in the weight type Q8_0.
    Q8_0,
}

impl KvFormat {
    /// Bytes of `len` elements of a head; for Q8_0 `len` must be a multiple of 32.
    pub fn row_bytes(self, len: usize) -> usize {
        assert!(len.is_multiple_of(self.block_len()), "{len} elements are not whole runs of {self:?}");
        match self {
            KvFormat::F32 => len * 4,
            KvFormat::F16 | KvFormat::Bf16 => len * 2,
            KvFormat::Q8_0 => len / RUN * Q8_BYTES,
        }
    }

    /// A head's length must be a multiple of this.
    pub fn block_len(self) -> usize {
        if self == KvFormat::Q8_0 { RUN } else { 1 }
    }
}

/// Where values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Stored beside the keys.
    #[default]
    Own,
    /// The first `value_dim` elements of their key: nothing more is stored. Latent attention in its
    /// absorbed form, where a key is the latent and a rotated part.
    HeadOfKey,
}

/// What one layer stores of a position.
///
/// DeepSeek-V3's latent, 576 elements and nothing else: `kv_heads: 1, head_dim: 512 + 64, value_dim: 512,
/// values: Values::HeadOfKey`.
#[derive(Clone, Copy, Debug)]
pub struct KvLayout {
    pub format: KvFormat,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    pub values: Values,
}

impl KvLayout {
    /// Bytes of a block's keys: `[kv_heads][tiles][head_dim][KEY_TILE]`.
    pub fn key_block_bytes(&self) -> usize {
        self.kv_heads * self.key_head_bytes()
    }

    /// Bytes of a block's values: `[kv_heads][KV_BLOCK][value_dim]`; none with [`Values::HeadOfKey`].
    pub fn value_block_bytes(&self) -> usize {
        self.kv_heads * self.value_head_bytes()
    }

    pub(crate) fn key_head_bytes(&self) -> usize {
        KV_BLOCK * self.format.row_bytes(self.head_dim)
    }

    pub(crate) fn value_head_bytes(&self) -> usize {
        match self.values {
            Values::Own => KV_BLOCK * self.format.row_bytes(self.value_dim),
            Values::HeadOfKey => 0,
        }
    }

    /// Stores the key `[kv_heads][head_dim]` of the position at `offset` in a block.
    pub fn store_key(&self, block: &mut [u8], offset: usize, key: &[f32]) {
        assert!(block.len() == self.key_block_bytes() && offset < KV_BLOCK);
        assert!(key.len() == self.kv_heads * self.head_dim, "{} floats of keys", key.len());
        let tile_bytes = self.key_head_bytes() / (KV_BLOCK / KEY_TILE);
        let (tile, lane) = (offset / KEY_TILE, offset % KEY_TILE);
        let heads = block.chunks_exact_mut(self.key_head_bytes());
        for (head, key) in heads.zip(key.chunks_exact(self.head_dim)) {
            let tile = &mut head[tile * tile_bytes..(tile + 1) * tile_bytes];
            let mut row = [0; RUN * size_of::<f32>()];
            for (run, key) in key.chunks(RUN).enumerate() {
                let bytes = self.format.row_bytes(key.len());
                encode(Isa::best(), self.format, key, &mut row[..bytes]);
                let tile = &mut tile[run * KEY_TILE * self.format.row_bytes(RUN)..][..KEY_TILE * bytes];
                turn(self.format, &row[..bytes], lane, tile);
            }
        }
    }

    /// Stores the value `[kv_heads][value_dim]` of the position at `offset` in a block. With
    /// [`Values::HeadOfKey`] there is nothing to store, and `block` and `value` are empty.
    pub fn store_value(&self, block: &mut [u8], offset: usize, value: &[f32]) {
        assert!(block.len() == self.value_block_bytes() && offset < KV_BLOCK);
        if self.values == Values::HeadOfKey {
            assert!(value.is_empty(), "{} floats of values that are in their keys", value.len());
            return;
        }
        assert!(value.len() == self.kv_heads * self.value_dim, "{} floats of values", value.len());
        let row_bytes = self.format.row_bytes(self.value_dim);
        let heads = block.chunks_exact_mut(self.value_head_bytes());
        for (head, value) in heads.zip(value.chunks_exact(self.value_dim)) {
            encode(Isa::best(), self.format, value, &mut head[offset * row_bytes..][..row_bytes]);
        }
    }
}

/// Keys and values of one layer.
pub struct KvView<'a> {
    pub layout: KvLayout,
    /// Blocks of [`KvLayout::key_block_bytes`].
    pub keys: &'a [u8],
    /// Blocks of [`KvLayout::value_block_bytes`].
    pub values: &'a [u8],
}

/// Puts an encoded run of a key into its lane of a tile.
fn turn(format: KvFormat, row: &[u8], lane: usize, tile: &mut [u8]) {
    fn scatter<const N: usize>(row: &[u8], lane: usize, tile: &mut [u8]) {
        let lanes = tile.as_chunks_mut::<N>().0.iter_mut().skip(lane).step_by(KEY_TILE);
        lanes.zip(row.as_chunks::<N>().0).for_each(|(place, element)| *place = *element);
    }
    match format {
        KvFormat::F32 => scatter::<4>(row, lane, tile),
        KvFormat::F16 | KvFormat::Bf16 => scatter::<2>(row, lane, tile),
        KvFormat::Q8_0 => {
            let (scales, codes) = tile.split_at_mut(2 * KEY_TILE);
            scatter::<2>(&row[..2], lane, scales);
            scatter::<1>(&row[2..], lane, codes);
        }
    }
}

/// Stores a head, or a run of it, as a row.
fn encode(isa: Isa, format: KvFormat, x: &[f32], out: &mut [u8]) {
    debug_assert!(out.len() == format.row_bytes(x.len()));
    match format {
        KvFormat::F32 => {
            for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *out = x.to_le_bytes();
            }
        }
        KvFormat::F16 => encode_f16(isa, x, out),
        KvFormat::Bf16 => {
            for (out, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(x) {
                *out = bf16::from_f32(*x).to_le_bytes();
            }
        }
        KvFormat::Q8_0 => {
            for (out, x) in out.as_chunks_mut::<Q8_BYTES>().0.iter_mut().zip(x.chunks_exact(RUN)) {
                let mut scale = [crate::activations::Q8Scale::default()];
                let (d, codes) = out.split_at_mut(2);
                let codes = bytemuck::cast_slice_mut(codes);
                crate::activations::quantize_q8(isa, x, codes, &mut scale);
                d.copy_from_slice(&f16::from_f32(scale[0].d).to_le_bytes());
            }
        }
    }
}

/// Eight at a time where the CPU can; the rounding is the same.
fn encode_f16(isa: Isa, x: &[f32], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx,f16c")]
    fn wide(x: &[[f32; 8]], out: &mut [[u8; 16]]) {
        use std::arch::x86_64::*;
        for (out, x) in out.iter_mut().zip(x) {
            // SAFETY: 32 readable and 16 writable bytes; the unaligned forms ask for no more.
            unsafe {
                let packed = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(out.as_mut_ptr().cast(), packed);
            }
        }
    }
    let wide_count = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) | Isa::Avx512(_) => {
            // SAFETY: the tokens prove that the CPU has the features.
            unsafe { wide(x.as_chunks::<8>().0, out.as_chunks_mut::<16>().0) };
            x.len() / 8 * 8
        }
        _ => 0,
    };
    let out = out.as_chunks_mut::<2>().0;
    for (out, x) in out[wide_count..].iter_mut().zip(&x[wide_count..]) {
        *out = f16::from_f32(*x).to_le_bytes();
    }
}

/// The element at `index` of a stored row.
#[inline(always)]
pub(crate) fn value_element(format: KvFormat, row: &[u8], index: usize) -> f32 {
    match format {
        KvFormat::F32 => f32::from_le_bytes(bytes_at(row, index * 4)),
        KvFormat::F16 => f16::from_le_bytes(bytes_at(row, index * 2)).to_f32(),
        KvFormat::Bf16 => bf16::from_le_bytes(bytes_at(row, index * 2)).to_f32(),
        KvFormat::Q8_0 => {
            let run = index / RUN * Q8_BYTES;
            row[run + 2 + index % RUN] as i8 as f32 * f16::from_le_bytes(bytes_at(row, run)).to_f32()
        }
    }
}

/// Element `dim` of the key in `lane` of a tile.
#[inline(always)]
pub(crate) fn key_element(format: KvFormat, tile: &[u8], dim: usize, lane: usize) -> f32 {
    match format {
        KvFormat::Q8_0 => {
            let run = dim / RUN * Q8_TILE_BYTES;
            let code = tile[run + KEY_TILE * (2 + dim % RUN) + lane] as i8;
            code as f32 * f16::from_le_bytes(bytes_at(tile, run + 2 * lane)).to_f32()
        }
        _ => value_element(format, tile, dim * KEY_TILE + lane),
    }
}

#[inline(always)]
fn bytes_at<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    *bytes[start..].first_chunk().expect("an element lies within its row")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [KvFormat; 4] = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0];

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.73).sin() * 3.0).collect()
    }

    #[test]
    fn keys_and_values_come_back_from_every_place_within_the_precision_of_their_format() {
        for (format, dim, bound) in [
            (KvFormat::F32, 20, 0.0),
            (KvFormat::F16, 77, 2e-3),
            (KvFormat::Bf16, 77, 1.2e-2),
            (KvFormat::Q8_0, 96, 1.3e-2),
        ] {
            let layout = KvLayout { format, kv_heads: 2, head_dim: dim, value_dim: dim, values: Values::Own };
            let x = values(KV_BLOCK * 2 * dim);
            let mut keys = vec![0xff; layout.key_block_bytes()];
            let mut block = vec![0xff; layout.value_block_bytes()];
            for (offset, x) in x.chunks(2 * dim).enumerate() {
                layout.store_key(&mut keys, offset, x);
                layout.store_value(&mut block, offset, x);
            }
            for (i, x) in x.iter().enumerate() {
                let (offset, head, element) = (i / dim / 2, i / dim % 2, i % dim);
                let tile_bytes = KEY_TILE * format.row_bytes(dim);
                let tile = &keys[head * layout.key_head_bytes() + offset / KEY_TILE * tile_bytes..];
                let key = key_element(format, &tile[..tile_bytes], element, offset % KEY_TILE);
                let row = &block[head * layout.value_head_bytes() + offset * format.row_bytes(dim)..];
                let value = value_element(format, row, element);
                assert!((x - key).abs() <= bound, "{format:?} {i}: {x} {key}");
                assert_eq!(key, value, "{format:?} {i}");
            }
        }
    }

    #[test]
    fn a_q8_row_is_a_row_of_the_weight_type() {
        let x = values(64);
        let mut bytes = vec![0; KvFormat::Q8_0.row_bytes(64)];
        encode(Isa::Scalar, KvFormat::Q8_0, &x, &mut bytes);
        let mut weights = vec![0.0; 64];
        crate::dequantize_row(adit_format::TensorType::Q8_0, &bytes, &mut weights);
        for (i, weight) in weights.iter().enumerate() {
            assert_eq!(value_element(KvFormat::Q8_0, &bytes, i), *weight);
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        for (bits, expected) in [
            (0x3f80_8000, 0x3f80),
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0xff80_0000, 0xff80),
            (0x7f7f_ffff, 0x7f80),
        ] {
            let mut out = [0; 2];
            encode(Isa::best(), KvFormat::Bf16, &[f32::from_bits(bits)], &mut out);
            assert_eq!(u16::from_le_bytes(out), expected);
        }
    }

    #[test]
    fn every_instruction_set_stores_alike() {
        for format in FORMATS {
            for len in (1..=40).chain([64, 96]).filter(|len| len % format.block_len() == 0) {
                let mut x = values(len);
                x[len / 2] = [f32::INFINITY, 1e-7, -65_520.0, 0.0][len % 4];
                let mut expected = vec![0; format.row_bytes(len)];
                encode(Isa::Scalar, format, &x, &mut expected);
                for isa in Isa::all() {
                    let mut stored = vec![0; expected.len()];
                    encode(isa, format, &x, &mut stored);
                    assert_eq!(stored, expected, "{format:?} {len} {}", isa.name());
                }
            }
        }
    }
}
