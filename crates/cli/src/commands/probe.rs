//! `adit probe PATH`: how a disk is read best, measured and remembered. A file is only read; in a folder a
//! file of random bytes is written, measured and removed.

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use adit_format::rng::Rng;
use adit_model::IoKind;
use adit_pager::probe::{self, Effort, Probe};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::interrupt;
use crate::output::Output;
use crate::probes::{Known, Measured, mode, size};
use crate::progress::{Progress, note};
use crate::size::ByteSize;

/// Size of the file that is written into a folder: large enough that a disk's own cache does not flatter it.
const FILE_BYTES: u64 = 1 << 30;
/// The file takes no more than this share of what is free.
const FREE_SHARE: u64 = 4;
/// Smaller files say little.
const FILE_BYTES_MIN: u64 = 64 << 20;
const WRITE_BYTES: usize = 4 << 20;
const WRITE_SECONDS_MAX: u64 = 10;

#[derive(clap::Args)]
pub struct Args {
    /// A file on the disk, such as a model, which is only read; or a folder, in which up to 1 GiB is written
    /// and removed
    path: PathBuf,

    /// Take about 2 s instead of 17: fewer combinations
    #[arg(long)]
    quick: bool,

    /// How to print the results
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub fn run(args: Args) -> Result<()> {
    let metadata = fs::metadata(&args.path);
    let metadata = metadata.with_context(|| format!("cannot probe {}", args.path.display()))?;
    let effort = if args.quick { Effort::quick() } else { Effort::full() };
    interrupt::install()?;
    let probe = interrupt::watched(|| {
        if metadata.is_dir() {
            let file = Temporary::write(&args.path)?;
            return measure(&file.0, &effort);
        }
        if metadata.len() < FILE_BYTES_MIN {
            let size = ByteSize(metadata.len());
            note(&format!("{} has only {size}: the disk's own cache may flatter it", args.path.display()));
        }
        measure(&args.path, &effort)
    })?;
    let known = Known::new(&args.path, &probe)?;
    let kept = known.keep();
    let mut out = Output::stdout();
    match args.output {
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &known)?;
            writeln!(out)?;
        }
        Format::Table => print(&known, &effort, &mut out)?,
    }
    out.flush()?;
    match kept {
        Ok(path) => note(&format!("remembered for this disk in {}", path.display())),
        Err(error) => note(&format!("not remembered: {error:#}")),
    }
    Ok(())
}

fn measure(path: &Path, effort: &Effort) -> Result<Probe> {
    let bar = Progress::counted("measuring", effort.cells() as u64, "combinations");
    let mut progress = |done: usize| {
        bar.set(done as u64);
        if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let probe = probe::measure(path, &IoKind::Auto, effort, &mut progress)?;
    if interrupt::pressed() {
        bail!("interrupted: nothing is remembered of this disk");
    }
    Ok(probe)
}

fn print(known: &Known, effort: &Effort, out: &mut Output) -> std::io::Result<()> {
    for direct in [true, false] {
        if !known.cells.iter().any(|cell| cell.direct == direct) {
            let why = if direct { "this file system has no direct reads" } else { "not measured" };
            writeln!(out, "{}: {why}\n", mode(direct))?;
            continue;
        }
        write!(out, "{}, random reads with {}: GB/s\n{:<10}", mode(direct), known.backend, "in flight")?;
        effort.depths.iter().try_for_each(|depth| write!(out, "{depth:>15}"))?;
        for &read_bytes in &effort.read_bytes {
            write!(out, "\n{:<10}", size(read_bytes))?;
            for &depth in &effort.depths {
                let cell = |cell: &&_| is(cell, direct, read_bytes, depth);
                match known.cells.iter().find(cell) {
                    Some(cell) => write!(out, "{:>15.2}", cell.bytes_per_s / 1e9)?,
                    None => write!(out, "{:>15}", "-")?,
                }
            }
        }
        writeln!(out, "\nuntil a read is done, median and 99 % within: ms")?;
        for &read_bytes in &effort.read_bytes {
            write!(out, "{:<10}", size(read_bytes))?;
            for &depth in &effort.depths {
                let cell = |cell: &&_| is(cell, direct, read_bytes, depth);
                let text = known
                    .cells
                    .iter()
                    .find(cell)
                    .map(|cell| format!("{:.2} {:.2}", cell.median_us / 1e3, cell.p99_us / 1e3));
                write!(out, "{:>15}", text.as_deref().unwrap_or("-"))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "choice: {known}")
}

fn is(cell: &Measured, direct: bool, read_bytes: u64, depth: usize) -> bool {
    (cell.direct, cell.read_bytes, cell.depth) == (direct, read_bytes, depth)
}

/// A file of random bytes that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn write(folder: &Path) -> Result<Temporary> {
        let affordable = probe::free_bytes(folder).map_or(FILE_BYTES, |free| free / FREE_SHARE);
        let bytes = FILE_BYTES.min(affordable) / WRITE_BYTES as u64 * WRITE_BYTES as u64;
        if bytes < FILE_BYTES_MIN {
            let needed = ByteSize(FILE_BYTES_MIN * FREE_SHARE);
            bail!("{}: a probe needs {needed} free; give a file on that disk instead", folder.display());
        }
        let path = folder.join(format!("adit-probe.{}.new", std::process::id()));
        let failed = || format!("cannot write {}", path.display());
        let mut file = File::create_new(&path).with_context(failed)?;
        let temporary = Temporary(path.clone());
        let bar = Progress::bytes("writing a file to read", Some(bytes));
        let mut random = Rng::new(bytes);
        let start = Instant::now();
        let mut block = vec![0; WRITE_BYTES];
        for done in (0..bytes).step_by(WRITE_BYTES) {
            // No two blocks are alike, in case the disk looks for that.
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&random.u64().to_le_bytes());
            }
            file.write_all(&block).with_context(failed)?;
            bar.set(done);
            // A slow disk is measured on what there is by then.
            let enough = start.elapsed().as_secs() >= WRITE_SECONDS_MAX && done >= FILE_BYTES_MIN;
            if enough || interrupt::pressed() {
                break;
            }
        }
        file.sync_all().with_context(failed)?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            note(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}
