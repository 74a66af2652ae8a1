//! Logits of the reference, as `record.py` keeps them, and how ours differ from them.

use std::path::Path;

/// Length of each prompt, and its rows of which all logits are kept.
pub const PROMPTS: [(usize, [usize; 2]); 3] = [(7, [0, 6]), (40, [20, 39]), (70, [34, 69])];

/// What the reference says of one prompt.
pub struct Golden {
    /// Per position the best token, and the second where it is as good as the best.
    best: Vec<(u32, Option<u32>)>,
    /// Positions with all their logits.
    rows: Vec<(usize, Vec<f32>)>,
}

/// Per seed, and in it per prompt.
pub fn read(path: &Path, vocabulary: usize, seeds: usize) -> Vec<Vec<Golden>> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = Reader { rest: &bytes };
    let all = (0..seeds)
        .map(|_| PROMPTS.map(|(length, kept)| reader.prompt(length, kept, vocabulary)).into())
        .collect();
    assert!(reader.rest.is_empty(), "{}: {} bytes too many", path.display(), reader.rest.len());
    all
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
    /// Greatest of the kept rows, as a share of the row's range.
    pub worst: f32,
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
            difference.worst = if share.is_nan() { f32::INFINITY } else { difference.worst.max(share) };
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
