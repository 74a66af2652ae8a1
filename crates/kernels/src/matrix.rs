//! Weight matrices as they lie on disk, and single rows of them as floats. Owns the size checks; knows no
//! activations.

use adit_format::TensorType;

use crate::formats::{Float, Format32, Format256, function_for};

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
    let dequantize: fn(&[u8], &mut [f32]) = function_for!(kind, floats, blocks32, blocks256);
    dequantize(bytes, out);
}

fn floats<F: Float>(bytes: &[u8], out: &mut [f32]) {
    for (cell, weight) in out.iter_mut().zip(bytemuck::cast_slice::<u8, F>(bytes)) {
        *cell = weight.widen();
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
