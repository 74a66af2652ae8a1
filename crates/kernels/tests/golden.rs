//! Dequantisation against an independent implementation. `golden/make.py` says how the files were made.

use adit_format::TensorType;
use adit_kernels::dequantize_row;

#[test]
fn every_format_dequantises_as_the_gguf_package_does() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
    let read = |name: String| std::fs::read(folder.to_owned() + &name).expect("a committed file");
    for name in [
        "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
        "IQ4_NL", "IQ4_XS", "MXFP4",
    ] {
        let kind = TensorType::ALL.into_iter().find(|kind| kind.name() == name).expect("a known type");
        let (blocks, weights) = (read(format!("{name}.blocks")), read(format!("{name}.f32")));
        let expected: Vec<f32> = weights.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let mut found = vec![0.0; expected.len()];
        dequantize_row(kind, &blocks, &mut found);
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn f32_rows_pass_through() {
    let mut found = [0.0; 2];
    dequantize_row(TensorType::F32, &[0, 0, 128, 63, 0, 0, 0, 192], &mut found);
    assert_eq!(found, [1.0, -2.0]);
}
