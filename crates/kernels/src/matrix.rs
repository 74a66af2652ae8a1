//! Weight matrices as they lie on disk, and single rows of them as floats. Owns the size checks; knows no
//! activations.

use adit_format::TensorType;
use adit_format::blocks::{
    BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0,
    BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
};

use crate::formats::{Format32, Format256, f16_to_f32};

/// `rows` rows of `cols` weights, row after row, as a GGUF tensor holds them.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub kind: TensorType,
    pub rows: usize,
    /// Weights in a row: the length of the activations it meets.
    pub cols: usize,
    pub bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// `None` where `bytes` is not exactly `rows` rows of whole blocks, a row is empty, or no kernel exists
    /// for `kind`.
    pub fn new(kind: TensorType, rows: usize, cols: usize, bytes: &'a [u8]) -> Option<Matrix<'a>> {
        crate::activation_format(kind)?;
        let row_bytes = kind.row_bytes(cols)?;
        let fits = cols > 0 && row_bytes.checked_mul(rows)? == bytes.len();
        fits.then_some(Matrix { kind, rows, cols, bytes })
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.kind.row_bytes(self.cols).expect("rows of whole blocks")
    }

    /// The bytes of rows `start..end`.
    pub fn row_range(&self, start: usize, end: usize) -> &'a [u8] {
        let row_bytes = self.row_bytes();
        &self.bytes[start * row_bytes..end * row_bytes]
    }

    /// Row `row` as floats: an embedding look-up.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        dequantize_row(self.kind, self.row_range(row, row + 1), out);
    }
}

/// Writes the weights that `bytes` holds, in the order of operations of ggml's `dequantize_row_*`.
/// `bytes` must be whole blocks of `out.len()` elements of a type that has kernels.
pub fn dequantize_row(kind: TensorType, bytes: &[u8], out: &mut [f32]) {
    assert!(
        kind.row_bytes(out.len()) == Some(bytes.len()),
        "{kind}: {} bytes, {} out",
        bytes.len(),
        out.len()
    );
    match kind {
        TensorType::F32 => spread(bytes, out, f32::from_le_bytes),
        TensorType::F16 => spread(bytes, out, f16_to_f32),
        TensorType::Bf16 => spread(bytes, out, |pair| half::bf16::from_le_bytes(pair).to_f32()),
        TensorType::Q4_0 => blocks32::<BlockQ4_0>(bytes, out),
        TensorType::Q4_1 => blocks32::<BlockQ4_1>(bytes, out),
        TensorType::Q5_0 => blocks32::<BlockQ5_0>(bytes, out),
        TensorType::Q5_1 => blocks32::<BlockQ5_1>(bytes, out),
        TensorType::Q8_0 => blocks32::<BlockQ8_0>(bytes, out),
        TensorType::Iq4Nl => blocks32::<BlockIq4Nl>(bytes, out),
        TensorType::Mxfp4 => blocks32::<BlockMxfp4>(bytes, out),
        TensorType::Q2K => blocks256::<BlockQ2K>(bytes, out),
        TensorType::Q3K => blocks256::<BlockQ3K>(bytes, out),
        TensorType::Q4K => blocks256::<BlockQ4K>(bytes, out),
        TensorType::Q5K => blocks256::<BlockQ5K>(bytes, out),
        TensorType::Q6K => blocks256::<BlockQ6K>(bytes, out),
        TensorType::Iq4Xs => blocks256::<BlockIq4Xs>(bytes, out),
        TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64 | TensorType::F64 => {
            panic!("no kernel for weights of type {kind}")
        }
    }
}

fn spread<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (cell, packed) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *cell = value(*packed);
    }
}

fn blocks32<F: Format32>(bytes: &[u8], out: &mut [f32]) {
    for (block, cells) in bytemuck::cast_slice::<u8, F>(bytes).iter().zip(out.chunks_exact_mut(32)) {
        let block = block.unpack();
        for (cell, code) in cells.iter_mut().zip(block.codes) {
            *cell = block.d * code as f32 + block.m;
        }
    }
}

fn blocks256<F: Format256>(bytes: &[u8], out: &mut [f32]) {
    for (block, cells) in bytemuck::cast_slice::<u8, F>(bytes).iter().zip(out.chunks_exact_mut(256)) {
        let block = block.unpack();
        for (i, cell) in cells.iter_mut().enumerate() {
            let scale = block.d * block.scales[i / 16] as f32;
            *cell = scale * block.codes[i] as f32 - block.dmin * block.mins[i / 16] as f32;
        }
    }
}
