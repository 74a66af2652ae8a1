//! DeepSeek-V2, V3 and R1, Kimi K2 and others with their architecture: latent attention, a dense start,
//! routing by softmax or by sigmoid in groups, shared experts.

use adit_kernels::Values;

use super::{DEEPSEEK_ROUTER, Family, Gating, PLAIN, Presence, RopeStyle};
use crate::config::{AttentionConfig, Config, LatentConfig, MixerConfig, Temperature};
use crate::error::ModelError;
use crate::keys::{Keys, WIDTH_MAX};

const DEEPSEEK_LIKE: Family = Family {
    rope_style: RopeStyle::Normal,
    yarn_log_multiplier: true,
    experts: Presence::Always,
    router: DEEPSEEK_ROUTER,
    leading_dense: true,
    ..PLAIN
};

pub static DEEPSEEK2: Family = Family { architecture: "deepseek2", details, ..DEEPSEEK_LIKE };

/// Mistral Small 4.
pub static MISTRAL4: Family = Family { architecture: "mistral4", details: latent_attention, ..DEEPSEEK_LIKE };

/// As V3, but of long contexts only the positions that an indexer finds best are attended.
const INDEXED: Family = Family { feed_forward_scales: true, left_out: &INDEXER, ..DEEPSEEK_LIKE };

/// DeepSeek-V3.2.
pub static DEEPSEEK32: Family =
    Family { architecture: "deepseek32", details: within_indexed_span, ..INDEXED };

/// GLM-5: the same, with an indexer in some layers only.
pub static GLM_DSA: Family = Family { architecture: "glm-dsa", details: glm_dsa, ..INDEXED };

/// What finds the best positions. Where all are attended there is nothing to find.
pub(super) static INDEXER: [&str; 5] = [
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.proj.weight",
    "indexer.attn_k.weight",
    "indexer.attn_q_b.weight",
];

/// Files of GLM-4.7-Flash do not name their gate; these numbers are theirs alone.
const GLM_FLASH_LAYERS: [usize; 2] = [47, 48];
const GLM_FLASH_VOCABULARY: usize = 154_880;

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let is_glm = GLM_FLASH_LAYERS.contains(&config.layers.len()) && config.vocabulary == GLM_FLASH_VOCABULARY;
    let names_gate = keys.optional_size("expert_gating_func", u32::MAX)?.is_some_and(|gate| gate > 0);
    if let Some(experts) = config.experts.as_mut().filter(|_| is_glm && !names_gate) {
        experts.gating = Gating::Sigmoid;
    }
    latent_attention(keys, config)
}

fn glm_dsa(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    within_indexed_span(keys, config)?;
    let gate = keys.optional_size("expert_gating_func", u32::MAX)?.unwrap_or(0);
    if let Some(experts) = config.experts.as_mut().filter(|_| gate == 0) {
        experts.gating = Gating::Sigmoid;
    }
    Ok(())
}

/// A context that is no longer than what the indexer would pick is attended whole.
fn within_indexed_span(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    config.context_exact = Some(keys.size("attention.indexer.top_k", u32::MAX)?);
    latent_attention(keys, config)
}

/// The names of the sizes of latent attention: of the latent, of a head's key and of its value.
pub(super) struct LatentKeys {
    pub rank: &'static str,
    pub key: &'static str,
    pub value: &'static str,
}

/// Latent attention of the plain attention of a layer, whose rotation turns `rotated` values of a head.
pub(super) fn latent_of(
    keys: &Keys<'_>,
    names: &LatentKeys,
    plain: &AttentionConfig,
    rotated: usize,
) -> Result<LatentConfig, ModelError> {
    let rank = keys.size(names.rank, WIDTH_MAX)?;
    let head_dim = keys.size(names.key, WIDTH_MAX)?;
    if head_dim <= rotated {
        return Err(keys.bad(names.key, head_dim, &format!("more than the {rotated} that turn")));
    }
    Ok(LatentConfig {
        attention: AttentionConfig {
            kv_heads: 1,
            head_dim: rank + rotated,
            value_dim: rank,
            values: Values::HeadOfKey,
            scale: 1.0 / (head_dim as f32).sqrt(),
            ..plain.clone()
        },
        latent: rank,
        rotated,
        unrotated: head_dim - rotated,
        value_dim: keys.size(names.value, WIDTH_MAX)?,
        query_rank: keys.optional_size("attention.q_lora_rank", WIDTH_MAX)?.unwrap_or(0),
    })
}

/// Makes the attention of all layers latent.
pub(super) fn latent_attention(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let rotated = config.ropes[0].dimensions;
    // New files tell the sizes of a stored key and of heads apart, old ones know heads only.
    let name = |key: &'static str, old: &'static str| {
        let named = keys.optional_size(key, WIDTH_MAX)?.is_some_and(|size| size > 0);
        Ok::<_, ModelError>(if named { key } else { old })
    };
    let names = LatentKeys {
        rank: "attention.kv_lora_rank",
        key: name("attention.key_length_mla", "attention.key_length")?,
        value: name("attention.value_length_mla", "attention.value_length")?,
    };
    let factor = scale_of_scores(keys, config)?;
    let temperature = temperature(keys)?;
    for layer in &mut config.layers {
        let MixerConfig::Attention(plain) = &layer.mixer else { continue };
        let mut latent = latent_of(keys, &names, plain, rotated)?;
        latent.attention.scale *= factor;
        latent.attention.temperature = temperature;
        layer.mixer = MixerConfig::Latent(latent);
    }
    Ok(())
}

/// The square of YaRN's factor on queries and keys, which the rotation gives to the turned part only; the
/// rotation's own factor is set so that it does not count twice (llama.cpp's `build_deepseek2`).
fn scale_of_scores(keys: &Keys<'_>, config: &mut Config) -> Result<f32, ModelError> {
    // The converter has written a tenth of the number.
    let multiplier = keys.optional_float("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0) / 0.1;
    let rope = &mut config.ropes[0];
    let log = 0.1 * (1.0 / rope.scale).ln();
    if rope.yarn.is_some() && multiplier != 0.0 {
        // What the rotation adds by itself, less what these models count there.
        let counted =
            if keys.architecture == "deepseek2" { 1.0 } else { (1.0 + log) / (1.0 + multiplier * log) };
        rope.magnitude *= counted / (1.0 + log);
    }
    let factor = rope.magnitude * (1.0 + log) * (1.0 + multiplier * log);
    Ok(factor * factor)
}

fn temperature(keys: &Keys<'_>) -> Result<Option<Temperature>, ModelError> {
    let scale = keys.optional_float("attention.temperature_scale")?.unwrap_or(0.0);
    if scale == 0.0 {
        return Ok(None);
    }
    let length = keys.size("attention.temperature_length", u32::MAX)?;
    Ok(Some(Temperature { scale, length, offset: 0 }))
}
