//! `adit forge upcycle`: a dense `llama` model becomes a mixture of experts of the Mixtral kind. Every
//! expert is a copy of the dense feed-forward block with a small seeded change (see `perturb`), routers are
//! random, all else is copied byte for byte. What the model says stays what it said; what changes is its
//! size and how it is run. llama.cpp opens the result, too.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use adit_format::rng::Rng;
use adit_format::writer::{Existing, Layout, TensorSpec, Writer};
use adit_format::{Gguf, Metadata, TensorInfo, TensorType, Value};

use crate::source::Source;
use crate::{FoundryError, perturb, space};

/// As many as llama.cpp accepts.
pub const EXPERTS_MAX: u32 = 1024;

/// Deviation of the router's logits: the best few of some dozen experts get clearly unequal weights, and
/// another token gets other experts.
const ROUTER_SPREAD: f32 = 1.5;

const ROLES: [&str; 3] = ["gate", "up", "down"];

/// What to make of what.
#[derive(Clone, Copy, Debug)]
pub struct Upcycle<'a> {
    pub input: &'a Path,
    pub output: &'a Path,
    pub experts: u32,
    /// Experts that a token uses in a layer.
    pub top_k: u32,
    pub seed: u64,
    pub existing: Existing,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub layers: u32,
    pub experts: u32,
    pub top_k: u32,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// One expert of one layer: its gate, up and down matrices (the largest where layers differ).
    pub expert_bytes: u64,
}

/// Where each tensor of the output comes from.
enum Origin<'m> {
    Copied(&'m TensorInfo),
    Experts(&'m TensorInfo),
    /// The router behind this norm.
    Router(&'m TensorInfo),
}

/// Writes the new model; `progress` hears the bytes done and the bytes in all, and may stop the work.
pub fn upcycle(
    job: &Upcycle<'_>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Report, FoundryError> {
    let refused = |problem: String| Err(FoundryError::Refused { path: job.input.to_path_buf(), problem });
    if !(2..=EXPERTS_MAX).contains(&job.experts) {
        return refused(format!("expected 2 to {EXPERTS_MAX} experts, got {}", job.experts));
    }
    if !(1..=job.experts).contains(&job.top_k) {
        return refused(format!("expected a top-k of 1 to {} (the experts), got {}", job.experts, job.top_k));
    }
    let model = Gguf::open(job.input)?;
    check_paths(&model, job)?;
    let layers = check_model(&model, job)?;
    let plan = plan_tensors(&model, layers, job)?;
    let specs: Vec<TensorSpec> = plan.iter().map(|(spec, _)| spec.clone()).collect();
    let layout = Layout::new(&new_metadata(model.metadata(), job), &specs)?;
    let output_bytes = layout.file_bytes();
    space::check(job.output, output_bytes)?;
    let mut output = Output {
        writer: Writer::create(job.output, layout, job.existing)?,
        done: 0,
        bytes: output_bytes,
        progress,
        path: job.output,
    };
    write_tensors(&model, &plan, job, &mut output)?;
    output.writer.finish()?;
    let expert_bytes = (0..layers)
        .map(|layer| {
            ROLES.iter().filter_map(|role| model.tensor(&ffn_name(layer, role))).map(|t| t.bytes).sum()
        })
        .max()
        .unwrap_or(0);
    Ok(Report {
        layers,
        experts: job.experts,
        top_k: job.top_k,
        input_bytes: model.bytes(),
        output_bytes,
        expert_bytes,
    })
}

/// Refuses to write over the model that is being read.
fn check_paths(model: &Gguf, job: &Upcycle<'_>) -> Result<(), FoundryError> {
    let Ok(output) = fs::canonicalize(job.output) else { return Ok(()) };
    let same = |part: &adit_format::Part| fs::canonicalize(&part.path).is_ok_and(|path| path == output);
    if model.parts().iter().any(same) {
        let problem = "input and output are the same file; give the new model another name".to_string();
        return Err(FoundryError::Refused { path: job.output.to_path_buf(), problem });
    }
    Ok(())
}

/// Checks that the recipe applies, and returns the number of layers.
fn check_model(model: &Gguf, job: &Upcycle<'_>) -> Result<u32, FoundryError> {
    let refused = |problem: String| Err(FoundryError::Refused { path: job.input.to_path_buf(), problem });
    let metadata = model.metadata();
    let architecture = metadata.require_str("general.architecture")?;
    if architecture != "llama" {
        return refused(format!(
            "general.architecture: expected llama, found {architecture}; only dense models of the llama \
             family can be upcycled"
        ));
    }
    let experts = metadata.u32("llama.expert_count")?.unwrap_or(0);
    if experts > 0 {
        return refused(format!(
            "llama.expert_count: the model has {experts} experts already; give a dense one"
        ));
    }
    if let Some(tensor) = model.tensors().iter().find(|tensor| is_unknown_feed_forward(&tensor.name)) {
        return refused(format!("tensor {}: mixtures of the llama family have no place for it", tensor.name));
    }
    let layers = metadata.require_u32("llama.block_count")?;
    if layers == 0 || model.tensors().is_empty() {
        return refused("the file has no layers (a vocabulary only?); give a whole model".to_string());
    }
    Ok(layers)
}

/// Feed-forward tensors that a dense model may have and a mixture may not, such as biases.
fn is_unknown_feed_forward(name: &str) -> bool {
    let Some((_, what)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let known = ["ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"];
    what.starts_with("ffn_") && !known.contains(&what)
}

fn ffn_name(layer: u32, role: &str) -> String {
    format!("blk.{layer}.ffn_{role}.weight")
}

/// The tensors of the output in order: those of the input, experts where the dense matrices were, and the
/// router of a layer behind its norm.
fn plan_tensors<'m>(
    model: &'m Gguf,
    layers: u32,
    job: &Upcycle<'_>,
) -> Result<Vec<(TensorSpec, Origin<'m>)>, FoundryError> {
    let refused = |problem: String| FoundryError::Refused { path: job.input.to_path_buf(), problem };
    let experts = u64::from(job.experts);
    let mut converted = 0;
    let mut plan = Vec::new();
    for tensor in model.tensors() {
        let copied = TensorSpec { name: tensor.name.clone(), kind: tensor.kind, dims: tensor.dims.clone() };
        let Some((layer, role)) = feed_forward_part(&tensor.name).filter(|&(layer, _)| layer < layers) else {
            plan.push((copied, Origin::Copied(tensor)));
            continue;
        };
        if role == "norm" {
            let router = TensorSpec {
                name: format!("blk.{layer}.ffn_gate_inp.weight"),
                kind: TensorType::F32,
                dims: vec![tensor.dims[0], experts],
            };
            plan.push((copied, Origin::Copied(tensor)));
            plan.push((router, Origin::Router(tensor)));
            converted += 1;
            continue;
        }
        if tensor.dims.len() != 2 {
            return Err(refused(format!(
                "tensor {}: expected 2 dimensions, found {:?}",
                tensor.name, tensor.dims
            )));
        }
        if perturb::scales(tensor.kind).is_none() {
            return Err(refused(format!(
                "tensor {} is {}, whose scales cannot be changed a little; give the model in another \
                 quantisation, for instance Q4_K_M",
                tensor.name, tensor.kind
            )));
        }
        let name = format!("blk.{layer}.ffn_{role}_exps.weight");
        let dims = vec![tensor.dims[0], tensor.dims[1], experts];
        plan.push((TensorSpec { name, kind: tensor.kind, dims }, Origin::Experts(tensor)));
        converted += 1;
    }
    let expected = u64::from(layers) * (1 + ROLES.len() as u64);
    if converted != expected {
        return Err(refused(format!(
            "expected a norm and gate, up and down matrices in each of {layers} layers: {expected} tensors, \
             found {converted}; the model is incomplete"
        )));
    }
    Ok(plan)
}

/// Layer and role (`norm`, `gate`, `up`, `down`) of a feed-forward tensor.
fn feed_forward_part(name: &str) -> Option<(u32, &str)> {
    let (layer, what) = name.strip_prefix("blk.")?.split_once('.')?;
    let role = what.strip_prefix("ffn_")?.strip_suffix(".weight")?;
    (role == "norm" || ROLES.contains(&role)).then_some(())?;
    Some((layer.parse().ok()?, role))
}

/// All keys of the input but those of its split, and the two that make it a mixture.
fn new_metadata(input: &Metadata, job: &Upcycle<'_>) -> Metadata {
    let mut metadata = input.clone();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        metadata.remove(key);
    }
    metadata.set("llama.expert_count", Value::U32(job.experts));
    metadata.set("llama.expert_used_count", Value::U32(job.top_k));
    metadata
}

/// The file being written and whoever wants to know how far it is.
struct Output<'a> {
    writer: Writer,
    done: u64,
    bytes: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    path: &'a Path,
}

impl Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), FoundryError> {
        self.writer.write(bytes)?;
        self.done += bytes.len() as u64;
        match (self.progress)(self.done, self.bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FoundryError::Stopped { path: self.path.to_path_buf() }),
        }
    }
}

fn write_tensors(
    model: &Gguf,
    plan: &[(TensorSpec, Origin<'_>)],
    job: &Upcycle<'_>,
    output: &mut Output<'_>,
) -> Result<(), FoundryError> {
    let mut source = Source::open(model)?;
    for (spec, origin) in plan {
        match origin {
            Origin::Copied(tensor) => {
                source.pieces(tensor, tensor.kind.block_bytes(), |piece| output.write(piece))?;
            }
            Origin::Experts(tensor) => {
                let row_bytes = (tensor.bytes / tensor.dims[1]) as usize;
                for expert in 0..job.experts {
                    let mut rng = Rng::named(job.seed, &format!("{} {expert}", spec.name));
                    source.pieces(tensor, row_bytes, |rows| {
                        perturb::perturb_rows(tensor.kind, row_bytes, rows, &mut rng);
                        output.write(rows)
                    })?;
                }
            }
            Origin::Router(norm) => {
                let weights = source.floats(norm)?.ok_or_else(|| FoundryError::Refused {
                    path: job.input.to_path_buf(),
                    problem: format!("tensor {}: expected floats, found {}", norm.name, norm.kind),
                })?;
                output.write(&router(&weights, job.experts, Rng::named(job.seed, &spec.name)))?;
            }
        }
    }
    Ok(())
}

/// A random router, one row an expert. What it reads is a normalised state times the weights of the norm,
/// so for logits of deviation `ROUTER_SPREAD` its own must be that over the length of those weights.
fn router(norm_weights: &[f32], experts: u32, mut rng: Rng) -> Vec<u8> {
    let length = norm_weights.iter().map(|weight| f64::from(*weight).powi(2)).sum::<f64>().sqrt() as f32;
    let spread = if length.is_normal() { ROUTER_SPREAD / length } else { ROUTER_SPREAD };
    let values = norm_weights.len() * experts as usize;
    (0..values).flat_map(|_| (spread * rng.normal()).to_le_bytes()).collect()
}
