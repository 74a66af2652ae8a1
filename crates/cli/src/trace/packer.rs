//! Packs blocks as gzip members (RFC 1952), with tables and a buffer that are taken once: the threads of a
//! running model allocate nothing.

use std::io::Write;

use anyhow::Result;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Magic, deflate, no flags, no time, no hint, system unknown.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
const PACKED_BYTES: usize = 64 << 10;

pub struct Packer {
    deflate: Compress,
    packed: Box<[u8]>,
}

impl Packer {
    pub fn new() -> Packer {
        let deflate = Compress::new(Compression::fast(), false);
        Packer { deflate, packed: vec![0; PACKED_BYTES].into() }
    }

    /// Writes `bytes` as a member of its own, so that a file that ends behind it is readable up to here.
    pub fn write(&mut self, bytes: &[u8], out: &mut impl Write) -> Result<()> {
        out.write_all(&HEAD)?;
        self.deflate.reset();
        loop {
            let (read, written) = (self.deflate.total_in() as usize, self.deflate.total_out());
            let status = self.deflate.compress(&bytes[read..], &mut self.packed, FlushCompress::Finish)?;
            out.write_all(&self.packed[..(self.deflate.total_out() - written) as usize])?;
            if status == Status::StreamEnd {
                break;
            }
        }
        let mut crc = Crc::new();
        crc.update(bytes);
        out.write_all(&crc.sum().to_le_bytes())?;
        out.write_all(&crc.amount().to_le_bytes())?;
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn members_unpack_to_what_was_packed() {
        let mut packer = Packer::new();
        let mut random = 1u32;
        let mut noise = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        // More than the buffer holds once packed, something repetitive, and nothing.
        let blocks = [(0..200_000).map(|_| noise()).collect(), vec![7; 100_000], Vec::new()];
        let mut file = Vec::new();
        blocks.iter().for_each(|block| packer.write(block, &mut file).unwrap());
        let mut all = Vec::new();
        flate2::read::MultiGzDecoder::new(&file[..]).read_to_end(&mut all).unwrap();
        assert!(all == blocks.concat());
    }
}
