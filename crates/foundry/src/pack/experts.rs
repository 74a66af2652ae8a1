//! The routed experts of a model file, whichever form it gives them: stacked, one tensor for a matrix of
//! all experts of a layer (`blk.0.ffn_up_exps.weight`), or single, one tensor for each expert
//! (`blk.0.ffn_up.3.weight`, as converters of 2023 wrote them). Knows names and shapes, no family.

use std::collections::BTreeMap;

use adit_format::{Gguf, TensorInfo, TensorType};

use crate::FoundryError;

/// As many as adit runs; a file with more is damaged, or its experts are none.
const EXPERTS_MAX: usize = 4096;

/// Some bytes of one part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Index into [`Gguf::parts`].
    pub part: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl Slice {
    pub fn whole(tensor: &TensorInfo) -> Slice {
        Slice { part: tensor.part, offset: tensor.offset, bytes: tensor.bytes }
    }
}

/// One matrix of all experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// `gate`, `up`, `down`, `gate_up`.
    pub role: String,
    pub kind: TensorType,
    /// Columns and rows.
    pub dims: [u64; 2],
    /// Where each expert's lies.
    pub slices: Vec<Slice>,
}

/// The experts of one layer; all matrices have as many slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpertLayer {
    pub layer: u32,
    /// In the order in which an expert uses them.
    pub matrices: Vec<Matrix>,
}

impl ExpertLayer {
    pub fn experts(&self) -> usize {
        self.matrices[0].slices.len()
    }

    /// Bytes of one expert.
    pub fn expert_bytes(&self) -> u64 {
        self.matrices.iter().map(|matrix| matrix.slices[0].bytes).sum()
    }
}

/// Which part of which expert a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub layer: u32,
    pub role: &'a str,
    /// None where the tensor holds the matrix of all experts.
    pub expert: Option<u32>,
}

impl<'a> Name<'a> {
    /// None for a tensor that belongs to no expert.
    pub fn of(tensor: &'a TensorInfo) -> Option<Name<'a>> {
        let (layer, what) = tensor.name.strip_prefix("blk.")?.split_once('.')?;
        let what = what.strip_prefix("ffn_")?.strip_suffix(".weight")?;
        let layer = number(layer)?;
        match (what.strip_suffix("_exps"), what.split_once('.')) {
            (Some(role), None) if tensor.dims.len() == 3 => Some(Name { layer, role, expert: None }),
            (None, Some((role, expert))) => Some(Name { layer, role, expert: Some(number(expert)?) }),
            _ => None,
        }
    }

    pub fn text(&self) -> String {
        let Name { layer, role, expert } = self;
        match expert {
            Some(expert) => format!("blk.{layer}.ffn_{role}.{expert}.weight"),
            None => format!("blk.{layer}.ffn_{role}_exps.weight"),
        }
    }
}

/// A number as names have it: `7`, not `07` or `+7`.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

/// By role, the tensors of one layer's matrices.
type Roles<'a> = BTreeMap<&'a str, Vec<(Name<'a>, &'a TensorInfo)>>;

/// All layers with experts, in the order in which the model computes them.
pub(crate) fn read(model: &Gguf) -> Result<Vec<ExpertLayer>, FoundryError> {
    let refused = |problem: String| {
        let path = model.parts()[0].path.clone();
        FoundryError::Refused { path, problem }
    };
    let mut found: BTreeMap<u32, Roles<'_>> = BTreeMap::new();
    for tensor in model.tensors() {
        if let Some(name) = Name::of(tensor) {
            found.entry(name.layer).or_default().entry(name.role).or_default().push((name, tensor));
        }
    }
    if found.is_empty() {
        return Err(refused("the model has no routed experts, so there is nothing to pack".to_string()));
    }
    let expected = expert_count(model)?;
    let mut layers = Vec::with_capacity(found.len());
    for (layer, roles) in found {
        let matrices = roles.into_values().map(|tensors| matrix(&tensors).map_err(refused));
        let mut matrices = matrices.collect::<Result<Vec<_>, _>>()?;
        matrices.sort_by_key(|matrix| (rank(&matrix.role), matrix.role.clone()));
        let count = expected.unwrap_or(matrices[0].slices.len());
        if let Some(other) = matrices.iter().find(|matrix| matrix.slices.len() != count) {
            let name = Name { layer, role: &other.role, expert: None }.text();
            let found = other.slices.len();
            let problem = format!("{name}: expected {count} experts, found {found}; the file is damaged");
            return Err(refused(problem));
        }
        if count > EXPERTS_MAX {
            return Err(refused(format!(
                "layer {layer} has {count} experts, expected at most {EXPERTS_MAX}"
            )));
        }
        layers.push(ExpertLayer { layer, matrices });
    }
    Ok(layers)
}

/// What the metadata say, where they say it.
fn expert_count(model: &Gguf) -> Result<Option<usize>, FoundryError> {
    let Some(architecture) = model.metadata().str("general.architecture")? else { return Ok(None) };
    let count = model.metadata().u32(&format!("{architecture}.expert_count"))?;
    Ok(count.filter(|&count| count > 0).map(|count| count as usize))
}

/// Gate before up before down.
fn rank(role: &str) -> usize {
    let known = ["gate", "gate_up", "up", "down"];
    known.iter().position(|&name| name == role).unwrap_or(known.len())
}

/// The matrix that these tensors of one layer and role are, or what is wrong with them.
fn matrix(tensors: &[(Name<'_>, &TensorInfo)]) -> Result<Matrix, String> {
    let stacked = tensors.iter().find(|(name, _)| name.expert.is_none());
    match (stacked, tensors) {
        (Some(&(name, tensor)), [_]) => Ok(unstack(name, tensor)),
        (Some((_, tensor)), _) => {
            let (_, other) = tensors.iter().find(|(name, _)| name.expert.is_some()).expect("another name");
            Err(format!(
                "tensors {} and {} hold the same experts; expected one form of them: the file is damaged",
                tensor.name, other.name
            ))
        }
        (None, _) => collect(tensors),
    }
}

fn unstack(name: Name<'_>, tensor: &TensorInfo) -> Matrix {
    let experts = tensor.dims[2];
    let bytes = tensor.bytes / experts;
    let slice = |expert| Slice { part: tensor.part, offset: tensor.offset + expert * bytes, bytes };
    Matrix {
        role: name.role.to_string(),
        kind: tensor.kind,
        dims: [tensor.dims[0], tensor.dims[1]],
        slices: (0..experts).map(slice).collect(),
    }
}

fn collect(tensors: &[(Name<'_>, &TensorInfo)]) -> Result<Matrix, String> {
    let mut sorted = tensors.to_vec();
    sorted.sort_by_key(|(name, _)| name.expert);
    let (first_name, first) = sorted[0];
    for (expert, &(name, tensor)) in sorted.iter().enumerate() {
        let expert = Some(expert as u32);
        if name.expert != expert {
            let missing = Name { expert, ..name }.text();
            return Err(format!(
                "tensor {missing} is missing, but there is {}; the file is incomplete",
                tensor.name
            ));
        }
        if (&tensor.dims, tensor.kind) != (&first.dims, first.kind) {
            return Err(format!(
                "tensor {} is {:?} of {}, expected {:?} of {} as in {}",
                tensor.name, tensor.dims, tensor.kind, first.dims, first.kind, first.name
            ));
        }
    }
    let &[cols, rows] = first.dims.as_slice() else {
        return Err(format!("tensor {}: expected 2 dimensions, found {:?}", first.name, first.dims));
    };
    Ok(Matrix {
        role: first_name.role.to_string(),
        kind: first.kind,
        dims: [cols, rows],
        slices: sorted.iter().map(|(_, tensor)| Slice::whole(tensor)).collect(),
    })
}
