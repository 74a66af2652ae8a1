//! The one place where weights meet activations.
//!
//! Knows a weight's handle, its format and which rows it applies to; paging happens before it, kernels
//! below it. Adapters and other backends attach here.

use adit_format::TensorType;
use adit_kernels::{
    ActivationFormat, Activations, Job, Matrix, Pool, Selection, activation_format, add, matmul, scale,
};
use adit_pager::{AlignedBuf, Backbone};

use crate::error::ModelError;
use crate::weights::{Derived, ExpertMatrix, Projection, Tensor, TokenExperts, Vector};

/// Weights that stay in memory: those that the file holds, and those made of them.
pub(crate) struct Resident {
    backbone: Backbone,
    derived: Vec<AlignedBuf>,
}

impl Resident {
    /// Makes what is derived.
    pub fn new(backbone: Backbone, derived: &[Derived]) -> Result<Resident, ModelError> {
        let mut buffers = Vec::with_capacity(derived.len());
        for derived in derived {
            let mut buffer = AlignedBuf::new(derived.bytes())?;
            let source = |tensor: Tensor| matrix_of(tensor, backbone.bytes(tensor.handle));
            derived.write(source, &mut buffer[..derived.bytes()]);
            buffers.push(buffer);
        }
        Ok(Resident { backbone, derived: buffers })
    }

    fn bytes(&self, handle: usize) -> &[u8] {
        match handle.checked_sub(self.backbone.len()) {
            None => self.backbone.bytes(handle),
            Some(derived) => &self.derived[derived],
        }
    }
}

/// Resident weights and the workers that multiply by them.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    pub pool: &'a Pool,
    pub resident: &'a Resident,
}

impl<'a> Linear<'a> {
    pub fn vector(&self, vector: Vector) -> &'a [f32] {
        &floats(self.resident.bytes(vector.handle))[vector.first..vector.first + vector.len]
    }

    pub fn optional_vector(&self, vector: Option<Vector>) -> Option<&'a [f32]> {
        vector.map(|vector| self.vector(vector))
    }

    /// The experts of each token.
    pub fn token_experts(&self, table: TokenExperts) -> &'a [i32] {
        let bytes = self.resident.bytes(table.handle);
        bytemuck::try_cast_slice(bytes).expect("tables were bound at a multiple of 4 bytes")
    }

    pub fn matrix(&self, tensor: Tensor) -> Matrix<'a> {
        matrix_of(tensor, self.resident.bytes(tensor.handle))
    }

    /// Prepares `rows` rows of `cols` values for products with weights of these kinds.
    pub fn load(
        &self,
        input: &mut Activations,
        values: &[f32],
        rows: usize,
        cols: usize,
        kinds: &[TensorType],
    ) {
        let (formats, len) = formats_of(kinds);
        input.quantize(self.pool, &values[..rows * cols], rows, cols, &formats[..len]);
    }

    /// The same for rows that `fill` writes.
    pub fn fill(
        &self,
        input: &mut Activations,
        values: &mut [f32],
        [rows, cols]: [usize; 2],
        kinds: &[TensorType],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let (formats, len) = formats_of(kinds);
        input.fill(self.pool, &mut values[..rows * cols], rows, cols, &formats[..len], fill);
    }

    /// `out[row] = weight * input[row] * scale + bias` for several weights that share an input.
    pub fn project<const N: usize>(
        &self,
        input: &Activations,
        rows: usize,
        targets: [(Projection, &mut [f32]); N],
    ) {
        let after = targets.each_ref().map(|(projection, _)| {
            let factor = projection.scale.map_or(1.0, |scale| self.vector(scale)[0]);
            (factor, self.optional_vector(projection.bias), projection.scale_last)
        });
        let all = Selection::Run { first: 0, count: rows };
        let mut jobs = targets.map(|(projection, out)| {
            let out = &mut out[..rows * projection.weight.rows];
            Job {
                weights: self.matrix(projection.weight),
                rows: all,
                out,
                out_stride: projection.weight.rows,
            }
        });
        matmul(self.pool, input, &mut jobs);
        for (job, (factor, bias, scale_last)) in jobs.iter_mut().zip(after) {
            if factor == 1.0 && bias.is_none() {
                continue;
            }
            self.pool.rows(job.out, job.out_stride, |_, row| {
                if !scale_last {
                    scale(row, factor);
                }
                bias.iter().for_each(|bias| add(row, bias));
                if scale_last {
                    scale(row, factor);
                }
            });
        }
    }

    /// The product of a matrix that the pager holds with some rows of the input.
    pub fn expert_job<'b>(
        shape: ExpertMatrix,
        bytes: &'b [u8],
        rows: Selection<'b>,
        out: &'b mut [f32],
    ) -> Job<'b> {
        let ExpertMatrix { kind, first_row, rows: out_stride, cols, .. } = shape;
        Job { weights: matrix(kind, first_row, out_stride, cols, bytes), rows, out, out_stride }
    }

    pub fn run(&self, input: &Activations, jobs: &mut [Job<'_>]) {
        matmul(self.pool, input, jobs);
    }
}

/// The activation formats that weights of these kinds ask for, each once, and how many they are.
fn formats_of(kinds: &[TensorType]) -> ([ActivationFormat; 4], usize) {
    let mut formats = [ActivationFormat::F32; 4];
    let mut len = 0;
    for &kind in kinds {
        let format = activation_format(kind).expect("binding admits only types with kernels");
        if !formats[..len].contains(&format) {
            formats[len] = format;
            len += 1;
        }
    }
    (formats, len)
}

fn matrix_of(tensor: Tensor, bytes: &[u8]) -> Matrix<'_> {
    matrix(tensor.kind, tensor.first_row, tensor.rows, tensor.cols, bytes)
}

/// `rows` rows from `first_row` on of a matrix whose rows lie in `bytes` one behind the other.
fn matrix(kind: TensorType, first_row: usize, rows: usize, cols: usize, bytes: &[u8]) -> Matrix<'_> {
    let row_bytes = cols / kind.block_len() * kind.block_bytes();
    let bytes = &bytes[first_row * row_bytes..(first_row + rows) * row_bytes];
    Matrix::new(kind, rows, cols, bytes).expect("shapes and sizes were checked when the weight was bound")
}

/// f32 values as they lie in a file.
pub(crate) fn floats(bytes: &[u8]) -> &[f32] {
    bytemuck::try_cast_slice(bytes).expect("vectors were bound at a multiple of 4 bytes")
}
