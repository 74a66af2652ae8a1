//! The one place where weights meet activations.
//!
//! Knows a weight's handle, its format and which rows it applies to; paging happens before it, kernels
//! below it. Adapters and other backends attach here.

use adit_format::TensorType;
use adit_kernels::{
    ActivationFormat, Activations, Job, Matrix, Pool, Selection, activation_format, add, matmul,
};
use adit_pager::Backbone;

use crate::weights::{ExpertMatrix, Projection, Tensor, Vector};

/// Resident weights and the workers that multiply by them.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    pub pool: &'a Pool,
    pub backbone: &'a Backbone,
}

impl<'a> Linear<'a> {
    pub fn vector(&self, vector: Vector) -> &'a [f32] {
        let bytes = self.backbone.bytes(vector.handle);
        let values = bytemuck::try_cast_slice(bytes).expect("vectors were bound at a multiple of 4 bytes");
        assert_eq!(values.len(), vector.len);
        values
    }

    pub fn optional_vector(&self, vector: Option<Vector>) -> Option<&'a [f32]> {
        vector.map(|vector| self.vector(vector))
    }

    pub fn matrix(&self, tensor: Tensor) -> Matrix<'a> {
        matrix(tensor.kind, tensor.rows, tensor.cols, self.backbone.bytes(tensor.handle))
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

    /// `out[row] = weight * input[row] + bias` for several weights that share an input.
    pub fn project<const N: usize>(
        &self,
        input: &Activations,
        rows: usize,
        targets: [(Projection, &mut [f32]); N],
    ) {
        let biases = targets.each_ref().map(|(projection, _)| self.optional_vector(projection.bias));
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
        for (job, bias) in jobs.iter_mut().zip(biases) {
            if let Some(bias) = bias {
                self.pool.rows(job.out, job.out_stride, |_, row| add(row, bias));
            }
        }
    }

    /// The product of a matrix that the pager holds with some rows of the input.
    pub fn expert_job<'b>(
        shape: ExpertMatrix,
        bytes: &'b [u8],
        rows: Selection<'b>,
        out: &'b mut [f32],
    ) -> Job<'b> {
        Job { weights: matrix(shape.kind, shape.rows, shape.cols, bytes), rows, out, out_stride: shape.rows }
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

fn matrix(kind: TensorType, rows: usize, cols: usize, bytes: &[u8]) -> Matrix<'_> {
    Matrix::new(kind, rows, cols, bytes).expect("shapes and sizes were checked when the weight was bound")
}
