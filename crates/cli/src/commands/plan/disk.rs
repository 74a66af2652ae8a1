//! What the disk that holds the experts gives, read as the engine reads them.

use std::time::{Duration, Instant};

use adit_model::{Blueprint, Plan};
use adit_pager::{FileSet, Group, IoOptions, Pager, PagerError};
use anyhow::Result;

/// Long enough for a disk to show its pace, short enough to wait for.
const MEASURE_TIME: Duration = Duration::from_millis(500);
const MEASURE_BYTES_MAX: u64 = 1 << 30;
/// A prompt asks for nearly all experts of a layer together; with more than this a disk gives no more.
const PROMPT_EXPERTS: usize = 16;
/// Larger experts keep a disk busy by themselves.
const PROMPT_BYTES_MAX: u64 = 64 << 20;

pub struct Disk {
    /// Experts that a token asks for together: those of one layer.
    pub token_experts: usize,
    pub token_bytes_per_s: f64,
    /// The same with more experts asked for together, as by a prompt; `None` where a token asks for as many.
    pub prompt: Option<(usize, f64)>,
    pub backend: &'static str,
    pub is_direct: bool,
}

impl Disk {
    pub fn measure(blueprint: &Blueprint, plan: &Plan, io: &IoOptions) -> Result<Disk> {
        let paths: Vec<_> = blueprint.gguf.parts().iter().map(|part| part.path.clone()).collect();
        let files = FileSet::open(&paths, io)?;
        let groups = &blueprint.weights.groups;
        let token_experts = plan.token_cycle / groups.len();
        // Half of a layer, so that two batches of one layer need not overlap; and no more than is planned.
        let half = groups.iter().map(|group| group.members as usize / 2).min().unwrap_or(0);
        let affordable = (PROMPT_BYTES_MAX / plan.slot_bytes) as usize;
        let many = PROMPT_EXPERTS.min(half).min(affordable).min(plan.slots);
        let prompt = match many > token_experts {
            true => Some((many, pace(&files, groups, many)?)),
            false => None,
        };
        Ok(Disk {
            token_experts,
            token_bytes_per_s: pace(&files, groups, token_experts)?,
            prompt,
            backend: files.backend(),
            is_direct: files.is_direct(),
        })
    }
}

/// Whether most of the model's bytes were never written, so that reading them says nothing of the disk.
#[cfg(unix)]
pub fn is_hollow(blueprint: &Blueprint) -> bool {
    use std::os::unix::fs::MetadataExt;
    let stored =
        |part: &adit_format::Part| part.path.metadata().map_or(part.bytes, |meta| meta.blocks() * 512);
    let stored: u64 = blueprint.gguf.parts().iter().map(stored).sum();
    stored < blueprint.gguf.bytes() / 2
}

#[cfg(not(unix))]
pub fn is_hollow(_: &Blueprint) -> bool {
    false
}

/// Bytes a second, layer after layer as in a step, with `batch` experts of a layer asked for together.
fn pace(files: &FileSet, groups: &[Group], batch: usize) -> Result<f64, PagerError> {
    // With as many slots as a batch has experts, a batch finds nothing of the one before it.
    let mut pager = Pager::new(files.clone(), groups.to_vec(), batch)?;
    let mut wanted = Vec::with_capacity(batch);
    let mut read = |visit: usize| {
        let (cycle, group) = (visit / groups.len(), visit % groups.len());
        let members = groups[group].members as usize;
        let first = cycle * batch + group * 5; // Another place in each layer.
        wanted.clear();
        wanted.extend((first..first + batch).map(|nth| (nth % members) as u32));
        pager.stream(group, &wanted, |_| Ok::<(), PagerError>(()))?;
        Ok::<u64, PagerError>(pager.stats().bytes_read)
    };
    // The first batch meets a disk that slept and memory that was never touched.
    let before = read(0)?;
    let start = Instant::now();
    let mut visits = 1;
    loop {
        let bytes = read(visits)? - before;
        let elapsed = start.elapsed();
        if elapsed >= MEASURE_TIME || bytes >= MEASURE_BYTES_MAX {
            return Ok(bytes as f64 / elapsed.as_secs_f64());
        }
        visits += 1;
    }
}
