//! Grok 1 and 2: soft caps, factors on embeddings and logits, norms after blocks; in 2 a dense block beside
//! the experts.

use super::{Activation, Family, PLAIN, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};

pub static GROK: Family = Family {
    architecture: "grok",
    activation: Activation::GeluTanh,
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, shared: true, shared_suffix: "", ..PLAIN_ROUTER },
    post_norms: Presence::Always,
    post_mixer_norm: "attn_output_norm",
    post_feed_forward_norm: &["layer_output_norm", "post_ffw_norm"],
    details,
    ..PLAIN
};

/// Numbers of Grok 1, whose files do not name them (its reference implementation).
const LOGIT_SCALE: f32 = 0.577_350_27;
const EMBEDDING_SCALE: f32 = 78.383_675;
const ATTENTION_SCALE: f32 = 0.088_388_346;
const ATTENTION_CAP: f32 = 30.0;
const YARN_BETA_FAST: f32 = 8.0;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let factor = |key, default| Ok::<_, ModelError>(keys.optional_float(key)?.unwrap_or(default));
    config.logit_scale = factor("logit_scale", LOGIT_SCALE)?;
    config.embedding_scale = factor("embedding_scale", EMBEDDING_SCALE)?;
    config.logit_soft_cap = keys.factor("final_logit_softcapping")?;
    let scale = factor("attention.output_scale", ATTENTION_SCALE)?;
    let cap = factor("attn_logit_softcapping", ATTENTION_CAP)?;
    if cap == 0.0 {
        return Err(keys.bad("attn_logit_softcapping", cap, "the limit of attention scores"));
    }
    for attention in config.attentions() {
        (attention.scale, attention.soft_cap) = (scale, Some(cap));
    }
    if let Some(yarn) = &mut config.ropes[0].yarn {
        yarn.beta_fast = factor("rope.scaling.yarn_beta_fast", YARN_BETA_FAST)?;
        for key in ["rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"] {
            let found = factor(key, 1.0)?;
            if found != 1.0 {
                return Err(keys.bad(key, found, "1 or absent"));
            }
        }
    }
    if let Some(experts) = &mut config.experts {
        experts.shared = 0;
        if (keys.has_tensor)("blk.0.ffn_up.weight") {
            experts.shared = keys.size("feed_forward_length", WIDTH_MAX)?;
            experts.sum_scale = std::f32::consts::FRAC_1_SQRT_2;
        }
    }
    Ok(())
}
