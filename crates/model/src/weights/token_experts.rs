//! Tables of which experts a token uses, in layers that do not ask their router (DeepSeek-V4).

use adit_format::TensorType;

use super::Weights;
use super::binder::Binder;
use crate::config::Config;
use crate::error::ModelError;
use crate::linear::Linear;

/// `vocabulary` rows of the experts that a token uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenExperts {
    pub layer: usize,
    pub handle: usize,
}

fn name(layer: usize) -> String {
    format!("blk.{layer}.ffn_gate_tid2eid.weight")
}

impl Binder<'_> {
    pub fn token_experts(&mut self, layer: usize) -> Result<TokenExperts, ModelError> {
        let used = self.config.experts.as_ref().map_or(0, |experts| experts.used);
        let info = self.claim(&name(layer), &[used as u64, self.config.vocabulary as u64])?;
        if info.kind != TensorType::I32 || !info.offset.is_multiple_of(4) {
            return Err(self.wrong_type(info, "I32 at a multiple of 4 bytes"));
        }
        Ok(TokenExperts { layer, handle: self.resident(info) })
    }
}

impl Weights {
    /// That every table names experts that there are, each once for a token.
    pub(crate) fn check_token_experts(
        &self,
        file: &str,
        config: &Config,
        linear: Linear<'_>,
    ) -> Result<(), ModelError> {
        let Some(experts) = &config.experts else { return Ok(()) };
        let routed = self.layers.iter().filter_map(|layer| layer.feed_forward.routed());
        for table in routed.filter_map(|routed| routed.by_token) {
            for (token, row) in linear.token_experts(table).chunks_exact(experts.used).enumerate() {
                if !are_experts(row, experts.count) {
                    return Err(ModelError::BadMetadata {
                        file: file.to_string(),
                        key: name(table.layer),
                        found: format!("{row:?} for token {token}"),
                        expected: format!("different experts, each less than {}", experts.count),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether these are different experts of so many.
fn are_experts(row: &[i32], count: usize) -> bool {
    let is_good =
        |(at, expert): (usize, &i32)| (0..count as i32).contains(expert) && !row[..at].contains(expert);
    row.iter().enumerate().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_uses_experts_that_there_are_and_each_once() {
        assert!(are_experts(&[2, 0], 3));
        assert!(!are_experts(&[2, 2], 3), "twice the same");
        assert!(!are_experts(&[0, 3], 3), "none of three");
        assert!(!are_experts(&[-1, 0], 3), "no number of an expert");
    }
}
