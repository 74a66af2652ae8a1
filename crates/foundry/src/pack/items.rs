//! What a packed or stacked file consists of: its metadata, and each tensor with the bytes of the source that
//! it is made of. Nothing is read or written here.

use std::collections::HashSet;

use adit_format::writer::{Layout, TensorSpec};
use adit_format::{Gguf, Metadata, Value};

use super::experts::{ExpertLayer, Name, Slice};
use crate::FoundryError;

/// What every tensor of the new file begins at a multiple of: what direct reads ask for.
pub(crate) const ALIGNMENT: u32 = 4096;
const ALIGNMENT_KEY: &str = "general.alignment";

/// How a file holds its experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each expert's matrices side by side, as tensors of their own.
    Packed,
    /// One tensor for a matrix of all experts of a layer, as converters write it today.
    Stacked,
}

/// A tensor of the new file, and the pieces of the source that are its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub spec: TensorSpec,
    pub slices: Vec<Slice>,
}

/// A new file, before a byte of it is written.
pub(crate) struct NewFile {
    pub metadata: Metadata,
    pub items: Vec<Item>,
    pub layout: Layout,
}

impl NewFile {
    /// `orders`: in which order the experts of each of `layers` are stored.
    pub fn of(
        model: &Gguf,
        layers: &[ExpertLayer],
        form: Form,
        orders: &[Vec<u32>],
    ) -> Result<NewFile, FoundryError> {
        let items = items(model, layers, form, orders);
        let metadata = new_metadata(model.metadata())?;
        let specs: Vec<TensorSpec> = items.iter().map(|item| item.spec.clone()).collect();
        let layout = Layout::new(&metadata, &specs)?;
        Ok(NewFile { metadata, items, layout })
    }
}

/// All keys of the source but those of its split, and the alignment.
fn new_metadata(source: &Metadata) -> Result<Metadata, FoundryError> {
    let mut metadata = source.clone();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        metadata.remove(key);
    }
    let before = source.u32(ALIGNMENT_KEY)?.unwrap_or(0);
    metadata.set(ALIGNMENT_KEY, Value::U32(before.max(ALIGNMENT)));
    Ok(metadata)
}

/// The tensors in order: those of the source, the experts of a layer where its first one was.
fn items(model: &Gguf, layers: &[ExpertLayer], form: Form, orders: &[Vec<u32>]) -> Vec<Item> {
    let mut written = HashSet::new();
    let mut items = Vec::new();
    for tensor in model.tensors() {
        let Some(name) = Name::of(tensor) else {
            let spec = TensorSpec { name: tensor.name.clone(), kind: tensor.kind, dims: tensor.dims.clone() };
            items.push(Item { spec, slices: vec![Slice::whole(tensor)] });
            continue;
        };
        if !written.insert(name.layer) {
            continue;
        }
        let place = layers.iter().position(|layer| layer.layer == name.layer).expect("the layer was read");
        match form {
            Form::Packed => pack(&layers[place], &orders[place], &mut items),
            Form::Stacked => stack(&layers[place], &mut items),
        }
    }
    items
}

fn pack(layer: &ExpertLayer, order: &[u32], items: &mut Vec<Item>) {
    for &expert in order {
        for matrix in &layer.matrices {
            let name = Name { layer: layer.layer, role: &matrix.role, expert: Some(expert) }.text();
            let spec = TensorSpec { name, kind: matrix.kind, dims: matrix.dims.to_vec() };
            items.push(Item { spec, slices: vec![matrix.slices[expert as usize]] });
        }
    }
}

fn stack(layer: &ExpertLayer, items: &mut Vec<Item>) {
    for matrix in &layer.matrices {
        let name = Name { layer: layer.layer, role: &matrix.role, expert: None }.text();
        let [cols, rows] = matrix.dims;
        let dims = vec![cols, rows, matrix.slices.len() as u64];
        items
            .push(Item { spec: TensorSpec { name, kind: matrix.kind, dims }, slices: matrix.slices.clone() });
    }
}
