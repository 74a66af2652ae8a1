//! What the bits of a block are worth, one portable unpacker for each quantised format: the truth that
//! dequantisation, the scalar kernels and the tests share. Layouts come from `adit_format::blocks`, the
//! packing rules from ggml's `ggml-quants.c`. Knows no activations and no instruction sets.

use adit_format::blocks::{
    BLOCK_LEN, Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K,
    BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, IQ4_VALUES, MXFP4_VALUES, SUPER_BLOCK_LEN,
};

use half::{bf16, f16};

/// The function for weights of a type that has kernels, of three that are generic over the float or block
/// (and over `$more`).
macro_rules! function_for {
    ($kind:expr, $floats:ident, $blocks32:ident, $blocks256:ident $(, $more:ty)?) => {{
        use adit_format::TensorType;
        use adit_format::blocks::{
            BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0,
            BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
        };
        use $crate::formats::{Brain, Half, Single};
        match $kind {
            TensorType::F32 => $floats::<Single>,
            TensorType::F16 => $floats::<Half>,
            TensorType::Bf16 => $floats::<Brain>,
            TensorType::Q4_0 => $blocks32::<BlockQ4_0 $(, $more)?>,
            TensorType::Q4_1 => $blocks32::<BlockQ4_1 $(, $more)?>,
            TensorType::Q5_0 => $blocks32::<BlockQ5_0 $(, $more)?>,
            TensorType::Q5_1 => $blocks32::<BlockQ5_1 $(, $more)?>,
            TensorType::Q8_0 => $blocks32::<BlockQ8_0 $(, $more)?>,
            TensorType::Iq4Nl => $blocks32::<BlockIq4Nl $(, $more)?>,
            TensorType::Mxfp4 => $blocks32::<BlockMxfp4 $(, $more)?>,
            TensorType::Q2K => $blocks256::<BlockQ2K $(, $more)?>,
            TensorType::Q3K => $blocks256::<BlockQ3K $(, $more)?>,
            TensorType::Q4K => $blocks256::<BlockQ4K $(, $more)?>,
            TensorType::Q5K => $blocks256::<BlockQ5K $(, $more)?>,
            TensorType::Q6K => $blocks256::<BlockQ6K $(, $more)?>,
            TensorType::Iq4Xs => $blocks256::<BlockIq4Xs $(, $more)?>,
            TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64 | TensorType::F64 => {
                panic!("no kernel for weights of type {}", $kind)
            }
        }
    }};
}
pub(crate) use function_for;

/// A block of 32: `weight[i] = d * codes[i] + m`.
pub struct Block32 {
    pub codes: [i8; BLOCK_LEN],
    pub d: f32,
    pub m: f32,
}

/// A super-block of 256 in 16 runs of 16:
/// `weight[i] = d * scales[i / 16] * codes[i] - dmin * mins[i / 16]`.
pub struct Block256 {
    pub codes: [i8; SUPER_BLOCK_LEN],
    pub scales: [i32; 16],
    pub mins: [i32; 16],
    pub d: f32,
    pub dmin: f32,
}

/// A format of 32-blocks.
pub trait Format32: Block {
    /// Whether `m` is ever other than zero.
    const HAS_MIN: bool;
    fn unpack(&self) -> Block32;
}

/// A format of super-blocks.
pub trait Format256: Block {
    /// Whether `mins` are ever other than zero.
    const HAS_MIN: bool;
    fn unpack(&self) -> Block256;
}

/// A float of a weight as it lies in a file.
pub trait Float: bytemuck::Pod {
    fn widen(self) -> f32;
}

/// F32.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Single([u8; 4]);

/// F16.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Half([u8; 2]);

/// BF16.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Brain([u8; 2]);

impl Float for Single {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_le_bytes(self.0)
    }
}

impl Float for Half {
    #[inline(always)]
    fn widen(self) -> f32 {
        f16_to_f32(self.0)
    }
}

impl Float for Brain {
    #[inline(always)]
    fn widen(self) -> f32 {
        bf16::from_le_bytes(self.0).to_f32()
    }
}

pub fn f16_to_f32(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

/// `2^(e - 128)`: half of what the shared exponent of an MXFP4 block says, because its table is doubled.
pub fn mxfp4_scale(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits((e as u32 - 1) << 23),
    }
}

/// Byte `j` holds element `j` in its low nibble and element `j + 16` in its high one.
fn nibbles(qs: &[u8; 16], value: impl Fn(usize, u8) -> i8) -> [i8; BLOCK_LEN] {
    std::array::from_fn(|i| value(i, if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }))
}

/// The fifth bit of element `i`, in its place.
fn fifth_bit(qh: [u8; 4], i: usize) -> i8 {
    ((u32::from_le_bytes(qh) >> i & 1) << 4) as i8
}

impl Format32 for BlockQ4_0 {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block32 {
        Block32 { codes: nibbles(&self.qs, |_, q| q as i8 - 8), d: f16_to_f32(self.d), m: 0.0 }
    }
}

impl Format32 for BlockQ4_1 {
    const HAS_MIN: bool = true;
    fn unpack(&self) -> Block32 {
        Block32 { codes: nibbles(&self.qs, |_, q| q as i8), d: f16_to_f32(self.d), m: f16_to_f32(self.m) }
    }
}

impl Format32 for BlockQ5_0 {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block32 {
        let codes = nibbles(&self.qs, |i, q| (q as i8 | fifth_bit(self.qh, i)) - 16);
        Block32 { codes, d: f16_to_f32(self.d), m: 0.0 }
    }
}

impl Format32 for BlockQ5_1 {
    const HAS_MIN: bool = true;
    fn unpack(&self) -> Block32 {
        let codes = nibbles(&self.qs, |i, q| q as i8 | fifth_bit(self.qh, i));
        Block32 { codes, d: f16_to_f32(self.d), m: f16_to_f32(self.m) }
    }
}

impl Format32 for BlockQ8_0 {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block32 {
        Block32 { codes: self.qs, d: f16_to_f32(self.d), m: 0.0 }
    }
}

impl Format32 for BlockIq4Nl {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block32 {
        Block32 { codes: nibbles(&self.qs, |_, q| IQ4_VALUES[q as usize]), d: f16_to_f32(self.d), m: 0.0 }
    }
}

impl Format32 for BlockMxfp4 {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block32 {
        Block32 { codes: nibbles(&self.qs, |_, q| MXFP4_VALUES[q as usize]), d: mxfp4_scale(self.e), m: 0.0 }
    }
}

/// Two bits of every element: 128 elements in 32 bytes, element `32 * k + l` in bits `2k` of byte `l`.
fn two_bits(qs: &[u8], i: usize) -> u8 {
    qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// The 4-bit codes of Q4_K, Q5_K: 64 elements in 32 bytes, low nibbles first.
fn k_nibble(qs: &[u8; 128], i: usize) -> u8 {
    qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15
}

/// The 8 scales and 8 mins of 6 bits in the 12 bytes of Q4_K and Q5_K.
pub fn k_scales(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = packed[j] & 63;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = packed[j + 8] & 15 | packed[j] >> 6 << 4;
        mins[j + 4] = packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// The 16 scales of 6 bits in the 12 bytes of Q3_K, less their offset of 32.
pub fn q3k_scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let low = if j < 8 { packed[j] & 15 } else { packed[j - 8] >> 4 };
        let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// The 8 scales of IQ4_XS, less their offset of 32.
pub fn iq4xs_scales(block: &BlockIq4Xs) -> [i8; 8] {
    let high = u16::from_le_bytes(block.scales_h);
    std::array::from_fn(|j| {
        let low = block.scales_l[j / 2] >> (j % 2 * 4) & 15;
        (low | ((high >> (2 * j) & 3) << 4) as u8) as i8 - 32
    })
}

/// Spreads 8 values of runs of 32 over 16 runs of 16.
fn doubled<T: Copy + Into<i32>>(values: [T; 8]) -> [i32; 16] {
    std::array::from_fn(|run| values[run / 2].into())
}

impl Format256 for BlockQ2K {
    const HAS_MIN: bool = true;
    fn unpack(&self) -> Block256 {
        Block256 {
            codes: std::array::from_fn(|i| two_bits(&self.qs, i) as i8),
            scales: self.scales.map(|byte| (byte & 15) as i32),
            mins: self.scales.map(|byte| (byte >> 4) as i32),
            d: f16_to_f32(self.d),
            dmin: f16_to_f32(self.dmin),
        }
    }
}

impl Format256 for BlockQ3K {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block256 {
        let high = |i: usize| self.hmask[i % 32] >> (i / 32) & 1;
        Block256 {
            codes: std::array::from_fn(|i| (two_bits(&self.qs, i) | high(i) << 2) as i8 - 4),
            scales: q3k_scales(&self.scales).map(i32::from),
            mins: [0; 16],
            d: f16_to_f32(self.d),
            dmin: 0.0,
        }
    }
}

impl Format256 for BlockQ4K {
    const HAS_MIN: bool = true;
    fn unpack(&self) -> Block256 {
        let (scales, mins) = k_scales(&self.scales);
        Block256 {
            codes: std::array::from_fn(|i| k_nibble(&self.qs, i) as i8),
            scales: doubled(scales),
            mins: doubled(mins),
            d: f16_to_f32(self.d),
            dmin: f16_to_f32(self.dmin),
        }
    }
}

impl Format256 for BlockQ5K {
    const HAS_MIN: bool = true;
    fn unpack(&self) -> Block256 {
        let (scales, mins) = k_scales(&self.scales);
        let high = |i: usize| self.qh[i % 32] >> (i / 32) & 1;
        Block256 {
            codes: std::array::from_fn(|i| (k_nibble(&self.qs, i) | high(i) << 4) as i8),
            scales: doubled(scales),
            mins: doubled(mins),
            d: f16_to_f32(self.d),
            dmin: f16_to_f32(self.dmin),
        }
    }
}

impl Format256 for BlockQ6K {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block256 {
        // 128 elements in 64 bytes of low nibbles: elements 0..64 low, 64..128 high.
        let low = |i: usize| self.ql[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        Block256 {
            codes: std::array::from_fn(|i| (low(i) | two_bits(&self.qh, i) << 4) as i8 - 32),
            scales: self.scales.map(i32::from),
            mins: [0; 16],
            d: f16_to_f32(self.d),
            dmin: 0.0,
        }
    }
}

impl Format256 for BlockIq4Xs {
    const HAS_MIN: bool = false;
    fn unpack(&self) -> Block256 {
        // As IQ4_NL within each run of 32.
        let code = |i: usize| self.qs[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
        Block256 {
            codes: std::array::from_fn(|i| IQ4_VALUES[code(i) as usize]),
            scales: doubled(iq4xs_scales(self)),
            mins: [0; 16],
            d: f16_to_f32(self.d),
            dmin: 0.0,
        }
    }
}
