//! Random weights of a wanted spread, in any weight type: every bit pattern that a quantiser may produce,
//! with scales chosen so that the values have the deviation asked for and a mean near 0.

use bytemuck::bytes_of;
use half::{bf16, f16};

use crate::TensorType;
use crate::blocks::*;
use crate::rng::Rng;

/// Root mean square of what a random nibble of the type stands for, and likewise below.
const Q4_SPREAD: f32 = 4.61;
const Q5_SPREAD: f32 = 9.23;
const Q8_SPREAD: f32 = 73.3;
const Q2K_SPREAD: f32 = 1.118;
const Q3K_SPREAD: f32 = 2.29;
const Q6K_SPREAD: f32 = 18.5;
const IQ4_SPREAD: f32 = 69.0;
const MXFP4_SPREAD: f32 = 2.93;
/// Root mean square of the block scales that are drawn below.
const SIX_BIT_SPREAD: f32 = 18.5;
const NIBBLE_SCALE_SPREAD: f32 = 10.1;
const K_SCALE_SPREAD: f32 = 42.0;
const Q6K_SCALE_SPREAD: f32 = 84.0;

/// `blocks` random blocks of `kind` whose values have about the deviation `spread`.
///
/// # Panics
/// When `kind` is no weight type.
pub fn random_weights(kind: TensorType, blocks: usize, spread: f32, seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks * kind.block_bytes());
    let mut rng = Rng::new(seed);
    (0..blocks).for_each(|_| push_block(&mut out, kind, spread, &mut rng));
    out
}

/// Appends one block of `kind` whose values have about the deviation `spread`.
///
/// # Panics
/// When `kind` is no weight type.
pub(crate) fn push_block(out: &mut Vec<u8>, kind: TensorType, spread: f32, rng: &mut Rng) {
    // Blocks of one tensor differ in size, as real ones do.
    let size = spread * (0.75 + 0.5 * rng.unit());
    let sign = if rng.u64() & 1 == 0 { 1.0 } else { -1.0 };
    let either = |spread_of_bits: f32| half(sign * size / spread_of_bits);
    match kind {
        TensorType::F32 => out.extend((spread * rng.normal()).to_le_bytes()),
        TensorType::F16 => out.extend(half(spread * rng.normal())),
        TensorType::Bf16 => out.extend(bf16::from_f32(spread * rng.normal()).to_le_bytes()),
        TensorType::Q4_0 => out.extend(bytes_of(&BlockQ4_0 { d: either(Q4_SPREAD), qs: bits(rng) })),
        TensorType::Q4_1 => {
            let d = size / Q4_SPREAD;
            out.extend(bytes_of(&BlockQ4_1 { d: half(d), m: half(-7.5 * d), qs: bits(rng) }));
        }
        TensorType::Q5_0 => {
            out.extend(bytes_of(&BlockQ5_0 { d: either(Q5_SPREAD), qh: bits(rng), qs: bits(rng) }));
        }
        TensorType::Q5_1 => {
            let d = size / Q5_SPREAD;
            out.extend(bytes_of(&BlockQ5_1 { d: half(d), m: half(-15.5 * d), qh: bits(rng), qs: bits(rng) }));
        }
        TensorType::Q8_0 => {
            let qs = std::array::from_fn(|_| rng.between(-127, 127) as i8);
            out.extend(bytes_of(&BlockQ8_0 { d: either(Q8_SPREAD), qs }));
        }
        TensorType::Q2K => out.extend(bytes_of(&q2k(size, rng))),
        TensorType::Q3K => {
            let d = either(Q3K_SPREAD * SIX_BIT_SPREAD);
            out.extend(bytes_of(&BlockQ3K { hmask: bits(rng), qs: bits(rng), scales: bits(rng), d }));
        }
        TensorType::Q4K => {
            let d = size / (Q4_SPREAD * K_SCALE_SPREAD);
            let scales = k_scales(rng);
            out.extend(bytes_of(&BlockQ4K { d: half(d), dmin: half(7.5 * d), scales, qs: bits(rng) }));
        }
        TensorType::Q5K => {
            let d = size / (Q5_SPREAD * K_SCALE_SPREAD);
            let (scales, qh) = (k_scales(rng), bits(rng));
            out.extend(bytes_of(&BlockQ5K { d: half(d), dmin: half(15.5 * d), scales, qh, qs: bits(rng) }));
        }
        TensorType::Q6K => {
            let d = either(Q6K_SPREAD * Q6K_SCALE_SPREAD);
            let (ql, qh) = (bits(rng), bits(rng));
            let scales = std::array::from_fn(|_| {
                let scale = rng.between(32, 127) as i8;
                if rng.u64() & 1 == 0 { scale } else { -scale }
            });
            out.extend(bytes_of(&BlockQ6K { ql, qh, scales, d }));
        }
        TensorType::Iq4Nl => out.extend(bytes_of(&BlockIq4Nl { d: either(IQ4_SPREAD), qs: bits(rng) })),
        TensorType::Iq4Xs => {
            let d = either(IQ4_SPREAD * SIX_BIT_SPREAD);
            let (scales_h, scales_l) = (bits(rng), bits(rng));
            out.extend(bytes_of(&BlockIq4Xs { d, scales_h, scales_l, qs: bits(rng) }));
        }
        TensorType::Mxfp4 => {
            let e = (127.0 + (size / MXFP4_SPREAD).log2().round()).clamp(1.0, 254.0) as u8;
            out.extend(bytes_of(&BlockMxfp4 { e, qs: bits(rng) }));
        }
        TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64 | TensorType::F64 => {
            panic!("{kind} is no weight type")
        }
    }
}

pub(crate) fn is_weight_type(kind: TensorType) -> bool {
    use TensorType::{F64, I8, I16, I32, I64};
    !matches!(kind, I8 | I16 | I32 | I64 | F64)
}

fn half(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

fn bits<const N: usize>(rng: &mut Rng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill(&mut bytes);
    bytes
}

/// Minimums stay near their scales, or the values of a run would be far from 0 together.
fn q2k(size: f32, rng: &mut Rng) -> BlockQ2K {
    let d = size / (Q2K_SPREAD * NIBBLE_SCALE_SPREAD);
    let scales = std::array::from_fn(|_| {
        let scale = rng.between(4, 15);
        let min = (scale + rng.between(-2, 2)).clamp(0, 15);
        (scale | min << 4) as u8
    });
    BlockQ2K { scales, qs: bits(rng), d: half(d), dmin: half(1.5 * d) }
}

/// Eight scales and eight minimums of 6 bits, packed as Q4_K and Q5_K have them: the first four of each
/// in the low bits of bytes 0-3 and 4-7, the last four split over bytes 8-11 and the high bits before.
fn k_scales(rng: &mut Rng) -> [u8; 12] {
    let scale: [i64; 8] = std::array::from_fn(|_| rng.between(16, 63));
    let min: [i64; 8] = std::array::from_fn(|run| (scale[run] + rng.between(-3, 3)).clamp(0, 63));
    let mut packed = [0; 12];
    for run in 0..4 {
        packed[run] = (scale[run] | (scale[run + 4] >> 4) << 6) as u8;
        packed[run + 4] = (min[run] | (min[run + 4] >> 4) << 6) as u8;
        packed[run + 8] = (scale[run + 4] & 15 | (min[run + 4] & 15) << 4) as u8;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_type_makes_whole_blocks_with_finite_scales() {
        for kind in TensorType::ALL.into_iter().filter(|&kind| is_weight_type(kind)) {
            let mut rng = Rng::new(kind.ggml_id().into());
            let mut bytes = Vec::new();
            for _ in 0..100 {
                push_block(&mut bytes, kind, 0.05, &mut rng);
            }
            assert_eq!(bytes.len(), 100 * kind.block_bytes(), "{kind}");
        }
    }

    #[test]
    fn values_have_the_spread_asked_for() {
        let mut rng = Rng::new(5);
        let mut bytes = Vec::new();
        (0..400).for_each(|_| push_block(&mut bytes, TensorType::Q4K, 0.05, &mut rng));
        let mut squares = 0.0;
        for block in bytemuck::cast_slice::<u8, BlockQ4K>(&bytes) {
            let (d, dmin) = (f16::from_le_bytes(block.d).to_f32(), f16::from_le_bytes(block.dmin).to_f32());
            for run in 0..8 {
                let (scale, min) = if run < 4 {
                    (block.scales[run] & 63, block.scales[run + 4] & 63)
                } else {
                    (
                        block.scales[run + 4] & 15 | block.scales[run - 4] >> 6 << 4,
                        block.scales[run + 4] >> 4 | block.scales[run] >> 6 << 4,
                    )
                };
                for byte in &block.qs[run / 2 * 32..][..32] {
                    let q = if run % 2 == 0 { byte & 15 } else { byte >> 4 };
                    squares += (d * f32::from(scale) * f32::from(q) - dmin * f32::from(min)).powi(2);
                }
            }
        }
        let spread = (squares / (400.0 * 256.0)).sqrt();
        assert!((0.045..0.056).contains(&spread), "{spread}");
    }
}
