//! Snowflake Arctic: a dense block as wide as the model after attention, experts beside both.

use super::{BlockInput, Family, PLAIN, PLAIN_ROUTER, Presence, RopeStyle, RouterTraits};
use crate::config::Config;
use crate::error::ModelError;
use crate::keys::Keys;

pub static ARCTIC: Family = Family {
    architecture: "arctic",
    rope_style: RopeStyle::Normal,
    experts: Presence::Always,
    router: RouterTraits {
        gating_varies: false,
        shared: true,
        shared_suffix: "",
        shared_norm: Some("ffn_norm"),
        ..PLAIN_ROUTER
    },
    feed_forward_input: BlockInput::Layer,
    feed_forward_norm: Some("ffn_norm_exps"),
    details,
    ..PLAIN
};

fn details(_: &Keys<'_>, config: &mut Config) -> Result<(), ModelError> {
    let width = config.width;
    config.experts.iter_mut().for_each(|experts| experts.shared = width);
    Ok(())
}
