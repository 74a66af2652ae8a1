//! The one place where weights meet activations.
//!
//! Knows a weight's handle, its format and which rows it applies to; paging happens before it, kernels
//! below it. Adapters and other backends attach here.

use adit_format::TensorType;
use adit_kernels::{ActivationFormat, Activations, Job, Matrix, Pool, activation_format, add, matmul};
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
        let mut formats = [ActivationFormat::F32; 4];
        let mut len = 0;
        for &kind in kinds {
            let format = activation_format(kind).expect("binding admits only types with kernels");
            if !formats[..len].contains(&format) {
                formats[len] = format;
                len += 1;
            }
        }
        input.quantize(self.pool, &values[..rows * cols], rows, cols, &formats[..len]);
    }

    /// `out[row] = weight * input[row] + bias` for several weights that share an input.
    pub fn project<const N: usize>(
        &self,
        input: &Activations,
        rows: usize,
        targets: [(Projection, &mut [f32]); N],
    ) {
        let biases = targets.each_ref().map(|(projection, _)| self.optional_vector(projection.bias));
        let mut jobs = targets.map(|(projection, out)| {
            let out = &mut out[..rows * projection.weight.rows];
            Job { weights: self.matrix(projection.weight), out, out_stride: projection.weight.rows }
        });
        matmul(self.pool, input, None, &mut jobs);
        for (job, bias) in jobs.iter_mut().zip(biases) {
            if let Some(bias) = bias {
                self.pool.rows(job.out, job.out_stride, |_, row| add(row, bias));
            }
        }
    }

    /// The same for matrices that the pager holds, and for the input rows in `select` (all if none).
    pub fn project_expert<const N: usize>(
        &self,
        input: &Activations,
        select: Option<&[u32]>,
        rows: usize,
        targets: [(ExpertMatrix, &[u8], &mut [f32]); N],
    ) {
        let mut jobs = targets.map(|(shape, bytes, out)| Job {
            weights: matrix(shape.kind, shape.rows, shape.cols, bytes),
            out: &mut out[..rows * shape.rows],
            out_stride: shape.rows,
        });
        matmul(self.pool, input, select, &mut jobs);
    }
}

fn matrix(kind: TensorType, rows: usize, cols: usize, bytes: &[u8]) -> Matrix<'_> {
    Matrix::new(kind, rows, cols, bytes).expect("shapes and sizes were checked when the weight was bound")
}
