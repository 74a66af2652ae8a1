//! GLM-5.3-Flash: Kimi delta attention, latent attention without positions in other layers,
//! hyper-connections whose streams end in their mean, limits inside feed-forward blocks.

use super::deepseek2::{LatentKeys, latent_of};
use super::{
    Activation, AttentionTraits, DEEPSEEK_ROUTER, Family, Gating, PLAIN, PLAIN_ATTENTION, Presence,
    RouterTraits, hyper,
};
use crate::config::{Config, MixerConfig, Mixing};
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};
use crate::recurrent::{KimiDeltaConfig, RecurrentConfig};

pub static GLM5_NEXT: Family = Family {
    architecture: "glm5-next",
    attention: AttentionTraits { output_scales: false, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, ..DEEPSEEK_ROUTER },
    leading_dense: true,
    latent_query_scales: false,
    output_streams: false,
    left_out: &[
        // No product of this family has a bias.
        "attn_q.bias",
        "attn_k.bias",
        "attn_v.bias",
        // What finds the best positions. Where all are attended there is nothing to find.
        "indexer.k_norm.weight",
        "indexer.k_norm.bias",
        "indexer.proj.weight",
        "indexer.attn_k.weight",
        "indexer.attn_q_b.weight",
        "indexer_compressor_gate.weight",
        "indexer_compressor_ape.weight",
    ],
    details,
    ..PLAIN
};

const FULL: LatentKeys = LatentKeys {
    rank: "attention.kv_lora_rank",
    key: "attention.key_length_mla",
    value: "attention.value_length_mla",
};
/// A stream's share of a block's output is at most this.
const MAGNITUDE: f32 = 2.0;
/// As in the library of the reference.
const DELTA_EPSILON: f32 = 1e-6;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    const TAIL: &str = "attention.indexer.kpool_select_tail";
    // Positions behind the last whole pool must be attended, or all of a short context would not be.
    if keys.metadata.bool(&keys.name(TAIL))? == Some(false) {
        return Err(keys.bad(TAIL, false, "true or absent"));
    }
    config.context_exact = Some(keys.size("attention.indexer.top_k", u32::MAX)?);
    keys.no_yarn(config)?;
    let delta = RecurrentConfig::KimiDelta(KimiDeltaConfig {
        heads: config.attentions().map(|attention| attention.heads).max().unwrap_or(0),
        head_dim: keys.size("kda.head_dim", WIDTH_MAX)?,
        taps: keys.taps("ssm.conv_kernel")?,
        whole_gates: false,
        lowest_decay: keys.lowest_decay()?,
        negative_factors: true,
        norm_epsilon: DELTA_EPSILON,
    });
    config.set_recurrent(&delta, |_, attention| attention.kv_heads == 0);
    let layers = config.layers.len();
    let experts = keys.limits("swiglu_clamp_exp", layers)?;
    let dense = match keys.metadata.get(&keys.name("swiglu_clamp_shexp")) {
        Some(_) => keys.limits("swiglu_clamp_shexp", layers)?,
        None => experts.clone(),
    };
    let activation = |limit: Option<f32>| limit.map_or(Activation::Silu, Activation::SwigluClamp);
    // Of a head's key, what all heads share; it does not turn.
    let shared = keys.optional_size("rope.dimension_count", WIDTH_MAX)?.unwrap_or(0);
    for (layer, (expert, dense)) in config.layers.iter_mut().zip(experts.into_iter().zip(dense)) {
        layer.expert_activation = activation(expert);
        layer.activation = activation(dense);
        if let MixerConfig::Attention(plain) = &layer.mixer {
            let mut latent = latent_of(keys, &FULL, plain, shared)?;
            latent.attention.rope = None;
            layer.mixer = MixerConfig::Latent(latent);
        }
    }
    let iterations = keys.size("hyper_connection.sinkhorn_iterations", 1000)?;
    config.streams = Some(hyper::streams(keys, MAGNITUDE, Mixing::Sinkhorn { iterations })?);
    Ok(())
}
