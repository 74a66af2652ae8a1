//! MiniCPM: Granite with factors that need not be in the file.

use super::{Family, Presence, granite};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static MINICPM: Family =
    Family { architecture: "minicpm", experts: Presence::Optional, details, ..granite::GRANITE_LIKE };

/// Factors of the first models, whose files do not name them (MiniCPM, arXiv:2404.06395, table 1).
const EMBEDDING_SCALE: f32 = 12.0;
const DEPTH_SCALE: f32 = 1.4;
const BASE_WIDTH: f32 = 256.0;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let factor = |key, default| Ok::<_, ModelError>(keys.optional_float(key)?.unwrap_or(default));
    config.embedding_scale = factor("embedding_scale", EMBEDDING_SCALE)?;
    config.residual_scale = factor("residual_scale", DEPTH_SCALE / (config.layers.len() as f32).sqrt())?;
    let divisor = factor("logit_scale", BASE_WIDTH / config.width as f32)?;
    if divisor == 0.0 {
        return Err(keys.bad("logit_scale", divisor, "the divisor of the logits"));
    }
    config.logit_scale = 1.0 / divisor;
    keys.must_be_absent(&["attention.scale"])
}
