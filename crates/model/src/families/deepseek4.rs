//! DeepSeek-V4: attention to a window and to compressed keys, hyper-connections, limits inside experts, a
//! gate of square roots of softplus, experts looked up by token in the first layers.

use super::{
    Activation, Family, Gating, Normalise, PLAIN, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits, hyper,
};
use crate::config::{Config, MixerConfig, Mixing, Rope};
use crate::error::ModelError;
use crate::keys::{HEADS_MAX, Keys, LAYERS_MAX, WIDTH_MAX};
use crate::recurrent::{CompressedConfig, Compression, RecurrentConfig};

pub static DEEPSEEK4: Family = Family {
    architecture: "deepseek4",
    rope_style: RopeStyle::Normal,
    experts: Presence::Always,
    router: RouterTraits {
        gating: Gating::SqrtSoftplus,
        gating_varies: false,
        normalise: Normalise::AsFileSays,
        correction: Presence::Always,
        shared: true,
        ..PLAIN_ROUTER
    },
    left_out: &[
        // What finds the best compressed keys. Where all are attended there is nothing to find.
        "indexer.proj.weight",
        "indexer.attn_q_b.weight",
        "indexer_compressor_kv.weight",
        "indexer_compressor_gate.weight",
        "indexer_compressor_ape.weight",
        "indexer_compressor_norm.weight",
        // For tokens of images.
        "exp_probs_b_vl.bias",
    ],
    details,
    ..PLAIN
};

/// Whose compressed keys are so many that an indexer picks some, and whose runs overlap.
const FINE: usize = 4;
const COARSE: usize = 128;
/// A stream's share of a block's output is at most this.
const MAGNITUDE: f32 = 2.0;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let layers = config.layers.len();
    if let Some(experts) = &mut config.experts {
        experts.looked_up = keys.optional_size("hash_layer_count", LAYERS_MAX)?.unwrap_or(0);
    }
    let experts = keys.limits("swiglu_clamp_exp", layers)?;
    let shared = match keys.metadata.get(&keys.name("swiglu_clamp_shexp")) {
        Some(_) => keys.limits("swiglu_clamp_shexp", layers)?,
        None => experts.clone(),
    };
    let activation = |limit: Option<f32>| limit.map_or(Activation::Silu, Activation::SwigluClamp);
    for (layer, (expert, shared)) in config.layers.iter_mut().zip(experts.into_iter().zip(shared)) {
        layer.expert_activation = activation(expert);
        layer.activation = activation(shared);
    }
    let iterations = keys.size("hyper_connection.sinkhorn_iterations", 1000)?;
    config.streams = Some(hyper::streams(keys, MAGNITUDE, Mixing::Sinkhorn { iterations })?);
    compressed_attention(keys, config)
}

fn compressed_attention(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    const RATIOS: &str = "attention.compress_ratios";
    const GROUPS: &str = "attention.output_group_count";
    let Some(ratios) = keys.per_layer(RATIOS, u32::MAX, config.layers.len())? else {
        return Err(keys.bad(RATIOS, "missing", "a ratio for each layer"));
    };
    let picked = keys.size("attention.indexer.top_k", u32::MAX)?;
    if ratios.contains(&FINE) {
        config.context_exact = Some(picked.saturating_mul(FINE));
    }
    let (query_rank, window) =
        (keys.size("attention.q_lora_rank", WIDTH_MAX)?, keys.size("attention.sliding_window", WIDTH_MAX)?);
    let groups = keys.size(GROUPS, HEADS_MAX)?;
    let group_rank = keys.size("attention.output_lora_rank", WIDTH_MAX)?;
    let compressed_rope = config.add_rope(compressed_rope(keys, &config.ropes[0])?);
    config.ropes[0] = config.ropes[0].unscaled();
    let rotated = config.ropes[0].dimensions;
    for (layer, ratio) in config.layers.iter_mut().zip(ratios) {
        let MixerConfig::Attention(plain) = &layer.mixer else { continue };
        if plain.kv_heads != 1 || plain.value_dim != plain.head_dim {
            let found = format!("{} of {} values", plain.kv_heads, plain.value_dim);
            return Err(keys.bad("attention.head_count_kv", found, "1, its values as long as its keys"));
        }
        if plain.heads % groups != 0 {
            return Err(keys.bad(GROUPS, groups, &format!("a divisor of {} heads", plain.heads)));
        }
        let compression = match ratio {
            0 => None,
            FINE | COARSE => Some(Compression { ratio, overlaps: ratio == FINE }),
            _ => return Err(keys.bad(RATIOS, ratio, "0, 4 or 128")),
        };
        layer.mixer = MixerConfig::Recurrent(RecurrentConfig::Compressed(CompressedConfig {
            heads: plain.heads,
            head_dim: plain.head_dim,
            rotated,
            rope: if compression.is_some() { compressed_rope } else { 0 },
            query_rank,
            window,
            compression,
            groups,
            group_rank,
        }));
    }
    Ok(())
}

/// Layers that compress turn by a base of their own; only there scaling applies, without its factor on
/// queries and keys.
fn compressed_rope(keys: &Keys<'_>, full: &Rope) -> Result<Rope, ModelError> {
    const BASE: &str = "attention.compress_rope_freq_base";
    let base = keys.float(BASE)?;
    if base <= 0.0 {
        return Err(keys.bad(BASE, base, "a positive number"));
    }
    let magnitude = match full.yarn {
        Some(_) => 1.0 / (1.0 + 0.1 * (1.0 / full.scale).ln()),
        None => 1.0,
    };
    Ok(Rope { base, magnitude, factors: false, ..full.clone() })
}
