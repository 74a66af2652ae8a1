//! Our own tiny model of each family, with all that is special about it, in three types of matrices.

use adit_format::TensorType;
use adit_format::synth::zoo::{Animal, VOCABULARY, ZOO};

use crate::common::Run;
use crate::table::{self, Outcome, Row};
use crate::{Bounds, difference, golden, refusal, with_folder};

const KINDS: [TensorType; 3] = [TensorType::F32, TensorType::Q8_0, TensorType::Q4K];

/// Queries that have absorbed a matrix are quantised once more, and meet the latent of all heads.
const LATENT: [&str; 3] = ["deepseek2", "mistral4", "kimi-linear"];

/// In quantised files an activation near the middle between two codes may fall to either side, which moves
/// later layers by a code, and may bring another expert into a row.
fn bounds(architecture: &str, kind: TensorType) -> Bounds {
    match kind {
        TensorType::F32 => Bounds { difference: 1e-4, strict: true },
        _ if LATENT.contains(&architecture) => Bounds { difference: 0.05, strict: false },
        _ => Bounds { difference: 0.02, strict: false },
    }
}

fn check(name: &str) {
    let animal = Animal::find(name).expect("a model of the zoo");
    let outcomes = with_folder(|folder| {
        let outcome = |kind| {
            let path = folder.join(format!("{name}-{kind}.gguf"));
            let (seed, goldens) = golden::zoo(name, kind, VOCABULARY);
            animal.write(kind, seed, &path).expect("the model is written");
            match Run::default().load(&path) {
                Ok(_) => {
                    let bounds = bounds(animal.architecture, kind);
                    let difference = difference(&path, &goldens, VOCABULARY, &bounds);
                    if bounds.strict { Outcome::Runs(difference) } else { Outcome::Within(bounds.difference) }
                }
                Err(error) => Outcome::Refused(refusal(animal.architecture, &path, &error)),
            }
        };
        KINDS.into_iter().map(outcome).collect()
    });
    Row { name: animal.name, about: vec![animal.about.to_string()], outcomes }.check(table::ZOO);
}

tests! {
    every_model_is_tested_and_has_a_row: ZOO, table::ZOO;
    llama: "llama",
    qwen3moe: "qwen3moe",
    deepseek2: "deepseek2",
    deepseek2_lite: "deepseek2-lite",
    deepseek2_unsplit: "deepseek2-unsplit",
    deepseek2_unsplit_lite: "deepseek2-unsplit-lite",
    qwen2moe: "qwen2moe",
    olmoe: "olmoe",
    glm4moe: "glm4moe",
    gpt_oss: "gpt-oss",
    granitemoe: "granitemoe",
    minimax_m2: "minimax-m2",
    bailingmoe2: "bailingmoe2",
    ernie4_5_moe: "ernie4_5-moe",
    dots1: "dots1",
    hunyuan_moe: "hunyuan-moe",
    gemma4: "gemma4",
    lfm2moe: "lfm2moe",
    qwen3next: "qwen3next",
    qwen35moe: "qwen35moe",
    qwen35: "qwen35",
    kimi_linear: "kimi-linear",
    granitehybrid: "granitehybrid",
    nemotron_h_moe: "nemotron_h_moe",
    afmoe: "afmoe",
    exaone_moe: "exaone-moe",
    cohere2moe: "cohere2moe",
    mellum: "mellum",
    mimo2: "mimo2",
    smallthinker: "smallthinker",
    laguna: "laguna",
    arctic: "arctic",
    dbrx: "dbrx",
    deepseek: "deepseek",
    bailingmoe: "bailingmoe",
    grok: "grok",
    grovemoe: "grovemoe",
    hy_v3: "hy_v3",
    minicpm: "minicpm",
    phimoe: "phimoe",
    qwen3vlmoe: "qwen3vlmoe",
    llama4: "llama4",
    mistral4: "mistral4",
}
