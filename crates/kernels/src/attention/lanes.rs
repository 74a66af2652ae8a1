//! The vector forms of [`super::steps`], written once over registers of 16 floats. Owns the blocking of
//! registers and the reading of stored elements; knows no softmax.
//!
//! A score is one lane of a register of 16 positions, a sum of values one lane of 16 columns: several
//! queries times several such registers are enough independent sums to hide the latency of the
//! multiply-adds, and what is loaded serves all of them.

use std::ops::Range;

use super::registers::Lanes;
use super::steps::{LANES, Stored};
use crate::kv::{KEY_TILE, KV_BLOCK, KvFormat, Q8_BYTES, Q8_TILE_BYTES};

/// How a [`KvFormat`] is read.
pub trait Element {
    const FORMAT: KvFormat;
    /// Bytes of 16 elements, rounded up.
    const BYTES: usize;

    /// The scales of a tile's run of 32 elements, where the format has any.
    ///
    /// # Safety
    /// `tile` holds the run.
    unsafe fn key_scales<L: Lanes>(lanes: L, tile: *const u8, run: usize) -> L::Floats;

    /// Element `dim` of a tile's 16 keys.
    ///
    /// # Safety
    /// `tile` holds it.
    unsafe fn key<L: Lanes>(lanes: L, tile: *const u8, dim: usize, scales: L::Floats) -> L::Floats;

    /// Elements `column..column + 16` of a value, `column` being a multiple of 16.
    ///
    /// # Safety
    /// `row` holds them.
    unsafe fn value<L: Lanes>(lanes: L, row: *const u8, column: usize) -> L::Floats;
}

/// # Safety
/// `N` bytes from `start` on are readable.
#[inline(always)]
unsafe fn at<'a, const N: usize>(start: *const u8, offset: usize) -> &'a [u8; N] {
    // SAFETY: as the caller promises; bytes have no alignment.
    unsafe { &*start.add(offset).cast() }
}

macro_rules! plain_element {
    ($name:ident, $bytes:literal, $read:ident) => {
        pub struct $name;

        impl Element for $name {
            const FORMAT: KvFormat = KvFormat::$name;
            const BYTES: usize = LANES * $bytes;

            #[inline(always)]
            unsafe fn key_scales<L: Lanes>(lanes: L, _: *const u8, _: usize) -> L::Floats {
                lanes.splat(1.0)
            }

            #[inline(always)]
            unsafe fn key<L: Lanes>(lanes: L, tile: *const u8, dim: usize, _: L::Floats) -> L::Floats {
                // SAFETY: the caller promises that the element is there.
                lanes.$read(unsafe { at(tile, dim * KEY_TILE * $bytes) })
            }

            #[inline(always)]
            unsafe fn value<L: Lanes>(lanes: L, row: *const u8, column: usize) -> L::Floats {
                // SAFETY: the caller promises that the elements are there.
                lanes.$read(unsafe { at(row, column * $bytes) })
            }
        }
    };
}

plain_element!(F32, 4, f32s);
plain_element!(F16, 2, f16s);
plain_element!(Bf16, 2, bf16s);

pub struct Q8;

impl Element for Q8 {
    const FORMAT: KvFormat = KvFormat::Q8_0;
    const BYTES: usize = Q8_BYTES / 2;

    #[inline(always)]
    unsafe fn key_scales<L: Lanes>(lanes: L, tile: *const u8, run: usize) -> L::Floats {
        // SAFETY: the caller promises that the run is there.
        lanes.f16s(unsafe { at(tile, run * Q8_TILE_BYTES) })
    }

    #[inline(always)]
    unsafe fn key<L: Lanes>(lanes: L, tile: *const u8, dim: usize, scales: L::Floats) -> L::Floats {
        let offset = dim / 32 * Q8_TILE_BYTES + (2 + dim % 32) * KEY_TILE;
        // SAFETY: the caller promises that the element is there.
        lanes.mul(lanes.i8s(unsafe { at(tile, offset) }), scales)
    }

    #[inline(always)]
    unsafe fn value<L: Lanes>(lanes: L, row: *const u8, column: usize) -> L::Floats {
        let run = column / 32 * Q8_BYTES;
        // SAFETY: the caller promises that the elements are there, and their run's scale stands before them.
        let (scale, codes) = unsafe { (at(row, run), at(row, run + 2 + column % 32)) };
        lanes.mul(lanes.i8s(codes), lanes.splat_f16(scale))
    }
}

/// [`super::steps::Steps::largest`].
#[inline(always)]
pub fn largest<L: Lanes>(lanes: L, scores: &[f32; KV_BLOCK], floor: f32) -> f32 {
    let mut largest = lanes.splat(floor);
    for scores in scores.as_chunks::<LANES>().0 {
        largest = lanes.max(lanes.load(scores), largest);
    }
    lanes.largest_lane(largest)
}

/// Has `bytes` of what is wanted next brought near, and returns where that goes on.
#[inline(always)]
fn bring<L: Lanes>(lanes: L, next: *const u8, bytes: usize) -> *const u8 {
    for line in (0..bytes).step_by(64) {
        lanes.prefetch(next.wrapping_add(line));
    }
    next.wrapping_add(bytes)
}

/// [`super::steps::Steps::score`] for `B` queries, `T` tiles at a time.
#[inline(always)]
pub fn score<L: Lanes, E: Element, const B: usize, const T: usize>(
    lanes: L,
    keys: Stored<'_>,
    queries: &[f32],
    positions: Range<usize>,
    scores: &mut [[f32; KV_BLOCK]],
) {
    let scores: &mut [[f32; KV_BLOCK]; B] = scores.try_into().expect("a row of scores for each query");
    let tile_bytes = KEY_TILE * E::FORMAT.row_bytes(keys.dim);
    assert!(keys.format == E::FORMAT && keys.bytes.len() == KV_BLOCK / KEY_TILE * tile_bytes);
    assert!(queries.len() == B * keys.dim && positions.end <= KV_BLOCK);
    let first = positions.start / KEY_TILE / T * T;
    let mut next = keys.next;
    for tile in (first..positions.end.div_ceil(KEY_TILE)).step_by(T) {
        let mut sums = [[lanes.splat(0.0); T]; B];
        let tiles = keys.bytes[tile * tile_bytes..(tile + T) * tile_bytes].as_ptr();
        for run in 0..keys.dim.div_ceil(32) {
            let mut scales = [lanes.splat(0.0); T];
            for (t, scales) in scales.iter_mut().enumerate() {
                // SAFETY: `T` tiles were sliced above, each of as many elements as a query.
                *scales = unsafe { E::key_scales(lanes, tiles.add(t * tile_bytes), run) };
            }
            for dim in run * 32..keys.dim.min(run * 32 + 32) {
                next = bring(lanes, next, T * E::BYTES);
                let mut key = [lanes.splat(0.0); T];
                for t in 0..T {
                    // SAFETY: as above.
                    key[t] = unsafe { E::key(lanes, tiles.add(t * tile_bytes), dim, scales[t]) };
                }
                for (b, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: there are `B` queries of `keys.dim` floats.
                    let query = lanes.splat(unsafe { *queries.get_unchecked(b * keys.dim + dim) });
                    for t in 0..T {
                        sums[t] = lanes.fma(query, key[t], sums[t]);
                    }
                }
            }
        }
        for b in 0..B {
            let scores = &mut scores[b].as_chunks_mut::<LANES>().0[tile..tile + T];
            for t in 0..T {
                lanes.store(sums[b][t], &mut scores[t]);
            }
        }
    }
}

/// [`super::steps::Steps::add_values`] for `B` queries, `16 * C` columns at a time.
#[inline(always)]
pub fn add_values<L: Lanes, E: Element, const B: usize, const C: usize>(
    lanes: L,
    values: Stored<'_>,
    weights: &[[f32; KV_BLOCK]],
    fades: &[f32],
    positions: Range<usize>,
    sums: &mut [f32],
) {
    let weights: &[[f32; KV_BLOCK]; B] = weights.try_into().expect("a row of weights for each query");
    let fades: &[f32; B] = fades.try_into().expect("a fade for each query");
    let row_bytes = E::FORMAT.row_bytes(values.dim);
    let whole = values.dim / LANES;
    assert!(values.format == E::FORMAT && values.bytes.len() == KV_BLOCK * row_bytes);
    assert!(positions.end <= KV_BLOCK && sums.len() == B * values.dim.next_multiple_of(LANES));
    let sums = sums.as_chunks_mut::<LANES>().0;
    let start = values.bytes.as_ptr();
    let mut next = values.next;
    let mut group = 0;
    while group + C <= whole {
        let columns = Columns { start, row_bytes, first: group * LANES, group };
        // SAFETY: `positions` are rows of the block, and have `whole` groups of 16 columns.
        next = unsafe {
            add_columns::<L, E, B, C>(lanes, columns, weights, fades, positions.clone(), sums, next)
        };
        group += C;
    }
    while group < whole {
        let columns = Columns { start, row_bytes, first: group * LANES, group };
        // SAFETY: as above.
        next = unsafe {
            add_columns::<L, E, B, 1>(lanes, columns, weights, fades, positions.clone(), sums, next)
        };
        group += 1;
    }
    if whole * LANES < values.dim {
        let mut padded = [[0; LANES * size_of::<f32>()]; KV_BLOCK];
        let tail = E::FORMAT.row_bytes(values.dim - whole * LANES);
        for position in positions.clone() {
            let end = (position + 1) * row_bytes;
            padded[position][..tail].copy_from_slice(&values.bytes[end - tail..end]);
        }
        let row_bytes = size_of_val(&padded[0]);
        let columns = Columns { start: padded.as_ptr().cast(), row_bytes, first: 0, group };
        // SAFETY: 16 elements of every format fit into a row of `padded`, which has all positions.
        unsafe { add_columns::<L, E, B, 1>(lanes, columns, weights, fades, positions, sums, next) };
    }
}

/// Which columns of values, and where they lie.
struct Columns {
    /// Position 0 of the block.
    start: *const u8,
    row_bytes: usize,
    /// The first of them in a row.
    first: usize,
    /// Their place in the sums, in groups of 16.
    group: usize,
}

/// Adds `16 * C` columns; returns what is wanted next after what was brought near.
///
/// # Safety
/// There are rows for all `positions`, each with these columns.
#[inline(always)]
unsafe fn add_columns<L: Lanes, E: Element, const B: usize, const C: usize>(
    lanes: L,
    columns: Columns,
    weights: &[[f32; KV_BLOCK]; B],
    fades: &[f32; B],
    positions: Range<usize>,
    sums: &mut [[f32; LANES]],
    mut next: *const u8,
) -> *const u8 {
    let (stride, group) = (sums.len() / B, columns.group);
    let mut registers = [[lanes.splat(0.0); C]; B];
    for b in 0..B {
        for c in 0..C {
            let sum = lanes.load(&sums[b * stride + group + c]);
            registers[b][c] = lanes.mul(sum, lanes.splat(fades[b]));
        }
    }
    for position in positions {
        next = bring(lanes, next, C * E::BYTES);
        let mut values = [lanes.splat(0.0); C];
        for (c, value) in values.iter_mut().enumerate() {
            // SAFETY: the caller promises the elements.
            *value = unsafe {
                let row = columns.start.add(position * columns.row_bytes);
                E::value(lanes, row, columns.first + c * LANES)
            };
        }
        for b in 0..B {
            let weight = lanes.splat(weights[b][position]);
            for c in 0..C {
                registers[b][c] = lanes.fma(weight, values[c], registers[b][c]);
            }
        }
    }
    for b in 0..B {
        for c in 0..C {
            lanes.store(registers[b][c], &mut sums[b * stride + group + c]);
        }
    }
    next
}

/// [`super::steps::Steps::widen_keys`].
#[inline(always)]
pub fn widen_keys<L: Lanes, E: Element>(lanes: L, keys: Stored<'_>, out: &mut [f32]) {
    let tile_bytes = KEY_TILE * E::FORMAT.row_bytes(keys.dim);
    assert!(keys.format == E::FORMAT && keys.bytes.len() == KV_BLOCK / KEY_TILE * tile_bytes);
    assert!(out.len() == KV_BLOCK * keys.dim);
    let tiles = keys.bytes.chunks_exact(tile_bytes);
    for (tile, out) in tiles.zip(out.as_chunks_mut::<KEY_TILE>().0.chunks_exact_mut(keys.dim)) {
        for (run, out) in out.chunks_mut(32).enumerate() {
            // SAFETY: the tile has the runs of `dim` elements.
            let scales = unsafe { E::key_scales(lanes, tile.as_ptr(), run) };
            for (dim, out) in out.iter_mut().enumerate() {
                // SAFETY: the tile has `dim` elements.
                lanes.store(unsafe { E::key(lanes, tile.as_ptr(), run * 32 + dim, scales) }, out);
            }
        }
    }
}

/// [`super::steps::Steps::widen_values`].
#[inline(always)]
pub fn widen_values<L: Lanes, E: Element>(
    lanes: L,
    values: Stored<'_>,
    positions: Range<usize>,
    out: &mut [f32],
) {
    let row_bytes = E::FORMAT.row_bytes(values.dim);
    let padded = values.dim.next_multiple_of(LANES);
    let tail = E::FORMAT.row_bytes(values.dim % LANES);
    assert!(values.format == E::FORMAT);
    let rows = &values.bytes[positions.start * row_bytes..positions.end * row_bytes];
    let out = &mut out[positions.start * padded..positions.end * padded];
    for (row, out) in rows.chunks_exact(row_bytes).zip(out.chunks_exact_mut(padded)) {
        for (group, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let value = if (group + 1) * LANES <= values.dim {
                // SAFETY: the row has these 16 columns.
                unsafe { E::value(lanes, row.as_ptr(), group * LANES) }
            } else {
                let mut padded = [0; LANES * size_of::<f32>()];
                padded[..tail].copy_from_slice(&row[row_bytes - tail..]);
                // SAFETY: 16 elements of every format fit into `padded`.
                unsafe { E::value(lanes, padded.as_ptr(), 0) }
            };
            lanes.store(value, out);
        }
    }
}

/// Makes an instruction set's [`super::steps::Steps`] of its [`Lanes`]: the features, the most queries
/// together, how many positions and columns go with lanes of heads, and for each number of queries how many
/// tiles of keys and groups of columns go with it.
macro_rules! vector_steps {
    (
        $isa:ident, $features:literal, $queries:literal, [$positions:literal, $columns:literal],
        $([$b:literal, $t:literal, $c:literal]),+
    ) => {
        const _: () = {
            use $crate::attention::lanes::{
                Bf16, F16, F32, Q8, add_values, largest, score, widen_keys, widen_values,
            };
            use $crate::attention::latent_lanes;
            use $crate::attention::latent_steps::LatentSteps;
            use $crate::attention::steps::LANES;
            use $crate::kv::KvFormat;

            #[target_feature(enable = $features)]
            fn score_wide(
                isa: $isa,
                keys: Stored<'_>,
                queries: &[f32],
                positions: Range<usize>,
                scores: &mut [[f32; KV_BLOCK]],
            ) {
                match (scores.len(), keys.format) {
                    $(
                        ($b, KvFormat::F32) => {
                            score::<_, F32, $b, $t>(isa, keys, queries, positions, scores)
                        }
                        ($b, KvFormat::F16) => {
                            score::<_, F16, $b, $t>(isa, keys, queries, positions, scores)
                        }
                        ($b, KvFormat::Bf16) => {
                            score::<_, Bf16, $b, $t>(isa, keys, queries, positions, scores)
                        }
                        ($b, KvFormat::Q8_0) => {
                            score::<_, Q8, $b, $t>(isa, keys, queries, positions, scores)
                        }
                    )+
                    (count, _) => unreachable!("{count} queries together"),
                }
            }

            #[target_feature(enable = $features)]
            fn add_wide(
                isa: $isa,
                values: Stored<'_>,
                weights: &[[f32; KV_BLOCK]],
                fades: &[f32],
                positions: Range<usize>,
                sums: &mut [f32],
            ) {
                match (weights.len(), values.format) {
                    $(
                        ($b, KvFormat::F32) => {
                            add_values::<_, F32, $b, $c>(isa, values, weights, fades, positions, sums)
                        }
                        ($b, KvFormat::F16) => {
                            add_values::<_, F16, $b, $c>(isa, values, weights, fades, positions, sums)
                        }
                        ($b, KvFormat::Bf16) => {
                            add_values::<_, Bf16, $b, $c>(isa, values, weights, fades, positions, sums)
                        }
                        ($b, KvFormat::Q8_0) => {
                            add_values::<_, Q8, $b, $c>(isa, values, weights, fades, positions, sums)
                        }
                    )+
                    (count, _) => unreachable!("{count} queries together"),
                }
            }

            #[target_feature(enable = $features)]
            fn widen_keys_wide(isa: $isa, keys: Stored<'_>, out: &mut [f32]) {
                match keys.format {
                    KvFormat::F32 => widen_keys::<_, F32>(isa, keys, out),
                    KvFormat::F16 => widen_keys::<_, F16>(isa, keys, out),
                    KvFormat::Bf16 => widen_keys::<_, Bf16>(isa, keys, out),
                    KvFormat::Q8_0 => widen_keys::<_, Q8>(isa, keys, out),
                }
            }

            #[target_feature(enable = $features)]
            fn widen_values_wide(isa: $isa, values: Stored<'_>, positions: Range<usize>, out: &mut [f32]) {
                match values.format {
                    KvFormat::F32 => widen_values::<_, F32>(isa, values, positions, out),
                    KvFormat::F16 => widen_values::<_, F16>(isa, values, positions, out),
                    KvFormat::Bf16 => widen_values::<_, Bf16>(isa, values, positions, out),
                    KvFormat::Q8_0 => widen_values::<_, Q8>(isa, values, positions, out),
                }
            }

            #[target_feature(enable = $features)]
            fn score_lanes_wide(
                isa: $isa,
                keys: &[f32],
                queries: &[[f32; LANES]],
                positions: Range<usize>,
                next: &[u8],
                scores: &mut [[f32; LANES]; KV_BLOCK],
            ) {
                latent_lanes::score_lanes::<_, $positions>(isa, keys, queries, positions, next, scores);
            }

            #[target_feature(enable = $features)]
            fn add_lanes_wide(
                isa: $isa,
                keys: &[f32],
                dim: usize,
                weights: &[[f32; LANES]; KV_BLOCK],
                fades: &[f32; LANES],
                positions: Range<usize>,
                sums: &mut [[f32; LANES]],
            ) {
                latent_lanes::add_lanes::<_, $columns>(isa, keys, dim, weights, fades, positions, sums);
            }

            impl Steps for $isa {
                const QUERIES: usize = $queries;

                fn score(
                    &self,
                    keys: Stored<'_>,
                    queries: &[f32],
                    positions: Range<usize>,
                    scores: &mut [[f32; KV_BLOCK]],
                ) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { score_wide(*self, keys, queries, positions, scores) }
                }

                fn add_values(
                    &self,
                    values: Stored<'_>,
                    weights: &[[f32; KV_BLOCK]],
                    fades: &[f32],
                    positions: Range<usize>,
                    sums: &mut [f32],
                ) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { add_wide(*self, values, weights, fades, positions, sums) }
                }

                #[inline(always)]
                fn largest(&self, scores: &[f32; KV_BLOCK], floor: f32) -> f32 {
                    largest(*self, scores, floor)
                }

                fn widen_keys(&self, keys: Stored<'_>, out: &mut [f32]) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { widen_keys_wide(*self, keys, out) }
                }

                fn widen_values(&self, values: Stored<'_>, positions: Range<usize>, out: &mut [f32]) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { widen_values_wide(*self, values, positions, out) }
                }
            }

            impl LatentSteps for $isa {
                fn score_lanes(
                    &self,
                    keys: &[f32],
                    queries: &[[f32; LANES]],
                    positions: Range<usize>,
                    next: &[u8],
                    scores: &mut [[f32; LANES]; KV_BLOCK],
                ) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { score_lanes_wide(*self, keys, queries, positions, next, scores) }
                }

                fn add_lanes(
                    &self,
                    keys: &[f32],
                    dim: usize,
                    weights: &[[f32; LANES]; KV_BLOCK],
                    fades: &[f32; LANES],
                    positions: Range<usize>,
                    sums: &mut [[f32; LANES]],
                ) {
                    // SAFETY: the token proves that the CPU has the features.
                    unsafe { add_lanes_wide(*self, keys, dim, weights, fades, positions, sums) }
                }

                #[inline(always)]
                fn heads_to_lanes(&self, heads: &[&[f32]; LANES], out: &mut [[f32; LANES]]) {
                    latent_lanes::heads_to_lanes(*self, heads, out);
                }

                #[inline(always)]
                fn lanes_to_heads(&self, x: &[[f32; LANES]], heads: &mut [f32]) {
                    latent_lanes::lanes_to_heads(*self, x, heads);
                }
            }
        };
    };
}
pub(super) use vector_steps;
