//! SmolLM3: Llama in which every fourth layer has no positions.

use super::{Family, PLAIN, RopeStyle};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static SMOLLM3: Family =
    Family { architecture: "smollm3", rope_style: RopeStyle::Normal, details, ..PLAIN };

const PERIOD: usize = 4;

fn details(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    for (layer, attention) in config.attentions().enumerate() {
        attention.rope = attention.rope.filter(|_| (layer + 1) % PERIOD != 0);
    }
    Ok(())
}
