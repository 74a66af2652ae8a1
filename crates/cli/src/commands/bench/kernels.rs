//! `adit bench --kernels`: products of every weight format and instruction set, timed alone and held against
//! what the same run finds memory and arithmetic to do at best. Owns what is measured and how; `report` says
//! how it is printed.
//!
//! Counted are bytes of weights, and two operations for each weight and row of activations. Activations are
//! quantised before the clock starts, as a layer quantises them once for several products. Weights come from
//! memory: every product takes the next matrix of a stretch that no cache holds.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use adit_format::TensorType;
use adit_format::synth::random_weights;
use adit_kernels::roofline::{self, Reading};
use adit_kernels::{Activations, Isa, Job, Matrix, Pool, Selection, activation_format, matmul};
use adit_pager::AlignedBuf;
use anyhow::Result;
use clap::value_parser;

use super::report::{Line, Report, Roofs};
use super::{Format, median};
use crate::failure::Usage;
use crate::output::Output;

/// Weights that the products walk through; larger than the caches of most machines.
const WALK_BYTES: usize = 256 << 20;
/// A repetition does as many products as take about so long.
const REPETITION_S: f64 = 0.02;
/// Products before the first repetition; the pool learns meanwhile whether help pays.
const WARM_UP: usize = 3;
/// Pieces of work of the chains that find the peak of arithmetic.
const CHAIN_PIECES: usize = 2048;
/// Random blocks, repeated to fill the stretch.
const PATTERN_BLOCKS: usize = 2003;
const WEIGHTS_MAX: usize = 1 << 31;
/// Most activations and outputs of one product together.
const VALUES_MAX: usize = 1 << 31;

#[derive(clap::Args)]
pub struct KernelArgs {
    /// Instruction sets, like avx2,avx512 [default: the best that this machine has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "model")]
    #[arg(value_parser = Isa::named)]
    isa: Vec<Isa>,

    /// Weight formats, like Q4_0,Q6_K [default: all 16]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = format, conflicts_with = "model")]
    formats: Vec<TensorType>,

    /// Weight matrices as ROWSxCOLUMNS, or the columns alone
    #[arg(long, value_name = "SHAPES", value_delimiter = ',', conflicts_with = "model")]
    #[arg(default_value = "1536x576,8192x2048,14336x4096,2048x7168")]
    shapes: Vec<Shape>,

    /// Rows of activations that meet a matrix
    #[arg(long, value_name = "ROWS", value_delimiter = ',', conflicts_with = "model")]
    #[arg(default_value = "1,4,16,128,512", value_parser = value_parser!(u32).range(1..=65536))]
    rows: Vec<u32>,
}

/// Rows and columns of a weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub cols: usize,
}

impl Shape {
    /// Feed-forward matrices of SmolLM2-135M, Llama 3.2 1B and Llama 3.1 8B, an expert of DeepSeek V3.
    const USUAL: [Shape; 4] = [
        Shape { rows: 1536, cols: 576 },
        Shape { rows: 8192, cols: 2048 },
        Shape { rows: 14336, cols: 4096 },
        Shape { rows: 2048, cols: 7168 },
    ];
}

impl FromStr for Shape {
    type Err = String;

    /// Columns alone are those of a usual shape, or of a square.
    fn from_str(text: &str) -> Result<Shape, String> {
        let wrong = || format!("a shape is like 4096x2048, or like 2048, of at most {WEIGHTS_MAX} weights");
        let number = |digits: &str| digits.parse::<usize>().ok().filter(|n| (1..=1 << 20).contains(n));
        let shape = match text.split_once('x') {
            Some((rows, cols)) => number(rows).zip(number(cols)).map(|(rows, cols)| Shape { rows, cols }),
            None => number(text).map(|cols| {
                let usual = Shape::USUAL.into_iter().find(|shape| shape.cols == cols);
                usual.unwrap_or(Shape { rows: cols, cols })
            }),
        };
        shape.filter(|shape| shape.rows * shape.cols <= WEIGHTS_MAX).ok_or_else(wrong)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.rows, self.cols))
    }
}

fn formats() -> impl Iterator<Item = TensorType> {
    TensorType::ALL.into_iter().filter(|kind| activation_format(*kind).is_some())
}

fn format(name: &str) -> Result<TensorType, String> {
    let known = || formats().map(TensorType::name).collect::<Vec<_>>().join(", ");
    formats()
        .find(|kind| kind.name().eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("the formats are {}", known()))
}

pub fn run(args: &KernelArgs, threads: usize, repetitions: u32, output: Format) -> Result<()> {
    let isas = if args.isa.is_empty() { vec![Isa::best()] } else { args.isa.clone() };
    let kinds = if args.formats.is_empty() { formats().collect() } else { args.formats.clone() };
    let bytes = |kind: TensorType, shape: &Shape| Some(kind.row_bytes(shape.cols)? * shape.rows);
    let sizes = kinds.iter().flat_map(|kind| args.shapes.iter().filter_map(|shape| bytes(*kind, shape)));
    let Some(largest) = sizes.max() else {
        return Err(Usage("no shape given is whole blocks of a format given".into()).into());
    };
    for (shape, rows) in args.shapes.iter().flat_map(|shape| args.rows.iter().map(move |rows| (shape, *rows)))
    {
        if rows as usize * (shape.rows + shape.cols) > VALUES_MAX {
            let text = format!("{rows} rows of activations with {shape} are more than {VALUES_MAX} values");
            return Err(Usage(text).into());
        }
    }
    let mut bench = KernelBench {
        walk: AlignedBuf::new(largest.max(WALK_BYTES))?,
        place: 0,
        repetitions: repetitions as usize,
    };
    let mut report = Report::new(output, threads, repetitions, bench.walk.len(), &args.rows);
    let mut out = Output::stdout();
    report.begin(&mut out)?;
    for isa in isas {
        let pool = Pool::with_isa(threads, isa);
        for kind in &kinds {
            bench.fill(*kind);
            let way = bench.fastest_way(&pool);
            let ops_per_s = bench.peak(&pool, *kind);
            for shape in args.shapes.iter().filter(|shape| bytes(*kind, shape).is_some()) {
                for rows in &args.rows {
                    let rows = *rows as usize;
                    let (seconds, bytes_per_s) = bench.product((&pool, way), *kind, *shape, rows);
                    let roofs = Roofs { bytes_per_s, ops_per_s };
                    let line = Line::new(isa, *kind, *shape, rows, seconds, roofs);
                    report.add(&mut out, line)?;
                }
            }
        }
    }
    report.end(&mut out)
}

struct KernelBench {
    /// Blocks of one format; matrices are cut out of it.
    walk: AlignedBuf,
    /// Where the next matrix begins.
    place: usize,
    repetitions: usize,
}

impl KernelBench {
    fn fill(&mut self, kind: TensorType) {
        let pattern = random_weights(kind, PATTERN_BLOCKS, 0.05, 1);
        for part in self.walk.chunks_mut(pattern.len()) {
            part.copy_from_slice(&pattern[..part.len()]);
        }
        self.place = 0;
    }

    /// Median seconds of one call of `f`, over repetitions of about [`REPETITION_S`]; `after` follows each.
    fn time(&mut self, mut f: impl FnMut(&mut KernelBench), mut after: impl FnMut(&mut KernelBench)) -> f64 {
        let mut once = |bench: &mut KernelBench, calls: usize| {
            let start = Instant::now();
            (0..calls).for_each(|_| f(bench));
            start.elapsed().as_secs_f64() / calls as f64
        };
        let warm = (0..WARM_UP).map(|_| once(self, 1)).fold(f64::INFINITY, f64::min);
        let calls = (REPETITION_S / warm).ceil().clamp(1.0, 1e6) as usize;
        let mut samples = Vec::with_capacity(self.repetitions);
        for _ in 0..self.repetitions {
            samples.push(once(self, calls));
            after(self);
        }
        median(&samples)
    }

    /// Bytes a second of reading all of the stretch once.
    fn read(&self, pool: &Pool, way: Reading) -> f64 {
        let start = Instant::now();
        let bytes = roofline::read(pool, &self.walk, way);
        bytes as f64 / start.elapsed().as_secs_f64()
    }

    /// Which way of reading is the fastest now.
    fn fastest_way(&self, pool: &Pool) -> Reading {
        let speed = |way| median(&(0..=self.repetitions).map(|_| self.read(pool, way)).collect::<Vec<_>>());
        let ways = Reading::WAYS.map(|way| (speed(way), way));
        ways.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b)).expect("there are ways").1
    }

    /// Operations a second of nothing but the arithmetic that this format needs.
    fn peak(&mut self, pool: &Pool, kind: TensorType) -> f64 {
        let products =
            if kind.is_quantised() { roofline::integer_products } else { roofline::float_products };
        let mut ops = 0;
        let seconds = self.time(|_| ops = products(pool, CHAIN_PIECES), |_| ());
        ops as f64 / seconds
    }

    /// Median seconds of one product with `rows` rows of activations, and the speed of reading by `way`
    /// between its repetitions: what memory delivers changes with the neighbours of a virtual machine.
    fn product(
        &mut self,
        (pool, way): (&Pool, Reading),
        kind: TensorType,
        shape: Shape,
        rows: usize,
    ) -> (f64, f64) {
        let format = [activation_format(kind).expect("only formats with kernels were chosen")];
        let values: Vec<f32> = (0..rows * shape.cols).map(|i| (i as f32 * 0.7).sin()).collect();
        let mut x = Activations::new(rows, shape.cols, &format);
        x.quantize(pool, &values, rows, shape.cols, &format);
        let mut out = vec![0.0; rows * shape.rows];
        let row_bytes = kind.row_bytes(shape.cols).expect("only whole blocks were chosen");
        let matrix_bytes = row_bytes * shape.rows;
        let mut reads = Vec::with_capacity(self.repetitions);
        let multiply = |bench: &mut KernelBench| {
            if bench.place + matrix_bytes > bench.walk.len() {
                bench.place = 0;
            }
            let bytes = &bench.walk[bench.place..][..matrix_bytes];
            let weights = Matrix::new(kind, shape.rows, shape.cols, bytes).expect("whole rows");
            let rows = Selection::Run { first: 0, count: rows };
            matmul(pool, &x, &mut [Job { weights, rows, out: &mut out, out_stride: shape.rows }]);
            bench.place += matrix_bytes;
        };
        let seconds = self.time(multiply, |bench| reads.push(bench.read(pool, way)));
        (seconds, median(&reads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_rows_and_columns_or_a_width() {
        assert_eq!("8x64".parse(), Ok(Shape { rows: 8, cols: 64 }));
        assert_eq!("7168".parse(), Ok(Shape { rows: 2048, cols: 7168 }));
        assert_eq!("1024".parse(), Ok(Shape { rows: 1024, cols: 1024 }));
        for text in ["", "x", "0x5", "5x", "-1", "4096 x 4096", "1048576x1048576", "99999999999999999999"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }
}
