//! Random calls of products and of attention, against the scalar twin that computes each row alone: mixed
//! weight types, selections, strides, extreme codes, odd heads and windows, several sequences. `ADIT_CASES`
//! asks for more of them than the few hundred that every run does.

#[path = "common/random.rs"]
mod random;
#[path = "common/weights.rs"]
mod weights;

use std::ops::Range;

use adit_format::TensorType;
use adit_kernels::{
    ActivationFormat, Activations, AttentionRow, AttentionShape, Isa, Job, KV_BLOCK, KvFormat, KvLayout,
    KvView, Matrix, Pool, Selection, Values, attention, attention_scratch_floats, matmul,
};
use random::{Random, activations};
use weights::{KINDS, is_number, sub_scales, weights};

/// What stands where nothing may be written.
const UNTOUCHED: f32 = -7.0;

fn below(random: &mut Random, end: usize) -> usize {
    (random.next() >> 16) as usize % end
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[below(random, of.len())]
}

fn cases(few: u64) -> Range<u64> {
    let asked = std::env::var("ADIT_CASES").ok().and_then(|count| count.parse().ok());
    0..asked.unwrap_or(few)
}

/// Every instruction set with one thread and with more.
fn pools() -> Vec<Pool> {
    Isa::all().into_iter().flat_map(|isa| [1, 2, 3].map(|threads| Pool::with_isa(threads, isa))).collect()
}

/// Equal bits, where any NaN equals any other.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// One matrix of a call, and the rows that it takes.
struct Part {
    kind: TensorType,
    rows: usize,
    bytes: Vec<u8>,
    listed: Vec<u32>,
    is_run: bool,
}

impl Part {
    fn new(kind: TensorType, cols: usize, count: usize, random: &mut Random) -> Part {
        let most = pick(random, &[5, 20, 40, 100]);
        let rows = 1 + below(random, most);
        let mut bytes = weights(kind, rows, cols, random);
        match below(random, 4) {
            0 if kind.is_quantised() => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
            1 if kind.is_quantised() => {
                let extremes = [0, 0x7f, 0x80, 0xff];
                let (codes, scales) = (pick(random, &extremes), pick(random, &extremes));
                let places = (0..kind.block_bytes()).cycle();
                for (byte, place) in bytes.iter_mut().zip(places).filter(|(_, at)| !is_number(kind, *at)) {
                    *byte = if sub_scales(kind).contains(&place) { scales } else { codes };
                }
            }
            _ => {}
        }
        let is_run = below(random, 2) == 0;
        let first = below(random, count);
        let listed = match is_run {
            true => (first..first + below(random, count - first + 1)).map(|row| row as u32).collect(),
            false => (0..below(random, 40)).map(|_| below(random, count) as u32).collect(),
        };
        Part { kind, rows, bytes, listed, is_run }
    }

    fn matrix(&self, cols: usize) -> Matrix<'_> {
        Matrix::new(self.kind, self.rows, cols, &self.bytes).expect("whole rows")
    }

    fn selection(&self) -> Selection<'_> {
        match (self.is_run, self.listed.first()) {
            (true, Some(first)) => Selection::Run { first: *first as usize, count: self.listed.len() },
            _ => Selection::Listed(&self.listed),
        }
    }
}

fn rows_of_activations(count: usize, cols: usize, random: &mut Random) -> Vec<f32> {
    let mut x = activations(count * cols, random);
    let odd = [f32::INFINITY, f32::NAN, 3e38, 1e-40, -0.0, 1e30];
    let factor = pick(random, &[1e-31, 1e-28, 1e35, 7e6]);
    match below(random, 5) {
        0 => x.iter_mut().for_each(|x| *x = x.signum()),
        1 => x.iter_mut().step_by(97).for_each(|x| *x = pick(random, &odd)),
        2 => x.iter_mut().for_each(|x| *x *= factor),
        _ => {}
    }
    x
}

#[test]
fn random_products_are_those_of_each_row_alone() {
    let (scalar, pools) = (Pool::with_isa(1, Isa::Scalar), pools());
    for seed in cases(150) {
        let random = &mut Random(seed);
        let unit = pick(random, &[1_usize, 32, 256, 256]);
        let cols = unit * (1 + below(random, if unit == 1 { 300 } else { 9 }));
        let most = pick(random, &[1, 8, 20, 80]);
        let count = 1 + below(random, most);
        let kinds: Vec<_> = KINDS.into_iter().filter(|kind| unit.is_multiple_of(kind.block_len())).collect();
        let mut formats = vec![ActivationFormat::F32, ActivationFormat::Q8_1, ActivationFormat::Q8K];
        formats.retain(|format| unit.is_multiple_of(format.block_len()));
        let parts: Vec<Part> =
            (0..1 + below(random, 4)).map(|_| Part::new(pick(random, &kinds), cols, count, random)).collect();
        let x = rows_of_activations(count, cols, random);

        let mut alone = Activations::new(1, cols, &formats);
        let mut expected = |part: &Part, row: usize| {
            alone.quantize(&scalar, &x[row * cols..(row + 1) * cols], 1, cols, &formats);
            let mut out = vec![0.0; part.rows];
            let (weights, rows) = (part.matrix(cols), Selection::Run { first: 0, count: 1 });
            matmul(&scalar, &alone, &mut [Job { weights, rows, out: &mut out, out_stride: 0 }]);
            out
        };
        let expected: Vec<Vec<Vec<f32>>> = parts
            .iter()
            .map(|part| part.listed.iter().map(|row| expected(part, *row as usize)).collect())
            .collect();

        for pool in &pools {
            // Larger than needed, and filled with something else before.
            let mut input = Activations::new(count + 1, cols + 256, &formats);
            let other = vec![3.0; (count + 1) * unit];
            input.quantize(pool, &other, count + 1, unit, &formats);
            let mut copy = vec![f32::NAN; x.len()];
            input.fill(pool, &mut copy, count, cols, &formats, |row, out| {
                out.copy_from_slice(&x[row * cols..(row + 1) * cols]);
            });
            let gap = below(random, 3);
            let mut outs: Vec<Vec<f32>> =
                parts.iter().map(|p| vec![UNTOUCHED; p.listed.len() * (p.rows + gap)]).collect();
            let mut jobs: Vec<Job<'_>> = parts
                .iter()
                .zip(&mut outs)
                .map(|(part, out)| Job {
                    weights: part.matrix(cols),
                    rows: part.selection(),
                    out,
                    out_stride: part.rows + gap,
                })
                .collect();
            matmul(pool, &input, &mut jobs);
            for ((part, out), expected) in parts.iter().zip(&outs).zip(&expected) {
                for (out, expected) in out.chunks(part.rows + gap).zip(expected) {
                    let what = || format!("seed {seed} {} {}, {count} rows", pool.isa().name(), part.kind);
                    assert!(out.iter().zip(expected).all(|(a, b)| same(*a, *b)), "{}", what());
                    assert!(out[part.rows..].iter().all(|x| *x == UNTOUCHED), "{}: between rows", what());
                }
            }
        }
    }
}

/// Keys and values of several sequences, whose blocks lie in any order.
struct Store {
    layout: KvLayout,
    keys: Vec<u8>,
    values: Vec<u8>,
    sequences: Vec<Vec<u32>>,
}

impl Store {
    fn new(layout: KvLayout, positions: usize, random: &mut Random) -> Store {
        let (count, blocks) = (1 + below(random, 3), positions.div_ceil(KV_BLOCK));
        let mut order: Vec<u32> = (0..(count * blocks) as u32).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, below(random, i + 1)));
        let (key_bytes, value_bytes) = (layout.key_block_bytes(), layout.value_block_bytes());
        // Positions that are not written hold NaN: whoever reads them shows it.
        let mut keys = vec![0xff; order.len() * key_bytes];
        let mut values = vec![0xff; order.len() * value_bytes];
        let factor = pick(random, &[1.0, 1.0, 1e-6, 3e4, 1e9]);
        let mut floats = |len: usize| {
            let mut x = activations(len, random);
            x.iter_mut().for_each(|x| *x *= factor);
            x
        };
        for sequence in order.chunks(blocks) {
            for position in 0..positions {
                let (block, offset) = (sequence[position / KV_BLOCK] as usize, position % KV_BLOCK);
                let key = floats(layout.kv_heads * layout.head_dim);
                let own = layout.values == Values::Own;
                let value = floats(if own { layout.kv_heads * layout.value_dim } else { 0 });
                layout.store_key(&mut keys[block * key_bytes..][..key_bytes], offset, &key);
                layout.store_value(&mut values[block * value_bytes..][..value_bytes], offset, &value);
            }
        }
        let sequences = order.chunks(blocks).map(<[u32]>::to_vec).collect();
        Store { layout, keys, values, sequences }
    }
}

fn any_shape(format: KvFormat, random: &mut Random) -> AttentionShape {
    let mut dim = || {
        let most = pick(random, &[5, 40, 130]);
        match format {
            KvFormat::Q8_0 => 32 * (1 + below(random, 4)),
            _ => 1 + below(random, most),
        }
    };
    let (head_dim, value_dim) = (dim(), dim());
    let values = pick(random, &[Values::Own, Values::Own, Values::HeadOfKey]);
    let kv_heads = 1 + below(random, 3);
    let group = pick(random, &[1, 2, 3, 5, 8, 70]);
    AttentionShape {
        heads: kv_heads * group,
        kv_heads,
        head_dim,
        value_dim: if values == Values::Own { value_dim } else { value_dim.min(head_dim) },
        values,
        scale: pick(random, &[0.02, 0.125, 3.0, 100.0, -0.1]),
        window: pick(random, &[None, None, Some(1), Some(63), Some(65), Some(513)]),
        chunk: pick(random, &[None, None, None, Some(1), Some(100)]),
        soft_cap: pick(random, &[None, None, Some(2.0)]),
    }
}

#[test]
fn random_attention_is_that_of_each_row_alone() {
    let (scalar, pools) = (Pool::with_isa(1, Isa::Scalar), pools());
    for seed in cases(60) {
        let random = &mut Random(seed);
        let format = pick(random, &[KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0]);
        let shape = any_shape(format, random);
        let AttentionShape { kv_heads, head_dim, value_dim, .. } = shape;
        let most = pick(random, &[70, 600, 1100]);
        let positions = 1 + below(random, most);
        let store = Store::new(
            KvLayout { format, kv_heads, head_dim, value_dim, values: shape.values },
            positions,
            random,
        );
        let most = pick(random, &[1, 4, 9, 30]);
        let rows: Vec<(usize, usize)> = {
            let (count, first) = (1 + below(random, most), below(random, positions));
            let sequences = store.sequences.len();
            let neighbours = below(random, 2) == 0;
            let row = |i: usize| match neighbours {
                true => (i * sequences / count, (first + i) % positions),
                false => (below(random, sequences), below(random, positions)),
            };
            (0..count).map(row).collect()
        };
        let query_len = shape.heads * head_dim;
        let mut q = activations(rows.len() * query_len, random);
        if below(random, 6) == 0 {
            q.iter_mut().step_by(311).for_each(|q| *q = pick(random, &[f32::INFINITY, f32::NAN, 1e30]));
        }
        let run = |pool: &Pool, some: Range<usize>| {
            let context = rows[some.clone()].iter().map(|row| row.1 + 1).max().unwrap_or(0);
            let mut scratch = vec![f32::NAN; attention_scratch_floats(&shape, pool.threads(), context)];
            let mut out = vec![f32::NAN; some.len() * shape.heads * value_dim];
            let row = |i: usize| {
                let (sequence, position) = rows[some.start + i];
                AttentionRow { position, blocks: &store.sequences[sequence] }
            };
            let kv = KvView { layout: store.layout, keys: &store.keys, values: &store.values };
            let q = &q[some.start * query_len..some.end * query_len];
            attention(pool, &shape, None, q, some.len(), &row, &kv, &mut scratch, &mut out);
            out
        };
        let alone: Vec<f32> = (0..rows.len()).flat_map(|row| run(&scalar, row..row + 1)).collect();
        // The scalar pools are slow, and have little of their own to get wrong.
        for pool in pools.iter().filter(|pool| pool.isa() != Isa::Scalar || pool.threads() == 2) {
            let all = run(pool, 0..rows.len());
            let equal = all.iter().zip(&alone).all(|(a, b)| same(*a, *b));
            let threads = pool.threads();
            assert!(equal, "seed {seed} {} {threads} threads {format:?} {shape:?}", pool.isa().name());
        }
    }
}
