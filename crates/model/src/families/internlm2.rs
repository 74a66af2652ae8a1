//! InternLM 2: Llama by another name.

use super::{Family, PLAIN, RopeStyle};

pub static INTERNLM2: Family = Family { architecture: "internlm2", rope_style: RopeStyle::Normal, ..PLAIN };
