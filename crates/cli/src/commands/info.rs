//! `adit info MODEL`: what a file says of itself, read from its header alone. Works on every architecture,
//! also on those that adit cannot run.

use std::collections::BTreeMap;
use std::io::Write;

use adit_format::{FormatError, Gguf, Metadata, TensorInfo};
use adit_foundry::{holds_experts, layers_with_experts};
use anyhow::Result;
use serde::Serialize;

use crate::args::ModelArgs;
use crate::output::Output;
use crate::size::ByteSize;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let gguf = Gguf::open(&args.model.locate()?)?;
    let info = Info::of(&gguf)?;
    let mut out = Output::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&info)?)?;
    } else {
        info.print(&mut out)?;
    }
    Ok(out.flush()?)
}

#[derive(Serialize)]
struct Info {
    name: Option<String>,
    architecture: String,
    gguf_version: u32,
    parts: Vec<PartInfo>,
    file_bytes: u64,
    /// Weights in all tensors.
    parameters: u64,
    /// Those that one token uses; fewer than `parameters` when there are experts.
    parameters_per_token: u64,
    /// By bytes, largest first.
    tensor_types: Vec<TypeInfo>,
    layers: Option<u32>,
    embedding_length: Option<u32>,
    heads: Option<u32>,
    kv_heads: Option<u32>,
    /// Values of the latent and the rotated key that latent attention stores in place of heads.
    latent: Option<[u32; 2]>,
    context_length: Option<u32>,
    vocabulary: Option<usize>,
    tokenizer: Option<String>,
    chat_template: bool,
    backbone_bytes: u64,
    experts: Option<ExpertInfo>,
    /// Of the experts that every token uses, in all layers together; they are part of the backbone.
    shared_expert_bytes: u64,
}

#[derive(Serialize)]
struct PartInfo {
    path: String,
    bytes: u64,
}

#[derive(Serialize)]
struct TypeInfo {
    name: &'static str,
    tensors: usize,
    parameters: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ExpertInfo {
    layers: usize,
    per_layer: u64,
    used_per_token: Option<u32>,
    /// Of all routed experts together.
    bytes: u64,
    /// The smallest and the largest expert: layers may differ in their types.
    expert_bytes_min: u64,
    expert_bytes_max: u64,
}

impl Info {
    fn of(gguf: &Gguf) -> Result<Info, FormatError> {
        let metadata = gguf.metadata();
        let architecture = metadata.str("general.architecture")?.unwrap_or("unknown").to_owned();
        let number = |key: &str| first_u32(metadata, &format!("{architecture}.{key}"));
        let experts = ExpertInfo::of(gguf, number("expert_used_count")?);
        let tensor_bytes: u64 = gguf.tensors().iter().map(|tensor| tensor.bytes).sum();
        let total: u64 = gguf.tensors().iter().map(parameters).sum();
        let expert_parameters: u64 = gguf.tensors().iter().filter(|t| holds_experts(t)).map(parameters).sum();
        let idle_parameters = match &experts {
            Some(ExpertInfo { per_layer, used_per_token: Some(used), .. }) => {
                expert_parameters / per_layer * per_layer.saturating_sub(u64::from(*used))
            }
            _ => 0,
        };
        let part =
            |part: &adit_format::Part| PartInfo { path: part.path.display().to_string(), bytes: part.bytes };
        let tokens = metadata.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
        Ok(Info {
            name: metadata.str("general.name")?.map(str::to_owned),
            gguf_version: gguf.version(),
            parts: gguf.parts().iter().map(part).collect(),
            file_bytes: gguf.bytes(),
            parameters: total,
            parameters_per_token: total - idle_parameters,
            tensor_types: tensor_types(gguf.tensors()),
            layers: number("block_count")?,
            embedding_length: number("embedding_length")?,
            heads: number("attention.head_count")?,
            kv_heads: number("attention.head_count_kv")?,
            latent: number("attention.kv_lora_rank")?
                .filter(|&rank| rank > 0)
                .zip(number("rope.dimension_count")?)
                .map(<[u32; 2]>::from),
            context_length: number("context_length")?,
            vocabulary: tokens.or(number("vocab_size")?.map(|size| size as usize)),
            tokenizer: tokenizer(metadata)?,
            chat_template: metadata.get("tokenizer.chat_template").is_some(),
            backbone_bytes: tensor_bytes - experts.as_ref().map_or(0, |experts| experts.bytes),
            experts,
            shared_expert_bytes: gguf.tensors().iter().filter(|t| is_shared(t)).map(|t| t.bytes).sum(),
            architecture,
        })
    }

    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let mut line = |label: &str, text: String| writeln!(out, "{label:<15}{text}");
        let count = |value: Option<u32>| value.map_or("unknown".to_owned(), |value| value.to_string());
        line("name", self.name.as_deref().map_or("none".to_owned(), visible))?;
        line("architecture", visible(&self.architecture))?;
        line("file", format!("GGUF v{}, {}", self.gguf_version, ByteSize(self.file_bytes)))?;
        if self.parts.len() > 1 {
            for part in &self.parts {
                line("", format!("{} ({})", visible(&part.path), ByteSize(part.bytes)))?;
            }
        }
        let active = match self.parameters_per_token {
            active if active == self.parameters => String::new(),
            active => format!(", {} for each token", quantity(active)),
        };
        line("parameters", format!("{}{active}", quantity(self.parameters)))?;
        for (row, kind) in self.tensor_types.iter().enumerate() {
            let label = if row == 0 { "types" } else { "" };
            let tensors = format!("{} tensors", kind.tensors);
            line(label, format!("{:<7} {tensors:>12} {:>10}", kind.name, ByteSize(kind.bytes).to_string()))?;
        }
        line("layers", count(self.layers))?;
        line("embedding", count(self.embedding_length))?;
        let stored = match self.latent {
            Some([latent, rotated]) => format!("a latent of {latent} + {rotated} values"),
            None => format!("key/value {}", count(self.kv_heads)),
        };
        line("heads", format!("{}, {stored}", count(self.heads)))?;
        line("context", count(self.context_length))?;
        let vocabulary = self.vocabulary.map_or("none".to_owned(), |size| size.to_string());
        let tokenizer =
            self.tokenizer.as_deref().map_or(String::new(), |name| format!(", {}", visible(name)));
        line("vocabulary", format!("{vocabulary}{tokenizer}"))?;
        line("chat template", if self.chat_template { "yes" } else { "no" }.to_owned())?;
        line("backbone", ByteSize(self.backbone_bytes).to_string())?;
        match &self.experts {
            Some(experts) => line("experts", experts.summary())?,
            None => line("experts", "none".to_owned())?,
        }
        match self.shared_expert_bytes {
            0 => Ok(()),
            bytes => line("shared experts", format!("{}, part of the backbone", ByteSize(bytes))),
        }
    }
}

impl ExpertInfo {
    fn of(gguf: &Gguf, used_per_token: Option<u32>) -> Option<ExpertInfo> {
        // What is wrong with them is told by whoever needs them.
        let layers = layers_with_experts(gguf).ok()?;
        let sizes = || layers.iter().map(|layer| layer.expert_bytes);
        Some(ExpertInfo {
            layers: layers.len(),
            per_layer: layers.iter().map(|layer| layer.experts as u64).max()?,
            used_per_token,
            bytes: layers.iter().map(|layer| layer.expert_bytes * layer.experts as u64).sum(),
            expert_bytes_min: sizes().min()?,
            expert_bytes_max: sizes().max()?,
        })
    }

    fn summary(&self) -> String {
        let used = self.used_per_token.map_or(String::new(), |used| format!(", {used} used by a token"));
        let (min, max) = (ByteSize(self.expert_bytes_min), ByteSize(self.expert_bytes_max));
        let each = if min == max { max.to_string() } else { format!("{min} to {max}") };
        let (layers, per_layer) = (self.layers, self.per_layer);
        format!("{} in {layers} layers x {per_layer}{used}, {each} each", ByteSize(self.bytes))
    }
}

/// Whether a tensor is a matrix of an expert that every token uses.
fn is_shared(tensor: &TensorInfo) -> bool {
    ["_shexp.weight", "_chexp.weight"].iter().any(|end| tensor.name.ends_with(end))
        && !tensor.name.contains("gate_inp")
}

fn parameters(tensor: &TensorInfo) -> u64 {
    tensor.dims.iter().product()
}

fn tensor_types(tensors: &[TensorInfo]) -> Vec<TypeInfo> {
    let mut kinds: BTreeMap<&'static str, TypeInfo> = BTreeMap::new();
    for tensor in tensors {
        let name = tensor.kind.name();
        let kind = kinds.entry(name).or_insert(TypeInfo { name, tensors: 0, parameters: 0, bytes: 0 });
        kind.tensors += 1;
        kind.parameters += parameters(tensor);
        kind.bytes += tensor.bytes;
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
    kinds
}

/// A number, or the first of a list of them: some families give one for each layer.
fn first_u32(metadata: &Metadata, key: &str) -> Result<Option<u32>, FormatError> {
    match metadata.get(key) {
        Some(adit_format::Value::Array(_)) => {
            Ok(metadata.u32s(key)?.and_then(|values| values.into_iter().find(|value| *value > 0)))
        }
        _ => metadata.u32(key),
    }
}

/// `gpt2 (smollm)`: the kind of vocabulary, and how text is cut before it.
fn tokenizer(metadata: &Metadata) -> Result<Option<String>, FormatError> {
    let pre = metadata.str("tokenizer.ggml.pre")?.map_or(String::new(), |pre| format!(" ({pre})"));
    Ok(metadata.str("tokenizer.ggml.model")?.map(|model| format!("{model}{pre}")))
}

/// Text from a file, safe to show: a terminal must not obey it.
fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// `134.5 M`
fn quantity(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} M", number as f64 / 1e6),
        _ => format!("{:.2} B", number as f64 / 1e9),
    }
}
