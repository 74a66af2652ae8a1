//! A model file, or the parts of a split one, opened as a whole: metadata and where each tensor lies.
//! Reads headers only, never the data of a tensor; knows no model family.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::shown;
use crate::header::{Header, TensorInfo, read_header};
use crate::{FormatError, Metadata};

const COUNT_KEY: &str = "split.count";
const NUMBER_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// A model on disk, its header parsed and every extent checked.
#[derive(Clone, Debug)]
pub struct Gguf {
    version: u32,
    parts: Vec<Part>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Name to index in `tensors`.
    by_name: HashMap<String, usize>,
}

impl Gguf {
    /// Opens a model; a split one (`name-00001-of-0000N.gguf`) by its first part.
    pub fn open(path: &Path) -> Result<Gguf, FormatError> {
        let first = read_header(path, 0)?;
        let paths = part_paths(path, &first.metadata)?;
        let mut model = Gguf {
            version: first.version,
            parts: Vec::new(),
            metadata: Metadata::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
        };
        let expected = first.metadata.u32(TENSORS_KEY)?;
        let count = paths.len();
        model.add_part(path, first)?;
        for (number, path) in paths.iter().enumerate().skip(1) {
            let header = read_header(path, number)?;
            check_part(path, &header.metadata, number, count)?;
            model.add_part(path, header)?;
        }
        let found = model.tensors.len();
        match expected {
            Some(expected) if count > 1 && expected as usize != found => Err(FormatError::Split {
                path: path.to_path_buf(),
                problem: format!(
                    "{TENSORS_KEY}: expected {expected} tensors in all {count} parts, found {found}; \
                     the parts are of different models"
                ),
            }),
            _ => Ok(model),
        }
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Those of the first part, which has them all.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// In the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&at| &self.tensors[at])
    }

    /// Size of all parts together.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    fn add_part(&mut self, path: &Path, header: Header) -> Result<(), FormatError> {
        if self.parts.is_empty() {
            self.metadata = header.metadata;
        }
        self.parts.push(Part { path: path.to_path_buf(), bytes: header.file_bytes });
        for tensor in header.tensors {
            if let Some(before) = self.by_name.insert(tensor.name.clone(), self.tensors.len()) {
                let other = &self.parts[self.tensors[before].part].path;
                return Err(FormatError::Malformed {
                    path: path.to_path_buf(),
                    field: format!("tensor {}", shown(&tensor.name)),
                    offset: tensor.offset,
                    problem: format!("{} has a tensor of this name already", other.display()),
                });
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }
}

/// The paths of all parts of the model that `path` belongs to; `path` alone where it is not split.
fn part_paths(path: &Path, metadata: &Metadata) -> Result<Vec<PathBuf>, FormatError> {
    let wrong = |problem: String| Err(FormatError::Split { path: path.to_path_buf(), problem });
    // Five digits of a part number end here, and a damaged count must not make us look for more files.
    const PARTS_MAX: u32 = 99_999;
    let count = metadata.u32(COUNT_KEY)?.unwrap_or(1);
    if count <= 1 {
        return Ok(vec![path.to_path_buf()]);
    }
    if count > PARTS_MAX {
        return wrong(format!("{COUNT_KEY}: expected at most {PARTS_MAX}, found {count}"));
    }
    let number = metadata.u32(NUMBER_KEY)?.unwrap_or(0);
    let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = |part: u32| format!("-{part:05}-of-{count:05}.gguf");
    // A damaged number near 2^32 must not overflow.
    let this_part = number.saturating_add(1);
    let Some(stem) = file_name.strip_suffix(&ending(this_part)) else {
        return wrong(format!(
            "this is part {this_part} of {count} of a split model: expected a file name that ends in {}, \
             so that the other parts can be found; give the files the names they had",
            ending(this_part)
        ));
    };
    let paths: Vec<PathBuf> =
        (1..=count).map(|part| path.with_file_name(format!("{stem}{}", ending(part)))).collect();
    if number != 0 {
        return wrong(format!(
            "this is part {this_part} of {count} of a split model; open its first part, {}",
            paths[0].display()
        ));
    }
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return wrong(format!(
            "this model is split into {count} parts and {} is missing; put all parts into one folder",
            missing.display()
        ));
    }
    Ok(paths)
}

/// Checks that a later part is the one its name says.
fn check_part(path: &Path, metadata: &Metadata, number: usize, count: usize) -> Result<(), FormatError> {
    for (key, expected) in [(NUMBER_KEY, number), (COUNT_KEY, count)] {
        let found = metadata.require_u32(key)?;
        if found as usize != expected {
            return Err(FormatError::Split {
                path: path.to_path_buf(),
                problem: format!("{key}: expected {expected}, found {found}; the file may have been renamed"),
            });
        }
    }
    Ok(())
}
