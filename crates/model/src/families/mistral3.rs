//! Mistral 3: as Llama, with a temperature that grows with the position, and experts where there are some.

use super::{
    AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits,
};
use crate::config::{Config, Temperature};
use crate::error::ModelError;
use crate::keys::Keys;

pub static MISTRAL3: Family = Family {
    architecture: "mistral3",
    rope_style: RopeStyle::Normal,
    yarn_log_multiplier: true,
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Optional,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    feed_forward_bias: Presence::Optional,
    feed_forward_scales: true,
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let rope = &mut config.ropes[0];
    let multiplier = keys.factor("rope.scaling.yarn_log_multiplier")?;
    // YaRN's factor over that of all dimensions (llama.cpp's `llama_context`).
    if let Some(multiplier) = multiplier.filter(|_| rope.yarn.is_some() && rope.scale < 1.0) {
        rope.magnitude /= 1.0 + 0.1 * multiplier * (1.0 / rope.scale).ln();
    }
    let Some(scale) = keys.factor("attention.temperature_scale")? else { return Ok(()) };
    let length = rope.original_context as usize;
    if length == 0 {
        return Err(keys.missing("rope.scaling.original_context_length", u32::MAX));
    }
    for attention in config.attentions() {
        attention.temperature = Some(Temperature { scale, length, offset: 0 });
    }
    Ok(())
}
