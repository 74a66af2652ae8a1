//! Reads the tensors of an existing model, piece by piece.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use adit_format::{FormatError, Gguf, TensorInfo, TensorType};
use half::{bf16, f16};

use crate::FoundryError;

/// Memory that one piece takes at most, but for rows longer than this.
const PIECE_BYTES: usize = 1 << 20;

pub(crate) struct Source<'m> {
    model: &'m Gguf,
    files: Vec<File>,
    piece: Vec<u8>,
}

impl<'m> Source<'m> {
    pub fn open(model: &'m Gguf) -> Result<Source<'m>, FoundryError> {
        let open = |part: &adit_format::Part| {
            File::open(&part.path).map_err(|source| FormatError::Io {
                path: part.path.clone(),
                action: "open the file",
                source,
            })
        };
        let files = model.parts().iter().map(open).collect::<Result<_, _>>()?;
        Ok(Source { model, files, piece: Vec::new() })
    }

    /// Hands over all bytes of `tensor` in order, in pieces of whole multiples of `unit` bytes.
    pub fn pieces(
        &mut self,
        tensor: &TensorInfo,
        unit: usize,
        visit: impl FnMut(&mut [u8]) -> Result<(), FoundryError>,
    ) -> Result<(), FoundryError> {
        assert!(tensor.bytes.is_multiple_of(unit as u64), "tensor {} is not whole units", tensor.name);
        let piece_bytes = (PIECE_BYTES / unit).max(1) * unit;
        self.each((tensor.part, tensor.offset, tensor.bytes), piece_bytes, visit)
    }

    /// Hands over `bytes` of part number `part` from `offset` on, in order.
    pub fn range(
        &mut self,
        part: usize,
        offset: u64,
        bytes: u64,
        visit: impl FnMut(&mut [u8]) -> Result<(), FoundryError>,
    ) -> Result<(), FoundryError> {
        self.each((part, offset, bytes), PIECE_BYTES, visit)
    }

    fn each(
        &mut self,
        (part, first, total): (usize, u64, u64),
        piece_bytes: usize,
        mut visit: impl FnMut(&mut [u8]) -> Result<(), FoundryError>,
    ) -> Result<(), FoundryError> {
        let mut done = 0;
        while done < total {
            let bytes = (total - done).min(piece_bytes as u64) as usize;
            self.piece.resize(bytes, 0);
            let offset = first + done;
            read_at(&mut self.files[part], offset, &mut self.piece).map_err(|source| {
                let path = self.model.parts()[part].path.clone();
                FoundryError::Read { path, offset, bytes, source }
            })?;
            visit(&mut self.piece)?;
            done += bytes as u64;
        }
        Ok(())
    }

    /// All values of a small tensor of floats; `None` where it is of another type.
    pub fn floats(&mut self, tensor: &TensorInfo) -> Result<Option<Vec<f32>>, FoundryError> {
        let decode: fn(&[u8]) -> f32 = match tensor.kind {
            TensorType::F32 => |bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")),
            TensorType::F16 => |bytes| f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32(),
            TensorType::Bf16 => |bytes| bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f32(),
            _ => return Ok(None),
        };
        let unit = tensor.kind.block_bytes();
        let mut values = Vec::new();
        self.pieces(tensor, unit, |piece| {
            values.extend(piece.chunks_exact(unit).map(decode));
            Ok(())
        })?;
        Ok(Some(values))
    }
}

fn read_at(file: &mut File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(out)
}
