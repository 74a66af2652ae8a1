//! Logits of the reference, as `record.py` keeps them, and how ours differ from them.

use std::path::Path;

use adit_format::TensorType;

/// Length of each prompt, and its rows of which all logits are kept.
pub const PROMPTS: [(usize, [usize; 2]); 3] = [(7, [0, 6]), (40, [20, 39]), (70, [34, 69])];

/// What the reference says of one prompt.
pub struct Golden {
    /// Per position the best token, and the second where it is as good as the best.
    best: Vec<(u32, Option<u32>)>,
    /// Positions with all their logits.
    rows: Vec<(usize, Vec<f32>)>,
}

/// Of a stranger's file, per seed, and in it per prompt.
pub fn strangers(name: &str, vocabulary: usize, seeds: usize) -> Vec<Vec<Golden>> {
    let bytes = read(name);
    let mut reader = Reader { rest: &bytes };
    let all = (0..seeds).map(|_| reader.prompts(vocabulary)).collect();
    assert!(reader.rest.is_empty(), "{name}: {} golden bytes too many", reader.rest.len());
    all
}

/// Of our own model in matrices of `kind`: the seed, and what the reference says of each prompt.
pub fn zoo(name: &str, kind: TensorType, vocabulary: usize) -> (u64, Vec<Golden>) {
    let bytes = read(&format!("zoo/{name}-{kind}"));
    let mut reader = Reader { rest: &bytes };
    let seed = u64::from(u32::from_le_bytes(reader.take()));
    let prompts = reader.prompts(vocabulary);
    assert!(reader.rest.is_empty(), "{name}: {} golden bytes too many", reader.rest.len());
    (seed, prompts)
}

fn read(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers/golden");
    let path = folder.join(format!("{name}.bin"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.rest.split_first_chunk().expect("the golden file is complete");
        self.rest = rest;
        *bytes
    }

    fn prompts(&mut self, vocabulary: usize) -> Vec<Golden> {
        PROMPTS.map(|(length, kept)| self.prompt(length, kept, vocabulary)).into()
    }

    fn prompt(&mut self, length: usize, kept: [usize; 2], vocabulary: usize) -> Golden {
        const TIED: u16 = 1 << 15;
        let first: Vec<u16> = (0..length).map(|_| u16::from_le_bytes(self.take())).collect();
        let second = |code: u16| (code & TIED != 0).then(|| u32::from(u16::from_le_bytes(self.take())));
        let seconds: Vec<Option<u32>> = first.iter().copied().map(second).collect();
        let best = first.iter().map(|code| u32::from(code & !TIED)).zip(seconds).collect();
        let rows = kept.map(|row| (row, self.row(vocabulary)));
        Golden { best, rows: rows.into() }
    }

    fn row(&mut self, vocabulary: usize) -> Vec<f32> {
        let [least, greatest] = [self.take(), self.take()].map(|bytes| f64::from(f32::from_le_bytes(bytes)));
        let step = (greatest - least) / f64::from((1 << 24) - 1);
        let code = |[a, b, c]: [u8; 3]| f64::from(u32::from_le_bytes([a, b, c, 0]));
        (0..vocabulary).map(|_| (least + code(self.take()) * step) as f32).collect()
    }
}

/// How our logits of a prompt differ from the reference's.
#[derive(Default)]
pub struct Difference {
    /// Greatest of each kept row, as a share of the row's range.
    pub rows: Vec<f32>,
    /// One line a kept row, and one a position whose best token is another.
    pub lines: Vec<String>,
    pub other_best: usize,
}

impl Golden {
    /// `logits`: one row a position.
    pub fn compare(&self, logits: &[f32]) -> Difference {
        let vocabulary = logits.len() / self.best.len();
        let mut difference = Difference::default();
        for (row, golden) in &self.rows {
            let ours = &logits[row * vocabulary..][..vocabulary];
            let range = greatest(golden.iter().copied()).1 + greatest(golden.iter().map(|logit| -logit)).1;
            let (token, off) = greatest(ours.iter().zip(golden).map(|(ours, golden)| (ours - golden).abs()));
            let share = off / range;
            difference.rows.push(if share.is_nan() { f32::INFINITY } else { share });
            difference.lines.push(format!(
                "row {row}: {share:.1e} of the range {range:.3}, most at token {token}: \
                 {} where the reference has {}",
                ours[token], golden[token]
            ));
        }
        for (position, (row, &(best, second))) in logits.chunks_exact(vocabulary).zip(&self.best).enumerate()
        {
            let ours = greatest(row.iter().copied()).0 as u32;
            if ours != best && Some(ours) != second {
                difference.other_best += 1;
                difference
                    .lines
                    .push(format!("row {position}: best is token {ours} where the reference has {best}"));
            }
        }
        difference
    }
}

/// The first greatest value and its place; a NaN is greater than all.
fn greatest(values: impl Iterator<Item = f32>) -> (usize, f32) {
    let above = |value: f32, other: f32| value > other || value.is_nan() && !other.is_nan();
    values.enumerate().fold(
        (0, f32::MIN),
        |best, (at, value)| {
            if above(value, best.1) { (at, value) } else { best }
        },
    )
}
