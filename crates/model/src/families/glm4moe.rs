//! GLM-4.5 and 4.6: a dense start, then sigmoid routing with a correction and a shared expert.

use super::{
    AttentionTraits, DEEPSEEK_ROUTER, Family, GatePlace, Gating, PLAIN, PLAIN_ATTENTION, Presence, RopeStyle,
    RouterTraits,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

/// GLM-4: gate and up in one tensor, norms after each block.
pub static GLM4: Family = Family {
    architecture: "glm4",
    rope_style: RopeStyle::Normal,
    gate_place: GatePlace::InUp,
    post_norms: Presence::Always,
    details: no_sections,
    ..PLAIN
};

pub static GLM4MOE: Family = Family {
    architecture: "glm4moe",
    attention: AttentionTraits { qk_norm: Presence::Optional, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, ..DEEPSEEK_ROUTER },
    leading_dense: true,
    // The file names the norm before the feed-forward block after the attention that it follows.
    feed_forward_norm: Some("post_attention_norm"),
    ..PLAIN
};

/// Models that see pair values of a head in another way.
fn no_sections(keys: &Keys<'_>, _: &mut Config) -> Result<(), ModelError> {
    const KEY: &str = "rope.dimension_sections";
    match keys.metadata.u32s(&keys.name(KEY))?.unwrap_or_default().iter().find(|&&section| section > 0) {
        Some(section) => Err(keys.bad(KEY, section, "absent: adit runs the models of text only")),
        None => Ok(()),
    }
}
