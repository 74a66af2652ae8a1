//! What a disk gives: bandwidth and latency of random reads over read size and depth, past the page cache and
//! through it, measured with the backends that the engine uses; and the choice that follows. Must not know
//! what lies in the file, nor where results are kept.

use crate::{
    DiskChoice, FileSet, IoKind, IoOptions, PagerError,
    disk::{Disk, Need},
    fetch::Fetch,
    layout::{Extent, Piece, align_down},
    slot::State,
};
use std::{
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Powers of two from 64 KiB to 4 MiB, the longest last.
    pub read_bytes: Vec<u64>,
    /// Reads in flight, at most 32.
    pub depths: Vec<usize>,
    /// The same through the page cache, of which the file is dropped before.
    pub buffered: bool,
    /// Time for each combination.
    pub each: Duration,
    /// No combination is begun after this: what a slow disk did not come to is left out.
    pub limit: Duration,
}

impl Effort {
    /// About 17 s: every combination.
    pub fn full() -> Effort {
        Effort {
            read_bytes: (16..=22).map(|shift| 1 << shift).collect(),
            depths: vec![1, 2, 4, 8, 16, 32],
            buffered: true,
            each: Duration::from_millis(200),
            limit: Duration::from_millis(19_500),
        }
    }

    /// About 2 s.
    pub fn quick() -> Effort {
        Effort {
            read_bytes: vec![256 << 10, 1 << 20, 4 << 20],
            depths: vec![4, 16],
            buffered: true,
            each: Duration::from_millis(150),
            limit: Duration::from_secs(3),
        }
    }

    /// How many combinations there are.
    pub fn cells(&self) -> usize {
        let modes = if self.buffered { 2 } else { 1 };
        modes * self.read_bytes.len() * self.depths.len()
    }
}

/// One combination, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Past the page cache, or through it.
    pub direct: bool,
    pub read_bytes: u64,
    /// Reads in flight.
    pub depth: usize,
    pub bytes_per_s: f64,
    /// From the request for a read until its bytes can be used, in microseconds.
    pub median_us: f64,
    pub p99_us: f64,
}

/// What a disk gives.
#[derive(Clone, Debug)]
pub struct Probe {
    pub cells: Vec<Cell>,
    pub choice: DiskChoice,
    /// Bytes a second at the choice.
    pub bytes_per_s: f64,
    /// What read, for reports.
    pub backend: &'static str,
}

/// Measures the disk that a file lies on, in about 2 s: for a comparison in the same run.
pub fn quick(path: &Path) -> Result<Probe, PagerError> {
    measure(path, &IoKind::Auto, &Effort::quick(), &mut |_| ControlFlow::Continue(()))
}

/// Measures the disk that a file lies on; only reads it. `progress` is told how many combinations are done,
/// and may end it there: then the choice is made from those.
/// The file should be of 1 GiB or more: on a smaller one the same places are read again.
pub fn measure(
    path: &Path,
    io: &IoKind,
    effort: &Effort,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Probe, PagerError> {
    let end = Instant::now() + effort.limit;
    let mut progress =
        |done: usize| if Instant::now() < end { progress(done) } else { ControlFlow::Break(()) };
    let mut cells = Vec::new();
    let mut backend = "";
    for direct in [true, false] {
        let depth = effort.depths.iter().copied().max().unwrap_or(1);
        let choice =
            DiskChoice { read_bytes: DiskChoice::READ_BYTES_MAX, depth, flight_bytes: u64::MAX, direct };
        let options = IoOptions { choice, direct: Some(direct), ..io.into() };
        let files = FileSet::open(&[path.to_path_buf()], options)?;
        if direct == files.is_direct() && (direct || effort.buffered || cells.is_empty()) {
            backend = files.backend();
            if Bench::new(files, effort)?.run(effort, &mut cells, &mut progress)?.is_break() {
                break;
            }
        }
    }
    let (choice, bytes_per_s) = choose(&cells);
    Ok(Probe { cells, choice, bytes_per_s, backend })
}

/// Bandwidth within this share of the best is as good.
const GOOD_ENOUGH: f64 = 0.95;
/// The page cache takes memory and processor time: it must be this much faster to be used.
const BUFFERED_GAIN: f64 = 1.1;
/// Parts of an expert are seldom shorter.
const PART_BYTES_MIN: u64 = 256 << 10;
/// A measured minute is no better than this: fewer reads in flight are never chosen.
const DEPTH_MIN: usize = 4;

/// As few bytes in flight leave the disk idle while a thread wakes up.
const FLIGHT_BYTES_MIN: u64 = 2 << 20;

/// The longest reads that cost no bandwidth, since they cost the least processor time; the fewest in flight
/// at which reads of that size and shorter ones, down to the parts of an expert, are about as fast as they
/// become; and the fewest bytes in flight that are about as fast as any: more would only make a demand wait
/// behind them.
fn choose(cells: &[Cell]) -> (DiskChoice, f64) {
    let best = |direct: bool, read_bytes: Option<u64>| {
        let of_kind = cells.iter().filter(|cell| cell.direct == direct);
        let of_size = of_kind.filter(|cell| read_bytes.is_none_or(|bytes| bytes == cell.read_bytes));
        of_size.map(|cell| cell.bytes_per_s).fold(0.0, f64::max)
    };
    let direct = best(true, None) > 0.0 && best(false, None) < BUFFERED_GAIN * best(true, None);
    let own = || cells.iter().filter(|cell| cell.direct == direct);
    let sizes = own().filter(|cell| cell.bytes_per_s >= GOOD_ENOUGH * best(direct, None));
    let Some(read_bytes) = sizes.map(|cell| cell.read_bytes).max() else {
        return (DiskChoice::default(), 0.0);
    };
    let good = |cell: &&Cell| cell.bytes_per_s >= GOOD_ENOUGH * best(direct, Some(cell.read_bytes));
    let fewest =
        |bytes: u64| own().filter(|cell| cell.read_bytes == bytes).filter(good).map(|c| c.depth).min();
    let parts = own().map(|cell| cell.read_bytes);
    let parts = parts.filter(|&bytes| bytes == read_bytes || (PART_BYTES_MIN..read_bytes).contains(&bytes));
    let depth = parts.filter_map(fewest).max().unwrap_or(DEPTH_MIN).max(DEPTH_MIN);
    let in_flight = own().filter(|cell| cell.bytes_per_s >= GOOD_ENOUGH * best(direct, None));
    let in_flight = in_flight.map(|cell| cell.read_bytes * cell.depth as u64);
    let flight_bytes = in_flight.min().unwrap_or(FLIGHT_BYTES_MIN).max(FLIGHT_BYTES_MIN);
    (DiskChoice { read_bytes, depth, flight_bytes, direct }, best(direct, Some(read_bytes)))
}

/// What is free for an ordinary user on the disk of a folder, in bytes, where the system tells.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(folder).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// One open file, with memory for the most and longest reads.
struct Bench {
    files: FileSet,
    disk: Disk,
    /// When the read of each slot was asked for.
    begun: Vec<Instant>,
    latencies_us: Vec<f64>,
    /// Which of the file's places are read next.
    turn: u64,
}

impl Bench {
    fn new(files: FileSet, effort: &Effort) -> Result<Bench, PagerError> {
        let slots = effort.depths.iter().copied().max().unwrap_or(1);
        let bytes = effort.read_bytes.iter().copied().max().unwrap_or(files.align()) as usize;
        let disk = Disk::new(&files, slots * bytes, bytes, 1)?;
        Ok(Bench { files, disk, begun: vec![Instant::now(); slots], latencies_us: Vec::new(), turn: 0 })
    }

    fn run(
        &mut self,
        effort: &Effort,
        cells: &mut Vec<Cell>,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PagerError> {
        // The first reads meet a disk that slept and memory that was never touched.
        let longest = effort.read_bytes.iter().copied().max().unwrap_or(0);
        self.cell(self.begun.len(), longest, effort.each)?;
        for &read_bytes in &effort.read_bytes {
            for &depth in &effort.depths {
                if read_bytes <= self.files.file_bytes(0) {
                    cells.push(self.cell(depth, read_bytes, effort.each)?);
                }
                if progress(cells.len()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        if cells.is_empty() {
            let needed = effort.read_bytes.iter().copied().min().unwrap_or(1);
            self.files.check(Extent { file: 0, offset: 0, bytes: needed })?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Keeps `depth` reads in flight for as long as `time`.
    fn cell(&mut self, depth: usize, read_bytes: u64, time: Duration) -> Result<Cell, PagerError> {
        let direct = self.files.is_direct();
        self.files.forget_cached();
        self.latencies_us.clear();
        let start = Instant::now();
        let mut elapsed = Duration::ZERO;
        loop {
            let seen = self.disk.now();
            let mut under_way = 0;
            for slot in 0..depth {
                if self.ended(slot)? {
                    self.latencies_us.push(self.begun[slot].elapsed().as_secs_f64() * 1e6);
                    elapsed = start.elapsed();
                }
                if elapsed < time && self.disk.state(slot) == State::Empty {
                    self.begin(slot, read_bytes);
                }
                under_way += usize::from(self.disk.state(slot) != State::Empty);
            }
            if under_way == 0 {
                break;
            }
            self.disk.submit();
            self.disk.wait(seen)?;
        }
        self.latencies_us.sort_by(f64::total_cmp);
        let reads = self.latencies_us.len();
        let quantile = |share: f64| self.latencies_us[((reads - 1) as f64 * share).round() as usize];
        Ok(Cell {
            direct,
            read_bytes,
            depth,
            bytes_per_s: (reads as u64 * read_bytes) as f64 / elapsed.as_secs_f64(),
            median_us: quantile(0.5),
            p99_us: quantile(0.99),
        })
    }

    /// Whether the read of this slot has ended; then the slot is empty again.
    fn ended(&self, slot: usize) -> Result<bool, PagerError> {
        match self.disk.state(slot) {
            State::Ready { .. } => Ok(self.disk.evict(slot)),
            State::Failed => Err(self.disk.take_failure(slot)),
            State::Loading | State::Empty => Ok(false),
        }
    }

    /// Asks for another place of the file. All places come before one comes again.
    fn begin(&mut self, slot: usize, read_bytes: u64) {
        let places = (self.files.file_bytes(0) / read_bytes).max(1);
        // A step near the golden section, prime to the number of places, wanders over the whole file.
        let mut step = (places as f64 * 0.618) as u64 | 1;
        while greatest_common_divisor(step, places) != 1 {
            step += 2;
        }
        self.turn += 1;
        if !self.files.is_direct() && self.turn.is_multiple_of(places) {
            self.files.forget_cached();
        }
        let offset = align_down((self.turn * step) % places * read_bytes, self.files.align());
        let bytes = read_bytes.max(self.files.align());
        let wanted = bytes.min(self.files.file_bytes(0) - offset);
        self.begun[slot] = Instant::now();
        let piece = Piece { offset, at: 0, bytes, wanted };
        self.disk.load(slot, 1, std::iter::once(Fetch { file: 0, piece }), Need::Asked(0));
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cell(direct: bool, read_bytes: u64, depth: usize, gb_per_s: f64) -> Cell {
        Cell { direct, read_bytes, depth, bytes_per_s: gb_per_s * 1e9, median_us: 1.0, p99_us: 2.0 }
    }

    #[test]
    fn the_longest_reads_and_the_fewest_in_flight_that_cost_no_bandwidth_are_chosen() {
        let cells = [
            cell(true, 64 << 10, 4, 0.3),
            cell(true, 64 << 10, 32, 1.5),
            cell(true, 1 << 20, 4, 1.2),
            cell(true, 1 << 20, 8, 1.98),
            cell(true, 1 << 20, 32, 2.0),
            cell(true, 4 << 20, 4, 1.7),
            cell(true, 4 << 20, 32, 1.8),
            cell(false, 1 << 20, 8, 2.1),
        ];
        let (choice, bytes_per_s) = choose(&cells);
        assert_eq!(choice, DiskChoice { read_bytes: 1 << 20, depth: 8, flight_bytes: 8 << 20, direct: true });
        assert_eq!(bytes_per_s, 2.0e9);
    }

    #[test]
    fn the_page_cache_is_used_where_it_is_clearly_faster_or_nothing_else_works() {
        let buffered = cell(false, 1 << 20, 16, 1.5);
        for cells in [&[cell(true, 1 << 20, 16, 1.0), buffered][..], &[buffered]] {
            let (choice, _) = choose(cells);
            assert_eq!(
                choice,
                DiskChoice { read_bytes: 1 << 20, depth: 16, flight_bytes: 16 << 20, direct: false }
            );
        }
        assert_eq!(choose(&[]).0, DiskChoice::default());
    }
}
