//! Hy4: latent attention with sinks and a gate for each value, hyper-connections whose streams do not mix, a
//! dense start, routed experts with a limit inside, shared ones without.

use super::deepseek2::{INDEXER, LatentKeys, latent_of};
use super::{
    Activation, AttentionTraits, DEEPSEEK_ROUTER, Family, PLAIN, PLAIN_ATTENTION, Presence, RopeStyle, hyper,
};
use crate::config::{Config, MixerConfig, Mixing, StreamsConfig};
use crate::error::ModelError;
use crate::keys::Keys;

pub static HY_V4: Family = Family {
    architecture: "hy_v4",
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits {
        sinks: Presence::Always,
        gate: Presence::Always,
        output_scales: false,
        ..PLAIN_ATTENTION
    },
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    left_out: &INDEXER,
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    keys.size("expert_gating_func", u32::MAX)?;
    // Without an indexer all positions are attended, with one those that it picks; up to so many, all.
    let picked = keys.optional_size("attention.indexer.top_k", u32::MAX)?;
    config.context_exact = picked.filter(|&picked| picked > 0);
    keys.no_yarn(config)?;
    let rotated = config.ropes[0].dimensions;
    let names = LatentKeys {
        rank: "attention.kv_lora_rank",
        key: "attention.key_length_mla",
        value: "attention.value_length_mla",
    };
    let limits = keys.limits("swiglu_clamp_exp", config.layers.len())?;
    for (layer, limit) in config.layers.iter_mut().zip(limits) {
        layer.expert_activation = limit.map_or(Activation::Silu, Activation::SwigluClamp);
        if let MixerConfig::Attention(plain) = &layer.mixer {
            layer.mixer = MixerConfig::Latent(latent_of(keys, &names, plain, rotated)?);
        }
    }
    let magnitude = keys.float("hyper_connection.magnitude")?;
    let streams = hyper::streams(keys, magnitude, Mixing::None)?;
    config.streams = Some(StreamsConfig { output_epsilon: streams.epsilon, ..streams });
    Ok(())
}
