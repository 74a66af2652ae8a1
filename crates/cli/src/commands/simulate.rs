//! `adit simulate TRACE...`: what cache policies would do with recorded routes, on a pool for the whole
//! model that is empty at first. Reads traces only; needs no model.

mod report;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::args::{gb_per_s, positive};
use crate::failure::Usage;
use crate::probes::{self, Known};
use crate::simulation::{Curves, Kind, Memory, Trace, page};
use crate::size::ByteSize;
use crate::whole_file;
use report::{Case, DiskSource, Speed};

/// What is simulated when nothing is asked for, beside half a token cycle.
const SHARES: [f64; 3] = [0.06, 0.12, 0.25];
/// A disk of the slower kind, where nobody names one and none was probed.
const DISK_GB_PER_S: f64 = 1.0;

/// See what cache policies would do with recorded routes
///
/// A TRACE is one of three forms, told apart by how they begin:
/// what `adit run --trace` and `adit bench --trace` write (docs/trace-format.md);
/// a route trace: a line `# route_trace v1`, comments such as `# layer=0 expert_bytes=3059712`, a line of
/// column names of which `turn`, `step`, `layer` and `expert` are read, and one row for each expert of a
/// token's layer;
/// or one JSON object a line for each token: {"tok": 0, "layers": [[36, 38], [51, 139]]}.
/// The latter two may be packed with gzip. Their tokens are replayed one by one; in traces of adit's the
/// rows of a prompt ask for their experts together, as they did, and the figures are about decoding.
///
/// Expected tok/s is 1 / max(disk, compute) for a token: reading its misses, or computing it, whichever
/// takes longer. `at least` is what remains if neither overlaps the other: 1 / (disk + compute). Compute is
/// what the trace measured, or --compute, or else nothing.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Recorded routes, in any of the three forms
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// Experts that memory holds; several with commas
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["residency", "memory"])]
    slots: Vec<u32>,

    /// Share of all experts that memory holds, like 0.12; several with commas [default: half of what one
    /// token uses, 0.06, 0.12 and 0.25]
    #[arg(long, value_name = "F", value_delimiter = ',', conflicts_with = "memory")]
    #[arg(value_parser = share, allow_negative_numbers = true)]
    residency: Vec<f64>,

    /// Memory for the whole process, like 1500M; several with commas. Traces of adit's tell what `run` and
    /// `plan` would make of it; of other traces it is said what is assumed
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    memory: Vec<ByteSize>,

    /// Bytes of one expert, for traces that do not say
    #[arg(long, value_name = "SIZE")]
    expert_bytes: Option<ByteSize>,

    /// What the disk reads, in GB (10^9 bytes) a second [default: as `adit probe` measured the disk of this
    /// machine, the one that holds the trace if there are several; else 1.0]
    #[arg(long, value_name = "GB/s", value_parser = gb_per_s, allow_negative_numbers = true)]
    disk: Option<f64>,

    /// Milliseconds that a token takes with everything in memory [default: as the trace measured]
    #[arg(long, value_name = "MS", value_parser = positive, allow_negative_numbers = true)]
    compute: Option<f64>,

    /// Policies, with commas [default: all]
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<Kind>,

    /// How the result is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,

    /// Also write one page with heat maps of the experts and curves over all sizes of memory
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

fn share(text: &str) -> Result<f64, String> {
    let valid = |share: &f64| *share > 0.0 && *share <= 1.0;
    text.parse().ok().filter(valid).ok_or_else(|| "a share is a number above 0, up to 1".to_owned())
}

pub fn run(args: Args) -> Result<()> {
    if let Some(html) = &args.html {
        if args.traces.iter().any(|trace| whole_file::is_same(trace, html)) {
            let html = html.display();
            bail!(Usage(format!("--html: {html} is one of the traces; give another name")));
        }
        whole_file::check(html)?;
    }
    let kinds = if args.policy.is_empty() { Kind::value_variants() } else { &args.policy };
    // Every trace is read before anything is printed: a bad one is an error, not half of an answer.
    let mut traces = Vec::new();
    for path in &args.traces {
        let mut trace = Trace::read(path)?;
        if let (Some(size), true) = (args.expert_bytes, trace.expert_bytes.is_empty()) {
            trace.expert_bytes = vec![size.0; trace.layers];
        }
        traces.push((path.display().to_string(), trace));
    }
    let mut cases = Vec::new();
    for (name, trace) in &traces {
        let speed = args.speed(Path::new(name), trace);
        for size in args.sizes(name, trace)? {
            cases.push(Case::new(name, trace, &size, kinds, speed));
        }
    }
    if let Some(path) = &args.html {
        let curves = traces.iter().map(|(name, trace)| {
            let Speed { disk_gb_per_s, compute_s, .. } = args.speed(Path::new(name), trace);
            Curves::new(name, trace, kinds, disk_gb_per_s, compute_s)
        });
        let page = page(&curves.collect::<Vec<_>>());
        whole_file::write(path, |out| Ok(std::io::Write::write_all(out, page.as_bytes())?))?;
    }
    match args.output {
        Format::Json => report::print_json(&cases),
        Format::Table => report::print_table(&cases),
    }
}

/// How many slots, and why so many.
pub struct Size {
    pub slots: usize,
    pub memory_bytes: Option<u64>,
    /// What was assumed about the memory.
    pub assumed: Option<String>,
}

impl Args {
    fn speed(&self, path: &Path, trace: &Trace) -> Speed {
        let (disk_gb_per_s, disk_source) = match (self.disk, probed(path)) {
            (Some(disk), _) => (disk, DiskSource::Given),
            (None, Some(disk)) => (disk.bytes_per_s / 1e9, DiskSource::Probed),
            (None, None) => (DISK_GB_PER_S, DiskSource::Assumed),
        };
        Speed {
            disk_gb_per_s,
            disk_source,
            compute_s: self.compute.map(|ms| ms / 1e3).or_else(|| trace.compute_s()),
        }
    }

    fn sizes(&self, name: &str, trace: &Trace) -> Result<Vec<Size>> {
        let members = trace.members();
        let plain = |slots: usize| Size { slots, memory_bytes: None, assumed: None };
        let of_share = |share: &f64| plain(((members as f64 * share).round() as usize).max(1));
        if let Some(&slots) = self.slots.iter().find(|&&slots| slots as usize > members) {
            bail!(Usage(format!("--slots {slots}: the trace's model has only {members} experts")));
        }
        if !self.memory.is_empty() {
            return self.memory.iter().map(|&memory| of_memory(name, trace, memory)).collect();
        }
        Ok(match (self.slots.is_empty(), self.residency.is_empty()) {
            (false, _) => self.slots.iter().map(|&slots| plain(slots as usize)).collect(),
            (true, false) => self.residency.iter().map(of_share).collect(),
            (true, true) => {
                let half = (trace.token_cycle() / 2).max(1);
                std::iter::once(plain(half)).chain(SHARES.iter().map(of_share)).collect()
            }
        })
    }
}

/// What is known of this machine's disk: the only one that was probed, or the one that holds the trace.
fn probed(trace: &Path) -> Option<Known> {
    let mut known = probes::known();
    if known.len() > 1 { probes::of_path(trace) } else { known.pop() }.filter(|disk| disk.bytes_per_s > 0.0)
}

/// The slots that a budget leaves.
fn of_memory(name: &str, trace: &Trace, memory: ByteSize) -> Result<Size> {
    let too_small = |least: u64| {
        let least = ByteSize(least);
        Usage(format!("--memory {memory}: the model of {name} needs {least} before it has an expert's slot"))
    };
    if let Memory::Known(division) = &trace.memory {
        let Some((chunk, slots)) = division.choose(memory.0) else {
            let scratch = division.scratch_bytes.last().map_or(0, |&(_, bytes)| bytes);
            let slots = (division.used as u64).saturating_mul(division.slot_bytes);
            bail!(too_small(division.fixed_bytes.saturating_add(scratch).saturating_add(slots)));
        };
        let assumed = format!(
            "{} beside the slots, steps of up to {chunk} rows, as `adit plan` divides it",
            ByteSize(memory.0.saturating_sub((slots as u64).saturating_mul(division.slot_bytes)))
        );
        return Ok(Size { slots: slots.max(1), memory_bytes: Some(memory.0), assumed: Some(assumed) });
    }
    let Some(slot_bytes) = trace.slot_bytes().filter(|&bytes| bytes > 0) else {
        bail!(Usage(format!(
            "--memory {memory}: {name} does not tell how large its experts are; add --expert-bytes SIZE, or \
             give --slots or --residency instead"
        )));
    };
    let (resident, assumed) = match trace.memory {
        Memory::Backbone(bytes) => (
            bytes,
            format!(
                "{} of it for the layers' other weights, as the trace says; nothing for embeddings, keys and \
                 values and the program",
                ByteSize(bytes)
            ),
        ),
        _ => (0, "all of it for experts: the trace does not tell what else the model needs".to_owned()),
    };
    let slots = (memory.0.saturating_sub(resident) / slot_bytes).min(trace.members() as u64) as usize;
    if slots == 0 {
        bail!(too_small(resident.saturating_add(slot_bytes)));
    }
    Ok(Size { slots, memory_bytes: Some(memory.0), assumed: Some(assumed) })
}
