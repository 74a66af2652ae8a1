//! Ling 3: Kimi delta attention whose decays have a bound, latent attention with a gate for each head, limits
//! inside experts.

use super::deepseek2::{LatentKeys, latent_of};
use super::{
    Activation, AttentionTraits, DEEPSEEK_ROUTER, Family, PLAIN, PLAIN_ATTENTION, Presence, RopeStyle, vision,
};
use crate::config::{Config, MixerConfig};
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};
use crate::recurrent::{KimiDeltaConfig, RecurrentConfig};

pub static BAILINGMOE3: Family = Family {
    architecture: "bailingmoe3",
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits { gate: Presence::Always, output_scales: false, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    latent_query_scales: false,
    // No product of this family has a bias.
    left_out: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    details,
    ..PLAIN
};

const FULL: LatentKeys = LatentKeys {
    rank: "attention.kv_lora_rank",
    key: "attention.key_length_mla",
    value: "attention.value_length_mla",
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    const SECTIONS: &str = "rope.dimension_sections";
    keys.size("expert_gating_func", u32::MAX)?;
    keys.no_yarn(config)?;
    vision::maybe_sections_in_order(keys, config)?;
    // Models that see pair up the halves of what turns.
    let sections = keys.metadata.u32s(&keys.name(SECTIONS))?.unwrap_or_default();
    if sections.iter().take(2).any(|&pairs| pairs > 0) {
        config.rope_style = RopeStyle::Neox;
    }
    let delta = RecurrentConfig::KimiDelta(delta(keys, config)?);
    config.set_recurrent(&delta, |_, attention| attention.kv_heads == 0);
    let layers = config.layers.len();
    let (experts, dense) =
        (keys.limits("swiglu_clamp_exp", layers)?, keys.limits("swiglu_clamp_shexp", layers)?);
    let activation = |limit: Option<f32>| limit.map_or(Activation::Silu, Activation::SiluClamp);
    let rotated = config.ropes[0].dimensions;
    for (layer, (expert, dense)) in config.layers.iter_mut().zip(experts.into_iter().zip(dense)) {
        layer.expert_activation = activation(expert);
        layer.activation = activation(dense);
        if let MixerConfig::Attention(plain) = &layer.mixer {
            layer.mixer = MixerConfig::Latent(latent_of(keys, &FULL, plain, rotated)?);
        }
    }
    Ok(())
}

/// The numbers of layers without heads of keys; the number of heads is the other layers'.
fn delta(keys: &Keys<'_>, config: &mut Config) -> Result<KimiDeltaConfig, ModelError> {
    const SAFE: &str = "kda.safe_gate";
    const BOUND: &str = "kda.gate_lower_bound";
    if keys.metadata.bool(&keys.name(SAFE))? == Some(false) {
        return Err(keys.bad(SAFE, false, "true or absent: this family bounds its decays"));
    }
    let Some(lowest) = keys.lowest_decay()? else {
        return Err(keys.bad(BOUND, "missing", "a negative number"));
    };
    Ok(KimiDeltaConfig {
        heads: config.attentions().map(|attention| attention.heads).max().unwrap_or(0),
        head_dim: keys.size("kda.head_dim", WIDTH_MAX)?,
        taps: keys.taps("ssm.conv_kernel")?,
        whole_gates: true,
        lowest_decay: Some(lowest),
        negative_factors: false,
        norm_epsilon: config.norm_epsilon,
    })
}
