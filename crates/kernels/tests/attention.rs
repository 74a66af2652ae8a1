//! Attention against the plain formula in f64, and independent of everything but the row.

#[path = "common/random.rs"]
mod random;

use adit_kernels::{
    AttentionRow, AttentionShape, Isa, KvFormat, KvView, Pool, attention, attention_scratch_floats,
    encode_row,
};
use random::{Random, activations};

const BLOCK_LEN: usize = 16;

/// One layer's keys and values, blocks in an unordered place, as plain floats and stored.
struct Past {
    keys: Vec<f32>,
    values: Vec<f32>,
    stored_keys: Vec<u8>,
    stored_values: Vec<u8>,
    blocks: Vec<u32>,
    format: KvFormat,
}

fn store(format: KvFormat, rows: &[f32], width: usize, blocks: &[u32]) -> Vec<u8> {
    let bytes = format.row_bytes(width);
    // Rows that are not written hold NaN: whoever reads them shows it.
    let mut stored = vec![0xff; blocks.len() * BLOCK_LEN * bytes];
    for (position, row) in rows.chunks(width).enumerate() {
        let slot = blocks[position / BLOCK_LEN] as usize * BLOCK_LEN + position % BLOCK_LEN;
        encode_row(format, row, &mut stored[slot * bytes..(slot + 1) * bytes]);
    }
    stored
}

fn past(format: KvFormat, shape: &AttentionShape, positions: usize, random: &mut Random) -> Past {
    let count = positions.div_ceil(BLOCK_LEN) as u32;
    let blocks: Vec<u32> = (0..count).rev().collect();
    let keys = activations(positions * shape.kv_heads * shape.head_dim, random);
    let values = activations(positions * shape.kv_heads * shape.value_dim, random);
    let stored_keys = store(format, &keys, shape.kv_heads * shape.head_dim, &blocks);
    let stored_values = store(format, &values, shape.kv_heads * shape.value_dim, &blocks);
    Past { keys, values, stored_keys, stored_values, blocks, format }
}

fn run(pool: &Pool, shape: &AttentionShape, q: &[f32], positions: &[usize], past: &Past) -> Vec<f32> {
    let rows: Vec<_> =
        positions.iter().map(|position| AttentionRow { position: *position, blocks: &past.blocks }).collect();
    let kv = KvView {
        format: past.format,
        keys: &past.stored_keys,
        values: &past.stored_values,
        block_len: BLOCK_LEN,
    };
    let mut scratch = vec![f32::NAN; attention_scratch_floats(shape, pool.threads())];
    let mut out = vec![f32::NAN; rows.len() * shape.heads * shape.value_dim];
    attention(pool, shape, q, &rows, &kv, &mut scratch, &mut out);
    out
}

/// The formula, one head.
fn formula(shape: &AttentionShape, q: &[f32], head: usize, position: usize, past: &Past) -> Vec<f64> {
    let kv_head = head / (shape.heads / shape.kv_heads);
    let first = shape.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let weights: Vec<f64> = (first..=position)
        .map(|p| {
            let key = &past.keys[(p * shape.kv_heads + kv_head) * shape.head_dim..][..shape.head_dim];
            let score =
                q.iter().zip(key).map(|(q, k)| *q as f64 * *k as f64).sum::<f64>() * shape.scale as f64;
            shape.soft_cap.map_or(score, |cap| cap as f64 * (score / cap as f64).tanh()).exp()
        })
        .collect();
    let total: f64 = weights.iter().sum();
    let value = |p: usize, i: usize| past.values[(p * shape.kv_heads + kv_head) * shape.value_dim + i] as f64;
    (0..shape.value_dim)
        .map(|i| weights.iter().zip(first..).map(|(w, p)| w * value(p, i)).sum::<f64>() / total)
        .collect()
}

fn shapes() -> Vec<AttentionShape> {
    let base = AttentionShape {
        heads: 6,
        kv_heads: 2,
        head_dim: 64,
        value_dim: 32,
        scale: 0.02,
        window: None,
        soft_cap: None,
    };
    vec![
        base,
        AttentionShape { heads: 2, ..base },
        AttentionShape { window: Some(1), ..base },
        AttentionShape { window: Some(70), ..base },
        AttentionShape { window: Some(1000), soft_cap: Some(2.0), ..base },
        AttentionShape { heads: 4, kv_heads: 1, head_dim: 96, value_dim: 96, ..base },
    ]
}

#[test]
fn attention_is_the_softmax_formula() {
    let mut random = Random(11);
    for shape in shapes() {
        for (format, bound) in [(KvFormat::F32, 1e-5), (KvFormat::F16, 2e-3), (KvFormat::Q8_0, 0.03)] {
            let past = past(format, &shape, 200, &mut random);
            let positions = [0, 1, 63, 64, 65, 127, 199];
            let q = activations(positions.len() * shape.heads * shape.head_dim, &mut random);
            let out = run(&Pool::new(2), &shape, &q, &positions, &past);
            for (i, head_out) in out.chunks(shape.value_dim).enumerate() {
                let q = &q[i * shape.head_dim..][..shape.head_dim];
                let (row, head) = (i / shape.heads, i % shape.heads);
                let expected = formula(&shape, q, head, positions[row], &past);
                for (found, expected) in head_out.iter().zip(expected) {
                    let error = (*found as f64 - expected).abs();
                    assert!(error < bound, "{shape:?} {format:?} at {}: {error}", positions[row]);
                }
            }
        }
    }
}

#[test]
fn a_row_depends_on_nothing_but_itself() {
    let mut random = Random(12);
    for shape in shapes() {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let past = past(format, &shape, 150, &mut random);
            let positions: Vec<usize> = (90..150).collect();
            let per_row = shape.heads * shape.head_dim;
            let q = activations(positions.len() * per_row, &mut random);
            let scalar = Pool::with_isa(1, Isa::Scalar);
            let alone: Vec<f32> = positions
                .iter()
                .zip(q.chunks(per_row))
                .flat_map(|(position, q)| run(&scalar, &shape, q, &[*position], &past))
                .collect();
            for isa in Isa::all() {
                for threads in 1..=3 {
                    let found = run(&Pool::with_isa(threads, isa), &shape, &q, &positions, &past);
                    assert!(found == alone, "{shape:?} {format:?} {} {threads} threads", isa.name());
                }
            }
        }
    }
}

#[test]
fn rows_of_several_sequences_keep_to_their_own_past() {
    let mut random = Random(14);
    for shape in shapes() {
        // Two sequences in one store: the second holds the same positions in other blocks.
        let mut past = past(KvFormat::F16, &shape, 200, &mut random);
        let half = past.blocks.len() / 2;
        let sequences = [past.blocks[..half].to_vec(), past.blocks[half..].to_vec()];
        let positions = [0, 5, 90, 17, 33, 95, 64, 1, 31, 32, 50];
        let per_row = shape.heads * shape.head_dim;
        let q = activations(positions.len() * per_row, &mut random);
        let kv = KvView {
            format: past.format,
            keys: &past.stored_keys,
            values: &past.stored_values,
            block_len: BLOCK_LEN,
        };
        let rows: Vec<_> = positions
            .iter()
            .enumerate()
            .map(|(i, position)| AttentionRow { position: *position, blocks: &sequences[i / 2 % 2] })
            .collect();
        let pool = Pool::new(2);
        let mut scratch = vec![f32::NAN; attention_scratch_floats(&shape, pool.threads())];
        let mut together = vec![f32::NAN; rows.len() * shape.heads * shape.value_dim];
        attention(&pool, &shape, &q, &rows, &kv, &mut scratch, &mut together);
        let per_out = shape.heads * shape.value_dim;
        for (i, together) in together.chunks(per_out).enumerate() {
            past.blocks.clone_from(&sequences[i / 2 % 2]);
            let alone = run(&pool, &shape, &q[i * per_row..][..per_row], &positions[i..=i], &past);
            assert_eq!(together, alone, "{shape:?} row {i}");
        }
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    let mut random = Random(13);
    let shape = AttentionShape { scale: 100.0, ..shapes()[0] };
    let past = past(KvFormat::F16, &shape, 130, &mut random);
    let q = activations(shape.heads * shape.head_dim, &mut random);
    assert!(run(&Pool::new(1), &shape, &q, &[129], &past).iter().all(|x| x.is_finite()));
}
