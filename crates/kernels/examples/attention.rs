//! How fast attention is on this machine: `cargo run --release -p adit-kernels --example attention -- 2`
//! prints, with 2 threads, GB/s of keys and values met by one row at several depths, beside plain reading of
//! as much memory, and thousand millions of multiply-adds a second of 512 rows of a prompt, at its begin and
//! after 4096 others. Latent attention is bound by arithmetic also for one row: multiply-adds a second of 1
//! row after 512 positions, and of 1 and 64 rows after 16384, beside the peak of the fused ones.

#[path = "../tests/common/random.rs"]
mod random;

use std::time::Instant;

use adit_kernels::roofline::float_products;
use adit_kernels::{
    AttentionRow, AttentionShape, KV_BLOCK, KvFormat, KvLayout, KvView, Pool, Values, attention,
    attention_scratch_floats,
};
use random::{Random, activations};

/// Keys and values of all layers: more than the caches hold.
const BYTES: usize = 512 << 20;

/// Seconds that `f` takes in a good turn: one of the fastest tenth, because other programs disturb.
fn seconds(turns: usize, mut f: impl FnMut(usize)) -> f64 {
    let time = |turn| {
        let start = Instant::now();
        f(turn);
        start.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..turns).map(time).collect();
    times.sort_by(f64::total_cmp);
    times[turns / 10]
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |arg| arg.parse().expect("a number of threads"));
    let only = std::env::args().nth(2);
    let pool = Pool::new(threads);
    println!("{threads} threads, {}", pool.isa().name());
    let words = vec![1u64; BYTES / 8];
    let parts: Vec<&[u64]> = words.chunks_exact(BYTES / 8 / 16).collect();
    let read = seconds(40, |turn| {
        let part = parts[turn % parts.len()];
        pool.ranges(part.len(), 1 << 12, |_, range| {
            std::hint::black_box(part[range].iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
    });
    println!("plain reading: {:.1} GB/s", (BYTES / 16) as f64 / read / 1e9);
    println!("{:28} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8}", "", "512", "4k", "16k", "32k", "at 0", "at 4k");
    for (heads, kv_heads, dim) in [(9, 3, 64), (4, 1, 256), (32, 4, 128), (32, 8, 128), (16, 16, 128)] {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0] {
            let name = format!("{heads} on {kv_heads} heads of {dim}, {format:?}");
            if only.as_ref().is_none_or(|only| name.contains(only)) {
                print!("{name:28}");
                let values = Values::Own;
                let layout = KvLayout { format, kv_heads, head_dim: dim, value_dim: dim, values };
                let past = Past::new(heads, layout);
                for depth in [512, 4096, 16384, 32768] {
                    let turns = ((1 << 23) / depth / heads).clamp(10, 200);
                    let bytes = depth / KV_BLOCK * past.block_bytes();
                    print!(" {:6.1}", bytes as f64 / past.seconds(&pool, 1, depth, turns) / 1e9);
                }
                for (depth, turns) in [(0, 20), (4096, 10)] {
                    let multiply_adds = 512 * (2 * depth + 513) * heads * dim;
                    let seconds = past.seconds(&pool, 512, depth + 512, turns);
                    print!(" {:8.1}", multiply_adds as f64 / seconds / 1e9);
                }
                println!();
            }
        }
    }
    latent(&pool, only.as_deref());
}

/// DeepSeek's latent, 512 + 64 elements, for the heads of V2-Lite and of V3.
fn latent(pool: &Pool, only: Option<&str>) {
    let pieces = 200;
    let mut operations = 0;
    let peak = seconds(20, |_| operations = float_products(pool, pieces));
    let peak = operations as f64 / 2.0 / peak / 1e9;
    println!("\nlatent attention, 1 row after 512 and 16384 positions, 64 rows after 16384; peak {peak:.1}");
    for heads in [16, 128] {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0] {
            let name = format!("latent, {heads} heads, {format:?}");
            if only.is_none_or(|only| name.contains(only)) {
                print!("{name:28}");
                let values = Values::HeadOfKey;
                let layout = KvLayout { format, kv_heads: 1, head_dim: 576, value_dim: 512, values };
                let past = Past::new(heads, layout);
                for (rows, depth, turns) in [(1, 512, 200), (1, 16384, 40), (64, 16384, 10)] {
                    let positions = (1..=rows).map(|row| depth - rows + row).sum::<usize>();
                    let seconds = past.seconds(pool, rows, depth, turns);
                    print!(" {:8.1}", (positions * heads * (576 + 512)) as f64 / seconds / 1e9);
                }
                println!();
            }
        }
    }
}

/// Keys and values of a model's layers, one after the other.
struct Past {
    shape: AttentionShape,
    layout: KvLayout,
    keys: Vec<u8>,
    values: Vec<u8>,
    blocks: Vec<u32>,
}

impl Past {
    fn new(heads: usize, layout: KvLayout) -> Past {
        let KvLayout { kv_heads, head_dim, value_dim, values: place, .. } = layout;
        let mut keys = vec![0; layout.key_block_bytes()];
        let mut values = vec![0; layout.value_block_bytes()];
        let x = activations(KV_BLOCK * kv_heads * head_dim, &mut Random(1));
        for (offset, x) in x.chunks(kv_heads * head_dim).enumerate() {
            layout.store_key(&mut keys, offset, x);
            let x = &x[..kv_heads * value_dim];
            layout.store_value(&mut values, offset, if place == Values::Own { x } else { &[] });
        }
        let count = BYTES / (keys.len() + values.len());
        let (scale, window, soft_cap) = (0.02, None, None);
        Past {
            shape: AttentionShape {
                heads,
                kv_heads,
                head_dim,
                value_dim,
                values: place,
                scale,
                window,
                chunk: None,
                soft_cap,
            },
            layout,
            keys: keys.repeat(count),
            values: values.repeat(count),
            blocks: (0..count as u32).collect(),
        }
    }

    fn block_bytes(&self) -> usize {
        self.layout.key_block_bytes() + self.layout.value_block_bytes()
    }

    /// Seconds of a call for the last `rows` of `depth` positions, each turn in the next layer.
    fn seconds(&self, pool: &Pool, rows: usize, depth: usize, turns: usize) -> f64 {
        let kv = KvView { layout: self.layout, keys: &self.keys, values: &self.values };
        let queries = rows * self.shape.heads;
        let q = activations(queries * self.shape.head_dim, &mut Random(2));
        let mut out = vec![0.0; queries * self.shape.value_dim];
        let mut scratch = vec![0.0; attention_scratch_floats(&self.shape, pool.threads(), depth)];
        let layers = self.blocks.len() / (depth / KV_BLOCK);
        seconds(turns, |turn| {
            let blocks = &self.blocks[turn % layers * (depth / KV_BLOCK)..];
            let row = |row| AttentionRow { position: depth - rows + row, blocks };
            attention(pool, &self.shape, None, &q, rows, &row, &kv, &mut scratch, &mut out);
        })
    }
}
