//! Attention against the plain formula in f64, and independent of everything but the row.

#[path = "common/random.rs"]
mod random;

use adit_kernels::{
    AttentionRow, AttentionShape, Isa, KV_BLOCK, KvFormat, KvLayout, KvView, Pool, Values, attention,
    attention_scratch_floats,
};
use random::{Random, activations};

const FORMATS: [KvFormat; 4] = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0];
/// Where blocks of 64 and segments of 512 positions begin and end.
const EDGES: [usize; 12] = [0, 1, 62, 63, 64, 65, 127, 510, 511, 512, 513, 1030];

/// One layer's keys and values, blocks in an unordered place, as plain floats and stored.
struct Past {
    layout: KvLayout,
    keys: Vec<f32>,
    values: Vec<f32>,
    stored_keys: Vec<u8>,
    stored_values: Vec<u8>,
    blocks: Vec<u32>,
}

impl Past {
    fn view(&self) -> KvView<'_> {
        KvView { layout: self.layout, keys: &self.stored_keys, values: &self.stored_values }
    }
}

fn past(format: KvFormat, shape: &AttentionShape, positions: usize, random: &mut Random) -> Past {
    let AttentionShape { kv_heads, head_dim, value_dim, values, .. } = *shape;
    let layout = KvLayout { format, kv_heads, head_dim, value_dim, values };
    let count = positions.div_ceil(KV_BLOCK);
    let blocks: Vec<u32> = (0..count as u32).rev().collect();
    let keys = activations(positions * kv_heads * head_dim, random);
    let values = match values {
        Values::Own => activations(positions * kv_heads * value_dim, random),
        Values::HeadOfKey => keys.chunks(head_dim).flat_map(|key| key[..value_dim].to_vec()).collect(),
    };
    // Positions that are not written hold NaN: whoever reads them shows it.
    let mut stored_keys = vec![0xff; count * layout.key_block_bytes()];
    let mut stored_values = vec![0xff; count * layout.value_block_bytes()];
    for position in 0..positions {
        let (block, offset) = (blocks[position / KV_BLOCK] as usize, position % KV_BLOCK);
        let place = &mut stored_keys[block * layout.key_block_bytes()..][..layout.key_block_bytes()];
        layout.store_key(place, offset, &keys[position * kv_heads * head_dim..][..kv_heads * head_dim]);
        let place = &mut stored_values[block * layout.value_block_bytes()..][..layout.value_block_bytes()];
        let value = &values[position * kv_heads * value_dim..][..kv_heads * value_dim];
        layout.store_value(place, offset, if layout.values == Values::Own { value } else { &[] });
    }
    Past { layout, keys, values, stored_keys, stored_values, blocks }
}

/// Rows at `positions`, row `i` of the sequence `blocks(i)`.
fn run_rows<'a>(
    pool: &Pool,
    shape: &AttentionShape,
    sinks: Option<&[f32]>,
    q: &[f32],
    positions: &[usize],
    kv: &KvView<'_>,
    blocks: &(dyn Fn(usize) -> &'a [u32] + Sync),
) -> Vec<f32> {
    let context = positions.iter().max().unwrap() + 1;
    let mut scratch = vec![f32::NAN; attention_scratch_floats(shape, pool.threads(), context)];
    let mut out = vec![f32::NAN; positions.len() * shape.heads * shape.value_dim];
    let row = |row: usize| AttentionRow { position: positions[row], blocks: blocks(row) };
    attention(pool, shape, sinks, q, positions.len(), &row, kv, &mut scratch, &mut out);
    out
}

fn run(pool: &Pool, shape: &AttentionShape, q: &[f32], positions: &[usize], past: &Past) -> Vec<f32> {
    run_rows(pool, shape, None, q, positions, &past.view(), &|_| &past.blocks[..])
}

fn first_seen(shape: &AttentionShape, position: usize) -> usize {
    let window = shape.window.map_or(0, |window| (position + 1).saturating_sub(window));
    window.max(shape.chunk.map_or(0, |chunk| position - position % chunk))
}

/// Weights of the positions that a row sees, not yet divided by their sum.
fn weights(shape: &AttentionShape, q: &[f32], head: usize, position: usize, past: &Past) -> Vec<f64> {
    let kv_head = head / (shape.heads / shape.kv_heads);
    let first = first_seen(shape, position);
    let weight = |p: usize| {
        let key = &past.keys[(p * shape.kv_heads + kv_head) * shape.head_dim..][..shape.head_dim];
        let score = q.iter().zip(key).map(|(q, k)| *q as f64 * *k as f64).sum::<f64>() * shape.scale as f64;
        shape.soft_cap.map_or(score, |cap| cap as f64 * (score / cap as f64).tanh()).exp()
    };
    (first..=position).map(weight).collect()
}

/// What a sink leaves of the softmax, by the formula.
fn share_beside(
    shape: &AttentionShape,
    q: &[f32],
    head: usize,
    position: usize,
    past: &Past,
    sink: f32,
) -> f64 {
    let total: f64 = weights(shape, q, head, position, past).iter().sum();
    total / (total + (sink as f64).exp())
}

/// The formula, one head.
fn formula(shape: &AttentionShape, q: &[f32], head: usize, position: usize, past: &Past) -> Vec<f64> {
    let kv_head = head / (shape.heads / shape.kv_heads);
    let first = first_seen(shape, position);
    let weights = weights(shape, q, head, position, past);
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
        values: Values::Own,
        scale: 0.02,
        window: None,
        chunk: None,
        soft_cap: None,
    };
    let shape = |heads, kv_heads, head_dim, value_dim| AttentionShape {
        heads,
        kv_heads,
        head_dim,
        value_dim,
        ..base
    };
    let mut shapes = vec![
        base,
        AttentionShape { window: Some(1), ..base },
        AttentionShape { window: Some(70), ..base },
        AttentionShape { chunk: Some(100), ..base },
        AttentionShape { window: Some(512), ..shape(4, 1, 32, 64) },
        AttentionShape { window: Some(1000), soft_cap: Some(2.0), ..base },
        shape(4, 1, 256, 256),
        shape(9, 3, 64, 64),
        shape(2, 2, 128, 128),
        shape(1, 1, 96, 32),
        shape(2, 1, 20, 12),
        shape(3, 1, 80, 80),
        shape(1, 1, 17, 33),
    ];
    shapes.extend((5..=8).map(|group| shape(group, 1, 32, 96)));
    shapes.extend(latent_shapes());
    shapes
}

fn latent_shapes() -> Vec<AttentionShape> {
    let shape = |heads, kv_heads, head_dim, value_dim| AttentionShape {
        heads,
        kv_heads,
        head_dim,
        value_dim,
        values: Values::HeadOfKey,
        scale: 0.02,
        window: None,
        chunk: None,
        soft_cap: None,
    };
    vec![
        shape(16, 1, 64, 32),
        AttentionShape { window: Some(70), ..shape(20, 1, 64, 32) },
        AttentionShape { soft_cap: Some(2.0), chunk: Some(90), ..shape(6, 2, 64, 64) },
        shape(18, 1, 32, 32),
        shape(4, 1, 37, 19),
        shape(64, 1, 32, 16),
    ]
}

/// Every shape with every format that can hold it.
fn cases() -> impl Iterator<Item = (AttentionShape, KvFormat)> {
    let fits = |(shape, format): &(AttentionShape, KvFormat)| {
        [shape.head_dim, shape.value_dim].iter().all(|dim| dim.is_multiple_of(format.block_len()))
    };
    shapes().into_iter().flat_map(|shape| FORMATS.map(|format| (shape, format))).filter(fits)
}

#[test]
fn attention_is_the_softmax_formula() {
    let mut random = Random(11);
    for (shape, format) in cases() {
        let bound = match format {
            KvFormat::F32 => 1e-5,
            KvFormat::F16 => 3e-3,
            KvFormat::Bf16 => 2e-2,
            KvFormat::Q8_0 => 0.04,
        };
        let past = past(format, &shape, 1031, &mut random);
        let q = activations(EDGES.len() * shape.heads * shape.head_dim, &mut random);
        let out = run(&Pool::new(2), &shape, &q, &EDGES, &past);
        for (i, head_out) in out.chunks(shape.value_dim).enumerate() {
            let q = &q[i * shape.head_dim..][..shape.head_dim];
            let (row, head) = (i / shape.heads, i % shape.heads);
            let expected = formula(&shape, q, head, EDGES[row], &past);
            for (found, expected) in head_out.iter().zip(expected) {
                let error = (*found as f64 - expected).abs();
                assert!(error < bound, "{shape:?} {format:?} at {}: {error}", EDGES[row]);
            }
        }
    }
}

#[test]
fn a_row_depends_on_nothing_but_itself() {
    let mut random = Random(12);
    let scalar = Pool::with_isa(1, Isa::Scalar);
    for (shape, format) in cases() {
        let past = past(format, &shape, 1050, &mut random);
        // A run of neighbours, as in a prompt, over the edge of a block and of a segment.
        let positions: Vec<usize> = EDGES.into_iter().chain(1005..1050).collect();
        let per_row = shape.heads * shape.head_dim;
        let q = activations(positions.len() * per_row, &mut random);
        let alone = run(&scalar, &shape, &q, &positions, &past);
        for isa in Isa::all() {
            // The scalar twin is slow: one other way to cut the work shows that it heeds the rule.
            let ways = if isa == Isa::Scalar { 7..8 } else { 0..12 };
            for way in ways {
                let (threads, rows) = (1 + way % 3, [1, 3, 20, positions.len()][way / 3]);
                let pool = Pool::with_isa(threads, isa);
                let found: Vec<f32> = positions
                    .chunks(rows)
                    .zip(q.chunks(rows * per_row))
                    .flat_map(|(positions, q)| run(&pool, &shape, q, positions, &past))
                    .collect();
                assert!(
                    found == alone,
                    "{shape:?} {format:?} {} {threads} threads, {rows} rows at a time",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn rows_of_several_sequences_keep_to_their_own_past() {
    let mut random = Random(14);
    for shape in shapes() {
        // Two sequences in one store: the second holds the same positions in other blocks.
        let mut past = past(KvFormat::F16, &shape, 1280, &mut random);
        let half = past.blocks.len() / 2;
        let sequences = [past.blocks[..half].to_vec(), past.blocks[half..].to_vec()];
        let positions = [0, 5, 600, 17, 33, 639, 64, 1, 31, 32, 500];
        let per_row = shape.heads * shape.head_dim;
        let q = activations(positions.len() * per_row, &mut random);
        let pool = Pool::new(2);
        let sequence = |row: usize| &sequences[row / 2 % 2][..];
        let together = run_rows(&pool, &shape, None, &q, &positions, &past.view(), &sequence);
        let per_out = shape.heads * shape.value_dim;
        for (i, together) in together.chunks(per_out).enumerate() {
            past.blocks.clone_from(&sequences[i / 2 % 2]);
            let alone = run(&pool, &shape, &q[i * per_row..][..per_row], &positions[i..=i], &past);
            assert_eq!(together, alone, "{shape:?} row {i}");
        }
    }
}

#[test]
fn what_a_row_does_not_see_cannot_harm_it() {
    let mut random = Random(15);
    for (shape, format) in cases().filter(|(_, format)| *format != KvFormat::Q8_0) {
        let mut past = past(format, &shape, 140, &mut random);
        let positions: Vec<usize> = (100..140).collect();
        let q = activations(positions.len() * shape.heads * shape.head_dim, &mut random);
        let before = run(&Pool::new(2), &shape, &q, &positions, &past);
        // Position 120 becomes NaN; with a window it is forgotten again.
        let (block, offset) = (past.blocks[120 / KV_BLOCK] as usize, 120 % KV_BLOCK);
        let layout = past.layout;
        let place = &mut past.stored_keys[block * layout.key_block_bytes()..][..layout.key_block_bytes()];
        layout.store_key(place, offset, &vec![f32::NAN; shape.kv_heads * shape.head_dim]);
        let place =
            &mut past.stored_values[block * layout.value_block_bytes()..][..layout.value_block_bytes()];
        let value_len = if layout.values == Values::Own { shape.kv_heads * shape.value_dim } else { 0 };
        layout.store_value(place, offset, &vec![f32::NAN; value_len]);
        let after = run(&Pool::new(2), &shape, &q, &positions, &past);
        let per_row = shape.heads * shape.value_dim;
        for (i, (before, after)) in before.chunks(per_row).zip(after.chunks(per_row)).enumerate() {
            let sees = positions[i] >= 120 && first_seen(&shape, positions[i]) <= 120;
            match sees {
                true => assert!(after.iter().all(|x| x.is_nan()), "{shape:?} {format:?} row {i}"),
                false => assert_eq!(before, after, "{shape:?} {format:?} row {i}"),
            }
        }
    }
}

#[test]
fn a_sink_is_a_position_without_a_value() {
    let mut random = Random(16);
    let pool = Pool::new(2);
    for (shape, format) in cases().filter(|(shape, _)| shape.values == Values::Own) {
        let mut past = past(format, &shape, 1031, &mut random);
        let q = activations(EDGES.len() * shape.heads * shape.head_dim, &mut random);
        let with = |sinks: &[f32], q: &[f32], positions: &[usize], pool: &Pool, past: &Past| {
            run_rows(pool, &shape, Some(sinks), q, positions, &past.view(), &|_| &past.blocks[..])
        };
        let plain = run(&pool, &shape, &q, &EDGES, &past);
        let none = with(&vec![f32::NEG_INFINITY; shape.heads], &q, &EDGES, &pool, &past);
        assert!(plain.iter().zip(&none).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1.0)));
        let sinks: Vec<f32> = (0..shape.heads).map(|head| [0.5, -2.0, 3.0, 40.0][head % 4]).collect();
        let out = with(&sinks, &q, &EDGES, &pool, &past);
        // Values of one make every output the share of the softmax that the sink leaves.
        let ones = vec![1.0; shape.kv_heads * shape.value_dim];
        let layout = past.layout;
        for place in past.stored_values.chunks_mut(layout.value_block_bytes()) {
            (0..KV_BLOCK).for_each(|offset| layout.store_value(place, offset, &ones));
        }
        let share = with(&sinks, &q, &EDGES, &pool, &past);
        let mut alone = Vec::new();
        for (i, position) in EDGES.iter().enumerate() {
            let q = &q[i * shape.heads * shape.head_dim..][..shape.heads * shape.head_dim];
            // The scalar twin is slow: three rows show that it heeds the rule.
            for isa in Isa::all().into_iter().filter(|_| [1, 62, 513].contains(position)) {
                let found = with(&sinks, q, &[*position], &Pool::with_isa(1, isa), &past);
                assert_eq!(found, share[i * found.len()..][..found.len()], "{shape:?} {}", isa.name());
            }
            for head in 0..shape.heads {
                let q = &q[head * shape.head_dim..][..shape.head_dim];
                alone.push(share_beside(&shape, q, head, *position, &past, sinks[head]));
            }
        }
        let bound = if format == KvFormat::F32 { 1e-5 } else { 0.03 };
        for (i, ((out, share), plain)) in out.iter().zip(&share).zip(&plain).enumerate() {
            let expected = alone[i / shape.value_dim];
            assert!((*share as f64 - expected).abs() < bound, "{shape:?} {format:?} {i}");
            assert!((*out as f64 - *plain as f64 * expected).abs() < bound, "{shape:?} {format:?} {i}");
        }
    }
}

#[test]
fn values_at_the_head_of_their_keys_give_the_bits_of_the_same_values_stored_alone() {
    let mut random = Random(17);
    for (latent, format) in cases().filter(|(shape, _)| shape.values == Values::HeadOfKey) {
        let past = past(format, &latent, 1050, &mut random);
        let positions: Vec<usize> = EDGES.into_iter().chain(1020..1050).collect();
        let q = activations(positions.len() * latent.heads * latent.head_dim, &mut random);
        let sinks = activations(latent.heads, &mut random);
        let shape = AttentionShape { values: Values::Own, ..latent };
        let layout = KvLayout { values: Values::Own, ..past.layout };
        assert_eq!((past.layout.value_block_bytes(), past.stored_values.len()), (0, 0));
        let mut stored_values = vec![0xff; past.blocks.len() * layout.value_block_bytes()];
        for (position, value) in past.values.chunks(layout.kv_heads * layout.value_dim).enumerate() {
            let block = past.blocks[position / KV_BLOCK] as usize;
            let place =
                &mut stored_values[block * layout.value_block_bytes()..][..layout.value_block_bytes()];
            layout.store_value(place, position % KV_BLOCK, value);
        }
        let kv = KvView { layout, keys: &past.stored_keys, values: &stored_values };
        let pool = Pool::new(2);
        for sinks in [None, Some(&sinks[..])] {
            let blocks = |_| &past.blocks[..];
            let expected = run_rows(&pool, &shape, sinks, &q, &positions, &kv, &blocks);
            let found = run_rows(&pool, &latent, sinks, &q, &positions, &past.view(), &blocks);
            assert!(found == expected, "{latent:?} {format:?}");
        }
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    let mut random = Random(13);
    let shape = AttentionShape { scale: 100.0, ..shapes()[0] };
    let past = past(KvFormat::F16, &shape, 1031, &mut random);
    let q = activations(shape.heads * shape.head_dim, &mut random);
    assert!(run(&Pool::new(2), &shape, &q, &[1030], &past).iter().all(|x| x.is_finite()));
}
