//! The layout of one block of every quantised type, byte for byte as `ggml-common.h` lays it down.
//! Only where things lie, never arithmetic: the kernels know what the bits are worth.
//!
//! All fields are bytes, so every struct has alignment 1 and a tensor's `&[u8]` casts to `&[Block]`
//! at any address (`bytemuck::cast_slice`). Numbers are little-endian; f16 fields are `[u8; 2]`.

use bytemuck::{Pod, Zeroable};

use crate::TensorType;

/// Elements in a block of the K and `IQ4_XS` types.
pub const SUPER_BLOCK_LEN: usize = 256;

/// Elements in a block of the other types.
pub const BLOCK_LEN: usize = 32;

/// A block that can be cast from a tensor's bytes.
pub trait Block: Pod {
    const KIND: TensorType;
}

/// Declares a block: its struct, its type, and at compile time its size.
macro_rules! block {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $bytes:literal, { $($field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        pub struct $name { $(pub $field: $ty,)* }

        impl Block for $name {
            const KIND: TensorType = TensorType::$kind;
        }

        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == 1);
    };
}

block!(
    /// `x[i] = d * (q[i] - 8)`; byte `j` holds element `j` (low nibble) and `j + 16` (high nibble).
    BlockQ4_0, Q4_0, 18, {
        d: [u8; 2],
        qs: [u8; 16],
    }
);

block!(
    /// `x[i] = d * q[i] + m`; nibbles as in [`BlockQ4_0`].
    BlockQ4_1, Q4_1, 20, {
        d: [u8; 2],
        m: [u8; 2],
        qs: [u8; 16],
    }
);

block!(
    /// `x[i] = d * (q[i] - 16)`; nibbles as in [`BlockQ4_0`], bit `i` of `qh` is the fifth of element `i`.
    BlockQ5_0, Q5_0, 22, {
        d: [u8; 2],
        qh: [u8; 4],
        qs: [u8; 16],
    }
);

block!(
    /// `x[i] = d * q[i] + m`; bits as in [`BlockQ5_0`].
    BlockQ5_1, Q5_1, 24, {
        d: [u8; 2],
        m: [u8; 2],
        qh: [u8; 4],
        qs: [u8; 16],
    }
);

block!(
    /// `x[i] = d * q[i]`.
    BlockQ8_0, Q8_0, 34, {
        d: [u8; 2],
        qs: [i8; 32],
    }
);

block!(
    /// 16 runs of 16: `x = d * scale * q - dmin * min`, scale and min the low and high nibble of `scales`.
    BlockQ2K, Q2K, 84, {
        scales: [u8; 16],
        qs: [u8; 64],
        d: [u8; 2],
        dmin: [u8; 2],
    }
);

block!(
    /// 16 runs of 16: `x = d * (scale - 32) * q`, q of 2 low bits in `qs` and a high bit in `hmask`
    /// (clear means minus 4), scales of 6 bits.
    BlockQ3K, Q3K, 110, {
        hmask: [u8; 32],
        qs: [u8; 64],
        scales: [u8; 12],
        d: [u8; 2],
    }
);

block!(
    /// 8 runs of 32: `x = d * scale * q - dmin * min`, scales and mins of 6 bits packed in 12 bytes.
    BlockQ4K, Q4K, 144, {
        d: [u8; 2],
        dmin: [u8; 2],
        scales: [u8; 12],
        qs: [u8; 128],
    }
);

block!(
    /// As [`BlockQ4K`] with a fifth bit of every element in `qh`.
    BlockQ5K, Q5K, 176, {
        d: [u8; 2],
        dmin: [u8; 2],
        scales: [u8; 12],
        qh: [u8; 32],
        qs: [u8; 128],
    }
);

block!(
    /// 16 runs of 16: `x = d * scale * (q - 32)`, q of 4 low bits in `ql` and 2 high bits in `qh`.
    BlockQ6K, Q6K, 210, {
        ql: [u8; 128],
        qh: [u8; 64],
        scales: [i8; 16],
        d: [u8; 2],
    }
);

block!(
    /// `x[i] = d * table[q[i]]` with the 16 values of [`IQ4_VALUES`]; nibbles as in [`BlockQ4_0`].
    BlockIq4Nl, Iq4Nl, 18, {
        d: [u8; 2],
        qs: [u8; 16],
    }
);

block!(
    /// 8 runs of 32: `x = d * (scale - 32) * table[q]`, scales of 4 low bits in `scales_l` and 2 high bits
    /// in `scales_h` (a little-endian u16), nibbles of a run as in [`BlockQ4_0`].
    BlockIq4Xs, Iq4Xs, 136, {
        d: [u8; 2],
        scales_h: [u8; 2],
        scales_l: [u8; 4],
        qs: [u8; 128],
    }
);

block!(
    /// `x[i] = 2^(e - 127) * table[q[i]]` with the E2M1 values of [`MXFP4_VALUES`] halved; nibbles as in
    /// [`BlockQ4_0`].
    BlockMxfp4, Mxfp4, 17, {
        e: u8,
        qs: [u8; 16],
    }
);

/// What a nibble of the IQ4 types stands for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice what a nibble of MXFP4 stands for (E2M1), so that all are whole numbers.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees<B: Block>() {
        assert_eq!(size_of::<B>(), B::KIND.block_bytes(), "{}", B::KIND);
    }

    #[test]
    fn struct_sizes_agree_with_the_type_table() {
        agrees::<BlockQ4_0>();
        agrees::<BlockQ4_1>();
        agrees::<BlockQ5_0>();
        agrees::<BlockQ5_1>();
        agrees::<BlockQ8_0>();
        agrees::<BlockQ2K>();
        agrees::<BlockQ3K>();
        agrees::<BlockQ4K>();
        agrees::<BlockQ5K>();
        agrees::<BlockQ6K>();
        agrees::<BlockIq4Nl>();
        agrees::<BlockIq4Xs>();
        agrees::<BlockMxfp4>();
    }

    #[test]
    fn a_tensor_casts_to_blocks_at_an_odd_address() {
        let bytes = [7u8; 1 + 2 * 18];
        let blocks: &[BlockQ4_0] = bytemuck::cast_slice(&bytes[1..]);
        assert_eq!(blocks.len(), 2);
    }
}
