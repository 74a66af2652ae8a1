//! A tiny model of every family that llama.cpp knows and people run, with all that is special about it: more
//! experts than a token uses, groups, corrections, windows, several heads over one latent, sinks, biases,
//! lists that differ by layer. A family is one function that puts together what [`parts`] has; their keys
//! and names are those of llama.cpp's converter, and llama.cpp opens them.

mod attention;
mod hybrid;
mod latent;
mod parts;
mod variety;

use std::path::Path;

use crate::{FormatError, TensorType};
use parts::Builder;

/// One model: 2 to 6 layers, 256 wide, 128 tokens without texts.
pub struct Animal {
    /// The architecture, and where several models show different sides of it, which.
    pub name: &'static str,
    /// `general.architecture`.
    pub architecture: &'static str,
    /// What is special about it.
    pub about: &'static str,
    build: fn(&mut Builder),
}

/// Tokens of each, which have no texts.
pub const VOCABULARY: usize = 128;

pub const ZOO: &[Animal] = &[
    animal("llama", "llama", "Mixtral: experts over grouped heads", attention::llama),
    animal("qwen3moe", "qwen3moe", "norms of each head", attention::qwen3moe),
    animal(
        "deepseek2",
        "deepseek2",
        "V3: latent attention, sigmoid gates in groups, correction bias, YaRN",
        latent::deepseek2,
    ),
    animal(
        "deepseek2-lite",
        "deepseek2",
        "V2 Lite: no query latent, softmax gates, two shared experts",
        latent::deepseek2_lite,
    ),
    animal(
        "deepseek2-unsplit",
        "deepseek2",
        "V2: keys and values from one matrix, shares scaled",
        latent::deepseek2_unsplit,
    ),
    animal(
        "deepseek2-unsplit-lite",
        "deepseek2",
        "V2 Lite: keys and values from one matrix",
        latent::deepseek2_unsplit_lite,
    ),
    animal("qwen2moe", "qwen2moe", "biases, gated shared expert", attention::qwen2moe),
    animal("olmoe", "olmoe", "norms over all heads", attention::olmoe),
    animal(
        "glm4moe",
        "glm4moe",
        "partial rotation, correction bias, a layer that guesses tokens",
        attention::glm4moe,
    ),
    animal(
        "gpt-oss",
        "gpt-oss",
        "sinks, alternating window, biases, clamped SwiGLU, YaRN",
        attention::gpt_oss,
    ),
    animal("granitemoe", "granitemoe", "factors on all sums, shared expert, tied", attention::granitemoe),
    animal(
        "minimax-m2",
        "minimax-m2",
        "norms over all heads, partial rotation, correction bias",
        attention::minimax_m2,
    ),
    animal(
        "bailingmoe2",
        "bailingmoe2",
        "fused QKV, groups of experts, partial rotation",
        attention::bailingmoe2,
    ),
    animal("ernie4_5-moe", "ernie4_5-moe", "correction bias, shared expert, tied", attention::ernie4_5_moe),
    animal("dots1", "dots1", "correction bias, two shared experts", attention::dots1),
    animal(
        "hunyuan-moe",
        "hunyuan-moe",
        "norms behind the rotation, shared expert, tied",
        attention::hunyuan_moe,
    ),
    animal(
        "gemma4",
        "gemma4",
        "windows with other heads, keys as values, dense block beside fused experts",
        attention::gemma4,
    ),
    animal("lfm2moe", "lfm2moe", "short convolutions, correction bias, tied", hybrid::lfm2moe),
    animal(
        "qwen3next",
        "qwen3next",
        "gated delta rule, gated attention and shared expert",
        hybrid::qwen3next,
    ),
    animal(
        "qwen35moe",
        "qwen35moe",
        "gated delta rule, fused experts, sections of the rotation",
        hybrid::qwen35moe,
    ),
    animal("qwen35", "qwen35", "gated delta rule, dense, attention in every other layer", hybrid::qwen35),
    animal(
        "kimi-linear",
        "kimi-linear",
        "Kimi delta attention, latent attention without rotation",
        hybrid::kimi_linear,
    ),
    animal(
        "granitehybrid",
        "granitehybrid",
        "Mamba-2, attention without rotation, factors, tied",
        hybrid::granitehybrid,
    ),
    animal(
        "nemotron_h_moe",
        "nemotron_h_moe",
        "Mamba-2, layers of one part, experts without gates",
        hybrid::nemotron_h_moe,
    ),
    animal("afmoe", "afmoe", "windows, gated attention, norms behind both blocks", variety::afmoe),
    animal(
        "exaone-moe",
        "exaone-moe",
        "windows, whole layers without rotation, correction bias",
        variety::exaone_moe,
    ),
    animal(
        "cohere2moe",
        "cohere2moe",
        "blocks side by side behind one norm, windows, tied",
        variety::cohere2moe,
    ),
    animal("mellum", "mellum", "windows with a rotation of their own", variety::mellum),
    animal(
        "mimo2",
        "mimo2",
        "values narrower than keys, sinks and other heads in windowed layers",
        variety::mimo2,
    ),
    animal(
        "smallthinker",
        "smallthinker",
        "the router sees what attention sees, ReLU, layers without rotation",
        variety::smallthinker,
    ),
    animal("laguna", "laguna", "heads that differ by layer, a gate for each, windows, YaRN", variety::laguna),
    animal("arctic", "arctic", "a dense block before the experts", variety::arctic),
    animal("dbrx", "dbrx", "clamped attention, norms that take the mean away", variety::dbrx),
    animal("deepseek", "deepseek", "shares that do not sum to 1, two shared experts", variety::deepseek),
    animal("bailingmoe", "bailingmoe", "shares that sum to 1, two shared experts", variety::bailingmoe),
    animal("grok", "grok", "caps, a dense block beside the experts, norms behind both blocks", variety::grok),
    animal("grovemoe", "grovemoe", "small experts that groups share", variety::grovemoe),
    animal("hy_v3", "hy_v3", "correction bias, shared expert", variety::hy_v3),
    animal("minicpm", "minicpm", "factors on all sums", variety::minicpm),
    animal("phimoe", "phimoe", "norms with biases, biases everywhere", variety::phimoe),
    animal("qwen3vlmoe", "qwen3vlmoe", "sections of the rotation", variety::qwen3vlmoe),
    animal("llama4", "llama4", "experts in every other layer, attention in runs", variety::llama4),
    animal(
        "mistral4",
        "mistral4",
        "latent attention, queries that grow with their position",
        latent::mistral4,
    ),
];

const fn animal(
    name: &'static str,
    architecture: &'static str,
    about: &'static str,
    build: fn(&mut Builder),
) -> Animal {
    Animal { name, architecture, about, build }
}

impl Animal {
    pub fn find(name: &str) -> Option<&'static Animal> {
        ZOO.iter().find(|animal| animal.name == name)
    }

    /// Writes the model of `seed` with its matrices in `kind`; what has rows of another length than whole
    /// blocks of it is Q8_0, as the quantiser falls back.
    pub fn write(&self, kind: TensorType, seed: u64, path: &Path) -> Result<(), FormatError> {
        let mut builder = Builder::new(kind);
        (self.build)(&mut builder);
        super::write_file(path, seed, &builder.metadata, &builder.tensors)
    }
}
