//! `adit pack`: a model is written anew with each expert's matrices side by side, on blocks of their own, so
//! that a miss is one read; or, from that form, stacked again as other programs want it. No bit of a tensor
//! changes. The source is only read; the new file has its name when every slice of it was read back and has
//! the digest of what was read from the source. What an earlier run left of the same work is gone on with.

mod experts;
mod gain;
mod items;
mod order;
mod partial;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use adit_format::writer::{Existing, publish, refuse_existing};
use adit_format::{Gguf, TensorInfo};
use sha2::{Digest, Sha256};

pub use gain::{Gain, Verdict, expected_gain, gain};
pub use items::Form;
pub use order::by_co_use;

use crate::source::Source;
use crate::{FoundryError, space};
use experts::{ExpertLayer, Slice};
use items::NewFile;
use partial::{Medium, Partial};

/// Read back at once.
const PIECE_BYTES: usize = 1 << 20;

/// What to make of what.
#[derive(Clone, Debug)]
pub struct Pack<'a> {
    pub source: &'a Path,
    pub output: &'a Path,
    pub form: Form,
    /// For each layer with experts, in which order they are stored; their numbers do not change. None
    /// stores them in the order of their numbers.
    pub orders: Option<Vec<Vec<u32>>>,
    pub existing: Existing,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackReport {
    pub tensors: usize,
    pub layers: usize,
    /// In a layer.
    pub experts: usize,
    /// One expert of one layer, the smallest and the largest.
    pub expert_bytes: (u64, u64),
    pub source_bytes: u64,
    pub output_bytes: u64,
    /// What an earlier run had written.
    pub kept_bytes: u64,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Writing,
    Verifying,
}

/// Hears the bytes done and the bytes in all of a stage, and may stop the work.
pub type Progress<'a> = &'a mut dyn FnMut(Stage, u64, u64) -> ControlFlow<()>;

/// The experts of one layer of a model, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerExperts {
    pub layer: u32,
    pub experts: usize,
    /// Bytes of one of them.
    pub expert_bytes: u64,
}

/// The layers of a model that have experts, in either form.
pub fn layers_with_experts(model: &Gguf) -> Result<Vec<LayerExperts>, FoundryError> {
    let of = |layer: &ExpertLayer| LayerExperts {
        layer: layer.layer,
        experts: layer.experts(),
        expert_bytes: layer.expert_bytes(),
    };
    Ok(experts::read(model)?.iter().map(of).collect())
}

/// Whether a tensor holds matrices of routed experts, of one or of all of its layer.
pub fn holds_experts(tensor: &TensorInfo) -> bool {
    experts::Name::of(tensor).is_some()
}

/// Writes the new model. An error or a stop leaves what is written under the name `OUT.partial`, with which
/// the same work goes on.
pub fn pack(job: &Pack<'_>, progress: Progress<'_>) -> Result<PackReport, FoundryError> {
    if job.output.file_name().is_none() {
        let problem = "expected the name of the file to write, found a folder or nothing".to_string();
        return Err(FoundryError::Refused { path: job.output.to_path_buf(), problem });
    }
    refuse_existing(job.output, job.existing)?;
    let model = Gguf::open(job.source)?;
    let partial_path = partial::partial_path(job.output);
    check_paths(&model, &[job.output, &partial_path])?;
    let layers = experts::read(&model)?;
    let numbers = |layer: &ExpertLayer| (0..layer.experts() as u32).collect();
    let orders = job.orders.clone().unwrap_or_else(|| layers.iter().map(numbers).collect());
    check_orders(&layers, &orders);
    let new = NewFile::of(&model, &layers, job.form, &orders)?;

    let output_bytes = new.layout.file_bytes();
    let left = fs::metadata(&partial_path).map_or(0, |left| left.len());
    space::check(job.output, output_bytes.saturating_sub(left))?;
    let before = source_state(&model)?;
    let file = partial::open(&partial_path)?;
    let mut partial = Partial::new(partial_path.clone(), file, output_bytes)?;
    partial.begin(new.layout.head(), job.existing == Existing::Replace)?;
    let digests = write(&model, &new, &mut partial, progress)?;
    partial.sync()?;
    verify(&new, &digests, &mut partial, progress)?;
    check_header(&new, &partial_path)?;
    if source_state(&model)? != before {
        return Err(FoundryError::SourceChanged { path: job.source.to_path_buf() });
    }
    publish(&partial_path, job.output, job.existing)?;
    let sizes = || layers.iter().map(ExpertLayer::expert_bytes);
    Ok(PackReport {
        tensors: new.items.len(),
        layers: layers.len(),
        experts: layers.iter().map(ExpertLayer::experts).max().unwrap_or(0),
        expert_bytes: (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0)),
        source_bytes: model.bytes(),
        output_bytes,
        kept_bytes: partial.kept(),
    })
}

/// Refuses to write over the model that is being read, by whatever name.
fn check_paths(model: &Gguf, outputs: &[&Path]) -> Result<(), FoundryError> {
    for output in outputs {
        if model.parts().iter().any(|part| is_same_file(&part.path, output)) {
            let problem = "this is the model that is to be packed; give the new one another name".to_string();
            return Err(FoundryError::Refused { path: output.to_path_buf(), problem });
        }
    }
    Ok(())
}

#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) else { return false };
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (fs::canonicalize(a), fs::canonicalize(b)) else { return false };
    a == b
}

/// # Panics
/// When the orders are not one for each layer that names each expert once.
fn check_orders(layers: &[ExpertLayer], orders: &[Vec<u32>]) {
    assert!(layers.len() == orders.len(), "an order for each layer");
    for (layer, order) in layers.iter().zip(orders) {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..layer.experts() as u32), "an order names each expert once");
    }
}

/// Size and time of each part of the source.
fn source_state(model: &Gguf) -> Result<Vec<(u64, Option<std::time::SystemTime>)>, FoundryError> {
    let state = |metadata: fs::Metadata| (metadata.len(), metadata.modified().ok());
    let of = |part: &adit_format::Part| {
        let changed = |_| FoundryError::SourceChanged { path: part.path.clone() };
        fs::metadata(&part.path).map(state).map_err(changed)
    };
    model.parts().iter().map(of).collect()
}

/// Writes all tensors; returns the digest of each slice, as the source has it.
fn write(
    model: &Gguf,
    new: &NewFile,
    partial: &mut Partial<impl Medium>,
    progress: Progress<'_>,
) -> Result<Vec<[u8; 32]>, FoundryError> {
    let total = new.layout.file_bytes();
    let mut source = Source::open(model)?;
    let mut digests = Vec::new();
    for (item, &(_, padding)) in new.items.iter().zip(new.layout.tensors()) {
        for &Slice { part, offset, bytes } in &item.slices {
            let mut hasher = Sha256::new();
            source.range(part, offset, bytes, |piece| {
                hasher.update(&*piece);
                partial.put(piece)?;
                match progress(Stage::Writing, partial.at(), total) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => {
                        let (path, done) = (partial.path().to_path_buf(), partial.at());
                        Err(FoundryError::Paused { path, done, total })
                    }
                }
            })?;
            digests.push(hasher.finalize().into());
        }
        partial.put_zeros(padding)?;
    }
    Ok(digests)
}

/// Reads every slice back, past the page cache where the system allows, and compares its digest.
fn verify(
    new: &NewFile,
    digests: &[[u8; 32]],
    partial: &mut Partial<impl Medium>,
    progress: Progress<'_>,
) -> Result<(), FoundryError> {
    let total = new.layout.file_bytes();
    let mut digests = digests.iter();
    let mut at = new.layout.head().len() as u64;
    let mut piece = Vec::new();
    for (item, &(_, padding)) in new.items.iter().zip(new.layout.tensors()) {
        for slice in &item.slices {
            let (offset, end) = (at, at + slice.bytes);
            let mut hasher = Sha256::new();
            while at < end {
                piece.resize((end - at).min(PIECE_BYTES as u64) as usize, 0);
                partial.read(at, &mut piece)?;
                hasher.update(&piece);
                at += piece.len() as u64;
                if progress(Stage::Verifying, at, total).is_break() {
                    let path = partial.path().to_path_buf();
                    return Err(FoundryError::Paused { path, done: total, total });
                }
            }
            let expected = digests.next().expect("a digest for each slice");
            if <[u8; 32]>::from(hasher.finalize()) != *expected {
                let (path, tensor) = (partial.path().to_path_buf(), item.spec.name.clone());
                return Err(FoundryError::Damaged { path, tensor, offset });
            }
        }
        at += padding;
    }
    Ok(())
}

/// Opens the new file as a model and compares what it says with what it should.
fn check_header(new: &NewFile, path: &Path) -> Result<(), FoundryError> {
    let written = Gguf::open(path)?;
    let damaged = |tensor: &str, offset| {
        let tensor = tensor.to_string();
        FoundryError::Damaged { path: path.to_path_buf(), tensor, offset }
    };
    if !written.metadata().iter().eq(new.metadata.iter()) || written.tensors().len() != new.items.len() {
        return Err(damaged("(header)", 0));
    }
    let mut offset = new.layout.head().len() as u64;
    let expected = new.items.iter().zip(new.layout.tensors());
    for (tensor, (item, &(bytes, padding))) in written.tensors().iter().zip(expected) {
        let spec = &item.spec;
        let is_right = (&tensor.name, tensor.kind, &tensor.dims, tensor.offset, tensor.bytes)
            == (&spec.name, spec.kind, &spec.dims, offset, bytes);
        if !is_right {
            return Err(damaged(&spec.name, offset));
        }
        offset += bytes + padding;
    }
    Ok(())
}
