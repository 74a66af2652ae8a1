//! How fast recurrent layers are on this machine: `cargo run --release -p adit-kernels --example recurrent --
//! 2` prints, with 2 threads, GB/s of states read and written by one row, and thousand millions of
//! multiply-adds a second of 256 rows of a prompt.

#[path = "../tests/common/random.rs"]
mod random;

use std::time::Instant;

use adit_kernels::{
    Columns, Conv1d, Decay, KeySharing, LinearInputs, LinearShape, Mamba2, Pool, causal_conv1d,
    gated_delta_rule, mamba2_scan,
};
use random::{Random, activations};

/// States of all layers: more than the caches hold.
const BYTES: usize = 256 << 20;
const ROWS: usize = 256;

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
    let pool = Pool::new(threads);
    println!("{threads} threads, {}", pool.isa().name());
    println!("{:46} {:>10} {:>12}", "", "1 row GB/s", "256 rows G/s");
    let sharing = KeySharing::Neighbours;
    let delta = LinearShape { heads: 32, key_heads: 16, key_dim: 128, value_dim: 128, sharing };
    let mamba = LinearShape { heads: 128, key_heads: 1, key_dim: 128, value_dim: 64, sharing };
    print("delta rule, 32 heads of 128 x 128", &delta, 3, |inputs, gates, state, out| {
        let decay = Decay::Head(Columns { first: 32, ..gates });
        gated_delta_rule(&pool, &delta, &inputs, decay, gates, 0.1, state, out);
    });
    print("the same, decay by key channel", &delta, 3, |inputs, gates, state, out| {
        gated_delta_rule(&pool, &delta, &inputs, Decay::KeyChannel(inputs.v), gates, 0.1, state, out);
    });
    print("Mamba-2, 128 heads of 128 x 64", &mamba, 2, |inputs, gates, state, out| {
        let layer = Mamba2 { dt_bias: &[0.1; 128], a: &[-0.5; 128], d: None };
        mamba2_scan(&pool, &mamba, &inputs, &layer, gates, state, out);
    });
    let weight = activations(8192 * 4, &mut Random(1));
    let conv = Conv1d { weight: &weight, bias: None, taps: 4, silu: true };
    let (x, mut out) = (activations(ROWS * 8192, &mut Random(2)), vec![0.0; ROWS * 8192]);
    let mut state = vec![0.0; 3 * 8192];
    for rows in [1, ROWS] {
        let seconds = seconds(200, |_| {
            causal_conv1d(&pool, &conv, rows, Columns::whole(&x, 8192), &mut state, &mut out[..rows * 8192]);
        });
        println!("convolution, 4 taps of 8192, {rows} rows: {:.1} microseconds", seconds * 1e6);
    }
}

/// Runs a recurrence that needs `passes` multiply-adds for each element of the state and row.
fn print(
    name: &str,
    shape: &LinearShape,
    passes: usize,
    run: impl Fn(LinearInputs<'_>, Columns<'_>, &mut [f32], &mut [f32]),
) {
    let (keys, values) = (shape.key_heads * shape.key_dim, shape.heads * shape.value_dim);
    let stride = 2 * keys + values;
    let x: Vec<f32> = activations(ROWS * stride, &mut Random(3)).iter().map(|x| x * 0.01 - 0.02).collect();
    let gates = vec![-0.1; ROWS * 256];
    let floats = shape.state_floats();
    let layers = BYTES / (4 * floats);
    let (mut states, mut out) = (vec![0.0; layers * floats], vec![0.0; ROWS * values]);
    let mut time = |rows: usize, turns: usize| {
        let part = |first| Columns { data: &x, stride, first };
        let inputs = LinearInputs { rows, q: part(0), k: part(keys), v: part(2 * keys) };
        seconds(turns, |turn| {
            let state = &mut states[turn % layers * floats..][..floats];
            run(inputs, Columns::whole(&gates, 256), state, &mut out[..rows * values]);
        })
    };
    let (one, many) = (time(1, 4 * layers), time(ROWS, 10));
    let work = (ROWS * passes * floats) as f64;
    println!("{name:46} {:10.1} {:12.1}", 8.0 * floats as f64 / one / 1e9, work / many / 1e9);
}
