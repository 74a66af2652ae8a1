//! Gemma 4 (text): layers with a window have heads of their own, others may use their keys as values; a dense
//! block beside the experts, and a router with a norm of its own.

use super::{
    Activation, AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterInput,
    RouterTraits,
};
use crate::config::{Config, FeedForwardConfig, MixerConfig, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SLIDING_BASE, SlidingPattern, WIDTH_MAX};

pub static GEMMA4: Family = Family {
    architecture: "gemma4",
    activation: Activation::GeluTanh,
    attention: AttentionTraits {
        qkv_bias: Presence::Never,
        qk_norm: Presence::Always,
        keys_as_values: true,
        ..PLAIN_ATTENTION
    },
    experts: Presence::Optional,
    router: RouterTraits {
        gating_varies: false,
        input: RouterInput::Scaled,
        shared: true,
        shared_suffix: "",
        shared_norm: Some("ffn_norm"),
        shared_post_norm: Some("post_ffw_norm_1"),
        post_norm: Some("post_ffw_norm_2"),
        ..PLAIN_ROUTER
    },
    routed_by_tensors: true,
    feed_forward_norm: Some("pre_ffw_norm_2"),
    feed_forward_scales: true,
    post_norms: Presence::Always,
    layer_scale: Presence::Optional,
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    // The small models have embeddings of each layer, and layers that use the keys of others.
    for key in ["embedding_length_per_layer_input", "attention.shared_kv_layers"] {
        if let Some(found) = keys.optional_size(key, WIDTH_MAX)?.filter(|&found| found > 0) {
            return Err(keys.bad(key, found, "0: adit runs models without it only"));
        }
    }
    keys.must_be_absent(&["expert_weights_scale"])?;
    keys.no_yarn(config)?;
    config.embedding_scale = (config.width as f32).sqrt();
    config.logit_soft_cap = keys.factor("final_logit_softcapping")?;
    let slides = heads(keys, config)?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let base = keys.sliding_base(SLIDING_BASE)?;
    let dimensions = keys.sliding_dimensions(config)?;
    if slides.contains(&true) {
        let rope = |full: &Rope| Rope { base, dimensions, ..full.unscaled() };
        keys.slide(config, window, SlidingPattern::Flagged, rope)?;
    }
    beside_experts(keys, config)
}

/// Sizes of heads; tells which layers have a window.
fn heads(keys: &Keys<'_>, config: &mut Config) -> Result<Vec<bool>, ModelError> {
    let slides = keys.sliding_layers(config.layers.len(), SlidingPattern::Flagged)?;
    let windowed = keys.size("attention.key_length_swa", WIDTH_MAX)?;
    for (layer, &slides) in config.layers.iter_mut().zip(&slides) {
        let MixerConfig::Attention(attention) = &mut layer.mixer else { continue };
        if attention.head_dim != attention.value_dim {
            let expected = format!("{}, the length of a key", attention.head_dim);
            return Err(keys.bad("attention.value_length", attention.value_dim, &expected));
        }
        if slides {
            (attention.head_dim, attention.value_dim) = (windowed, windowed);
        }
        attention.scale = 1.0;
        attention.value_norm = true;
    }
    Ok(slides)
}

/// The dense block beside experts is one of all layers' width.
fn beside_experts(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let inner = keys.per_layer("feed_forward_length", WIDTH_MAX, config.layers.len())?.unwrap_or_default();
    let Some(experts) = &mut config.experts else { return Ok(()) };
    let routed = config.layers.iter().map(|layer| layer.feed_forward == FeedForwardConfig::Routed);
    let mut widths = inner.into_iter().zip(routed).filter(|&(_, routed)| routed).map(|(width, _)| width);
    experts.shared = widths.next().unwrap_or(0);
    match widths.find(|&width| width != experts.shared) {
        Some(width) => {
            let expected = format!("{}, as in other layers with experts", experts.shared);
            Err(keys.bad("feed_forward_length", width, &expected))
        }
        None => Ok(()),
    }
}
