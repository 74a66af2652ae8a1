//! Writes a GGUF v3 file front to back: metadata and tensor directory first, then each tensor's bytes as
//! they come. The file appears under its name only when it is whole. Knows no model family.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::codec::{write_string, write_value};
use crate::error::shown;
use crate::header::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY, tensor_bytes};
use crate::{FormatError, Metadata, TensorType};

const VERSION: u32 = 3;
const BUFFER_BYTES: usize = 1 << 20;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub kind: TensorType,
    /// `dims[0]` is the contiguous one.
    pub dims: Vec<u64>,
}

/// What to do where a file of the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

/// The place of everything in a file to be written, known before a byte of it is.
pub struct Layout {
    /// Magic to directory, padded: what comes before the first tensor.
    head: Vec<u8>,
    /// Bytes of each tensor and of the padding behind it.
    tensors: Vec<(u64, u64)>,
}

impl Layout {
    /// Fails where the metadata ask for an alignment, or a spec for dimensions, that cannot be.
    pub fn new(metadata: &Metadata, specs: &[TensorSpec]) -> Result<Layout, FormatError> {
        let alignment = u64::from(metadata.u32(ALIGNMENT_KEY)?.unwrap_or(ALIGNMENT_DEFAULT));
        if !alignment.is_power_of_two() {
            let problem = format!("{ALIGNMENT_KEY} {alignment} is not a power of two");
            return Err(FormatError::Unwritable { problem });
        }
        let mut tensors = Vec::with_capacity(specs.len());
        for spec in specs {
            let bytes = spec_bytes(spec)?;
            tensors.push((bytes, bytes.next_multiple_of(alignment) - bytes));
        }
        let mut head = encode_head(metadata, specs, &tensors).expect("writing to memory does not fail");
        head.resize((head.len() as u64).next_multiple_of(alignment) as usize, 0);
        Ok(Layout { head, tensors })
    }

    /// What comes before the first tensor.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Bytes of each tensor, and of the zeros behind it.
    pub fn tensors(&self) -> &[(u64, u64)] {
        &self.tensors
    }

    /// Size of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.head.len() as u64 + self.tensors.iter().map(|(bytes, padding)| bytes + padding).sum::<u64>()
    }
}

fn spec_bytes(spec: &TensorSpec) -> Result<u64, FormatError> {
    let possible = !spec.dims.is_empty() && spec.dims.iter().all(|&dim| dim > 0);
    possible.then(|| tensor_bytes(spec.kind, &spec.dims)).flatten().ok_or_else(|| FormatError::Unwritable {
        problem: format!(
            "tensor {} of dimensions {:?} cannot be {}: rows must be whole blocks of {}",
            shown(&spec.name),
            spec.dims,
            spec.kind,
            spec.kind.block_len()
        ),
    })
}

fn encode_head(metadata: &Metadata, specs: &[TensorSpec], tensors: &[(u64, u64)]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    out.write_all(b"GGUF")?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&(specs.len() as u64).to_le_bytes())?;
    out.write_all(&(metadata.len() as u64).to_le_bytes())?;
    for (key, value) in metadata.iter() {
        write_string(&mut out, key.as_bytes())?;
        write_value(&mut out, value)?;
    }
    let mut offset = 0;
    for (spec, (bytes, padding)) in specs.iter().zip(tensors) {
        write_string(&mut out, spec.name.as_bytes())?;
        out.write_all(&(spec.dims.len() as u32).to_le_bytes())?;
        spec.dims.iter().try_for_each(|dim| out.write_all(&dim.to_le_bytes()))?;
        out.write_all(&spec.kind.ggml_id().to_le_bytes())?;
        out.write_all(&u64::to_le_bytes(offset))?;
        offset += bytes + padding;
    }
    Ok(out)
}

/// A file being written. Dropped before [`finish`](Writer::finish), it leaves nothing behind.
pub struct Writer {
    path: PathBuf,
    existing: Existing,
    temporary: TemporaryFile,
    out: BufWriter<File>,
    tensors: std::vec::IntoIter<(u64, u64)>,
    /// What the current tensor still lacks, and the padding due behind it.
    current: (u64, u64),
}

impl Writer {
    /// Starts the file `path` and writes its header.
    pub fn create(path: &Path, layout: Layout, existing: Existing) -> Result<Writer, FormatError> {
        refuse_existing(path, existing)?;
        let (temporary, file) = TemporaryFile::beside(path)?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let tensors = layout.tensors.into_iter();
        let path = path.to_path_buf();
        let mut writer = Writer { path, existing, temporary, out, tensors, current: (0, 0) };
        writer.put(&layout.head)?;
        Ok(writer)
    }

    /// Appends to the current tensor, going on to the next wherever one is full.
    ///
    /// # Panics
    /// When there are more bytes than the declared tensors have.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), FormatError> {
        while !bytes.is_empty() {
            if self.current.0 == 0 {
                self.current = self.tensors.next().expect("more bytes than the declared tensors have");
            }
            let taken = bytes.len().min(usize::try_from(self.current.0).unwrap_or(usize::MAX));
            self.put(&bytes[..taken])?;
            bytes = &bytes[taken..];
            self.current.0 -= taken as u64;
            if self.current.0 == 0 {
                self.pad()?;
            }
        }
        Ok(())
    }

    /// Puts the whole file on the disk and gives it its name.
    ///
    /// # Panics
    /// When a declared tensor lacks bytes.
    pub fn finish(mut self) -> Result<(), FormatError> {
        assert!(self.current.0 == 0 && self.tensors.len() == 0, "a declared tensor lacks bytes");
        let flushed = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        flushed.map_err(|source| self.failed("write the file", source))?;
        publish(&self.temporary.path, &self.path, self.existing)?;
        self.temporary.renamed = true;
        Ok(())
    }

    fn pad(&mut self) -> Result<(), FormatError> {
        const ZEROS: [u8; 256] = [0; 256];
        while self.current.1 > 0 {
            let count = self.current.1.min(ZEROS.len() as u64);
            self.put(&ZEROS[..count as usize])?;
            self.current.1 -= count;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        self.out.write_all(bytes).map_err(|source| self.failed("write the file", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> FormatError {
        FormatError::Io { path: self.path.clone(), action, source }
    }
}

/// Gives the finished and synced file `partial`, in the same folder, the name `path`.
pub fn publish(partial: &Path, path: &Path, existing: Existing) -> Result<(), FormatError> {
    refuse_existing(path, existing)?;
    fs::rename(partial, path).map_err(|source| {
        let action = "give the finished file its name";
        FormatError::Io { path: path.to_path_buf(), action, source }
    })?;
    // Makes the new name last through a power cut; where folders cannot be synced, it lasts a bit later.
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Fails where a file cannot appear under the name `path`, asked before the work on it.
pub fn refuse_existing(path: &Path, existing: Existing) -> Result<(), FormatError> {
    if existing == Existing::Refuse && fs::symlink_metadata(path).is_ok() {
        return Err(FormatError::Exists { path: path.to_path_buf() });
    }
    // A rename would put a file in the place of a device, and fail on a folder after all the work.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "what has that name is no ordinary file");
        return Err(FormatError::Io { path: path.to_path_buf(), action: "replace", source });
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in the folder of the one to be, so that a rename suffices; removed unless it was renamed.
struct TemporaryFile {
    path: PathBuf,
    renamed: bool,
}

impl TemporaryFile {
    fn beside(path: &Path) -> Result<(TemporaryFile, File), FormatError> {
        let failed = |source| FormatError::Io { path: path.to_path_buf(), action: "create the file", source };
        let name = path.file_name().ok_or_else(|| {
            failed(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))
        })?;
        let mut attempt = 0;
        loop {
            let mut unique = name.to_os_string();
            unique.push(format!(".{}-{attempt}.partial", std::process::id()));
            let path = path.with_file_name(unique);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((TemporaryFile { path, renamed: false }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
