//! Quantised activations: the peer's rule, the same bits on every instruction set, edges as documented.

use proptest::prelude::*;

use super::*;
use crate::isa::Isa;

fn q8(isa: Isa, x: &[f32]) -> (Vec<i8>, Vec<Q8Scale>) {
    let (mut codes, mut scales) = (vec![99; x.len()], vec![Q8Scale::default(); x.len() / 32]);
    quantize_q8(isa, x, &mut codes, &mut scales);
    (codes, scales)
}

fn q8k(isa: Isa, x: &[f32]) -> (Vec<i8>, Vec<Q8KScale>) {
    let (mut codes, mut scales) = (vec![99; x.len()], vec![Q8KScale::default(); x.len() / 256]);
    quantize_q8k(isa, x, &mut codes, &mut scales);
    (codes, scales)
}

#[test]
fn the_largest_becomes_127_and_halves_go_to_even() {
    let mut x = [0.0; 32];
    x[..6].copy_from_slice(&[254.0, -254.0, 1.0, 3.0, 5.0, -1.0]);
    let (codes, scales) = q8(Isa::Scalar, &x);
    assert_eq!(codes[..7], [127, -127, 0, 2, 2, 0, 0]);
    assert_eq!((scales[0].d, scales[0].code_sum, scales[0].sum), (2.0, 4, 8.0));
}

#[test]
fn tiny_blocks_are_zero_and_infinite_ones_are_nan() {
    for value in [0.0, 1e-40, -9e-31] {
        let (codes, scales) = q8(Isa::best(), &[value; 32]);
        assert!(codes.iter().all(|code| *code == 0) && scales[0].d == 0.0 && scales[0].sum == 0.0, "{value}");
        let (codes, scales) = q8k(Isa::best(), &[value; 256]);
        assert!(codes.iter().all(|code| *code == 0) && scales[0].d == 0.0 && scales[0].run_sums == [0; 16]);
    }
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let mut x = [1.0; 256];
        x[100] = value;
        let (codes, scales) = q8(Isa::best(), &x);
        assert!(codes[96..128] == [0; 32] && scales[3].d.is_nan() && scales[3].sum.is_nan());
        assert!(codes[..96] == [127; 96] && scales[2].d.is_finite());
        let (codes, scales) = q8k(Isa::best(), &x);
        assert!(codes == [0; 256] && scales[0].d.is_nan());
    }
}

#[test]
fn bytes_needed_is_what_new_allocates() {
    let formats =
        [ActivationFormat::F32, ActivationFormat::Q8_1, ActivationFormat::Q8K, ActivationFormat::F32];
    for formats in [&formats[..], &formats[1..2], &formats[..0]] {
        let a = Activations::new(5, 544, formats);
        let bytes = a.floats.capacity() * 4
            + (a.q8_codes.capacity() + a.q8k_codes.capacity()) * 64
            + a.q8_scales.capacity() * size_of::<Q8Scale>()
            + a.q8k_scales.capacity() * size_of::<Q8KScale>()
            + a.ready.capacity();
        assert_eq!(Activations::bytes_needed(5, 544, formats), bytes);
    }
}

proptest! {
    #[test]
    fn codes_give_back_the_values_within_half_a_step(x in prop::collection::vec(-1e3f32..1e3, 256)) {
        let (codes, scales) = q8(Isa::Scalar, &x);
        for (i, (x, code)) in x.iter().zip(&codes).enumerate() {
            let d = scales[i / 32].d;
            prop_assert!((x - d * *code as f32).abs() <= d * 0.57, "{x} as {code} times {d}");
        }
        let (codes, scales) = q8k(Isa::Scalar, &x);
        for (x, code) in x.iter().zip(&codes) {
            prop_assert!((x - scales[0].d * *code as f32).abs() <= scales[0].d * 0.501);
        }
        for (run, codes) in codes.chunks(16).enumerate() {
            let sum: i16 = codes.iter().map(|code| *code as i16).sum();
            prop_assert_eq!(sum, scales[0].run_sums[run_place(run)]);
        }
    }

    #[test]
    fn every_instruction_set_quantises_alike(x in prop::collection::vec(any::<f32>(), 512)) {
        let (codes, scales) = q8(Isa::Scalar, &x);
        let (codes_k, scales_k) = q8k(Isa::Scalar, &x);
        for isa in Isa::all() {
            let (found, found_scales) = q8(isa, &x);
            prop_assert_eq!(&found, &codes);
            for (a, b) in found_scales.iter().zip(&scales) {
                prop_assert!(a.d.to_bits() == b.d.to_bits() || a.d.is_nan() && b.d.is_nan());
                prop_assert!(a.sum.to_bits() == b.sum.to_bits() || a.sum.is_nan() && b.sum.is_nan());
            }
            let (found, found_scales) = q8k(isa, &x);
            prop_assert_eq!(&found, &codes_k);
            for (a, b) in found_scales.iter().zip(&scales_k) {
                prop_assert!(a.d.to_bits() == b.d.to_bits() || a.d.is_nan() && b.d.is_nan());
                prop_assert_eq!(a.run_sums, b.run_sums);
            }
        }
    }
}
