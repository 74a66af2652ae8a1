//! dots.note 3: latent attention, in layers with a window of sizes of their own; a norm on the key that
//! turns, a gate for each head; a dense start, routing by a corrected gate, shared experts.

use super::deepseek2::{INDEXER, LatentKeys, latent_of};
use super::{
    AttentionTraits, Family, Normalise, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RopeStyle,
    RouterTraits,
};
use crate::config::{Config, MixerConfig, Rope};
use crate::error::ModelError;
use crate::keys::{Keys, SlidingPattern};

pub static DOTS3NOTE: Family = Family {
    architecture: "dots3note",
    rope_style: RopeStyle::Normal,
    attention: AttentionTraits { qk_norm: Presence::Always, gate: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits {
        normalise: Normalise::AsFileSays,
        correction: Presence::Always,
        shared: true,
        ..PLAIN_ROUTER
    },
    leading_dense: true,
    feed_forward_scales: true,
    left_out: &INDEXER,
    details,
    ..PLAIN
};

const FULL: LatentKeys = LatentKeys {
    rank: "attention.kv_lora_rank",
    key: "attention.key_length_mla",
    value: "attention.value_length_mla",
};

const SLIDING: LatentKeys = LatentKeys {
    rank: "attention.kv_lora_rank_swa",
    key: "attention.key_length_mla_swa",
    value: "attention.value_length_mla_swa",
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    keys.size("expert_gating_func", u32::MAX)?;
    // Layers without a window attend to what an indexer picks; up to so many positions, that is all.
    config.context_exact = Some(keys.size("attention.indexer.top_k", u32::MAX)?);
    keys.no_yarn(config)?;
    let window = keys.size("attention.sliding_window", u32::MAX)?;
    let slides = keys.sliding_layers(config.layers.len(), SlidingPattern::Flagged)?;
    let base = keys.sliding_base(config.ropes[0].base)?;
    let rotated = config.ropes[0].dimensions;
    let sliding_rope = config.add_rope(Rope { base, ..config.ropes[0].clone() });
    for (layer, slides) in config.layers.iter_mut().zip(slides) {
        let MixerConfig::Attention(plain) = &layer.mixer else { continue };
        let mut latent = latent_of(keys, if slides { &SLIDING } else { &FULL }, plain, rotated)?;
        if slides {
            latent.attention.window = Some(window);
            latent.attention.rope = Some(sliding_rope);
        }
        layer.mixer = MixerConfig::Latent(latent);
    }
    Ok(())
}
