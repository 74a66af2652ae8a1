//! How the measured products are printed: a line for each as it comes, one JSON object, or a table for a
//! page of documentation. Owns the sums that turn seconds into shares of a roof; measures nothing.

use std::io::{self, Write};

use adit_format::TensorType;
use adit_kernels::Isa;
use anyhow::Result;
use serde::Serialize;

use super::Format;
use super::kernels::Shape;
use crate::output::Output;
use crate::size::ByteSize;

/// What memory and arithmetic do at best.
#[derive(Clone, Copy)]
pub struct Roofs {
    pub bytes_per_s: f64,
    pub ops_per_s: f64,
}

/// Products of one kind. A share is of 1; `bound` is the roof that is the lower one at this intensity, and
/// `bound_share` how much of it was reached.
#[derive(Serialize)]
pub struct Line {
    isa: &'static str,
    format: &'static str,
    bits_per_weight: f64,
    weight_rows: usize,
    cols: usize,
    rows: usize,
    seconds: f64,
    weight_bytes: usize,
    ops: f64,
    gb_per_s: f64,
    memory_gb_per_s: f64,
    memory_share: f64,
    gop_per_s: f64,
    peak_gop_per_s: f64,
    peak_share: f64,
    bound: Bound,
    bound_share: f64,
}

#[derive(Clone, Copy, Serialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Bound {
    Memory,
    Integers,
    Floats,
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Bound::Memory => "memory",
            Bound::Integers => "integers",
            Bound::Floats => "floats",
        }
    }
}

impl Line {
    /// `seconds` is the time of one product with `rows` rows of activations.
    pub fn new(isa: Isa, kind: TensorType, shape: Shape, rows: usize, seconds: f64, roofs: Roofs) -> Line {
        let weight_bytes = kind.row_bytes(shape.cols).expect("whole blocks") * shape.rows;
        let ops = 2.0 * (shape.rows * shape.cols * rows) as f64;
        let memory_share = weight_bytes as f64 / seconds / roofs.bytes_per_s;
        let peak_share = ops / seconds / roofs.ops_per_s;
        let arithmetic = if kind.is_quantised() { Bound::Integers } else { Bound::Floats };
        // The roof that a faster kernel would meet first.
        let bound = if memory_share >= peak_share { Bound::Memory } else { arithmetic };
        Line {
            isa: isa.name(),
            format: kind.name(),
            bits_per_weight: kind.block_bytes() as f64 * 8.0 / kind.block_len() as f64,
            weight_rows: shape.rows,
            cols: shape.cols,
            rows,
            seconds,
            weight_bytes,
            ops,
            gb_per_s: weight_bytes as f64 / seconds / 1e9,
            memory_gb_per_s: roofs.bytes_per_s / 1e9,
            memory_share,
            gop_per_s: ops / seconds / 1e9,
            peak_gop_per_s: roofs.ops_per_s / 1e9,
            peak_share,
            bound,
            bound_share: memory_share.max(peak_share),
        }
    }

    fn shape(&self) -> Shape {
        Shape { rows: self.weight_rows, cols: self.cols }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let of = |share: f64, roof: f64| format!("{:.0} % of {roof:.*}", share * 100.0, digits(roof));
        writeln!(
            out,
            "| {:6} | {:6} | {:>10} | {:>4} | {:>6.1} | {:>13} | {:>6.*} | {:>13} | {:8} | {:>3.0} % |",
            self.isa,
            self.format,
            self.shape(),
            self.rows,
            self.gb_per_s,
            of(self.memory_share, self.memory_gb_per_s),
            digits(self.gop_per_s),
            self.gop_per_s,
            of(self.peak_share, self.peak_gop_per_s),
            self.bound.name(),
            self.bound_share * 100.0
        )
    }

    /// The figure that the binding roof is about.
    fn cell(&self) -> String {
        let share = self.bound_share * 100.0;
        match self.bound {
            Bound::Memory => format!("{:.1} GB/s, {share:.0} %", self.gb_per_s),
            Bound::Integers | Bound::Floats => format!("{:.0} Gop/s, {share:.0} %", self.gop_per_s),
        }
    }
}

/// One decimal for small numbers.
fn digits(value: f64) -> usize {
    if value < 100.0 { 1 } else { 0 }
}

/// All of a run. As JSON: these fields, and in `results` a [`Line`] for each kind of product.
#[derive(Serialize)]
pub struct Report {
    #[serde(skip)]
    output: Format,
    #[serde(skip)]
    columns: Vec<u32>,
    version: &'static str,
    machine: String,
    threads: usize,
    repetitions: u32,
    /// How much memory the weights of consecutive products are spread over.
    walk_bytes: usize,
    results: Vec<Line>,
}

impl Report {
    pub fn new(
        output: Format,
        threads: usize,
        repetitions: u32,
        walk_bytes: usize,
        columns: &[u32],
    ) -> Report {
        Report {
            output,
            columns: columns.to_vec(),
            version: env!("CARGO_PKG_VERSION"),
            machine: machine(),
            threads,
            repetitions,
            walk_bytes,
            results: Vec::new(),
        }
    }

    /// What stands above the lines.
    pub fn begin(&self, out: &mut Output) -> Result<()> {
        if self.output == Format::Table {
            self.print_conditions(out)?;
            writeln!(
                out,
                "| {:6} | {:6} | {:>10} | {:>4} | {:>6} | {:>13} | {:>6} | {:>13} | {:8} | {:5} |",
                "isa",
                "format",
                "weights",
                "rows",
                "GB/s",
                "of memory",
                "Gop/s",
                "of peak",
                "bound by",
                "is at"
            )?;
            let cells = [6, 6, -10, -4, -6, -13, -6, -13, 8, -5];
            writeln!(out, "|{}|", cells.map(ruler).join("|"))?;
        }
        Ok(out.flush()?)
    }

    pub fn add(&mut self, out: &mut Output, line: Line) -> Result<()> {
        if self.output == Format::Table {
            line.print(out)?;
            out.flush()?;
        }
        self.results.push(line);
        Ok(())
    }

    pub fn end(&self, out: &mut Output) -> Result<()> {
        match self.output {
            Format::Table => {}
            Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(self)?)?,
            Format::Markdown => self.print_markdown(out)?,
        }
        Ok(out.flush()?)
    }

    fn print_conditions(&self, out: &mut Output) -> io::Result<()> {
        let Report { version, machine, threads, repetitions, .. } = self;
        let walk = ByteSize(self.walk_bytes as u64);
        writeln!(
            out,
            "adit {version} on {machine}, {threads} threads; weights from {walk} of memory; medians of \
             {repetitions} repetitions\n"
        )
    }

    /// A row for each instruction set, format and shape; a column for each number of rows, of which the
    /// cell gives the figure that the binding roof is about.
    fn print_markdown(&self, out: &mut Output) -> io::Result<()> {
        self.print_conditions(out)?;
        let plural = |rows: &u32| if *rows == 1 { "1 row".into() } else { format!("{rows} rows") };
        let titles = self.columns.iter().map(plural).collect::<Vec<_>>();
        writeln!(out, "| format | bits | weights | isa | {} |", titles.join(" | "))?;
        writeln!(out, "| --- | ---: | ---: | --- |{}", " ---: |".repeat(titles.len()))?;
        for lines in self.results.chunks(titles.len()) {
            let Line { format, bits_per_weight, isa, .. } = &lines[0];
            let cells = lines.iter().map(Line::cell).collect::<Vec<_>>().join(" | ");
            writeln!(out, "| {format} | {bits_per_weight} | {} | {isa} | {cells} |", lines[0].shape())?;
        }
        self.print_roofs(out)
    }

    /// The roofs that the shares are of: they were measured again all along.
    fn print_roofs(&self, out: &mut Output) -> io::Result<()> {
        let mut isas: Vec<&str> = self.results.iter().map(|line| line.isa).collect();
        isas.dedup();
        for isa in isas {
            let lines = || self.results.iter().filter(|line| line.isa == isa);
            let floats = |line: &&Line| line.bits_per_weight >= 16.0;
            let roofs = [
                span("memory", "GB/s", lines().map(|line| line.memory_gb_per_s)),
                span("integers", "Gop/s", lines().filter(|l| !floats(l)).map(|line| line.peak_gop_per_s)),
                span("floats", "Gop/s", lines().filter(floats).map(|line| line.peak_gop_per_s)),
            ];
            let roofs = roofs.into_iter().flatten().collect::<Vec<_>>().join(", ");
            writeln!(out, "\n{isa}: {roofs}")?;
        }
        Ok(())
    }
}

/// `memory 40 to 43 GB/s`; nothing where there are no values.
fn span(name: &str, unit: &str, values: impl Iterator<Item = f64>) -> Option<String> {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    (high > 0.0).then(|| format!("{name} {low:.0} to {high:.0} {unit}"))
}

/// The rule under a title; a negative width is that of a column of numbers.
fn ruler(width: i32) -> String {
    let dashes = "-".repeat(width.unsigned_abs() as usize + 1);
    if width < 0 { format!("{dashes}:") } else { format!("{dashes}-") }
}

/// The processor's name where the system tells it, else its kind.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rows: usize, seconds: f64) -> Line {
        let roofs = Roofs { bytes_per_s: 40e9, ops_per_s: 2e12 };
        Line::new(Isa::Scalar, TensorType::Q8_0, Shape { rows: 1000, cols: 3200 }, rows, seconds, roofs)
    }

    #[test]
    fn the_lower_roof_binds() {
        // 3.4 MB and 6.4 Mop for a row: 85 us by memory, 3.2 us by arithmetic.
        let one = line(1, 170e-6);
        assert_eq!((one.bound, one.weight_bytes, one.ops), (Bound::Memory, 3_400_000, 6.4e6));
        assert!((one.bound_share - 0.5).abs() < 1e-9 && (one.gb_per_s - 20.0).abs() < 1e-9);
        // At 100 rows 320 us by arithmetic.
        let many = line(100, 400e-6);
        assert_eq!(many.bound, Bound::Integers);
        assert!((many.bound_share - 0.8).abs() < 1e-9 && (many.gop_per_s - 1600.0).abs() < 1e-6);
    }
}
