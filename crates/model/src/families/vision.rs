//! The text sides of models that see: Qwen2-VL, Qwen3-VL and their kin. Their rotations give sections of a
//! head to time, height and width; of text all three are the position, so the rotation is a plain one.

use super::{AttentionTraits, Family, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static QWEN2VL: Family = Family {
    architecture: "qwen2vl",
    // llama.cpp reads it and does not add it.
    logit_bias: Presence::Never,
    left_out: &["output.bias"],
    details: sections_in_order,
    ..PLAIN
};

/// PaddleOCR-VL.
pub static PADDLEOCR: Family = Family {
    architecture: "paddleocr",
    attention: AttentionTraits { output_bias: Presence::Optional, ..PLAIN_ATTENTION },
    details: sections_in_order,
    ..PLAIN
};

pub static QWEN3VL: Family = Family {
    architecture: "qwen3vl",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    // The head of rerankers.
    left_out: &["cls.output.weight", "cls.output.bias"],
    details: interleaved_sections,
    ..PLAIN
};

pub static QWEN3VLMOE: Family = Family {
    architecture: "qwen3vlmoe",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    details: interleaved_sections,
    ..PLAIN
};

const SECTIONS: &str = "rope.dimension_sections";

fn sections_in_order(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    check_sections(keys, config, |pair, [time, height, width, _]| pair < time + height + width)
}

/// The same for families that have models of text only too, without sections.
pub(super) fn maybe_sections_in_order(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let sections = keys.metadata.u32s(&keys.name(SECTIONS))?.unwrap_or_default();
    match sections.iter().any(|&section| section > 0) {
        true => sections_in_order(keys, config),
        false => Ok(()),
    }
}

/// Time, height and width take turns, and what height and width leave over is time's where there is no
/// fourth number (`apply_interleaved_mrope` of transformers' Qwen3-VL; llama.cpp does not turn it, which in
/// published models is two pairs that hardly turn).
fn interleaved_sections(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    check_sections(keys, config, |pair, sections| pair < 3 * sections[pair % 3] || sections[3] == 0)
}

/// Refuses sections that leave pairs to the fourth number of a position, which for text is 0 (ggml's
/// `ggml_mrope_cache_init`).
pub(super) fn check_sections(
    keys: &Keys<'_>,
    config: &Config,
    turns: impl Fn(usize, [usize; 4]) -> bool,
) -> Result<(), ModelError> {
    let found = keys.metadata.u32s(&keys.name(SECTIONS))?.unwrap_or_default();
    let mut sections = [0; 4];
    for (section, &found) in sections.iter_mut().zip(&found) {
        *section = found as usize;
    }
    let pairs = config.ropes[0].dimensions / 2;
    let all: usize = sections.iter().fold(0, |sum, &section| sum.saturating_add(section));
    let fits = found.len() >= 3 && all > 0 && all <= 2 * pairs;
    if !fits || !(0..pairs).all(|pair| turns(pair % all, sections)) {
        let expected = format!("three sections that hold {pairs} pairs together");
        return Err(keys.bad(SECTIONS, format!("{:?}", &found[..found.len().min(4)]), &expected));
    }
    Ok(())
}
