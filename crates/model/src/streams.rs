//! Several residual streams that blocks read from and write to in shares of their own (hyper-connections,
//! arXiv:2409.19606; DeepSeek-V4's are constrained to doubly stochastic mixing, arXiv:2512.24880).
//!
//! Before a block the streams are gathered to what it begins from, behind it each stream takes its share of
//! the block's output. The shares are made of the streams themselves, position by position. A model of one
//! stream does none of this: there a block's output is added.

use adit_kernels::{add_scaled, sigmoid, softmax};

use crate::config::{Mixing, StreamsConfig};
use crate::error::ModelError;
use crate::forward::Pass;
use crate::scratch::Scratch;
use crate::weights::{Binder, Tensor, Vector};

/// Streams that a model may have.
pub(crate) const STREAMS_MAX: usize = 8;
/// Values of a stream that are mixed at a time.
const MIXED_TOGETHER: usize = 64;

/// What makes the shares of one block: `matrix * streams / rms(streams)`, times a factor for each kind of
/// share, plus a base.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// Rows: shares in gathering, then in the block's output, then of each stream in each stream; columns:
    /// all streams, one behind the other.
    pub matrix: Tensor,
    pub base: Vector,
    /// One value for each kind of share.
    pub scale: Vector,
}

impl Connection {
    /// The tensors `stem`_fn, `stem`_base and `stem`_scale of so many shares of so many kinds.
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        stem: &str,
        streams: &StreamsConfig,
        [shares, kinds]: [usize; 2],
    ) -> Result<Connection, ModelError> {
        let cols = streams.count * binder.config.width;
        Ok(Connection {
            matrix: binder.matrix(&format!("{stem}_fn.weight"), shares, cols)?,
            base: binder.vector(&format!("{stem}_base.weight"), shares)?,
            scale: binder.vector(&format!("{stem}_scale.weight"), kinds)?,
        })
    }
}

impl StreamsConfig {
    /// Shares that a block has, and their kinds.
    pub(crate) fn shares(&self) -> [usize; 2] {
        match self.mixing {
            Mixing::None => [2 * self.count, 2],
            Mixing::Sinkhorn { .. } => [(2 + self.count) * self.count, 3],
        }
    }

    /// Makes shares of what the matrix gave: where there is one kind only, they are those of gathering.
    fn finish(&self, shares: &mut [f32], base: &[f32], scale: &[f32]) {
        let count = self.count;
        for (at, (share, base)) in shares.iter_mut().zip(base).enumerate() {
            *share = *share * scale[(at / count).min(2)] + base;
        }
        let (gathering, rest) = shares.split_at_mut(count);
        sigmoid(gathering);
        gathering.iter_mut().for_each(|share| *share += self.epsilon);
        if rest.is_empty() {
            return;
        }
        let (output, mixing) = rest.split_at_mut(count);
        sigmoid(output);
        output.iter_mut().for_each(|share| *share = *share * self.magnitude + self.output_epsilon);
        if let Mixing::Sinkhorn { iterations } = self.mixing {
            self.sinkhorn(mixing, iterations);
        }
    }

    /// Makes `[from][to]` nearly doubly stochastic (Sinkhorn and Knopp): softmax of each row, then columns
    /// and rows are divided by their sums in turn.
    fn sinkhorn(&self, shares: &mut [f32], iterations: usize) {
        let count = self.count;
        for row in shares.chunks_exact_mut(count) {
            softmax(row);
            row.iter_mut().for_each(|share| *share += self.epsilon);
        }
        for iteration in 0..iterations.max(1) {
            if iteration > 0 {
                for row in shares.chunks_exact_mut(count) {
                    let sum = row.iter().sum::<f32>() + self.epsilon;
                    row.iter_mut().for_each(|share| *share /= sum);
                }
            }
            for to in 0..count {
                let sum = shares[to..].iter().step_by(count).sum::<f32>() + self.epsilon;
                shares[to..].iter_mut().step_by(count).for_each(|share| *share /= sum);
            }
        }
    }

    /// stream = share * output + sum over streams of its share * that stream, for every stream
    fn mix(&self, streams: &mut [f32], output: &[f32], shares: &[f32]) {
        let (count, width) = (self.count, output.len());
        let (of_output, of_streams) = shares[count..].split_at(count);
        let mut before = [[0.0; MIXED_TOGETHER]; STREAMS_MAX];
        for first in (0..width).step_by(MIXED_TOGETHER) {
            let len = MIXED_TOGETHER.min(width - first);
            for (from, before) in before[..count].iter_mut().enumerate() {
                before[..len].copy_from_slice(&streams[from * width + first..][..len]);
            }
            for to in 0..count {
                let stream = &mut streams[to * width + first..][..len];
                if let Mixing::Sinkhorn { .. } = self.mixing {
                    stream.fill(0.0);
                    for (from, before) in before[..count].iter().enumerate() {
                        add_scaled(stream, &before[..len], of_streams[from * count + to]);
                    }
                }
                add_scaled(stream, &output[first..first + len], of_output[to]);
            }
        }
    }
}

impl Pass<'_> {
    /// Begins all streams of each row with its embedding.
    pub(crate) fn begin_streams(&mut self, count: usize) {
        let Some(streams) = &self.config.streams else { return };
        let width = self.config.width;
        let Scratch { hidden, streams: values, .. } = &mut *self.scratch;
        let rows = values[..count * streams.count * width].chunks_exact_mut(streams.count * width);
        for (row, hidden) in rows.zip(hidden.chunks_exact(width)) {
            row.chunks_exact_mut(width).for_each(|stream| stream.copy_from_slice(hidden));
        }
    }

    /// hidden = sum of each stream's share, for the first `count` rows; the block's other shares are kept.
    /// Without a connection: their mean.
    pub(crate) fn gather_streams(&mut self, connection: Option<&Connection>, count: usize) {
        let Pass { config: model, linear, scratch, .. } = self;
        let Some(config) = &model.streams else { return };
        let Scratch { hidden, streams, shares, input, .. } = &mut **scratch;
        let (width, all) = (model.width, config.count * model.width);
        let streams = &streams[..count * all];
        let mean = [1.0 / config.count as f32; STREAMS_MAX];
        let stride = connection.map_or(0, |connection| connection.matrix.rows);
        if let Some(Connection { matrix, base, scale }) = connection {
            linear.load(input, streams, count, all, &[matrix.kind]);
            linear.project(input, count, [((*matrix).into(), &mut shares[..])]);
            let (base, scale) = (linear.vector(*base), linear.vector(*scale));
            linear.pool.rows(&mut shares[..count * stride], stride, |row, shares| {
                let streams = &streams[row * all..(row + 1) * all];
                let squares: f64 = streams.iter().map(|&x| x as f64 * x as f64).sum();
                let factor = 1.0 / ((squares / all as f64) as f32 + model.norm_epsilon).sqrt();
                shares.iter_mut().for_each(|share| *share *= factor);
                config.finish(shares, base, scale);
            });
        }
        let shares = &*shares;
        linear.pool.rows(&mut hidden[..count * width], width, |row, out| {
            let shares = if stride == 0 { &mean } else { &shares[row * stride..] };
            out.fill(0.0);
            let streams = streams[row * all..(row + 1) * all].chunks_exact(width);
            streams.zip(shares).for_each(|(stream, &share)| add_scaled(out, stream, share));
        });
    }

    /// Gives each stream its share of the block's output in `normed`, and of the streams before it.
    pub(crate) fn spread_to_streams(&mut self, config: &StreamsConfig, count: usize) {
        let width = self.config.width;
        let Scratch { normed, streams, shares, .. } = &mut *self.scratch;
        let (stride, all) = (config.shares()[0], config.count * width);
        let (normed, shares) = (&*normed, &*shares);
        self.linear.pool.rows(&mut streams[..count * all], all, |row, streams| {
            let output = &normed[row * width..(row + 1) * width];
            config.mix(streams, output, &shares[row * stride..(row + 1) * stride]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(mixing: Mixing) -> StreamsConfig {
        StreamsConfig { count: 3, epsilon: 1e-6, magnitude: 2.0, output_epsilon: 0.0, mixing }
    }

    #[test]
    fn mixing_shares_are_nearly_doubly_stochastic() {
        let config = config(Mixing::Sinkhorn { iterations: 20 });
        let mut shares = [0.3, -1.0, 2.0, 0.0, 0.5, -0.5, 1.0, 1.5, -2.0];
        config.sinkhorn(&mut shares, 20);
        for at in 0..3 {
            let row: f32 = shares[at * 3..(at + 1) * 3].iter().sum();
            let col: f32 = shares[at..].iter().step_by(3).sum();
            assert!((row - 1.0).abs() < 1e-3 && (col - 1.0).abs() < 1e-3, "{row} and {col}");
        }
    }

    #[test]
    fn each_stream_takes_its_share_of_the_output_and_of_all_streams() {
        let config = config(Mixing::Sinkhorn { iterations: 1 });
        let mut streams = [1.0, 10.0, 100.0];
        let mut shares = [0.0; 15];
        shares[3..6].copy_from_slice(&[0.5, 0.25, 0.125]);
        // From the first stream to the second, from the second to the third, from the third to the first.
        for at in [1, 5, 6] {
            shares[6 + at] = 1.0;
        }
        config.mix(&mut streams, &[8.0], &shares);
        assert_eq!(streams, [104.0, 3.0, 11.0]);
    }

    #[test]
    fn without_mixing_streams_stay_and_take_their_share_of_the_output() {
        let mut streams = [1.0, 10.0, 100.0];
        config(Mixing::None).mix(&mut streams, &[8.0], &[0.0, 0.0, 0.0, 0.5, 0.25, 0.125]);
        assert_eq!(streams, [5.0, 12.0, 101.0]);
    }
}
