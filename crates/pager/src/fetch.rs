//! What a load of one slot reads, in the sizes that the disk likes. Must not know who reads it.

use crate::{
    FileSet,
    layout::{Piece, READ_BYTES_MAX},
};

/// One piece of a file that a load needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub file: u32,
    pub piece: Piece,
}

impl Fetch {
    /// The reads of this piece, as long as its disk likes them.
    pub(crate) fn reads(self, files: &FileSet) -> impl Iterator<Item = Fetch> + Clone + use<> {
        let device = files.file(self.file).device;
        let most = files.devices()[device].choice.read_bytes.max(files.align());
        let Fetch { file, piece } = self;
        (0..piece.bytes.div_ceil(most) as usize).map(move |nth| {
            let skip = nth as u64 * most;
            let bytes = (piece.bytes - skip).min(most);
            // Only the last one may hold bytes that need not arrive, fewer than the alignment.
            let wanted = (piece.wanted - skip).min(bytes);
            Fetch { file, piece: Piece { offset: piece.offset + skip, at: piece.at + skip, bytes, wanted } }
        })
    }
}

/// How many reads one piece may become.
pub(crate) fn reads_max(files: &FileSet) -> usize {
    READ_BYTES_MAX.div_ceil(files.read_bytes_min()) as usize
}
