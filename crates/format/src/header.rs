//! Parses the header of one file: magic, version, metadata, tensor directory.
//! Checks all that one file can be checked for but repeated tensor names; what makes a model, `gguf` knows.
//!
//! Layout: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

use std::fmt;
use std::path::Path;

use crate::codec::read_value;
use crate::cursor::Cursor;
use crate::error::shown;
use crate::metadata::Metadata;
use crate::strangers::{HEAD_BYTES, recognise};
use crate::{FormatError, TensorType};

/// From the GGUF specification; the longest in use have 64.
const KEY_BYTES_MAX: u64 = 65535;
const TENSOR_NAME_BYTES_MAX: u64 = 4096;
/// Length and one byte of a key, type and one byte of a value.
const ENTRY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Length and one byte of a name, number of dimensions, type, offset.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 4 + 8;
const DIMS_MAX: u32 = 4;
/// Real files have some 50 keys and at most some 20,000 tensors.
const ENTRIES_MAX: u64 = 1 << 16;
const TENSORS_MAX: u64 = 1 << 18;

pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const ALIGNMENT_DEFAULT: u32 = 32;

/// One tensor as a file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub kind: TensorType,
    /// Elements along each dimension; `dims[0]` is the contiguous one (columns). Never empty, never 0.
    pub dims: Vec<u64>,
    /// Which file of a split model holds it: an index into [`crate::Gguf::parts`].
    pub part: usize,
    /// Where its first byte lies in that file.
    pub offset: u64,
    pub bytes: u64,
}

pub(crate) struct Header {
    pub version: u32,
    pub file_bytes: u64,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

/// Reads and checks the header of `path`; its tensors are said to lie in part number `part`.
pub(crate) fn read_header(path: &Path, part: usize) -> Result<Header, FormatError> {
    let mut cursor = Cursor::open(path)?;
    let version = read_version(&mut cursor)?;
    let tensor_count = read_count(&mut cursor, "number of tensors", TENSORS_MAX, TENSOR_BYTES_MIN)?;
    let entry_count = read_count(&mut cursor, "number of metadata keys", ENTRIES_MAX, ENTRY_BYTES_MIN)?;
    let mut metadata = Metadata::of_file(path);
    for index in 0..entry_count {
        read_entry(&mut cursor, index, &mut metadata)?;
    }
    let alignment = read_alignment(&cursor, &metadata)?;
    let mut tensors = Vec::with_capacity(tensor_count as usize);
    for index in 0..tensor_count {
        tensors.push(read_tensor(&mut cursor, index, part, alignment)?);
    }
    place_tensors(&cursor, alignment, &mut tensors)?;
    Ok(Header { version, file_bytes: cursor.file_bytes(), metadata, tensors })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, FormatError> {
    let head = cursor.peek(HEAD_BYTES)?;
    if let Some(problem) = recognise(head) {
        return Err(FormatError::NotGguf { path: cursor.path().to_path_buf(), problem });
    }
    cursor.u32(format_args!("magic"))?;
    let version = cursor.u32(format_args!("format version"))?;
    let problem = match version {
        2 | 3 => return Ok(version),
        1 => {
            "this is GGUF version 1 (2023), which adit does not read; download a newer conversion".to_string()
        }
        _ if matches!(version.swap_bytes(), 1..=0xffff) => {
            "this is a big-endian GGUF file, which adit does not read; download the little-endian one"
                .to_string()
        }
        _ => format!(
            "GGUF version {version} at byte 4: expected 2 or 3; the file is damaged or newer than adit"
        ),
    };
    Err(FormatError::NotGguf { path: cursor.path().to_path_buf(), problem })
}

/// A count that the rest of the header can hold, at `each` bytes or more apiece.
fn read_count(cursor: &mut Cursor<'_>, what: &str, max: u64, each: u64) -> Result<u64, FormatError> {
    let offset = cursor.position();
    let field = format_args!("{what}");
    let count = cursor.u64(field)?;
    if count > max {
        let problem = format_args!("expected at most {max}, found {count}; the file is damaged");
        return Err(cursor.malformed(offset, field, problem));
    }
    cursor.expect(count, each, format_args!("{what} ({count})"))?;
    Ok(count)
}

fn read_entry(cursor: &mut Cursor<'_>, index: u64, metadata: &mut Metadata) -> Result<(), FormatError> {
    let offset = cursor.position();
    let field = format_args!("metadata key {index}");
    let key = cursor.name(KEY_BYTES_MAX, field)?;
    if metadata.contains(&key) {
        let problem = format_args!("{} came before; the file is damaged", shown(&key));
        return Err(cursor.malformed(offset, field, problem));
    }
    let value_offset = cursor.position();
    let value = read_value(cursor, &key)?;
    metadata.append(key, value, value_offset);
    Ok(())
}

fn read_alignment(cursor: &Cursor<'_>, metadata: &Metadata) -> Result<u32, FormatError> {
    let alignment = metadata.u32(ALIGNMENT_KEY)?.unwrap_or(ALIGNMENT_DEFAULT);
    if alignment.is_power_of_two() {
        return Ok(alignment);
    }
    let problem = format_args!("expected a power of two, found {alignment}");
    Err(cursor.malformed(metadata.offset(ALIGNMENT_KEY), format_args!("{ALIGNMENT_KEY}"), problem))
}

/// Reads one entry of the tensor directory; the offset is still relative to the start of the data.
fn read_tensor(
    cursor: &mut Cursor<'_>,
    index: u64,
    part: usize,
    alignment: u32,
) -> Result<TensorInfo, FormatError> {
    let name = cursor.name(TENSOR_NAME_BYTES_MAX, format_args!("name of tensor {index}"))?;
    let quoted = shown(&name);
    let dims_offset = cursor.position();
    let field = format_args!("dimensions of tensor {quoted}");
    let count = cursor.u32(field)?;
    if count > DIMS_MAX {
        let problem = format_args!("expected at most {DIMS_MAX}, found {count}");
        return Err(cursor.malformed(dims_offset, field, problem));
    }
    let mut dims = cursor.numbers(count.into(), u64::from_le_bytes, field)?;
    if dims.contains(&0) {
        return Err(cursor.malformed(dims_offset, field, format_args!("one of them is 0: {dims:?}")));
    }
    if dims.is_empty() {
        dims.push(1);
    }
    let kind = read_kind(cursor, format_args!("type of tensor {quoted}"))?;
    let bytes = tensor_bytes(kind, &dims).ok_or_else(|| {
        let problem = format_args!(
            "{dims:?} cannot be {kind}: expected rows of whole blocks of {} and fewer than 2^63 bytes",
            kind.block_len()
        );
        cursor.malformed(dims_offset, field, problem)
    })?;
    let at = cursor.position();
    let field = format_args!("offset of tensor {quoted}");
    let offset = cursor.u64(field)?;
    if !offset.is_multiple_of(alignment.into()) {
        let problem = format_args!("expected a multiple of the alignment {alignment}, found {offset}");
        return Err(cursor.malformed(at, field, problem));
    }
    Ok(TensorInfo { name, kind, dims, part, offset, bytes })
}

fn read_kind(cursor: &mut Cursor<'_>, field: fmt::Arguments<'_>) -> Result<TensorType, FormatError> {
    let offset = cursor.position();
    let id = cursor.u32(field)?;
    TensorType::from_ggml(id).ok_or_else(|| match TensorType::unsupported_name(id) {
        Some(name) => {
            let problem = format_args!(
                "adit does not read {name} (type {id}); download the model in another quantisation, \
                 for instance Q4_K_M"
            );
            cursor.malformed(offset, field, problem)
        }
        None => cursor.malformed(
            offset,
            field,
            format_args!("unknown type {id}; the file is damaged or newer than adit"),
        ),
    })
}

/// Bytes of a tensor, or `None` where its rows are not whole blocks or its size is absurd.
pub(crate) fn tensor_bytes(kind: TensorType, dims: &[u64]) -> Option<u64> {
    let cols = usize::try_from(dims[0]).ok()?;
    let row = kind.row_bytes(cols)? as u64;
    let bytes = dims[1..].iter().try_fold(row, |bytes, &dim| bytes.checked_mul(dim))?;
    i64::try_from(bytes).ok()?;
    Some(bytes)
}

/// Turns relative offsets into places in the file, and checks that each lies in it and none in another.
fn place_tensors(cursor: &Cursor<'_>, alignment: u32, tensors: &mut [TensorInfo]) -> Result<(), FormatError> {
    // The cursor stands below 2^28 and an alignment is at most 2^31: this cannot overflow.
    let data_start = cursor.position().next_multiple_of(alignment.into());
    let file_bytes = cursor.file_bytes();
    for tensor in tensors.iter_mut() {
        let placed =
            tensor.offset.checked_add(data_start).filter(|at| at.checked_add(tensor.bytes).is_some());
        tensor.offset = placed.ok_or_else(|| {
            let field = format_args!("offset of tensor {}", shown(&tensor.name));
            cursor.malformed(tensor.offset, field, format_args!("lies beyond any file; the file is damaged"))
        })?;
    }
    if let Some(last) = tensors.iter().max_by_key(|tensor| tensor.offset + tensor.bytes)
        && last.offset + last.bytes > file_bytes
    {
        return Err(FormatError::Truncated {
            path: cursor.path().to_path_buf(),
            expected: last.offset + last.bytes,
            found: file_bytes,
            tensor: shown(&last.name),
            offset: last.offset,
        });
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        let end = pair[0].offset + pair[0].bytes;
        if end > pair[1].offset {
            let field = format_args!("tensor {}", shown(&pair[1].name));
            let problem = format_args!(
                "overlaps tensor {}, which ends at byte {end}; the file is damaged",
                shown(&pair[0].name)
            );
            return Err(cursor.malformed(pair[1].offset, field, problem));
        }
    }
    Ok(())
}
