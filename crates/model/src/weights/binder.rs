//! Claims tensors by name and shape, and remembers which are claimed. Knows no layers.

use std::collections::HashSet;

use adit_format::{Gguf, TensorInfo, TensorType};
use adit_pager::{Extent, Group};

use super::{Derived, Norm, Projection, Tensor, Vector};
use crate::config::Config;
use crate::error::ModelError;
use crate::families::Presence;

/// The file's name for messages.
pub(crate) fn file_name(gguf: &Gguf) -> String {
    gguf.parts().first().map(|part| part.path.display().to_string()).unwrap_or_default()
}

pub(crate) struct Binder<'a> {
    pub gguf: &'a Gguf,
    pub config: &'a Config,
    bound: HashSet<&'a str>,
    pub extents: Vec<Extent>,
    pub derived: Vec<Derived>,
    pub groups: Vec<Group>,
}

impl<'a> Binder<'a> {
    pub fn new(gguf: &'a Gguf, config: &'a Config) -> Self {
        Binder {
            gguf,
            config,
            bound: HashSet::new(),
            extents: Vec::new(),
            derived: Vec::new(),
            groups: Vec::new(),
        }
    }

    pub fn projection(
        &mut self,
        stem: &str,
        rows: usize,
        cols: usize,
        bias: Presence,
    ) -> Result<Projection, ModelError> {
        let weight = self.matrix(&format!("{stem}.weight"), rows, cols)?;
        let scale = self.scale(stem, 1, true)?;
        let bias = self.optional_vector(bias, &format!("{stem}.bias"), rows)?;
        Ok(Projection { weight, scale, scale_last: false, bias })
    }

    /// A product without a bias, times its factor if that is `scaled`.
    pub fn product(
        &mut self,
        stem: &str,
        rows: usize,
        cols: usize,
        scaled: bool,
    ) -> Result<Projection, ModelError> {
        let weight = self.matrix(&format!("{stem}.weight"), rows, cols)?;
        Ok(Projection { scale: self.scale(stem, 1, scaled)?, ..Projection::from(weight) })
    }

    /// A projection of a layer that carries a state.
    pub fn recurrent_projection(
        &mut self,
        stem: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Projection, ModelError> {
        self.product(stem, rows, cols, self.config.family.recurrent_scales)
    }

    /// A projection of a feed-forward block.
    pub fn feed_forward_projection(
        &mut self,
        stem: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Projection, ModelError> {
        let family = self.config.family;
        let weight = self.matrix(&format!("{stem}.weight"), rows, cols)?;
        let bias = self.optional_vector(family.feed_forward_bias, &format!("{stem}.bias"), rows)?;
        let scale = self.scale(stem, 1, family.feed_forward_scales)?;
        // The factor is on the bias too where a file has both, as in llama.cpp's `build_ffn`.
        Ok(Projection { weight, scale, scale_last: true, bias })
    }

    /// Factors on a product that files of some quantisers carry, where they are `used`. Those on its input
    /// are for hardware that multiplies four-bit floats; as elsewhere they change nothing.
    pub fn scale(&mut self, stem: &str, len: usize, used: bool) -> Result<Option<Vector>, ModelError> {
        let name = format!("{stem}.scale");
        self.leave_out(&format!("{stem}.input_scale"));
        if !used {
            self.leave_out(&name);
            return Ok(None);
        }
        self.optional_vector(Presence::Optional, &name, len)
    }

    /// Projections of one input: each a tensor of its own, or all stacked in the tensor `stacked`.
    pub fn stacked<const N: usize>(
        &mut self,
        stacked: &str,
        parts: [(&str, usize); N],
        cols: usize,
        bias: Presence,
    ) -> Result<[Projection; N], ModelError> {
        if self.gguf.tensor(&format!("{stacked}.weight")).is_some() {
            let rows = parts.map(|(_, rows)| rows);
            return Ok(self.projection(stacked, rows.iter().sum(), cols, bias)?.split(rows));
        }
        let mut bound = Vec::with_capacity(N);
        for (stem, rows) in parts {
            bound.push(self.projection(stem, rows, cols, bias)?);
        }
        Ok(bound.try_into().expect("as many as there are parts"))
    }

    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Tensor, ModelError> {
        let info = self.claim(name, &[cols as u64, rows as u64])?;
        self.must_compute(info)?;
        let (kind, handle) = (info.kind, self.resident(info));
        Ok(Tensor { kind, rows, cols, handle, first_row: 0 })
    }

    pub fn vector(&mut self, name: &str, len: usize) -> Result<Vector, ModelError> {
        self.floats(name, &[len])
    }

    /// The values of a small tensor of these dimensions, the innermost first.
    pub fn floats(&mut self, name: &str, dims: &[usize]) -> Result<Vector, ModelError> {
        let expected: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        let info = self.claim(name, &expected)?;
        self.must_be_floats(info)?;
        let handle = self.resident(info);
        Ok(Vector { len: dims.iter().product(), handle, first: 0 })
    }

    /// A norm of the residual stream.
    pub fn norm(&mut self, stem: &str) -> Result<Norm, ModelError> {
        let width = self.config.width;
        let weight = self.vector(&format!("{stem}.weight"), width)?;
        let bias = self.optional_vector(self.config.family.norm_bias, &format!("{stem}.bias"), width)?;
        Ok(Norm { weight, bias })
    }

    pub fn optional_vector(
        &mut self,
        presence: Presence,
        name: &str,
        len: usize,
    ) -> Result<Option<Vector>, ModelError> {
        match presence {
            Presence::Never => Ok(None),
            Presence::Optional if self.gguf.tensor(name).is_none() => Ok(None),
            Presence::Optional | Presence::Always => self.vector(name, len).map(Some),
        }
    }

    /// A norm of each head, or of all heads together where the file's is as long as that.
    pub fn head_norm(
        &mut self,
        presence: Presence,
        name: &str,
        head: usize,
        heads: usize,
    ) -> Result<Option<Vector>, ModelError> {
        let whole = self.gguf.tensor(name).is_some_and(|info| info.dims.first() == Some(&(heads as u64)));
        self.optional_vector(presence, name, if whole { heads } else { head })
    }

    pub fn claim(&mut self, name: &str, expected: &[u64]) -> Result<&'a TensorInfo, ModelError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Err(ModelError::MissingTensor { file: file_name(self.gguf), name: name.to_string() });
        };
        // Writers may leave off trailing dimensions of 1, or write them.
        let trimmed = |dims: &[u64]| {
            let len = dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
            dims[..len.min(dims.len())].to_vec()
        };
        if trimmed(&info.dims) != trimmed(expected) {
            return Err(ModelError::WrongShape {
                file: file_name(self.gguf),
                name: name.to_string(),
                found: info.dims.clone(),
                expected: expected.to_vec(),
            });
        }
        self.bound.insert(&info.name);
        Ok(info)
    }

    pub fn must_compute(&self, info: &TensorInfo) -> Result<(), ModelError> {
        match adit_kernels::activation_format(info.kind) {
            Some(_) => Ok(()),
            None => Err(self.wrong_type(info, "a floating-point or block-quantised type")),
        }
    }

    /// A view as f32 needs the alignment that every writer of GGUF gives (a multiple of 8).
    pub fn must_be_floats(&self, info: &TensorInfo) -> Result<(), ModelError> {
        match info.kind == TensorType::F32 && info.offset.is_multiple_of(4) {
            true => Ok(()),
            false => Err(self.wrong_type(info, "F32 at a multiple of 4 bytes")),
        }
    }

    pub fn wrong_type(&self, info: &TensorInfo, expected: &'static str) -> ModelError {
        let file = file_name(self.gguf);
        ModelError::WrongType { file, name: info.name.clone(), found: info.kind.name(), expected }
    }

    pub fn resident(&mut self, info: &TensorInfo) -> usize {
        self.extents.push(Extent { file: info.part as u32, offset: info.offset, bytes: info.bytes });
        self.extents.len() - 1
    }

    /// Leaves a tensor out that the file may have and the forward pass does not use.
    pub fn leave_out(&mut self, name: &str) {
        let gguf = self.gguf;
        self.bound.extend(gguf.tensor(name).map(|info| info.name.as_str()));
    }

    /// Leaves out what the family says is not used.
    pub fn leave_out_unused(&mut self) {
        for name in self.config.family.left_out {
            self.leave_out(name);
            (0..self.config.layers.len()).for_each(|layer| self.leave_out(&format!("blk.{layer}.{name}")));
        }
    }

    /// Leaves all tensors of a layer out.
    pub fn leave_out_layer(&mut self, layer: usize) {
        let (gguf, prefix) = (self.gguf, format!("blk.{layer}."));
        let names = gguf.tensors().iter().map(|info| info.name.as_str());
        self.bound.extend(names.filter(|name| name.starts_with(&prefix)));
    }

    pub fn refuse_leftovers(&self) -> Result<(), ModelError> {
        match self.gguf.tensors().iter().find(|info| !self.bound.contains(info.name.as_str())) {
            None => Ok(()),
            Some(info) => Err(ModelError::UnknownTensor {
                file: file_name(self.gguf),
                name: info.name.clone(),
                architecture: self.config.family.architecture,
            }),
        }
    }
}
