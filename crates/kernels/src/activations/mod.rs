//! The other factor of every product: rows of activations, quantised once and met by many weights. Owns
//! the 8-bit formats and their storage, which is allocated once; knows no weights.
//!
//! The rules are those of ggml on x86: per block `d = max|x| / 127`, codes `round(x * 127 / max|x|)` with
//! halves to even. A block whose largest magnitude is under 1e-30 counts as zero. A block that holds an
//! infinity or a NaN gets `d = NaN`, so that the products it takes part in are NaN and nothing else is.

use adit_format::TensorType;
use half::f16;

use crate::isa::per_isa;
use crate::pool::{Pool, Rows};

/// How a row of activations is stored to meet weights of some type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationFormat {
    /// As it is: for F32, F16 and BF16 weights.
    F32,
    /// Blocks of 32 with f16 scale and f16 sum: for the legacy types, IQ4_NL and MXFP4 (ggml's Q8_0, Q8_1).
    Q8_1,
    /// Blocks of 256 with f32 scale and sums of 16: for the K types and IQ4_XS.
    Q8K,
}

impl ActivationFormat {
    /// Activations in a block.
    pub fn block_len(self) -> usize {
        match self {
            ActivationFormat::F32 => 1,
            ActivationFormat::Q8_1 => 32,
            ActivationFormat::Q8K => 256,
        }
    }
}

/// What weights of this type are multiplied with; `None` for a type that has no kernels.
pub fn activation_format(kind: TensorType) -> Option<ActivationFormat> {
    use TensorType::*;
    match kind {
        F32 | F16 | Bf16 => Some(ActivationFormat::F32),
        Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Iq4Nl | Mxfp4 => Some(ActivationFormat::Q8_1),
        Q2K | Q3K | Q4K | Q5K | Q6K | Iq4Xs => Some(ActivationFormat::Q8K),
        I8 | I16 | I32 | I64 | F64 => None,
    }
}

/// The scale of 32 codes.
#[derive(Clone, Copy, Default)]
pub struct Q8Scale {
    /// An f16 number: `activation = d * code`.
    pub d: f32,
    /// `d * sum of the codes`, from the f32 d, rounded to f16.
    pub sum: f32,
    pub code_sum: i32,
}

/// The scale of 256 codes.
#[derive(Clone, Copy, Default)]
pub struct Q8KScale {
    /// `activation = d * code`.
    pub d: f32,
    /// Sums of the 16 runs of 16 codes: the 8 even runs, then the 8 odd ones. See [`run_place`].
    pub run_sums: [i16; 16],
    /// Sums of the 8 groups of 32: groups 0, 2, 1, 3, 4, 6, 5, 7, because bytes 0 and 2 of a dword, and then
    /// 1 and 3, become neighbouring words most easily.
    pub group_sums: [i16; 8],
}

/// Where the sum of run `run` is kept.
pub const fn run_place(run: usize) -> usize {
    run % 2 * 8 + run / 2
}

/// One row as kernels read it; what its format lacks is empty.
#[derive(Clone, Copy, Default)]
pub struct Row<'a> {
    pub floats: &'a [f32],
    pub codes: &'a [i8],
    pub q8: &'a [Q8Scale],
    pub q8k: &'a [Q8KScale],
}

/// Codes are kept in cache lines, so that a block of 32 never crosses one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([i8; 64]);

// SAFETY: an array of bytes: every bit pattern is valid and there is no padding.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Line {}

/// Storage for up to `max_rows` rows of up to `max_cols` activations in some formats.
pub struct Activations {
    max_rows: usize,
    max_cols: usize,
    rows: usize,
    cols: usize,
    /// Formats that hold the present rows.
    ready: Vec<ActivationFormat>,
    /// `[rows][cols]`.
    floats: Vec<f32>,
    /// `[rows][cols rounded up to 64]` and `[rows][cols / 32]`.
    q8_codes: Vec<Line>,
    q8_scales: Vec<Q8Scale>,
    /// `[rows][cols]` and `[rows][cols / 256]`.
    q8k_codes: Vec<Line>,
    q8k_scales: Vec<Q8KScale>,
}

impl Activations {
    pub fn new(max_rows: usize, max_cols: usize, formats: &[ActivationFormat]) -> Activations {
        let count = |format, per_row: usize| if formats.contains(&format) { max_rows * per_row } else { 0 };
        let lines = max_cols.div_ceil(64);
        Activations {
            max_rows,
            max_cols,
            rows: 0,
            cols: 0,
            ready: Vec::with_capacity(formats.len()),
            floats: vec![0.0; count(ActivationFormat::F32, max_cols)],
            q8_codes: vec![Line([0; 64]); count(ActivationFormat::Q8_1, lines)],
            q8_scales: vec![Q8Scale::default(); count(ActivationFormat::Q8_1, max_cols / 32)],
            q8k_codes: vec![Line([0; 64]); count(ActivationFormat::Q8K, lines)],
            q8k_scales: vec![Q8KScale::default(); count(ActivationFormat::Q8K, max_cols / 256)],
        }
    }

    /// What [`Activations::new`] with these arguments allocates.
    pub fn bytes_needed(max_rows: usize, max_cols: usize, formats: &[ActivationFormat]) -> usize {
        let codes = max_cols.div_ceil(64) * size_of::<Line>();
        let row = |format: &ActivationFormat| match format {
            ActivationFormat::F32 => max_cols * size_of::<f32>(),
            ActivationFormat::Q8_1 => codes + max_cols / 32 * size_of::<Q8Scale>(),
            ActivationFormat::Q8K => codes + max_cols / 256 * size_of::<Q8KScale>(),
        };
        let distinct = |index: usize| !formats[..index].contains(&formats[index]);
        let per_row: usize = (0..formats.len()).filter(|&i| distinct(i)).map(|i| row(&formats[i])).sum();
        max_rows * per_row + size_of_val(formats)
    }

    /// Takes in `x[rows][cols]` in each of `formats`, in place of what was here. `cols` must be whole blocks
    /// of each, and the formats among those given to [`Activations::new`].
    pub fn quantize(
        &mut self,
        pool: &Pool,
        x: &[f32],
        rows: usize,
        cols: usize,
        formats: &[ActivationFormat],
    ) {
        assert!(x.len() == rows * cols, "{} values for {rows} x {cols}", x.len());
        self.store(pool, rows, cols, formats, |row| &x[row * cols..(row + 1) * cols]);
    }

    /// As [`Activations::quantize`], after `fill` has written each row of `x`: one pass over memory for both.
    pub fn fill(
        &mut self,
        pool: &Pool,
        x: &mut [f32],
        rows: usize,
        cols: usize,
        formats: &[ActivationFormat],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        assert!(x.len() == rows * cols, "{} values for {rows} x {cols}", x.len());
        let x = Rows::new(x, cols);
        self.store(pool, rows, cols, formats, |row| {
            // SAFETY: `store` asks for every row once.
            let x = unsafe { x.row(row) };
            fill(row, x);
            x
        });
    }

    /// Stores the rows that `source` gives; it is asked for each of them once.
    fn store<'x>(
        &mut self,
        pool: &Pool,
        rows: usize,
        cols: usize,
        formats: &[ActivationFormat],
        source: impl Fn(usize) -> &'x [f32] + Sync,
    ) {
        assert!(cols > 0 && rows <= self.max_rows && cols <= self.max_cols, "{rows} x {cols} activations");
        for format in formats {
            let whole = cols.is_multiple_of(format.block_len());
            assert!(whole, "{cols} columns are not whole blocks of {format:?}");
        }
        (self.rows, self.cols) = (rows, cols);
        self.ready.clear();
        self.ready.extend_from_slice(formats);
        let (isa, lines) = (pool.isa(), cols.div_ceil(64));
        let wants = |format| formats.contains(&format);
        let floats = wants(ActivationFormat::F32).then(|| Rows::new(&mut self.floats[..rows * cols], cols));
        let q8 = wants(ActivationFormat::Q8_1).then(|| {
            let scales = Rows::new(&mut self.q8_scales[..rows * cols / 32], cols / 32);
            (Rows::new(&mut self.q8_codes[..rows * lines], lines), scales)
        });
        let q8k = wants(ActivationFormat::Q8K).then(|| {
            let scales = Rows::new(&mut self.q8k_scales[..rows * cols / 256], cols / 256);
            (Rows::new(&mut self.q8k_codes[..rows * lines], lines), scales)
        });
        pool.ranges(rows, pool.piece(rows, 2 * cols), |_, range| {
            for row in range {
                let x = source(row);
                // SAFETY: `ranges` hands out every row once, so nobody else has these.
                unsafe {
                    if let Some(floats) = &floats {
                        floats.row(row).copy_from_slice(x);
                    }
                    if let Some((codes, scales)) = &q8 {
                        let codes = &mut bytemuck::cast_slice_mut(codes.row(row))[..cols];
                        quantize_q8(isa, x, codes, scales.row(row));
                    }
                    if let Some((codes, scales)) = &q8k {
                        quantize_q8k(isa, x, bytemuck::cast_slice_mut(codes.row(row)), scales.row(row));
                    }
                }
            }
        });
    }

    /// Rows present.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Activations in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn holds(&self, format: ActivationFormat) -> bool {
        self.ready.contains(&format)
    }

    /// Row `row` in one of the formats that [`Activations::holds`].
    pub(crate) fn row<'a>(&'a self, format: ActivationFormat, row: usize) -> Row<'a> {
        assert!(self.holds(format) && row < self.rows, "row {row} of {} in {format:?}", self.rows);
        let cols = self.cols;
        let codes = |lines: &'a [Line]| {
            let per_row = cols.div_ceil(64);
            &bytemuck::cast_slice::<Line, i8>(&lines[row * per_row..(row + 1) * per_row])[..cols]
        };
        match format {
            ActivationFormat::F32 => {
                Row { floats: &self.floats[row * cols..(row + 1) * cols], ..Row::default() }
            }
            ActivationFormat::Q8_1 => {
                let blocks = cols / 32;
                let q8 = &self.q8_scales[row * blocks..(row + 1) * blocks];
                Row { codes: codes(&self.q8_codes), q8, ..Row::default() }
            }
            ActivationFormat::Q8K => {
                let blocks = cols / 256;
                let q8k = &self.q8k_scales[row * blocks..(row + 1) * blocks];
                Row { codes: codes(&self.q8k_codes), q8k, ..Row::default() }
            }
        }
    }
}

/// Below this largest magnitude a block counts as zero: `127 / max` would be infinite for denormals.
const TINY: f32 = 1e-30;

/// What a block's largest magnitude says: `(127 / max, max / 127)`.
#[inline(always)]
fn scale_of<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    // As bits, magnitudes order as they should and a NaN is the largest, whatever the order of comparing.
    let max = f32::from_bits(x.iter().fold(0, |max, value| max.max(value.to_bits() & 0x7fff_ffff)));
    if !max.is_finite() {
        (0.0, f32::NAN)
    } else if max < TINY {
        (0.0, 0.0)
    } else {
        (127.0 / max, max / 127.0)
    }
}

/// `round(value * inverse)`, halves to even, for results within +-2^22. Anything times zero is zero.
#[inline(always)]
fn code_of(value: f32, inverse: f32) -> i8 {
    // Adding 1.5 * 2^23 leaves the rounded whole number in the low bits of the sum.
    const MAGIC: f32 = 12_582_912.0;
    let rounded = (value * inverse + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i8;
    if inverse == 0.0 { 0 } else { rounded }
}

#[inline(always)]
fn q8_body(x: &[f32], codes: &mut [i8], scales: &mut [Q8Scale]) {
    let blocks = x.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<32>().0);
    for ((x, codes), scale) in blocks.zip(scales) {
        let (inverse, d) = scale_of(x);
        let mut code_sum = 0;
        for (code, value) in codes.iter_mut().zip(x) {
            *code = code_of(*value, inverse);
            code_sum += *code as i32;
        }
        let sum = f16::from_f32(d * code_sum as f32).to_f32();
        *scale = Q8Scale { d: f16::from_f32(d).to_f32(), sum, code_sum };
    }
}

#[inline(always)]
fn q8k_body(x: &[f32], codes: &mut [i8], scales: &mut [Q8KScale]) {
    let blocks = x.as_chunks::<256>().0.iter().zip(codes.as_chunks_mut::<256>().0);
    for ((x, codes), scale) in blocks.zip(scales) {
        let (inverse, d) = scale_of(x);
        // ggml divides one by the inverse here, which can differ from max / 127 in the last bit.
        scale.d = if inverse == 0.0 { d } else { 1.0 / inverse };
        let runs = x.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0);
        for (run, (x, codes)) in runs.enumerate() {
            let mut sum = 0;
            for (code, value) in codes.iter_mut().zip(x) {
                *code = code_of(*value, inverse);
                sum += *code as i16;
            }
            scale.run_sums[run_place(run)] = sum;
        }
        for (place, group) in [0, 2, 1, 3, 4, 6, 5, 7].into_iter().enumerate() {
            scale.group_sums[place] = scale.run_sums[group] + scale.run_sums[8 + group];
        }
    }
}

per_isa!(pub(crate) fn quantize_q8(x: &[f32], codes: &mut [i8], scales: &mut [Q8Scale]) = q8_body);
per_isa!(fn quantize_q8k(x: &[f32], codes: &mut [i8], scales: &mut [Q8KScale]) = q8k_body);

#[cfg(test)]
mod tests;
