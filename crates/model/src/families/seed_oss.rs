//! Seed-OSS: a plain family with another name for a norm.

use super::{Family, PLAIN};

pub static SEED_OSS: Family =
    Family { architecture: "seed_oss", feed_forward_norm: Some("post_attention_norm"), ..PLAIN };
