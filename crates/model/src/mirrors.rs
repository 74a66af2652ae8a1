//! Other copies of a model's files, to read from as well. A copy with other sizes or another header is
//! refused; tensor data is not compared, which would be to read it all.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use adit_format::Gguf;
use adit_pager::PagerError;

use crate::error::ModelError;

/// The files of the model and of each mirror, in the same order.
pub(crate) fn copies(gguf: &Gguf, mirrors: &[PathBuf]) -> Result<Vec<Vec<PathBuf>>, ModelError> {
    let paths = |gguf: &Gguf| gguf.parts().iter().map(|part| part.path.clone()).collect::<Vec<_>>();
    let mut copies = vec![paths(gguf)];
    for mirror in mirrors {
        let parts = paths(&Gguf::open(mirror)?);
        if parts.len() != copies[0].len() {
            let difference = format!("it has {} parts, not {}", parts.len(), copies[0].len());
            return Err(other(&parts[0], &copies[0][0], difference));
        }
        for (number, (first, path)) in copies[0].iter().zip(&parts).enumerate() {
            // The header and what lies between it and the first tensor.
            let tensors = gguf.tensors().iter().filter(|tensor| tensor.part == number);
            let bytes = tensors.map(|tensor| tensor.offset).min().unwrap_or(gguf.parts()[number].bytes);
            let same = begin_alike(first, path, bytes);
            let same = same.map_err(|source| PagerError::Open { path: path.clone(), source })?;
            if !same {
                return Err(other(path, first, "its header is another one".into()));
            }
        }
        copies.push(parts);
    }
    Ok(copies)
}

fn other(path: &Path, first: &Path, difference: String) -> ModelError {
    PagerError::OtherMirror { path: path.into(), first: first.into(), difference }.into()
}

/// Whether the first `bytes` of two files are the same.
fn begin_alike(a: &Path, b: &Path, bytes: u64) -> std::io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?.take(bytes), File::open(b)?.take(bytes));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        for (file, buffer) in [(&mut a, &mut left), (&mut b, &mut right)] {
            buffer.clear();
            file.take(64 << 10).read_to_end(buffer)?;
        }
        if left != right || left.is_empty() {
            return Ok(left == right);
        }
    }
}
