//! Matrix products spread over the pool. Owns how outputs are cut into tiles and who computes which; knows
//! no formats.
//!
//! The unit of work is a run of weight rows of one job, against all selected activation rows: weights are
//! what memory delivers slowly, so each is touched by one thread, once for every [`BATCH_ROWS`] rows.

use std::marker::PhantomData;
use std::ops::Range;

use crate::activations::{Activations, Row, activation_format};
use crate::dot::{Kernel, TILE_ROWS, WeightRows, kernel};
use crate::matrix::Matrix;
use crate::pool::Pool;

/// Activation rows that meet a tile of weights before the next tile is touched.
const BATCH_ROWS: usize = 64;
/// Tiles whose products are written together: whole cache lines of the output.
const TILES: usize = 2;
/// Weight bytes times rows taken at once: memory delivers long runs fastest, and yet a descheduled thread
/// should hold up little.
const PIECE_BYTES: usize = 128 * 1024;
/// Tiles taken at once where many rows meet them, so that finding the rows costs little.
const MIN_TILES: usize = 8;
/// Weight bytes times rows below which a job is not worth sharing: some microseconds of work.
const WORTH_SHARING: usize = 32 * 1024;

/// One matrix and where its products go: `out[i * out_stride + r]` for weight row `r` and the `i`th selected
/// activation row.
pub struct Job<'a> {
    pub weights: Matrix<'a>,
    pub out: &'a mut [f32],
    pub out_stride: usize,
}

/// Multiplies the rows of `x`, or those that `select` names in its order, with every job's weights. All jobs
/// must have `x.cols()` columns and a type whose activation format `x` holds.
pub fn matmul(pool: &Pool, x: &Activations, select: Option<&[u32]>, jobs: &mut [Job<'_>]) {
    let rows = select.map_or(x.rows(), <[u32]>::len);
    if let Some(bad) = select.and_then(|ids| ids.iter().find(|id| **id as usize >= x.rows())) {
        panic!("row {bad} selected of {}", x.rows());
    }
    jobs.iter().for_each(|job| check(job, x, rows));
    if rows == 0 {
        return;
    }
    let total = jobs.iter().map(tiles_of).sum();
    let bytes: usize = jobs.iter().map(|job| job.weights.bytes.len()).sum();
    let jobs = SharedJobs { first: jobs.as_mut_ptr(), count: jobs.len(), jobs: PhantomData };
    let piece = piece_tiles(total, bytes, rows, pool.threads());
    pool.weighed_ranges(total, piece, bytes * rows, |_, tiles| {
        let mut first = 0;
        for index in 0..jobs.count {
            let target = jobs.target(index);
            let count = target.weights.rows.div_ceil(TILE_ROWS);
            let (start, end) = (tiles.start.max(first), tiles.end.min(first + count));
            if start < end {
                let kernel = kernel(pool.isa(), target.weights.kind);
                let weight_rows =
                    (start - first) * TILE_ROWS..target.weights.rows.min((end - first) * TILE_ROWS);
                // SAFETY: `ranges` hands out every tile once, so nobody else writes these outputs, and
                // `check` has shown that they lie inside `out`.
                unsafe { multiply(kernel, x, select, rows, &target, weight_rows) };
            }
            first += count;
        }
    });
}

fn tiles_of(job: &Job<'_>) -> usize {
    job.weights.rows.div_ceil(TILE_ROWS)
}

/// Tiles to take at once: some pieces for each thread, none tiny.
fn piece_tiles(tiles: usize, bytes: usize, rows: usize, threads: usize) -> usize {
    if bytes * rows < WORTH_SHARING {
        return tiles.max(1);
    }
    let tile_bytes = (bytes / tiles.max(1)).max(1);
    let enough = PIECE_BYTES / (tile_bytes * rows.min(BATCH_ROWS));
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
            Target { weights: (*job).weights, out: out.cast(), out_stride: (*job).out_stride }
        }
    }
}

/// Multiplies `weight_rows` of one job with all selected rows.
///
/// # Safety
/// `out[i * out_stride + r]` must be valid for all of them, and nobody else may touch it.
unsafe fn multiply(
    kernel: Kernel,
    x: &Activations,
    select: Option<&[u32]>,
    rows: usize,
    target: &Target<'_>,
    weight_rows: Range<usize>,
) {
    let mut batch_x = [Row::default(); BATCH_ROWS];
    let mut products = [[[0.0f32; TILE_ROWS]; BATCH_ROWS]; TILES];
    let row_bytes = target.weights.row_bytes();
    let format = activation_format(target.weights.kind).expect("checked");
    for batch in (0..rows).step_by(BATCH_ROWS) {
        let batch_x = &mut batch_x[..BATCH_ROWS.min(rows - batch)];
        for (row, x_row) in (batch..).zip(batch_x.iter_mut()) {
            *x_row = x.row(format, select.map_or(row, |ids| ids[row] as usize));
        }
        for start in weight_rows.clone().step_by(TILES * TILE_ROWS) {
            let end = weight_rows.end.min(start + TILES * TILE_ROWS);
            for (first, products) in (start..end).step_by(TILE_ROWS).zip(&mut products) {
                let bytes = target.weights.row_range(first, end.min(first + TILE_ROWS));
                kernel(&WeightRows { bytes, row_bytes }, batch_x, &mut products[..batch_x.len()]);
            }
            for index in 0..batch_x.len() {
                let place = (batch + index) * target.out_stride + start;
                // SAFETY: by our contract.
                let out = unsafe { std::slice::from_raw_parts_mut(target.out.add(place), end - start) };
                for (out, products) in out.chunks_mut(TILE_ROWS).zip(&products) {
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

fn check(job: &Job<'_>, x: &Activations, rows: usize) {
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
    assert!(rows <= 1 || job.out_stride >= outputs, "rows of {outputs} outputs, {} apart", job.out_stride);
    let needed = if rows == 0 { 0 } else { (rows - 1) * job.out_stride + outputs };
    assert!(job.out.len() >= needed, "{needed} outputs into {}", job.out.len());
}
