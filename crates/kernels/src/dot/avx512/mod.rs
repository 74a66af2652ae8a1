//! The AVX-512 kernels. Owns the choice of path; formats without one here run on AVX2.

use adit_format::TensorType;

use super::{Kernel, avx2};

pub fn kernel(kind: TensorType) -> Kernel {
    avx2::kernel(kind)
}
