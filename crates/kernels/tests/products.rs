//! Every product kernel: right, and the same bits on every instruction set, for any number of threads, any
//! company of rows and any selection.

#[path = "common/random.rs"]
mod random;
#[path = "common/weights.rs"]
mod weights;

use adit_format::TensorType;
use adit_kernels::{
    Activations, Isa, Job, Matrix, Pool, Selection, activation_format, dequantize_row, matmul,
};
use random::{Random, activations};
use weights::{KINDS, is_number, set_halves, sub_scales, weights};

/// `x[rows][cols]` times one matrix, by the given pool.
fn product(pool: &Pool, matrix: Matrix<'_>, x: &[f32], select: Option<&[u32]>) -> Vec<f32> {
    let formats = [activation_format(matrix.kind).unwrap()];
    let rows = x.len() / matrix.cols;
    let mut quantised = Activations::new(rows, matrix.cols, &formats);
    quantised.quantize(pool, x, rows, matrix.cols, &formats);
    let mut out = vec![0.0; select.map_or(rows, <[u32]>::len) * matrix.rows];
    let out_stride = matrix.rows;
    let rows = select.map_or(Selection::Run { first: 0, count: rows }, Selection::Listed);
    matmul(pool, &quantised, &mut [Job { weights: matrix, rows, out: &mut out, out_stride }]);
    out
}

/// Equal bits, where any NaN equals any other.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
}

/// From one block to odd multiples of what a kernel takes at once.
fn widths(kind: TensorType) -> Vec<usize> {
    match kind.block_len() {
        1 => vec![1, 3, 8, 15, 16, 17, 31, 32, 33, 63, 100, 576],
        32 => vec![32, 64, 96, 160, 224, 256, 288, 576, 1056],
        _ => vec![256, 512, 768, 1280],
    }
}

#[test]
fn products_are_those_of_the_dequantised_weights() {
    let mut random = Random(1);
    for kind in KINDS {
        let (rows, cols) = (9, 768);
        let bytes = weights(kind, rows, cols, &mut random);
        let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
        let x = activations(2 * cols, &mut random);
        let out = product(&Pool::new(1), matrix, &x, None);
        for (i, x) in x.chunks(cols).enumerate() {
            for row in 0..rows {
                let mut w = vec![0.0; cols];
                matrix.dequantize_row(row, &mut w);
                let products = w.iter().zip(x).map(|(w, x)| *w as f64 * *x as f64);
                let truth: f64 = products.clone().sum();
                // The root of the sum of squares is how far independent rounding errors reach.
                let reach = products.map(|p| p * p).sum::<f64>().sqrt();
                let found = out[i * rows + row] as f64;
                let bound = if kind.is_quantised() { 0.03 } else { 1e-5 } * reach;
                assert!((found - truth).abs() < bound, "{kind} row {row}: {found} for {truth} +- {bound}");
            }
        }
    }
}

#[test]
fn every_instruction_set_agrees_with_the_scalar_twin() {
    let mut random = Random(2);
    let scalar = Pool::with_isa(1, Isa::Scalar);
    for kind in KINDS {
        for cols in widths(kind) {
            for rows in (1..=20).chain([64]) {
                let bytes = weights(kind, rows, cols, &mut random);
                let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
                let count = [1, 2, 3, 4, 5, 7, 16, 67][rows % 8];
                let x = activations(count * cols, &mut random);
                let expected = product(&scalar, matrix, &x, None);
                for isa in Isa::all() {
                    let found = product(&Pool::with_isa(1, isa), matrix, &x, None);
                    assert!(same(&found, &expected), "{} {kind} {rows} x {cols}, {count} rows", isa.name());
                }
            }
        }
    }
}

#[test]
fn any_number_of_activation_rows_agrees_with_the_scalar_twin() {
    let mut random = Random(8);
    let scalar = Pool::with_isa(1, Isa::Scalar);
    for kind in KINDS {
        // A part of a tile behind whole ones, and blocks behind those that are unpacked together.
        let (rows, cols) = (35, kind.block_len().max(32) + 256);
        let bytes = weights(kind, rows, cols, &mut random);
        let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
        let x = activations(530 * cols, &mut random);
        let expected = product(&scalar, matrix, &x, None);
        for isa in Isa::all() {
            for count in (1..=20).chain([100, 530]) {
                let found = product(&Pool::with_isa(1, isa), matrix, &x[..count * cols], None);
                assert!(same(&found, &expected[..count * rows]), "{} {kind}, {count} rows", isa.name());
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_threads_company_or_selection() {
    let mut random = Random(3);
    for kind in KINDS {
        let (rows, cols, count) = (37, 512, 70);
        let bytes = weights(kind, rows, cols, &mut random);
        let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
        let x = activations(count * cols, &mut random);
        let alone: Vec<f32> = x.chunks(cols).flat_map(|x| product(&Pool::new(1), matrix, x, None)).collect();
        for threads in 1..=4 {
            let pool = Pool::new(threads);
            assert!(same(&product(&pool, matrix, &x, None), &alone), "{kind} {threads} threads");
            for ids in [&[5u32][..], &[69, 0, 3, 3], &[1; 65]] {
                let expected: Vec<f32> =
                    ids.iter().flat_map(|id| alone[*id as usize * rows..][..rows].to_vec()).collect();
                assert!(same(&product(&pool, matrix, &x, Some(ids)), &expected), "{kind} {ids:?}");
            }
        }
    }
}

#[test]
fn jobs_of_several_types_share_one_call_and_keep_their_strides() {
    let mut random = Random(4);
    let cols = 256;
    let kinds = [TensorType::Q4K, TensorType::Q8_0, TensorType::F32, TensorType::Q6K];
    let all: Vec<_> = kinds
        .iter()
        .zip([5, 24, 1, 9])
        .map(|(k, rows)| (*k, rows, weights(*k, rows, cols, &mut random)))
        .collect();
    let x = activations(3 * cols, &mut random);
    let formats = kinds.map(|kind| activation_format(kind).unwrap());
    for threads in 1..=3 {
        let pool = Pool::new(threads);
        let mut quantised = Activations::new(8, 512, &formats);
        quantised.quantize(&pool, &x, 3, cols, &formats);
        let mut outs: Vec<Vec<f32>> = all.iter().map(|(_, rows, _)| vec![-7.0; 3 * (rows + 2)]).collect();
        let mut jobs: Vec<Job<'_>> = all
            .iter()
            .zip(&mut outs)
            .map(|((kind, rows, bytes), out)| Job {
                weights: Matrix::new(*kind, *rows, cols, bytes).unwrap(),
                rows: Selection::Run { first: 0, count: 3 },
                out,
                out_stride: rows + 2,
            })
            .collect();
        matmul(&pool, &quantised, &mut jobs);
        for ((kind, rows, bytes), out) in all.iter().zip(&outs) {
            let expected = product(&pool, Matrix::new(*kind, *rows, cols, bytes).unwrap(), &x, None);
            for (out, expected) in out.chunks(rows + 2).zip(expected.chunks(*rows)) {
                assert!(same(&out[..*rows], expected), "{kind}");
                assert_eq!(out[*rows..], [-7.0; 2], "{kind}: wrote between rows");
            }
        }
    }
}

#[test]
fn jobs_of_one_call_take_rows_of_their_own() {
    let mut random = Random(8);
    let (rows, cols, count) = (21, 256, 9);
    let all = [TensorType::Q4K, TensorType::Q6K, TensorType::Q4K]
        .map(|kind| (kind, weights(kind, rows, cols, &mut random)));
    let x = activations(count * cols, &mut random);
    let selections = [
        Selection::Run { first: 4, count: 5 },
        Selection::Listed(&[8, 0, 8]),
        Selection::Run { first: 9, count: 0 },
    ];
    let expected: Vec<Vec<f32>> = all
        .iter()
        .map(|(kind, bytes)| product(&Pool::new(1), Matrix::new(*kind, rows, cols, bytes).unwrap(), &x, None))
        .collect();
    for threads in 1..=3 {
        let pool = Pool::new(threads);
        let formats = [activation_format(TensorType::Q4K).unwrap()];
        let mut quantised = Activations::new(count, cols, &formats);
        quantised.quantize(&pool, &x, count, cols, &formats);
        let mut outs = [vec![0.0; 5 * rows], vec![0.0; 3 * rows], Vec::new()];
        let mut jobs: Vec<Job<'_>> = all
            .iter()
            .zip(selections)
            .zip(&mut outs)
            .map(|(((kind, bytes), selection), out)| Job {
                weights: Matrix::new(*kind, rows, cols, bytes).unwrap(),
                rows: selection,
                out,
                out_stride: rows,
            })
            .collect();
        matmul(&pool, &quantised, &mut jobs);
        assert!(same(&outs[0], &expected[0][4 * rows..]));
        let listed = [8, 0, 8].map(|row| &expected[1][row * rows..(row + 1) * rows]).concat();
        assert!(same(&outs[1], &listed));
    }
}

#[test]
fn extreme_blocks_give_the_same_bits_everywhere() {
    let mut random = Random(5);
    let (rows, cols) = (9, 512);
    let special = [0.0, 1e-38, 1e-42, -1e-31, 3e38, f32::INFINITY, f32::NAN, 127.0, -127.0, 65504.0 * 127.0];
    for kind in KINDS {
        // Any bytes are weights: infinite and denormal scales included.
        let bytes: Vec<u8> = match kind.is_quantised() {
            true => (0..rows * kind.row_bytes(cols).unwrap()).map(|_| random.next() as u8).collect(),
            false => weights(kind, rows, cols, &mut random),
        };
        let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
        for value in special {
            let mut x = activations(5 * cols, &mut random);
            x[..cols].fill(value);
            x[cols + 3] = value;
            x[2 * cols + 300] = -value;
            let expected = product(&Pool::with_isa(1, Isa::Scalar), matrix, &x, None);
            for isa in Isa::all() {
                let found = product(&Pool::with_isa(1, isa), matrix, &x, None);
                assert!(same(&found, &expected), "{} {kind} with {value}", isa.name());
            }
        }
    }
}

#[test]
fn the_largest_sums_do_not_overflow() {
    let mut random = Random(10);
    let (rows, cols) = (17, 512);
    let scalar = Pool::with_isa(1, Isa::Scalar);
    let extremes = [0x00, 0x7f, 0x80, 0xff];
    let alternating = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let x: Vec<f32> = (0..5 * cols).map(|i| [1.0, -1.0, alternating(i)][i / cols % 3]).collect();
    for kind in KINDS.into_iter().filter(|kind| kind.is_quantised()) {
        for (codes, scales) in extremes.into_iter().flat_map(|c| extremes.map(|s| (c, s))) {
            // The f16 numbers and exponents stay ordinary.
            let mut bytes = weights(kind, rows, cols, &mut random);
            for block in bytes.chunks_exact_mut(kind.block_bytes()) {
                for (i, byte) in block.iter_mut().enumerate().filter(|(i, _)| !is_number(kind, *i)) {
                    *byte = if sub_scales(kind).contains(&i) { scales } else { codes };
                }
            }
            let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
            for x in [&x[..cols], &x[..]] {
                let expected = product(&scalar, matrix, x, None);
                assert!(expected.iter().all(|value| value.is_finite()));
                for isa in Isa::all() {
                    let found = product(&Pool::with_isa(1, isa), matrix, x, None);
                    assert!(same(&found, &expected), "{} {kind} {codes:#x} {scales:#x}", isa.name());
                }
            }
        }
    }
}

#[test]
fn extreme_scales_give_the_same_bits_everywhere() {
    let mut random = Random(9);
    let (rows, cols) = (17, 768);
    // Zeros, the smallest and largest denormals, the largest number, infinity, NaN.
    let scales = [0x0000, 0x8000, 0x0001, 0x03ff, 0x83ff, 0x7bff, 0x7c00, 0x7e00];
    for kind in KINDS.into_iter().filter(|kind| kind.is_quantised()) {
        for bits in scales {
            let mut bytes = weights(kind, rows, cols, &mut random);
            set_halves(kind, &mut bytes[kind.row_bytes(cols).unwrap()..], bits);
            let matrix = Matrix::new(kind, rows, cols, &bytes).unwrap();
            for count in [1, 5] {
                let x = activations(count * cols, &mut random);
                let expected = product(&Pool::with_isa(1, Isa::Scalar), matrix, &x, None);
                for isa in Isa::all() {
                    let found = product(&Pool::with_isa(1, isa), matrix, &x, None);
                    assert!(same(&found, &expected), "{} {kind} with scales {bits:#x}", isa.name());
                }
            }
        }
    }
}

#[test]
fn infinite_activations_poison_their_own_row_only() {
    let mut random = Random(6);
    for kind in KINDS {
        let bytes = weights(kind, 8, 256, &mut random);
        let matrix = Matrix::new(kind, 8, 256, &bytes).unwrap();
        let mut x = activations(3 * 256, &mut random);
        x[256 + 7] = f32::NAN;
        let out = product(&Pool::new(2), matrix, &x, None);
        assert!(out[8..16].iter().all(|value| value.is_nan()), "{kind}");
        assert!(out[..8].iter().chain(&out[16..]).all(|value| value.is_finite()), "{kind}");
    }
}

#[test]
fn matrices_of_wrong_sizes_are_refused() {
    assert!(Matrix::new(TensorType::Q4K, 2, 256, &[0; 288]).is_some());
    assert!(Matrix::new(TensorType::Q4K, 2, 256, &[0; 287]).is_none());
    assert!(Matrix::new(TensorType::Q4K, 2, 250, &[0; 288]).is_none());
    assert!(Matrix::new(TensorType::Q4K, usize::MAX, 256, &[0; 288]).is_none());
    assert!(Matrix::new(TensorType::F32, 2, 0, &[]).is_none());
    assert!(Matrix::new(TensorType::I32, 1, 1, &[0; 4]).is_none());
}

#[test]
#[should_panic(expected = "3 rows of 2 outputs")]
fn a_stride_that_wraps_around_is_refused() {
    let matrix = Matrix::new(TensorType::F32, 2, 1, &[0; 8]).unwrap();
    let (pool, formats) = (Pool::new(1), [activation_format(TensorType::F32).unwrap()]);
    let mut x = Activations::new(3, 1, &formats);
    x.quantize(&pool, &[1.0; 3], 3, 1, &formats);
    let (rows, out_stride) = (Selection::Run { first: 0, count: 3 }, 1 << (usize::BITS - 1));
    matmul(&pool, &x, &mut [Job { weights: matrix, rows, out: &mut [0.0; 2], out_stride }]);
}

#[test]
fn dequantised_rows_are_the_rows_of_the_matrix() {
    let mut random = Random(7);
    let bytes = weights(TensorType::Q5_1, 3, 64, &mut random);
    let matrix = Matrix::new(TensorType::Q5_1, 3, 64, &bytes).unwrap();
    let (mut all, mut one) = (vec![0.0; 192], vec![0.0; 64]);
    dequantize_row(TensorType::Q5_1, &bytes, &mut all);
    matrix.dequantize_row(2, &mut one);
    assert_eq!(one, all[128..]);
}
