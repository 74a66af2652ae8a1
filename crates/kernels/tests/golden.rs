//! Dequantisation and products against independent implementations. The scripts in `golden` say how the files
//! were made.

use adit_format::TensorType;
use adit_kernels::{
    Activations, Isa, Job, Matrix, Pool, Selection, activation_format, dequantize_row, matmul,
};

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

#[test]
fn every_format_multiplies_as_ggml_does() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
    let products = std::fs::read_to_string(folder.to_owned() + "products.txt").expect("a committed file");
    assert_eq!(products.lines().count(), 13);
    for (name, expected) in products.lines().map(|line| line.split_once(' ').expect("a name and a number")) {
        let expected: f32 = expected.parse().expect("a number");
        let kind = TensorType::ALL.into_iter().find(|kind| kind.name() == name).expect("a known type");
        let blocks = std::fs::read(format!("{folder}{name}.blocks")).expect("a committed file");
        let cols = blocks.len() / kind.block_bytes() * kind.block_len();
        let x: Vec<f32> = (0..cols).map(|i| (i as i32 * 7919 % 1000 - 500) as f32 / 125.0).collect();
        let format = [activation_format(kind).expect("a format with kernels")];
        for isa in Isa::all() {
            let pool = Pool::with_isa(1, isa);
            let mut quantised = Activations::new(1, cols, &format);
            quantised.quantize(&pool, &x, 1, cols, &format);
            let mut out = [0.0];
            let weights = Matrix::new(kind, 1, cols, &blocks).expect("one row");
            let rows = Selection::Run { first: 0, count: 1 };
            matmul(&pool, &quantised, &mut [Job { weights, rows, out: &mut out, out_stride: 1 }]);
            // Only the order of the float additions differs.
            let error = (out[0] - expected).abs() / expected.abs().max(1.0);
            assert!(error < 2e-6, "{} {name}: {} for {expected}", isa.name(), out[0]);
        }
    }
}
