//! Matrix products spread over the pool. Owns how outputs are cut into tiles and who computes which; knows
//! no formats.
//!
//! The unit of work is a run of weight rows of one job, against all selected activation rows: weights are
//! what memory delivers slowly, so each is touched by one thread, once for every batch of rows.

use std::marker::PhantomData;
use std::ops::Range;

use crate::activations::{ActivationFormat, Activations, Row, activation_format};
use crate::dot::{Kernel, TILE_ROWS, TILES, WeightRows, kernel};
use crate::matrix::Matrix;
use crate::pool::Pool;

/// Most activation rows that meet a tile of weights before the next tile is touched: unpacking a tile then
/// costs a hundredth of multiplying it.
const BATCH_ROWS: usize = 512;
/// Rows of smaller calls, which take less room on the stack.
const FEW_ROWS: usize = 8;
const SOME_ROWS: usize = 64;
/// Bytes of those rows: they stay in a second-level cache while tiles pass.
const BATCH_BYTES: usize = 512 * 1024;
/// Rows in a batch are a multiple of this, the most that a kernel takes at once.
const ROUND_ROWS: usize = 16;
/// Weight bytes times rows taken at once: memory delivers long runs fastest, and yet a descheduled thread
/// should hold up little.
const PIECE_BYTES: usize = 128 * 1024;
/// Tiles taken at once where many rows meet them, so that finding the rows costs little.
const MIN_TILES: usize = 8;
/// Weight bytes times rows below which a job is not worth sharing: some microseconds of work.
const WORTH_SHARING: usize = 32 * 1024;

/// Which rows of the activations a job takes, in which order.
#[derive(Clone, Copy)]
pub enum Selection<'a> {
    /// `count` rows from `first`.
    Run {
        first: usize,
        count: usize,
    },
    Listed(&'a [u32]),
}

impl Selection<'_> {
    fn count(&self) -> usize {
        match self {
            Selection::Run { count, .. } => *count,
            Selection::Listed(rows) => rows.len(),
        }
    }

    fn row(&self, index: usize) -> usize {
        match self {
            Selection::Run { first, .. } => first + index,
            Selection::Listed(rows) => rows[index] as usize,
        }
    }
}

/// One matrix, the activation rows it meets and where the products go: `out[i * out_stride + r]` for weight
/// row `r` and the `i`th selected activation row.
pub struct Job<'a> {
    pub weights: Matrix<'a>,
    pub rows: Selection<'a>,
    pub out: &'a mut [f32],
    pub out_stride: usize,
}

/// Multiplies the selected rows of `x` with every job's weights. All jobs must have `x.cols()` columns and a
/// type whose activation format `x` holds.
pub fn matmul(pool: &Pool, x: &Activations, jobs: &mut [Job<'_>]) {
    jobs.iter().for_each(|job| check(job, x));
    let total = jobs.iter().map(|job| tiles_of(job.weights, job.rows)).sum();
    let work = jobs.iter().map(|job| job.weights.bytes.len() * job.rows.count()).sum();
    let jobs = SharedJobs { first: jobs.as_mut_ptr(), count: jobs.len(), jobs: PhantomData };
    let piece = piece_tiles(total, work, pool.threads());
    pool.weighed_ranges(total, piece, work, |_, tiles| {
        let mut first = 0;
        for index in 0..jobs.count {
            let target = jobs.target(index);
            let count = tiles_of(target.weights, target.rows);
            let (start, end) = (tiles.start.max(first), tiles.end.min(first + count));
            if start < end {
                let kernel = kernel(pool.isa(), target.weights.kind);
                let weight_rows =
                    (start - first) * TILE_ROWS..target.weights.rows.min((end - first) * TILE_ROWS);
                let multiply = match target.rows.count() {
                    rows if rows <= FEW_ROWS => multiply::<FEW_ROWS>,
                    rows if rows <= SOME_ROWS => multiply::<SOME_ROWS>,
                    _ => multiply::<BATCH_ROWS>,
                };
                // SAFETY: `ranges` hands out every tile once, so nobody else writes these outputs, and
                // `check` has shown that they lie inside `out`.
                unsafe { multiply(kernel, x, &target, weight_rows) };
            }
            first += count;
        }
    });
}

fn tiles_of(weights: Matrix<'_>, rows: Selection<'_>) -> usize {
    if rows.count() == 0 { 0 } else { weights.rows.div_ceil(TILE_ROWS) }
}

/// Tiles to take at once: some pieces for each thread, none tiny. `work` is weight bytes times rows.
fn piece_tiles(tiles: usize, work: usize, threads: usize) -> usize {
    if work < WORTH_SHARING {
        return tiles.max(1);
    }
    let enough = PIECE_BYTES / (work / tiles).max(1);
    enough.max(MIN_TILES).min(tiles.div_ceil(threads * 4)).max(1)
}

/// The jobs as all threads see them: weights to read, and outputs of which each writes its own.
struct SharedJobs<'a, 'b> {
    first: *mut Job<'b>,
    count: usize,
    jobs: PhantomData<&'a mut [Job<'b>]>,
}

// SAFETY: the jobs are only read, and outputs are written at places that no other thread writes.
unsafe impl Sync for SharedJobs<'_, '_> {}

struct Target<'a> {
    weights: Matrix<'a>,
    rows: Selection<'a>,
    out: *mut f32,
    out_stride: usize,
}

impl<'b> SharedJobs<'_, 'b> {
    fn target(&self, index: usize) -> Target<'b> {
        assert!(index < self.count);
        // SAFETY: `first` points at `count` jobs, borrowed mutably for our lifetime and only read here. The
        // output slice is read as a raw one (of the same layout), so no two references to it coexist.
        unsafe {
            let job = self.first.add(index);
            let out = (&raw const (*job).out).cast::<*mut [f32]>().read();
            let (weights, rows) = ((*job).weights, (*job).rows);
            Target { weights, rows, out: out.cast(), out_stride: (*job).out_stride }
        }
    }
}

/// Rows of `cols` activations that meet a tile in one go: equal shares of `rows`.
fn batch_rows(rows: usize, cols: usize, format: ActivationFormat) -> usize {
    let bytes = cols * if format == ActivationFormat::F32 { size_of::<f32>() } else { 1 };
    let most = (BATCH_BYTES / bytes).clamp(ROUND_ROWS, BATCH_ROWS) / ROUND_ROWS * ROUND_ROWS;
    rows.div_ceil(rows.div_ceil(most)).next_multiple_of(ROUND_ROWS)
}

/// Multiplies `weight_rows` of one job with all selected rows, at most `ROWS` of them at a time: few, so that
/// a call for few rows touches little memory of its own.
///
/// # Safety
/// `out[i * out_stride + r]` must be valid for all of them, and nobody else may touch it.
unsafe fn multiply<const ROWS: usize>(
    kernel: Kernel,
    x: &Activations,
    target: &Target<'_>,
    weight_rows: Range<usize>,
) {
    let mut batch_x = [Row::default(); ROWS];
    let mut products = [[[0.0f32; TILE_ROWS]; ROWS]; TILES];
    let row_bytes = target.weights.row_bytes();
    let format = activation_format(target.weights.kind).expect("checked");
    let rows = target.rows.count();
    let batch_rows = batch_rows(rows, x.cols(), format).min(ROWS);
    for batch in (0..rows).step_by(batch_rows) {
        let batch_x = &mut batch_x[..batch_rows.min(rows - batch)];
        for (row, x_row) in (batch..).zip(batch_x.iter_mut()) {
            *x_row = x.row(format, target.rows.row(row));
        }
        for start in weight_rows.clone().step_by(TILES * TILE_ROWS) {
            let end = weight_rows.end.min(start + TILES * TILE_ROWS);
            let tiles = WeightRows { bytes: target.weights.row_range(start, end), row_bytes };
            let products = &mut products.as_flattened_mut()[..TILES * batch_x.len()];
            kernel(&tiles, batch_x, products);
            for (index, row) in (batch..batch + batch_x.len()).enumerate() {
                let place = row * target.out_stride + start;
                // SAFETY: by our contract.
                let out = unsafe { std::slice::from_raw_parts_mut(target.out.add(place), end - start) };
                for (out, products) in out.chunks_mut(TILE_ROWS).zip(products.chunks(batch_x.len())) {
                    // A copy of known length is one instruction.
                    match out.first_chunk_mut() {
                        Some(whole) => *whole = products[index],
                        None => out.copy_from_slice(&products[index][..out.len()]),
                    }
                }
            }
        }
    }
}

fn check(job: &Job<'_>, x: &Activations) {
    let rows = job.rows.count();
    if let Some(bad) = (0..rows).map(|index| job.rows.row(index)).find(|row| *row >= x.rows()) {
        panic!("row {bad} selected of {}", x.rows());
    }
    let Matrix { kind, rows: outputs, cols, bytes } = job.weights;
    let format = activation_format(kind);
    assert!(
        format.is_some_and(|format| x.holds(format)),
        "activations for {kind} weights were not quantised"
    );
    assert!(cols == x.cols(), "{cols} columns of weights, {} of activations", x.cols());
    assert!(
        bytes.len() == outputs * job.weights.row_bytes(),
        "{} bytes of {outputs} x {cols} {kind}",
        bytes.len()
    );
    let stride = job.out_stride;
    assert!(rows <= 1 || stride >= outputs, "rows of {outputs} outputs, {stride} apart");
    // Unsafe code counts on this: a product that wraps around must not pass.
    let needed = rows.saturating_sub(1).checked_mul(stride).and_then(|last| last.checked_add(outputs));
    assert!(
        rows == 0 || needed.is_some_and(|needed| job.out.len() >= needed),
        "{rows} rows of {outputs} outputs, {stride} apart, into {}",
        job.out.len()
    );
}
