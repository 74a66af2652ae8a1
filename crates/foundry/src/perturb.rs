//! Small seeded changes to weights without requantising them: the scale of each block (of each row, where
//! weights are plain floats) is multiplied by a factor near 1. Quantised values and their offsets grow
//! together, so a block keeps its shape.

use std::mem::offset_of;

use adit_format::TensorType;
use adit_format::blocks::*;
use adit_format::rng::Rng;
use half::{bf16, f16};

/// The factor lies within 1 +- this: well below what 4-bit quantisation itself changes (some 7 %), so
/// text stays coherent; enough that no two experts answer the same.
const CHANGE_MAX: f32 = 0.03;

/// How the weights of a type can be changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scales {
    /// The f16 scales of a block lie at these bytes of it.
    InBlock(&'static [usize]),
    /// Every value is a float.
    Floats,
}

/// `None` for types whose scales are not floats.
pub(crate) fn scales(kind: TensorType) -> Option<Scales> {
    use Scales::{Floats, InBlock};
    Some(match kind {
        TensorType::F32 | TensorType::F16 | TensorType::Bf16 => Floats,
        TensorType::Q4_0 => InBlock(&[offset_of!(BlockQ4_0, d)]),
        TensorType::Q4_1 => InBlock(&[offset_of!(BlockQ4_1, d), offset_of!(BlockQ4_1, m)]),
        TensorType::Q5_0 => InBlock(&[offset_of!(BlockQ5_0, d)]),
        TensorType::Q5_1 => InBlock(&[offset_of!(BlockQ5_1, d), offset_of!(BlockQ5_1, m)]),
        TensorType::Q8_0 => InBlock(&[offset_of!(BlockQ8_0, d)]),
        TensorType::Q2K => InBlock(&[offset_of!(BlockQ2K, d), offset_of!(BlockQ2K, dmin)]),
        TensorType::Q3K => InBlock(&[offset_of!(BlockQ3K, d)]),
        TensorType::Q4K => InBlock(&[offset_of!(BlockQ4K, d), offset_of!(BlockQ4K, dmin)]),
        TensorType::Q5K => InBlock(&[offset_of!(BlockQ5K, d), offset_of!(BlockQ5K, dmin)]),
        TensorType::Q6K => InBlock(&[offset_of!(BlockQ6K, d)]),
        TensorType::Iq4Nl => InBlock(&[offset_of!(BlockIq4Nl, d)]),
        TensorType::Iq4Xs => InBlock(&[offset_of!(BlockIq4Xs, d)]),
        TensorType::Mxfp4 | TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64 => {
            return None;
        }
        TensorType::F64 => return None,
    })
}

/// Changes whole rows of `row_bytes` bytes each.
pub(crate) fn perturb_rows(kind: TensorType, row_bytes: usize, rows: &mut [u8], rng: &mut Rng) {
    match scales(kind).expect("asked for before") {
        Scales::Floats => {
            for row in rows.chunks_exact_mut(row_bytes) {
                let factor = factor(rng);
                row.chunks_exact_mut(kind.block_bytes()).for_each(|value| scale_float(kind, value, factor));
            }
        }
        Scales::InBlock(places) => {
            for block in rows.chunks_exact_mut(kind.block_bytes()) {
                let factor = factor(rng);
                places.iter().for_each(|&at| scale_float(TensorType::F16, &mut block[at..at + 2], factor));
            }
        }
    }
}

fn factor(rng: &mut Rng) -> f32 {
    1.0 + CHANGE_MAX * (2.0 * rng.unit() - 1.0)
}

/// Multiplies one float in place; a finite one stays finite.
fn scale_float(kind: TensorType, bytes: &mut [u8], factor: f32) {
    match kind {
        TensorType::F32 => {
            let value = f32::from_le_bytes(bytes.try_into().expect("4 bytes"));
            bytes.copy_from_slice(&keep_finite(value, value * factor, f32::MAX).to_le_bytes());
        }
        TensorType::F16 => {
            let value = f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32();
            let scaled = keep_finite(value, value * factor, f16::MAX.to_f32());
            bytes.copy_from_slice(&f16::from_f32(scaled).to_le_bytes());
        }
        TensorType::Bf16 => {
            let value = bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32();
            let scaled = keep_finite(value, value * factor, bf16::MAX.to_f32());
            bytes.copy_from_slice(&bf16::from_f32(scaled).to_le_bytes());
        }
        _ => unreachable!("{kind} is not one float"),
    }
}

fn keep_finite(value: f32, scaled: f32, max: f32) -> f32 {
    if value.is_finite() { scaled.clamp(-max, max) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16_at(bytes: &[u8], at: usize) -> f32 {
        f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
    }

    #[test]
    fn only_scales_change_and_only_a_little() {
        for kind in TensorType::ALL {
            let Some(Scales::InBlock(places)) = scales(kind) else { continue };
            let size = kind.block_bytes();
            // 0x3c.. is an f16 near 1 wherever a scale lies.
            let before = vec![0x3c; size * 10];
            let mut after = before.clone();
            perturb_rows(kind, size * 5, &mut after, &mut Rng::new(1));
            for block in 0..10 {
                for at in 0..size {
                    let scale = places.iter().any(|&place| at == place || at == place + 1);
                    let at = block * size + at;
                    assert!(scale || before[at] == after[at], "{kind} byte {at}");
                }
                let ratios: Vec<f32> = places
                    .iter()
                    .map(|place| f16_at(&after, block * size + place) / f16_at(&before, block * size + place))
                    .collect();
                assert!(
                    ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.031 && ratio == &ratios[0]),
                    "{kind}"
                );
            }
            assert_ne!(before, after, "{kind}");
        }
    }

    #[test]
    fn floats_change_row_by_row() {
        for kind in [TensorType::F32, TensorType::F16, TensorType::Bf16] {
            let unit = kind.block_bytes();
            let mut rows = vec![0x3f; unit * 8];
            perturb_rows(kind, unit * 4, &mut rows, &mut Rng::new(1));
            let values: Vec<&[u8]> = rows.chunks_exact(unit).collect();
            assert!(values[..4].iter().all(|value| value == &values[0]), "one factor a row");
            assert_ne!(values[0], values[4]);
        }
    }

    #[test]
    fn the_largest_scales_stay_finite_and_broken_ones_stay_as_they_are() {
        for bits in [0x7bff_u16, 0xfbff, 0x7c00, 0x0000, 0x8000, 0x0001] {
            let mut block = [0; 18];
            block[..2].copy_from_slice(&bits.to_le_bytes());
            perturb_rows(TensorType::Q4_0, 18, &mut block, &mut Rng::new(5));
            let after = f16::from_le_bytes([block[0], block[1]]);
            assert_eq!(after.is_finite(), f16::from_bits(bits).is_finite(), "{bits:x}");
        }
    }
}
