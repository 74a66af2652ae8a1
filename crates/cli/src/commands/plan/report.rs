//! What a plan says, as text or as one JSON object.

use std::io::Write;

use adit_model::{Blueprint, Bytes, MixerConfig, Plan};
use serde::Serialize;

use super::disk::Disk;
use super::routes;
use crate::output::Output;
use crate::size::ByteSize;

/// Where the disk's pace comes from.
pub enum DiskPace {
    /// Bytes a second, as somebody says.
    Given(f64),
    Measured(Disk),
    /// The file is a header with nothing behind it.
    Unknown,
}

impl DiskPace {
    fn bytes_per_s(&self) -> Option<f64> {
        match self {
            DiskPace::Given(pace) => Some(*pace),
            DiskPace::Measured(disk) => Some(disk.token_bytes_per_s),
            DiskPace::Unknown => None,
        }
    }
}

#[derive(Serialize)]
pub struct Report {
    terms: Vec<TermReport>,
    sum_bytes: u64,
    budget_bytes: u64,
    budget_source: String,
    context: usize,
    chunk: usize,
    /// What one more token of context takes in all layers.
    kv_bytes_per_token: usize,
    latent: Option<LatentReport>,
    experts: Option<ExpertReport>,
}

#[derive(Serialize)]
struct TermReport {
    name: &'static str,
    bytes: u64,
    reason: String,
}

/// What is stored in place of a key and a value for each head, in layers with latent attention.
#[derive(Serialize)]
struct LatentReport {
    layers: usize,
    latent: usize,
    rotated: usize,
    heads: usize,
    key_dim: usize,
    value_dim: usize,
    /// What is not stored, as a share of the keys and values of all heads.
    saved: f64,
}

#[derive(Serialize)]
struct ExpertReport {
    slots: usize,
    slot_bytes: u64,
    experts: usize,
    /// Experts that a token uses in all layers together.
    token_cycle: usize,
    token_cycle_bytes: f64,
    /// Bytes of all weights that a token is computed with.
    token_bytes: f64,
    /// Bytes a second; null where nothing tells.
    disk_bytes_per_s: Option<f64>,
    compute_ms: Option<f64>,
    speeds: Vec<Speed>,
}

/// What to expect of one kind of routing.
#[derive(Serialize)]
struct Speed {
    routing: &'static str,
    hit_rate: f64,
    /// Bytes that a token has to read.
    bytes_per_token: f64,
    /// 1 / max(disk, compute); null where nothing takes time.
    tok_per_s: Option<f64>,
    /// 1 / (disk + compute): what remains if neither hides the other.
    pessimistic_tok_per_s: Option<f64>,
}

impl Report {
    pub fn new(blueprint: &Blueprint, plan: &Plan) -> Report {
        let term = |term: &adit_model::Term| TermReport {
            name: term.name,
            bytes: term.bytes,
            reason: term.reason.clone(),
        };
        Report {
            terms: plan.terms.iter().map(term).collect(),
            sum_bytes: plan.total_bytes(),
            budget_bytes: plan.budget,
            budget_source: plan.budget_source.to_string(),
            context: plan.context,
            chunk: plan.chunk,
            kv_bytes_per_token: plan.kv.position_bytes(),
            latent: LatentReport::new(blueprint),
            experts: None,
        }
    }

    /// Adds what concerns the experts of a model that has some.
    pub fn add_experts(
        &mut self,
        blueprint: &Blueprint,
        plan: &Plan,
        pace: &DiskPace,
        compute_s: Option<f64>,
    ) {
        let expert_bytes = blueprint.expert_bytes() as f64 / plan.experts as f64;
        let token_cycle_bytes = expert_bytes * plan.token_cycle as f64;
        let residency = plan.slots as f64 / plan.experts as f64;
        let speed = |(routing, hit_rate): (&'static str, f64)| {
            let bytes_per_token = token_cycle_bytes * (1.0 - hit_rate);
            let disk = pace.bytes_per_s().map(|pace| bytes_per_token / pace);
            let compute = compute_s.unwrap_or(0.0);
            let rate = |seconds: f64| (seconds > 0.0).then(|| 1.0 / seconds);
            Speed {
                routing,
                hit_rate,
                bytes_per_token,
                tok_per_s: disk.and_then(|disk| rate(disk.max(compute))),
                pessimistic_tok_per_s: disk.and_then(|disk| rate(disk + compute)),
            }
        };
        let kinds =
            [("uniform", routes::uniform(residency)), ("like real", routes::like_measured(residency))];
        self.experts = Some(ExpertReport {
            slots: plan.slots,
            slot_bytes: plan.slot_bytes,
            experts: plan.experts,
            token_cycle: plan.token_cycle,
            token_cycle_bytes,
            token_bytes: token_cycle_bytes + computed_backbone_bytes(blueprint) as f64,
            disk_bytes_per_s: pace.bytes_per_s(),
            compute_ms: compute_s.map(|seconds| seconds * 1e3),
            speeds: kinds.map(speed).into(),
        });
    }

    pub fn print_json(&self, out: &mut Output) -> anyhow::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        Ok(writeln!(out)?)
    }

    /// The sum, term by term.
    pub fn print_sum(&self, out: &mut Output) -> std::io::Result<()> {
        for term in &self.terms {
            writeln!(out, "{:<10}{:>12}  {}", term.name, Bytes(term.bytes).to_string(), term.reason)?;
        }
        writeln!(out, "{:<10}{:>12}", "sum", Bytes(self.sum_bytes).to_string())?;
        writeln!(
            out,
            "{:<10}{:>12}  {}",
            "budget",
            Bytes(self.budget_bytes).to_string(),
            self.budget_source
        )?;
        write!(out, "\na token of context takes {} bytes", self.kv_bytes_per_token)?;
        if let Some(LatentReport { layers, latent, rotated, heads, key_dim, value_dim, saved }) = &self.latent
        {
            write!(
                out,
                ": latents of {latent} + {rotated} values in {layers} layers, {:.1} % less than\n\
                 the keys and values of {heads} heads, {key_dim} + {value_dim} values each",
                100.0 * saved
            )?;
        }
        writeln!(out)
    }

    /// What the experts have in memory, and what speed to expect; nothing for a dense model.
    pub fn print_experts(&self, pace: &DiskPace, out: &mut Output) -> std::io::Result<()> {
        let Some(experts) = &self.experts else { return Ok(()) };
        let ExpertReport { slots, token_cycle, token_cycle_bytes, token_bytes, .. } = *experts;
        let cycles = slots as f64 / token_cycle as f64;
        writeln!(
            out,
            "\n{slots} slots hold {:.1} % of {} experts: {cycles:.1} token cycles of {token_cycle} experts",
            100.0 * slots as f64 / experts.experts as f64,
            experts.experts,
        )?;
        let size = |bytes: f64| ByteSize(bytes as u64);
        print_pace(pace, out)?;
        if slots >= experts.experts {
            write!(
                out,
                "speed: every expert stays in memory, so the disk does not matter after the first use"
            )?;
            return match experts.compute_ms {
                Some(ms) => writeln!(out, ":\n       {:.2} tok/s, as computing takes {ms:.1} ms", 1e3 / ms),
                None => writeln!(out),
            };
        }
        let compute = match experts.compute_ms {
            Some(ms) => format!("in {ms:.1} ms, as given"),
            None => "if arithmetic and memory keep up (--compute gives their time)".to_owned(),
        };
        writeln!(
            out,
            "speed: a token is computed with {} of weights, {} of them experts,\n       {compute}",
            size(token_bytes),
            size(token_cycle_bytes)
        )?;
        writeln!(
            out,
            "  {:<12}{:>8}{:>14}{:>9}{:>10}",
            "routing", "hits", "reads/token", "tok/s", "at least"
        )?;
        for Speed { routing, hit_rate, bytes_per_token, tok_per_s, pessimistic_tok_per_s } in &experts.speeds
        {
            let (hits, reads) = (format!("{:.1} %", 100.0 * hit_rate), size(*bytes_per_token).to_string());
            let rate = |rate: &Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.2}"));
            let (fast, slow) = (rate(tok_per_s), rate(pessimistic_tok_per_s));
            writeln!(out, "  {routing:<12}{hits:>8}{reads:>14}{fast:>9}{slow:>10}")?;
        }
        writeln!(
            out,
            "uniform: every expert is as likely as any other. like real: what the routes of three models"
        )?;
        writeln!(out, "hit with as large a share in memory; see docs/shapes.md")?;
        if slots < token_cycle {
            writeln!(out, "less than one token cycle: little of a token is left in memory for the next one")?;
        }
        Ok(())
    }
}

impl LatentReport {
    fn new(blueprint: &Blueprint) -> Option<LatentReport> {
        let latents = || {
            blueprint.config.layers.iter().filter_map(|layer| match &layer.mixer {
                MixerConfig::Latent(latent) => Some(latent),
                _ => None,
            })
        };
        let one = latents().next()?;
        let stored: usize = latents().map(|latent| latent.latent + latent.rotated).sum();
        let full: usize = latents().map(|latent| latent.full_heads_values()).sum();
        // Of one head or two, a latent is longer than what it stands for.
        if stored >= full {
            return None;
        }
        Some(LatentReport {
            layers: latents().count(),
            latent: one.latent,
            rotated: one.rotated,
            heads: one.attention.heads,
            key_dim: one.unrotated + one.rotated,
            value_dim: one.value_dim,
            saved: 1.0 - stored as f64 / full as f64,
        })
    }
}

/// Bytes of the weights that every token is computed with: of embeddings that are not the output matrix too,
/// one row counts, which is nothing.
fn computed_backbone_bytes(blueprint: &Blueprint) -> u64 {
    let bytes = |name: &str| blueprint.gguf.tensor(name).map_or(0, |tensor| tensor.bytes);
    let looked_up = if bytes("output.weight") > 0 { bytes("token_embd.weight") } else { 0 };
    blueprint.backbone_bytes() - looked_up.min(blueprint.backbone_bytes())
}

fn print_pace(pace: &DiskPace, out: &mut Output) -> std::io::Result<()> {
    let rate = |bytes_per_s: f64| ByteSize(bytes_per_s as u64);
    let disk = match pace {
        DiskPace::Given(pace) => return writeln!(out, "disk: {}/s, as given", rate(*pace)),
        DiskPace::Unknown => {
            return writeln!(
                out,
                "disk: not measured, as this file has holes where weights should be; --disk gives its pace"
            );
        }
        DiskPace::Measured(disk) => disk,
    };
    let how = if disk.is_direct { "past the page cache" } else { "through the page cache" };
    write!(
        out,
        "disk: {}/s reading {} of a layer's experts at a time, as a token does",
        rate(disk.token_bytes_per_s),
        disk.token_experts
    )?;
    if let Some((experts, bytes_per_s)) = disk.prompt {
        write!(out, ",\n      {}/s reading {experts}, as a prompt does", rate(bytes_per_s))?;
    }
    writeln!(out, " ({}, {how})", disk.backend)
}
