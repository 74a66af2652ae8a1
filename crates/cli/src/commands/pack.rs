//! `adit pack MODEL -o OUT`: writes a model anew with each expert side by side, or stacked again, and tells
//! what that gains on the disk where it lies.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use adit_format::writer::Existing;
use adit_format::{FormatError, Gguf};
use adit_foundry::{
    Form, FoundryError, Gain, LayerExperts, Pack, PackReport, Stage, Verdict, by_co_use, expected_gain, gain,
    layers_with_experts, pack,
};
use anyhow::{Context, Result, anyhow, bail};

use crate::args::ModelArgs;
use crate::interrupt;
use crate::output::Output;
use crate::progress::{Progress, note};
use crate::simulation::{Phase, Trace};
use crate::size::ByteSize;

/// What `--help` says below the flags.
const EXPLANATION: &str = "\
In most files the gate, up and down matrices of an expert lie far from each other: adit reads an expert in
three places. In a packed file they are neighbours on blocks of 4 KiB of their own, and an expert is one
read. The matrices are tensors of their own then, named as in files of 2023 (blk.0.ffn_up.3.weight). It is a
valid GGUF file, and adit runs it with the same results to the bit; but current llama.cpp refuses such files.
--stacked gives back what loads anywhere, without loss.

Until it is whole and was read back with the right digests, the new file is called OUT.partial. The same
command goes on with what an earlier run left. Whether packing gains anything depends on the disk and the size
of the experts: --dry-run measures it.";

#[derive(clap::Args)]
#[command(after_help = EXPLANATION)]
pub struct Args {
    #[command(flatten)]
    source: ModelArgs,

    /// The file to write
    #[arg(short, long, value_name = "OUT", required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    /// Write the form that other programs load: a tensor for a matrix of all experts of a layer
    #[arg(long)]
    stacked: bool,

    /// Store experts as neighbours that this recorded trace often uses together
    #[arg(long, value_name = "FILE", conflicts_with = "stacked")]
    trace: Option<PathBuf>,

    /// Write nothing; measure on this model's disk what packing would gain
    #[arg(long, conflicts_with_all = ["stacked", "trace"])]
    dry_run: bool,

    /// Replace OUT if it exists, and OUT.partial if it is of other work
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args) -> Result<()> {
    let source = args.source.locate()?;
    match &args.output {
        Some(output) if !args.dry_run => write(&args, &source, output),
        _ => {
            let mut out = Output::stdout();
            writeln!(out, "{}", told(expected_gain(&source)?))?;
            Ok(out.flush()?)
        }
    }
}

fn write(args: &Args, source: &Path, output: &Path) -> Result<()> {
    let orders = args.trace.as_ref().map(|trace| orders(source, trace)).transpose()?;
    let job = Pack {
        source,
        output,
        form: if args.stacked { Form::Stacked } else { Form::Packed },
        orders,
        existing: if args.force { Existing::Replace } else { Existing::Refuse },
    };
    let report = make(&job).map_err(name_the_flag)?;
    let (min, max) = (ByteSize(report.expert_bytes.0), ByteSize(report.expert_bytes.1));
    let each = if min == max { max.to_string() } else { format!("{min} to {max}") };
    let PackReport { tensors, layers, experts, .. } = report;
    note(&format!(
        "{}: {}, {tensors} tensors, {layers} layers x {experts} experts of {each}, all read back and right",
        output.display(),
        ByteSize(report.output_bytes),
    ));
    if report.kept_bytes > 0 {
        note(&format!("an earlier run had written {} of it", ByteSize(report.kept_bytes)));
    }
    if job.form == Form::Packed {
        // The file is there: what cannot be measured now is no failure.
        match gain(source, output) {
            Ok(gain) => note(&told(gain)),
            Err(error) => note(&format!("what it gains could not be measured: {error}")),
        }
    }
    Ok(())
}

/// Writes the new model with a bar; Ctrl-C leaves what the same command goes on with.
fn make(job: &Pack<'_>) -> Result<PackReport> {
    interrupt::install()?;
    let mut bar: Option<(Stage, Progress)> = None;
    let report = interrupt::watched(|| {
        pack(job, &mut |stage, done, total| {
            if bar.as_ref().is_none_or(|(shown, _)| *shown != stage) {
                let label = if stage == Stage::Writing { "writing" } else { "reading back" };
                bar = Some((stage, Progress::bytes(label, Some(total))));
            }
            if let Some((_, bar)) = &bar {
                bar.set(done);
            }
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    Ok(report?)
}

/// The foundry knows of no flags.
fn name_the_flag(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(FoundryError::Format(FormatError::Exists { path })) => {
            anyhow!("{}: already exists; --force replaces it, or choose another name", path.display())
        }
        Some(FoundryError::OtherPartial { path }) => anyhow!(
            "{}: this unfinished file belongs to other work (another model, form or order of experts); \
             delete it, --force replaces it, or choose another name",
            path.display()
        ),
        _ => error,
    }
}

fn told(gain: Option<Gain>) -> String {
    let Some(gain) = gain else {
        return "there is nothing to compare: the model is packed already, or too small to measure"
            .to_owned();
    };
    let rate = |bytes_per_s: f64| ByteSize(bytes_per_s as u64);
    let verdict = match gain.verdict() {
        Verdict::Gains => "packing gains",
        Verdict::GainsNothing => {
            "packing gains nothing for this model on this disk, or no more than the disk varies by:"
        }
        Verdict::Unclear => {
            "the disk varies too much to tell what packing gains, try again while it is quiet:"
        }
    };
    format!(
        "experts of {}, {} at a time: {}/s with their matrices apart, {}/s side by side; {verdict} {:+.1} % \
         (faster in {} of {} turns)",
        ByteSize(gain.expert_bytes),
        gain.together,
        rate(gain.apart_bytes_per_s),
        rate(gain.side_by_side_bytes_per_s),
        100.0 * gain.share,
        gain.wins,
        gain.turns
    )
}

/// The order of the experts of each layer by how often a trace uses them together.
fn orders(source: &Path, path: &Path) -> Result<Vec<Vec<u32>>> {
    let layers = layers_with_experts(&Gguf::open(source)?)?;
    let trace = Trace::read(path)?;
    orders_of(&layers, &trace).with_context(|| format!("{} is of another model", path.display()))
}

fn orders_of(layers: &[LayerExperts], trace: &Trace) -> Result<Vec<Vec<u32>>> {
    let last = layers.last().map_or(0, |layer| layer.layer as usize);
    // Traces count either the layers that have experts or all layers.
    let counts_all = match trace.layers {
        count if count == layers.len() => false,
        count if count > last => true,
        count => bail!("it has {count} layers, and the model has experts in {}", layers.len()),
    };
    let most = layers.iter().map(|layer| layer.experts).min().unwrap_or(0);
    if trace.experts_per_layer > most {
        bail!("it has {} experts in a layer, the model {most}", trace.experts_per_layer);
    }
    // Rows of a prompt ask for nearly all experts together, which tells nothing.
    let decodes = trace.steps.iter().any(|step| step.phase == Phase::Decode);
    let order = |(place, layer): (usize, &LayerExperts)| {
        let number = if counts_all { layer.layer as usize } else { place };
        let uses = trace.visits().filter(|(visit, _)| {
            let is_token = !decodes || trace.steps[visit.step as usize].phase == Phase::Decode;
            visit.layer as usize == number && is_token
        });
        by_co_use(layer.experts, uses.map(|(_, experts)| experts))
    };
    Ok(layers.iter().enumerate().map(order).collect())
}
