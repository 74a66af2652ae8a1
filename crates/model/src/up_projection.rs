//! A low-rank adapter on the up-projection of latent attention (`kv_b_proj`).
//!
//! In the absorbed form that matrix never meets the latents that are stored, so an adapter on it would be
//! lost silently. Of `W + scale * B A` the part that makes keys is applied to queries, transposed, and the
//! part that makes values to what was attended. Knows nothing of files or of how adapters are chosen.

use crate::config::LatentConfig;
use crate::error::ModelError;

/// Largest rank: the values between the two matrices stand on the stack.
const RANK_MAX: usize = 256;

/// `B A` beside the up-projection of one layer, for all its rows and lanes.
#[derive(Debug, Clone)]
pub struct UpProjectionAdapter {
    /// `[rank][latent]`
    a: Vec<f32>,
    /// `[heads * (unrotated + value_dim)][rank]`: each head's rows for keys, then those for values.
    b: Vec<f32>,
    scale: f32,
    rank: usize,
    latent: usize,
    unrotated: usize,
    value_dim: usize,
}

impl UpProjectionAdapter {
    /// Error when the rank is not 1 to 256 or the matrices are not of the layer's shape.
    pub(crate) fn new(
        config: &LatentConfig,
        rank: usize,
        a: Vec<f32>,
        b: Vec<f32>,
        scale: f32,
    ) -> Result<UpProjectionAdapter, ModelError> {
        let LatentConfig { latent, unrotated, value_dim, .. } = *config;
        let expected = [rank * latent, config.attention.heads * (unrotated + value_dim) * rank];
        let found = [a.len(), b.len()];
        if !(1..=RANK_MAX).contains(&rank) || found != expected {
            return Err(ModelError::AdapterShape { rank, rank_max: RANK_MAX, found, expected });
        }
        Ok(UpProjectionAdapter { a, b, scale, rank, latent, unrotated, value_dim })
    }

    fn row(&self, head: usize, row: usize) -> &[f32] {
        let row = head * (self.unrotated + self.value_dim) + row;
        &self.b[row * self.rank..(row + 1) * self.rank]
    }

    /// `absorbed += scale * A^T (Bk^T query)` of one head's `query[unrotated]`.
    pub(crate) fn correct_query(&self, head: usize, query: &[f32], absorbed: &mut [f32]) {
        let mut between = [0.0; RANK_MAX];
        let between = &mut between[..self.rank];
        for (row, &value) in query.iter().enumerate() {
            for (sum, &weight) in between.iter_mut().zip(self.row(head, row)) {
                *sum += weight * value;
            }
        }
        for (row, &value) in self.a.chunks_exact(self.latent).zip(&*between) {
            for (out, &weight) in absorbed.iter_mut().zip(row) {
                *out += self.scale * value * weight;
            }
        }
    }

    /// `output += scale * Bv (A attended)` of one head's `attended[latent]`.
    pub(crate) fn correct_output(&self, head: usize, attended: &[f32], output: &mut [f32]) {
        let mut between = [0.0; RANK_MAX];
        let between = &mut between[..self.rank];
        for (sum, row) in between.iter_mut().zip(self.a.chunks_exact(self.latent)) {
            *sum = row.iter().zip(attended).map(|(weight, value)| weight * value).sum();
        }
        for (at, out) in output.iter_mut().enumerate() {
            let row = self.row(head, self.unrotated + at);
            let sum: f32 = row.iter().zip(&*between).map(|(weight, value)| weight * value).sum();
            *out += self.scale * sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use adit_format::rng::Rng;
    use adit_kernels::Values;

    use super::*;
    use crate::config::AttentionConfig;

    const HEADS: usize = 3;
    const RANK: usize = 2;

    fn config() -> LatentConfig {
        let attention = AttentionConfig {
            heads: HEADS,
            kv_heads: 1,
            head_dim: 8,
            value_dim: 6,
            values: Values::HeadOfKey,
            scale: 1.0,
            clamp: None,
            rms_after_rope: false,
            value_norm: false,
            output_scale: 1.0,
            window: None,
            chunk: None,
            soft_cap: None,
            rope: None,
            temperature: None,
        };
        LatentConfig { attention, latent: 6, rotated: 2, unrotated: 4, value_dim: 5, query_rank: 0 }
    }

    fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| rng.normal()).collect()
    }

    /// `(scale B A)[row] . latent`: what the adapter adds to the up-projection of a latent.
    fn added(adapter: &UpProjectionAdapter, head: usize, row: usize, latent: &[f32]) -> f32 {
        let products =
            adapter.a.chunks_exact(6).map(|a| a.iter().zip(latent).map(|(a, x)| a * x).sum::<f32>());
        adapter.scale * products.zip(adapter.row(head, row)).map(|(x, b)| x * b).sum::<f32>()
    }

    #[test]
    fn scores_and_outputs_are_those_of_the_adapted_matrix() {
        let mut rng = Rng::new(7);
        let (a, b) = (random(&mut rng, RANK * 6), random(&mut rng, HEADS * 9 * RANK));
        let adapter = UpProjectionAdapter::new(&config(), RANK, a, b, 0.5).expect("the shapes fit");
        for head in 0..HEADS {
            let (query, latent) = (random(&mut rng, 4), random(&mut rng, 6));
            let mut absorbed = vec![0.0; 6];
            adapter.correct_query(head, &query, &mut absorbed);
            let score: f32 = absorbed.iter().zip(&latent).map(|(q, c)| q * c).sum();
            let expected: f32 = (0..4).map(|row| query[row] * added(&adapter, head, row, &latent)).sum();
            assert!((score - expected).abs() < 1e-4, "{score} for {expected}");
            let mut output = vec![1.0; 5];
            adapter.correct_output(head, &latent, &mut output);
            for (at, output) in output.iter().enumerate() {
                let expected = 1.0 + added(&adapter, head, 4 + at, &latent);
                assert!((output - expected).abs() < 1e-4, "{output} for {expected}");
            }
        }
    }

    #[test]
    fn wrong_shapes_are_refused() {
        assert!(UpProjectionAdapter::new(&config(), 0, vec![], vec![], 1.0).is_err());
        assert!(UpProjectionAdapter::new(&config(), 1, vec![0.0; 6], vec![0.0; 26], 1.0).is_err());
        assert!(UpProjectionAdapter::new(&config(), 1, vec![0.0; 6], vec![0.0; 27], 1.0).is_ok());
    }
}
