//! How AVX-512 unpacks the formats of 32-blocks, for 16 weight rows at once. Knows no activations.

use std::arch::x86_64::*;

use adit_format::blocks::{
    BlockIq4Nl, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, IQ4_VALUES, MXFP4_VALUES,
};

use super::lanes::*;
use crate::dot::TILE_ROWS;
use crate::formats::Format32;
use crate::isa::Avx512;

/// 32 columns of 16 rows: register `q` holds columns `4q..4q + 4` of row `r` in lane `r`.
pub type Group = [__m512i; 8];

/// Blocks of 16 rows whose heads are read together.
pub const GROUPS: usize = 8;

/// `G` neighbouring blocks of each row of a tile.
pub type Part<'a, F, const G: usize> = [&'a [F; G]; TILE_ROWS];

/// The blocks of a tile from `first`.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn part<'a, F, const G: usize>(rows: &[&'a [F]; TILE_ROWS], first: usize) -> Part<'a, F, G> {
    let mut part = [blocks_from(rows[0], first); TILE_ROWS];
    for r in 1..TILE_ROWS {
        part[r] = blocks_from(rows[r], first);
    }
    part
}

/// `G` blocks of one row.
#[inline(always)]
pub fn blocks_from<F, const G: usize>(row: &[F], first: usize) -> &[F; G] {
    row[first..].first_chunk().expect("G blocks in all rows")
}

/// What stands beside the codes of a block in each of 16 rows.
#[derive(Clone, Copy)]
pub struct Heads {
    /// The bits of `d` and, above them, of `m`.
    scales: [u32; TILE_ROWS],
    /// The fifth bits of the codes.
    high_bits: [u32; TILE_ROWS],
}

impl Heads {
    pub const EMPTY: Heads = Heads { scales: [0; TILE_ROWS], high_bits: [0; TILE_ROWS] };
}

/// Reads the heads of some blocks. Better of several at once: they are stored in pieces, and the first load
/// of what has just been stored so must wait.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn read_heads<F: Wide32, const G: usize>(part: &Part<'_, F, G>, heads: &mut [Heads; G]) {
    for (r, row) in part.iter().enumerate() {
        for (block, heads) in row.iter().zip(heads.iter_mut()) {
            heads.scales[r] = block.scale_bits();
            if let Some(bits) = block.high_bits() {
                heads.high_bits[r] = bits;
            }
        }
    }
}

/// The codes of block `g` of each row.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub fn codes<F: Wide32, const G: usize>(
    isa: Avx512,
    part: &Part<'_, F, G>,
    g: usize,
    heads: &Heads,
) -> Group {
    let mut blocks = [&part[0][g]; TILE_ROWS];
    for r in 1..TILE_ROWS {
        blocks[r] = &part[r][g];
    }
    F::codes(&blocks, heads, isa)
}

/// A format of 32-blocks as the AVX-512 kernels need it.
pub trait Wide32: Format32 {
    /// How much too large the codes are, made unsigned bytes.
    const OFFSET: i32;

    /// What [`Heads::scales`] keeps of a block.
    fn scale_bits(&self) -> u32;

    /// What [`Heads::high_bits`] keeps of a block.
    fn high_bits(&self) -> Option<u32> {
        None
    }

    /// The codes of one block of each row.
    fn codes(blocks: &[&Self; TILE_ROWS], heads: &Heads, isa: Avx512) -> Group;

    /// `d` and, with `HAS_MIN`, `m` of each row.
    #[inline(always)]
    fn scales(heads: &Heads, _: Avx512) -> (__m512, __m512) {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let bits = load_words(&heads.scales);
            let m = if Self::HAS_MIN { halves(_mm512_srli_epi32::<16>(bits)) } else { _mm512_setzero_ps() };
            (halves(bits), m)
        }
    }
}

/// The field `qs` of 16 blocks.
macro_rules! nibble_bytes {
    ($blocks:expr) => {{
        let mut bytes = [&$blocks[0].qs; TILE_ROWS];
        for r in 1..TILE_ROWS {
            bytes[r] = &$blocks[r].qs;
        }
        bytes
    }};
}

/// Low nibbles are the first 16 codes of a block, high ones the others.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn nibbles(bytes: [&[u8; 16]; TILE_ROWS]) -> Group {
    let (quads, low) = (transpose(bytes), _mm512_set1_epi8(15));
    let mut group = [low; 8];
    for q in 0..4 {
        group[q] = _mm512_and_si512(quads[q], low);
        group[q + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(quads[q]), low);
    }
    group
}

/// What the 16 bytes of a table say for the nibbles.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn looked_up(bytes: [&[u8; 16]; TILE_ROWS], values: &[u8; 16]) -> Group {
    let (mut group, values) = (nibbles(bytes), table(values));
    for codes in &mut group {
        *codes = _mm512_shuffle_epi8(values, *codes);
    }
    group
}

/// For register `q` of a group, where the fifth bits of its codes begin in a pair of rows, less 4: so they
/// become bits of value 16.
static FIFTH_BITS: [[u8; 64]; 8] = {
    let mut places = [[0; 64]; 8];
    let mut i = 0;
    while i < 512 {
        let (q, byte) = (i / 64, i % 8);
        places[q][i % 64] = (4 * q + byte % 4 + byte / 4 * 32 + 60) as u8 % 64;
        i += 1;
    }
    places
};

/// The nibbles with a fifth bit.
#[inline]
#[target_feature(enable = "avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn five_bits(bytes: [&[u8; 16]; TILE_ROWS], high_bits: &[u32; TILE_ROWS]) -> Group {
    let (mut group, high_bits) = (nibbles(bytes), load_words(high_bits));
    for (codes, places) in group.iter_mut().zip(&FIFTH_BITS) {
        let high = _mm512_multishift_epi64_epi8(load(places), high_bits);
        *codes = _mm512_or_si512(*codes, _mm512_and_si512(high, _mm512_set1_epi8(16)));
    }
    group
}

/// A table of signed values, raised so that all are positive.
const fn raised(table: [i8; 16], by: i32) -> [u8; 16] {
    let mut raised = [0; 16];
    let mut i = 0;
    while i < 16 {
        raised[i] = (table[i] as i32 + by) as u8;
        i += 1;
    }
    raised
}

/// The bits of `d` alone, or with those of a minimum above them.
macro_rules! scale_bits {
    ($($min:ident)?) => {
        #[inline(always)]
        fn scale_bits(&self) -> u32 {
            u16::from_le_bytes(self.d) as u32 $(| (u16::from_le_bytes(self.$min) as u32) << 16)?
        }
    };
}

macro_rules! four_bits {
    () => {
        #[inline(always)]
        fn codes(blocks: &[&Self; TILE_ROWS], _: &Heads, _: Avx512) -> Group {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { nibbles(nibble_bytes!(blocks)) }
        }
    };
}

macro_rules! five_bits {
    () => {
        #[inline(always)]
        fn high_bits(&self) -> Option<u32> {
            Some(u32::from_le_bytes(self.qh))
        }

        #[inline(always)]
        fn codes(blocks: &[&Self; TILE_ROWS], heads: &Heads, _: Avx512) -> Group {
            // SAFETY: the token proves that the CPU has the features.
            unsafe { five_bits(nibble_bytes!(blocks), &heads.high_bits) }
        }
    };
}

impl Wide32 for BlockQ4_0 {
    const OFFSET: i32 = 8;
    scale_bits!();
    four_bits!();
}

impl Wide32 for BlockQ4_1 {
    const OFFSET: i32 = 0;
    scale_bits!(m);
    four_bits!();
}

impl Wide32 for BlockQ5_0 {
    const OFFSET: i32 = 16;
    scale_bits!();
    five_bits!();
}

impl Wide32 for BlockQ5_1 {
    const OFFSET: i32 = 0;
    scale_bits!(m);
    five_bits!();
}

impl Wide32 for BlockQ8_0 {
    const OFFSET: i32 = 128;
    scale_bits!();

    #[inline(always)]
    fn codes(blocks: &[&Self; TILE_ROWS], _: &Heads, _: Avx512) -> Group {
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let offset = _mm512_set1_epi8(-128);
            let mut group = [offset; 8];
            for half in 0..2 {
                let mut bytes = [&[0; 16]; TILE_ROWS];
                for r in 0..TILE_ROWS {
                    bytes[r] = bytemuck::cast_ref(&blocks[r].qs.as_chunks::<16>().0[half]);
                }
                let quads = transpose(bytes);
                for q in 0..4 {
                    group[half * 4 + q] = _mm512_xor_si512(quads[q], offset);
                }
            }
            group
        }
    }
}

impl Wide32 for BlockIq4Nl {
    const OFFSET: i32 = 128;
    scale_bits!();

    #[inline(always)]
    fn codes(blocks: &[&Self; TILE_ROWS], _: &Heads, _: Avx512) -> Group {
        const RAISED: [u8; 16] = raised(IQ4_VALUES, BlockIq4Nl::OFFSET);
        // SAFETY: the token proves that the CPU has the features.
        unsafe { looked_up(nibble_bytes!(blocks), &RAISED) }
    }
}

impl Wide32 for BlockMxfp4 {
    const OFFSET: i32 = 12;

    #[inline(always)]
    fn scale_bits(&self) -> u32 {
        self.e as u32
    }

    #[inline(always)]
    fn codes(blocks: &[&Self; TILE_ROWS], _: &Heads, _: Avx512) -> Group {
        const RAISED: [u8; 16] = raised(MXFP4_VALUES, BlockMxfp4::OFFSET);
        // SAFETY: the token proves that the CPU has the features.
        unsafe { looked_up(nibble_bytes!(blocks), &RAISED) }
    }

    #[inline(always)]
    fn scales(heads: &Heads, _: Avx512) -> (__m512, __m512) {
        // As `formats::mxfp4_scale`: exponent e - 1, below 2 a denormal.
        // SAFETY: the token proves that the CPU has the features.
        unsafe {
            let e = load_words(&heads.scales);
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
            let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
            let is_normal = _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(1));
            let d = _mm512_mask_blend_epi32(is_normal, denormal, normal);
            (_mm512_castsi512_ps(d), _mm512_setzero_ps())
        }
    }
}
