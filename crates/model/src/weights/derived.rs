//! Weights that are made at load of others that the file holds.
//!
//! Files of before 2025 hold the up-projections of latent attention as one matrix (`attn_kv_b`) that makes
//! keys and values of a latent. The absorbed form needs the part that makes keys the other way round.

use adit_format::TensorType;
use adit_kernels::Matrix;

use super::{Layer, Mixer, PerHead, Tensor};

/// Each head's rows of a matrix, turned: `[head][cols][rows]` of `[head][rows][cols]`.
#[derive(Debug, Clone, Copy)]
pub struct Derived {
    /// Rows of one head.
    pub source: PerHead,
    pub heads: usize,
    pub kind: TensorType,
}

impl Derived {
    /// F32 stays what it is; everything else is exact enough in F16, which takes half.
    pub fn turned(source: PerHead, heads: usize) -> Derived {
        let kind = if source.first.kind == TensorType::F32 { TensorType::F32 } else { TensorType::F16 };
        Derived { source, heads, kind }
    }

    /// The turned matrices, the handle being its number among all that is derived.
    pub fn matrices(&self, handle: usize) -> PerHead {
        let Tensor { rows, cols, .. } = self.source.first;
        let first = Tensor { kind: self.kind, rows: cols, cols: rows, handle, first_row: 0 };
        PerHead { first, stride: cols }
    }

    pub fn bytes(&self) -> usize {
        let Tensor { rows, cols, .. } = self.source.first;
        self.heads * rows * cols * self.kind.block_bytes()
    }

    /// Writes it to `out` of `bytes()`; `source` resolves the source.
    pub fn write<'a>(&self, source: impl Fn(Tensor) -> Matrix<'a>, out: &mut [u8]) {
        let Tensor { rows, cols, .. } = self.source.first;
        let size = self.kind.block_bytes();
        let mut row = vec![0.0; cols];
        for (head, out) in out.chunks_exact_mut(rows * cols * size).enumerate() {
            let matrix = source(self.source.head(head));
            for from in 0..rows {
                matrix.dequantize_row(from, &mut row);
                for (to, &value) in row.iter().enumerate() {
                    let place = &mut out[(to * rows + from) * size..][..size];
                    match self.kind {
                        TensorType::F32 => place.copy_from_slice(&value.to_le_bytes()),
                        _ => place.copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
                    }
                }
            }
        }
    }
}

/// Puts the handles of what is derived behind those of `extents` extents.
pub(super) fn number(layers: &mut [Layer], extents: usize) {
    for layer in layers {
        if let Mixer::Latent(latent) = &mut layer.mixer
            && latent.key_up_is_derived
        {
            latent.key_up.first.handle += extents;
        }
    }
}
