//! The keys of hyper-connections, which several families have.

use crate::config::{Mixing, StreamsConfig};
use crate::error::ModelError;
use crate::keys::Keys;
use crate::streams::STREAMS_MAX;

/// Residual streams whose shares of a block's output are sigmoids times `magnitude`.
pub(super) fn streams(keys: &Keys<'_>, magnitude: f32, mixing: Mixing) -> Result<StreamsConfig, ModelError> {
    const COUNT: &str = "hyper_connection.count";
    let count = keys.size(COUNT, u32::MAX)?;
    if !(2..=STREAMS_MAX).contains(&count) {
        return Err(keys.bad(COUNT, count, &format!("2 to {STREAMS_MAX} residual streams")));
    }
    let epsilon = keys.float("hyper_connection.epsilon")?;
    Ok(StreamsConfig { count, epsilon, magnitude, output_epsilon: 0.0, mixing })
}
