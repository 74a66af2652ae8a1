//! llama.cpp's tiny random file of each family, three seeds each.

use std::path::Path;

use crate::common::Run;
use crate::files::{self, STRANGERS, Stranger};
use crate::table::{self, Outcome, Row};
use crate::{Bounds, difference, golden, refusal, with_folder};

const SEEDS: usize = 3;
const BOUNDS: Bounds = Bounds { difference: 1e-4, strict: true };

fn check(name: &str) {
    let stranger = files::find(name);
    let outcome = with_folder(|folder| {
        let hollow = folder.join(format!("{name}-header.gguf"));
        stranger.write_hollow(&hollow);
        match Run::default().load(&hollow) {
            Ok(_) => Outcome::Runs(differences(stranger, folder)),
            Err(error) => Outcome::Refused(refusal(stranger.architecture, &hollow, &error)),
        }
    });
    let about = vec![stranger.architecture.to_string(), mixer(stranger), feed_forward(stranger).to_string()];
    Row { name: stranger.name, about, outcomes: vec![outcome] }.check(table::STRANGERS);
}

/// The greatest over all seeds.
fn differences(stranger: &Stranger, folder: &Path) -> f32 {
    let name = stranger.name;
    let vocabulary = stranger.vocabulary();
    let goldens = golden::strangers(name, vocabulary, SEEDS);
    let of_seed = |(seed, goldens): (u64, Vec<_>)| {
        let path = folder.join(format!("{name}-{seed}.gguf"));
        stranger.write(seed, &path);
        difference(&path, &goldens, vocabulary, &BOUNDS)
    };
    (1..).zip(goldens).map(of_seed).fold(0.0, f32::max)
}

/// What mixes positions, told from the names of each layer's tensors.
fn mixer(stranger: &Stranger) -> String {
    let mut found = Vec::new();
    for layer in 0.. {
        let start = format!("blk.{layer}.");
        let parts: Vec<&str> = stranger.tensors.iter().filter_map(|t| t.name.strip_prefix(&start)).collect();
        if parts.is_empty() {
            break;
        }
        let has = |sign: &str| parts.iter().any(|part| part.starts_with(sign));
        let kimi = has("ssm_f_a");
        let delta = has("ssm_beta") || has("ssm_ba");
        let keys = ["attn_k.", "attn_kv.", "attn_qkv."].into_iter().any(has);
        let kinds = [
            (has("attn_kv_a_mqa"), "latent attention"),
            (keys && !kimi && !delta, "attention"),
            (kimi, "Kimi delta attention"),
            (delta && !kimi, "gated delta rule"),
            (has("ssm_x"), "Mamba"),
            (has("ssm_in") && !has("ssm_x") && !delta, "Mamba-2"),
            (has("shortconv"), "short convolution"),
            (has("attn_sinks"), "sinks"),
            (has("indexer"), "indexer"),
            (has("hc_"), "hyper-connections"),
            (has("attn_gate") && !delta, "gate"),
        ];
        for (is, kind) in kinds {
            if is && !found.contains(&kind) {
                found.push(kind);
            }
        }
    }
    found.join(", ")
}

fn feed_forward(stranger: &Stranger) -> &'static str {
    match (stranger.has_tensor("_exps."), stranger.has_tensor("_shexp.")) {
        (false, _) => "dense",
        (true, false) => "experts",
        (true, true) => "experts, shared expert",
    }
}

tests! {
    every_file_is_tested_and_has_a_row: STRANGERS, table::STRANGERS;
    afmoe_moe: "afmoe-moe",
    arcee_dense: "arcee-dense",
    arctic_moe: "arctic-moe",
    baichuan_dense: "baichuan-dense",
    bailingmoe_moe: "bailingmoe-moe",
    bailingmoe2_moe: "bailingmoe2-moe",
    bailingmoe3_moe: "bailingmoe3-moe",
    bloom_dense: "bloom-dense",
    chatglm_dense: "chatglm-dense",
    codeshell_dense: "codeshell-dense",
    cogvlm_dense: "cogvlm-dense",
    cohere2_dense: "cohere2-dense",
    cohere2moe_moe: "cohere2moe-moe",
    command_r_dense: "command-r-dense",
    dbrx_moe: "dbrx-moe",
    deci_dense: "deci-dense",
    deepseek_moe: "deepseek-moe",
    deepseek2_moe: "deepseek2-moe",
    deepseek32_moe: "deepseek32-moe",
    deepseek4_moe: "deepseek4-moe",
    dots1_moe: "dots1-moe",
    dots3note_moe: "dots3note-moe",
    ernie4_5_moe: "ernie4_5-moe",
    ernie4_5_moe_moe: "ernie4_5-moe-moe",
    exaone_dense: "exaone-dense",
    exaone_moe_moe: "exaone-moe-moe",
    exaone4_dense: "exaone4-dense",
    falcon_dense: "falcon-dense",
    falcon_h1_dense: "falcon-h1-dense",
    gemma_dense: "gemma-dense",
    gemma2_dense: "gemma2-dense",
    gemma3_dense: "gemma3-dense",
    glm_dsa_moe: "glm-dsa-moe",
    glm4_dense: "glm4-dense",
    glm4moe_moe: "glm4moe-moe",
    glm5_next_moe: "glm5-next-moe",
    gpt_oss_moe: "gpt-oss-moe",
    gpt2_dense: "gpt2-dense",
    gptneox_dense: "gptneox-dense",
    granite_dense: "granite-dense",
    granite_moe: "granite-moe",
    granite_swa_dense: "granite_swa-dense",
    granitehybrid_dense: "granitehybrid-dense",
    granitemoe_dense: "granitemoe-dense",
    granitemoe_moe: "granitemoe-moe",
    grok_moe: "grok-moe",
    grovemoe_moe: "grovemoe-moe",
    hrm_text_dense: "hrm_text-dense",
    hunyuan_dense_dense: "hunyuan-dense-dense",
    hunyuan_moe_moe: "hunyuan-moe-moe",
    hunyuan_vl_dense: "hunyuan_vl-dense",
    hy_v3_moe: "hy_v3-moe",
    hy_v4_moe: "hy_v4-moe",
    internlm2_dense: "internlm2-dense",
    jais_dense: "jais-dense",
    jais2_dense: "jais2-dense",
    jamba_dense: "jamba-dense",
    kimi_k3_moe: "kimi-k3-moe",
    kimi_linear_moe: "kimi-linear-moe",
    laguna_moe: "laguna-moe",
    lfm2_dense: "lfm2-dense",
    lfm2moe_moe: "lfm2moe-moe",
    llama_dense: "llama-dense",
    llama_moe: "llama-moe",
    llama4_moe: "llama4-moe",
    maincoder_dense: "maincoder-dense",
    mamba_dense: "mamba-dense",
    mamba2_dense: "mamba2-dense",
    maple_moe: "maple-moe",
    mellum_moe: "mellum-moe",
    mimo2_moe: "mimo2-moe",
    minicpm_dense: "minicpm-dense",
    minicpm_moe: "minicpm-moe",
    minicpm3_dense: "minicpm3-dense",
    minimax_01_moe: "minimax-01-moe",
    minimax_m2_moe: "minimax-m2-moe",
    minimax_m3_moe: "minimax-m3-moe",
    mistral3_dense: "mistral3-dense",
    mistral3_moe: "mistral3-moe",
    mistral4_moe: "mistral4-moe",
    mpt_dense: "mpt-dense",
    muse_glimmer_dense: "muse-glimmer-dense",
    nanbeige_dense: "nanbeige-dense",
    nemotron_dense: "nemotron-dense",
    nemotron_h_dense: "nemotron_h-dense",
    nemotron_h_moe_dense: "nemotron_h_moe-dense",
    olmo_dense: "olmo-dense",
    olmo2_dense: "olmo2-dense",
    olmoe_moe: "olmoe-moe",
    openelm_dense: "openelm-dense",
    orion_dense: "orion-dense",
    paddleocr_moe: "paddleocr-moe",
    pangu_embedded_dense: "pangu-embedded-dense",
    phi2_dense: "phi2-dense",
    phi3_dense: "phi3-dense",
    phimoe_moe: "phimoe-moe",
    plamo_dense: "plamo-dense",
    plamo2_dense: "plamo2-dense",
    plamo3_dense: "plamo3-dense",
    qwen_dense: "qwen-dense",
    qwen2_dense: "qwen2-dense",
    qwen2moe_moe: "qwen2moe-moe",
    qwen2vl_dense: "qwen2vl-dense",
    qwen3_dense: "qwen3-dense",
    qwen35_dense: "qwen35-dense",
    qwen35moe_moe: "qwen35moe-moe",
    qwen3moe_moe: "qwen3moe-moe",
    qwen3next_moe: "qwen3next-moe",
    qwen3vl_dense: "qwen3vl-dense",
    qwen3vlmoe_moe: "qwen3vlmoe-moe",
    qwen4exp_moe: "qwen4exp-moe",
    refact_dense: "refact-dense",
    refact_moe: "refact-moe",
    seed_oss_dense: "seed_oss-dense",
    smallthinker_moe: "smallthinker-moe",
    smollm3_dense: "smollm3-dense",
    spark2_5_dense: "spark2_5-dense",
    stablelm_dense: "stablelm-dense",
    starcoder_dense: "starcoder-dense",
    starcoder2_dense: "starcoder2-dense",
    talkie_dense: "talkie-dense",
    xverse_dense: "xverse-dense",
}
