//! DBRX: norms that take the mean away, queries, keys and values within limits.

use super::{Family, NormKind, PLAIN, PLAIN_ROUTER, Presence, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static DBRX: Family = Family {
    architecture: "dbrx",
    norm: &[NormKind::Layer],
    experts: Presence::Always,
    router: RouterTraits { gating_varies: false, ..PLAIN_ROUTER },
    feed_forward_norm: Some("attn_output_norm"),
    details,
    ..PLAIN
};

fn details(keys: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let limit = Some(keys.float("attention.clamp_kqv")?).filter(|&limit| limit > 0.0);
    for attention in config.attentions() {
        attention.clamp = limit;
    }
    Ok(())
}
