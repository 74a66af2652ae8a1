//! Seeded weights of every type that has kernels.

use std::ops::Range;

use adit_format::TensorType;

use crate::random::Random;

/// Every type that has kernels.
pub const KINDS: [TensorType; 16] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::Bf16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2K,
    TensorType::Q3K,
    TensorType::Q4K,
    TensorType::Q5K,
    TensorType::Q6K,
    TensorType::Iq4Nl,
    TensorType::Iq4Xs,
    TensorType::Mxfp4,
];

/// Offsets of the f16 fields in a block.
fn halves(kind: TensorType) -> &'static [usize] {
    match kind {
        TensorType::F16 | TensorType::Q4_0 | TensorType::Q5_0 | TensorType::Q8_0 => &[0],
        TensorType::Iq4Nl | TensorType::Iq4Xs => &[0],
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4K | TensorType::Q5K => &[0, 2],
        TensorType::Q2K => &[80, 82],
        TensorType::Q3K => &[108],
        TensorType::Q6K => &[208],
        _ => &[],
    }
}

/// Whether byte `i` of a block is part of a floating-point number, its exponent included.
pub fn is_number(kind: TensorType, i: usize) -> bool {
    kind == TensorType::Mxfp4 && i == 0
        || halves(kind).iter().any(|offset| (*offset..offset + 2).contains(&i))
}

/// Where a super-block keeps the scales of its runs.
pub fn sub_scales(kind: TensorType) -> Range<usize> {
    match kind {
        TensorType::Q2K => 0..16,
        TensorType::Q3K => 96..108,
        TensorType::Q4K | TensorType::Q5K => 4..16,
        TensorType::Q6K => 192..208,
        TensorType::Iq4Xs => 2..8,
        _ => 0..0,
    }
}

/// Writes an f16 number, given as bits, into every f16 field of the blocks.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn set_halves(kind: TensorType, bytes: &mut [u8], bits: u16) {
    for block in bytes.chunks_exact_mut(kind.block_bytes()) {
        for offset in halves(kind) {
            block[*offset..offset + 2].copy_from_slice(&bits.to_le_bytes());
        }
    }
}

/// Random blocks with scales of ordinary size.
pub fn weights(kind: TensorType, rows: usize, cols: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0u8; rows * kind.row_bytes(cols).expect("whole blocks")];
    bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    for block in bytes.chunks_exact_mut(kind.block_bytes()) {
        for offset in halves(kind) {
            let value = half::f16::from_f32(random.unit() * 0.1);
            block[*offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        }
        match kind {
            TensorType::F32 => block.copy_from_slice(&random.unit().to_le_bytes()),
            TensorType::Bf16 => block.copy_from_slice(&half::bf16::from_f32(random.unit()).to_le_bytes()),
            TensorType::Mxfp4 => block[0] = 118 + block[0] % 8,
            _ => {}
        }
    }
    bytes
}
