//! Hunyuan-A13B: norms on queries and keys behind the rotation, a shared expert. Hy3: norms before it,
//! routing by sigmoid with a correction, layers dense where they have no router.

use super::{
    AttentionTraits, DEEPSEEK_ROUTER, Family, Gating, PLAIN, PLAIN_ATTENTION, PLAIN_ROUTER, Presence,
    RouterTraits, vision,
};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static HUNYUAN_DENSE: Family = Family { architecture: "hunyuan-dense", ..HUNYUAN_LIKE };

/// Hunyuan-VL and OCR, of text.
pub static HUNYUAN_VL: Family =
    Family { architecture: "hunyuan_vl", details: vision::maybe_sections_in_order, ..HUNYUAN_LIKE };

const HUNYUAN_LIKE: Family = Family {
    attention: AttentionTraits { qk_norm: Presence::Always, norm_after_rope: true, ..PLAIN_ATTENTION },
    details: vision::maybe_sections_in_order,
    ..PLAIN
};

pub static HUNYUAN_MOE: Family = Family {
    architecture: "hunyuan-moe",
    attention: AttentionTraits { qk_norm: Presence::Always, norm_after_rope: true, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { shared: true, ..PLAIN_ROUTER },
    ..PLAIN
};

pub static HY_V3: Family = Family {
    architecture: "hy_v3",
    attention: AttentionTraits { qk_norm: Presence::Always, ..PLAIN_ATTENTION },
    experts: Presence::Always,
    router: RouterTraits { gating: Gating::Sigmoid, ..DEEPSEEK_ROUTER },
    routed_by_tensors: true,
    feed_forward_scales: true,
    details: one_shared_expert,
    ..PLAIN
};

/// The shared expert is as wide as a routed one unless the file says otherwise; their number is not told.
fn one_shared_expert(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    for experts in config.experts.iter_mut().filter(|experts| experts.shared == 0) {
        experts.shared = experts.feed_forward;
    }
    Ok(())
}
