//! Models that strangers made: llama.cpp's tiny random file of each family, three seeds each. A family that
//! adit knows gives the reference's logits; any other is refused by name. `docs/families.md` tells which.
//!
//! One family with the difference of each row: `cargo test -p adit-model --test strangers glm4moe --
//! --nocapture`. Where it fails, `ADIT_KEEP=DIR` leaves the files in DIR for other tools.

#[path = "../tiny/common.rs"]
mod common;
mod files;
mod golden;
mod random;
mod table;

use std::path::{Path, PathBuf};

use adit_model::{Model, ModelError};

use common::Run;
use files::{STRANGERS, Stranger};
use golden::PROMPTS;
use table::Outcome;

const SEEDS: usize = 3;
/// Largest difference allowed, as a share of the range of logits.
const TOLERANCE: f32 = 1e-4;
/// Tokens of a step, more than one block and not all of a prompt.
const CHUNK: usize = 16;

/// The prompts of `record.py`: no two alike, ids below the vocabulary's size.
fn prompts(vocabulary: usize) -> Vec<Vec<u32>> {
    let count = PROMPTS.iter().map(|(length, _)| length).sum();
    let mut tokens = common::tokens(count).into_iter().map(|token| token % vocabulary as u32);
    PROMPTS.map(|(length, _)| tokens.by_ref().take(length).collect()).into()
}

fn check(name: &str) {
    let stranger = files::find(name);
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let kept = std::env::var_os("ADIT_KEEP").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path());
    let hollow = folder.join(format!("{name}-header.gguf"));
    stranger.write_hollow(&hollow);
    let opened = Run::default().load(&hollow);
    let outcome = match opened {
        Ok(_) => Outcome::Runs(differences(stranger, folder)),
        Err(error) => Outcome::Refused(refusal(stranger, &hollow, &error)),
    };
    table::check(stranger, &outcome);
}

/// Why a file is refused; panics where the message does not name what is missing.
fn refusal(stranger: &Stranger, path: &Path, error: &ModelError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{}: ", path.display())).expect("an error begins with the file");
    match error {
        ModelError::UnknownArchitecture { found, .. } => {
            assert_eq!(found, stranger.architecture);
            "unknown architecture".to_string()
        }
        ModelError::BadMetadata { .. }
        | ModelError::UnknownTensor { .. }
        | ModelError::MissingTensor { .. }
        | ModelError::WrongShape { .. } => text.split(';').next().unwrap_or(text).replace('`', ""),
        other => panic!("{}: refused for another reason: {other}", stranger.name),
    }
}

/// The greatest difference to the reference over all seeds, prompts and kept rows. Panics where a bit
/// depends on chunks or memory, a row is off by more than the tolerance, or another token is best.
fn differences(stranger: &Stranger, folder: &Path) -> f32 {
    let Stranger { name, .. } = stranger;
    let vocabulary = stranger.vocabulary();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/strangers/golden/{name}.bin"));
    let goldens = golden::read(&path, vocabulary, SEEDS);
    let (mut worst, mut failures, mut report) = (0.0_f32, 0, String::new());
    for (seed, goldens) in (1..).zip(goldens) {
        let path = folder.join(format!("{name}-{seed}.gguf"));
        stranger.write(seed, &path);
        let whole = Run { chunk: 1, threads: 1, ..Run::default() };
        let mut streamed = streamed(&path);
        for (tokens, golden) in prompts(vocabulary).iter().zip(goldens) {
            streamed.truncate(0, 0);
            let logits = common::logits_of(&mut streamed, CHUNK, tokens);
            assert!(
                logits == whole.logits(&path, tokens),
                "{name}, seed {seed}, {} tokens: token by token with all in memory gives other bits than \
                 chunks with experts streamed",
                tokens.len()
            );
            let difference = golden.compare(&logits);
            worst = worst.max(difference.worst);
            failures += usize::from(difference.worst > TOLERANCE) + difference.other_best;
            for line in difference.lines {
                report += &format!("{name}, seed {seed}, {} tokens, {line}\n", tokens.len());
            }
        }
    }
    println!("{report}");
    assert!(failures == 0, "{failures} differences above {TOLERANCE:e} of the range or in the best token");
    worst
}

/// The model in the smallest memory that its plan accepts: experts come and go.
fn streamed(path: &Path) -> Model {
    let mut run = Run { chunk: CHUNK, memory: Some(1), ..Run::default() };
    loop {
        // What the process has taken so far is a term of the plan and may grow meanwhile, so ask again.
        match run.load(path) {
            Ok(model) => return model,
            Err(ModelError::Plan(refused)) => run.memory = Some(refused.needed_bytes()),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A test for each file.
macro_rules! strangers {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn every_file_is_tested() {
            let files: Vec<&str> = STRANGERS.iter().map(|stranger| stranger.name).collect();
            assert_eq!([$($name),*], files.as_slice());
        }
    };
}

strangers! {
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
