//! Reads a file's header front to back, never past its end. Knows numbers and strings, not GGUF.
//!
//! **Invariant:** every length is checked against the bytes that are left before memory is taken for it.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::FormatError;

/// No header of a real model is a tenth of this; a damaged count must not make us read a whole disk.
const HEADER_BYTES_MAX: u64 = 128 << 20;

pub(crate) struct Cursor<'p> {
    reader: BufReader<File>,
    path: &'p Path,
    position: u64,
    file_bytes: u64,
}

impl<'p> Cursor<'p> {
    pub fn open(path: &'p Path) -> Result<Self, FormatError> {
        let failed = |action| move |source| FormatError::Io { path: path.to_path_buf(), action, source };
        // Looked at before it is opened: opening a named pipe would wait for a writer.
        let found = fs::metadata(path).map_err(failed("open the file"))?;
        if !found.is_file() {
            let kind = if found.is_dir() { "a folder" } else { "not a regular file" };
            let problem = format!("is {kind}; give the path of a .gguf file");
            return Err(FormatError::NotGguf { path: path.to_path_buf(), problem });
        }
        let file = File::open(path).map_err(failed("open the file"))?;
        let file_bytes = file.metadata().map_err(failed("read the size"))?.len();
        Ok(Cursor { reader: BufReader::with_capacity(1 << 16, file), path, position: 0, file_bytes })
    }

    pub fn path(&self) -> &'p Path {
        self.path
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes that a header may still have.
    pub fn left(&self) -> u64 {
        self.file_bytes.min(HEADER_BYTES_MAX).saturating_sub(self.position)
    }

    /// Fails unless `count` things of at least `each` bytes fit into what is left of the header.
    pub fn expect(&self, count: u64, each: u64, field: fmt::Arguments<'_>) -> Result<(), FormatError> {
        let needed = count.saturating_mul(each);
        if needed <= self.left() {
            return Ok(());
        }
        let left = self.file_bytes - self.position;
        if needed > left {
            let (path, field) = (self.path.to_path_buf(), field.to_string());
            return Err(FormatError::Overrun { path, field, offset: self.position, needed, left });
        }
        Err(self.malformed(
            self.position,
            field,
            format_args!(
                "needs {needed} bytes, which would make the header larger than {} MiB; the file is damaged",
                HEADER_BYTES_MAX >> 20
            ),
        ))
    }

    pub fn malformed(
        &self,
        offset: u64,
        field: fmt::Arguments<'_>,
        problem: fmt::Arguments<'_>,
    ) -> FormatError {
        FormatError::Malformed {
            path: self.path.to_path_buf(),
            field: field.to_string(),
            offset,
            problem: problem.to_string(),
        }
    }

    /// The next bytes, at most `bytes_max` of them, without moving on.
    pub fn peek(&mut self, bytes_max: usize) -> Result<&[u8], FormatError> {
        let path = self.path;
        let buffered = self.reader.fill_buf().map_err(|source| FormatError::Io {
            path: path.to_path_buf(),
            action: "read the header",
            source,
        })?;
        Ok(&buffered[..buffered.len().min(bytes_max)])
    }

    pub fn fill(&mut self, out: &mut [u8], field: fmt::Arguments<'_>) -> Result<(), FormatError> {
        self.expect(out.len() as u64, 1, field)?;
        self.reader.read_exact(out).map_err(|source| FormatError::Io {
            path: self.path.to_path_buf(),
            action: "read the header",
            source,
        })?;
        self.position += out.len() as u64;
        Ok(())
    }

    /// Appends `bytes` bytes to `out`.
    pub fn append(
        &mut self,
        out: &mut Vec<u8>,
        bytes: u64,
        field: fmt::Arguments<'_>,
    ) -> Result<(), FormatError> {
        self.expect(bytes, 1, field)?;
        let start = out.len();
        out.resize(start + bytes as usize, 0);
        self.fill(&mut out[start..], field)
    }

    pub fn number<const N: usize, T>(
        &mut self,
        decode: fn([u8; N]) -> T,
        field: fmt::Arguments<'_>,
    ) -> Result<T, FormatError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, field)?;
        Ok(decode(bytes))
    }

    pub fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        decode: fn([u8; N]) -> T,
        field: fmt::Arguments<'_>,
    ) -> Result<Vec<T>, FormatError> {
        self.expect(count, N as u64, field)?;
        let mut numbers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            numbers.push(self.number(decode, field)?);
        }
        Ok(numbers)
    }

    pub fn u32(&mut self, field: fmt::Arguments<'_>) -> Result<u32, FormatError> {
        self.number(u32::from_le_bytes, field)
    }

    pub fn u64(&mut self, field: fmt::Arguments<'_>) -> Result<u64, FormatError> {
        self.number(u64::from_le_bytes, field)
    }

    /// A string as GGUF has them: a length of 8 bytes, then that many bytes.
    pub fn string(&mut self, field: fmt::Arguments<'_>) -> Result<Vec<u8>, FormatError> {
        let bytes = self.u64(field)?;
        let mut string = Vec::new();
        self.append(&mut string, bytes, field)?;
        Ok(string)
    }

    /// A name: a string that is valid UTF-8, not empty and at most `bytes_max` long.
    pub fn name(&mut self, bytes_max: u64, field: fmt::Arguments<'_>) -> Result<String, FormatError> {
        let offset = self.position;
        let bytes = self.u64(field)?;
        if bytes == 0 || bytes > bytes_max {
            let problem =
                format_args!("expected a name of 1 to {bytes_max} bytes, found a length of {bytes}");
            return Err(self.malformed(offset, field, problem));
        }
        let mut name = Vec::new();
        self.append(&mut name, bytes, field)?;
        String::from_utf8(name)
            .map_err(|_| self.malformed(offset, field, format_args!("the name is not valid UTF-8")))
    }
}
