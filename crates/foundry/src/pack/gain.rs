//! Whether packing makes a disk faster, measured: experts read as a token does, a layer's few at a time, once
//! with their matrices apart and once side by side, in turns. Reads through the pager; writes nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use adit_format::Gguf;
use adit_format::rng::Rng;
use adit_pager::{FileSet, Group, IoKind, Pager, PagerError, Part};

use super::experts::{self, ExpertLayer};
use super::items::ALIGNMENT;
use crate::FoundryError;

/// Turns of each form, and how long one takes: long enough for a disk to show its pace.
const TURNS: usize = 20;
const TURN_TIME: Duration = Duration::from_millis(150);
/// A turn of a small model is over when it has read all experts so often.
const TURN_PASSES: u64 = 8;
/// Memory for slots of each form. In a few megabytes it is chance whether the memory is of large pages, and
/// what a disk gives into small ones is a third less.
const SLOTS_BYTES: u64 = 128 << 20;
/// Experts that a token uses in a layer where the file does not say.
const TOGETHER: usize = 8;
/// Less than this is no gain, and in fewer of the turns none that is certain: measurements of one model on
/// one quiet disk differ by as much (`docs/streaming.md`).
const GAIN_MIN: f64 = 0.05;
const WINS_MIN: usize = TURNS * 3 / 4;

/// What a disk gives of experts in both forms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// One expert (the mean where layers differ).
    pub expert_bytes: u64,
    /// Experts that were asked for together.
    pub together: usize,
    /// Bytes of experts a second, the median of the turns: matrices apart, and side by side.
    pub apart_bytes_per_s: f64,
    pub side_by_side_bytes_per_s: f64,
    /// How much faster side by side was than apart in the turn beside it, the median of the turns: 0.05 for
    /// 5 %. A disk that others use changes its pace, and neighbouring turns meet the same.
    pub share: f64,
    /// In how many turns it was faster, of how many.
    pub wins: usize,
    pub turns: usize,
}

/// What such figures say of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Gains,
    GainsNothing,
    /// Faster on the whole, but not in most turns: the disk varies by more than that.
    Unclear,
}

impl Gain {
    pub fn verdict(&self) -> Verdict {
        match self {
            Gain { share, .. } if *share < GAIN_MIN => Verdict::GainsNothing,
            Gain { wins, .. } if *wins < WINS_MIN => Verdict::Unclear,
            _ => Verdict::Gains,
        }
    }
}

/// What packing the model at `source` would gain where it lies: the form that it does not have is imagined in
/// the same file, with reads of the same sizes. None for a model too small to tell.
pub fn expected_gain(source: &Path) -> Result<Option<Gain>, FoundryError> {
    let model = Gguf::open(source)?;
    let layers = experts::read(&model)?;
    let is_packed = is_single(&model);
    let Some(imagined) = imagine(&model, &layers, !is_packed) else { return Ok(None) };
    let files = open(&model)?;
    let (real, imagined) = ((files.clone(), groups(&layers)), (files, imagined));
    let (apart, side_by_side) = if is_packed { (imagined, real) } else { (real, imagined) };
    measure(&model, &layers, apart, side_by_side)
}

/// What packing `source` into `packed` gains where the two lie. None where neither or both are packed, and
/// for a model too small to tell.
pub fn gain(source: &Path, packed: &Path) -> Result<Option<Gain>, FoundryError> {
    let (source, packed) = (Gguf::open(source)?, Gguf::open(packed)?);
    let layers = experts::read(&source)?;
    // Nothing to compare: packed again, in another order perhaps.
    if is_single(&source) || !is_single(&packed) {
        return Ok(None);
    }
    let apart = (open(&source)?, groups(&layers));
    let side_by_side = (open(&packed)?, groups(&experts::read(&packed)?));
    measure(&source, &layers, apart, side_by_side)
}

fn is_single(model: &Gguf) -> bool {
    model.tensors().iter().filter_map(experts::Name::of).any(|name| name.expert.is_some())
}

fn open(model: &Gguf) -> Result<FileSet, FoundryError> {
    let paths: Vec<PathBuf> = model.parts().iter().map(|part| part.path.clone()).collect();
    Ok(FileSet::open(&paths, IoKind::Auto)?)
}

/// The experts where they lie.
fn groups(layers: &[ExpertLayer]) -> Vec<Group> {
    let parts = |layer: &ExpertLayer| {
        let part = |matrix: &experts::Matrix| {
            let places = matrix.slices.iter().map(|slice| (slice.part as u32, slice.offset)).collect();
            Part::listed(places, matrix.slices[0].bytes)
        };
        layer.matrices.iter().map(part).collect()
    };
    layers.iter().map(|layer| Group { parts: parts(layer), members: layer.experts() as u32 }).collect()
}

/// The same experts somewhere in the largest file: side by side, or with a third of the file between the
/// matrices of one. Their bytes are others, which makes no difference to a disk. None where they do not fit.
fn imagine(model: &Gguf, layers: &[ExpertLayer], side_by_side: bool) -> Option<Vec<Group>> {
    let (file, bytes) = model.parts().iter().map(|part| part.bytes).enumerate().max_by_key(|part| part.1)?;
    let mut groups = Vec::with_capacity(layers.len());
    let mut number = 0;
    for layer in layers {
        let sizes: Vec<u64> = layer.matrices.iter().map(|matrix| matrix.slices[0].bytes).collect();
        let blocks = |bytes: u64| bytes.next_multiple_of(ALIGNMENT.into());
        let (stride, room): (u64, u64) = match side_by_side {
            true => (sizes.iter().map(|&size| blocks(size)).sum(), bytes),
            false => (*sizes.iter().max()?, bytes / sizes.len() as u64),
        };
        let fit = (room / stride).checked_sub(1).filter(|&fit| fit > 0)?;
        let first = (number..).take(layer.experts()).map(|number| number % fit * stride);
        number += layer.experts() as u64;
        let (mut parts, mut behind) = (Vec::with_capacity(sizes.len()), 0);
        for size in sizes {
            let places = first.clone().map(|offset| (file as u32, offset + behind)).collect();
            parts.push(Part::listed(places, size));
            behind += if side_by_side { blocks(size) } else { room };
        }
        groups.push(Group { parts, members: layer.experts() as u32 });
    }
    Some(groups)
}

/// Reads in both forms by turns.
fn measure(
    model: &Gguf,
    layers: &[ExpertLayer],
    apart: (FileSet, Vec<Group>),
    side_by_side: (FileSet, Vec<Group>),
) -> Result<Option<Gain>, FoundryError> {
    let experts: usize = layers.iter().map(ExpertLayer::experts).sum();
    let bytes: u64 = layers.iter().map(|layer| layer.expert_bytes() * layer.experts() as u64).sum();
    let expert_bytes = bytes / experts as u64;
    let fewest = layers.iter().map(ExpertLayer::experts).min().unwrap_or(1);
    let affordable = (SLOTS_BYTES / expert_bytes).max(1) as usize;
    let together = used(model)?.unwrap_or(TOGETHER).min(fewest).min(affordable);
    // A quarter is resident, where that is affordable, as when a model is four times larger than memory.
    let slots = affordable.min(experts / 4).max(together);
    if slots == experts {
        return Ok(None);
    }
    let sizes: Vec<u64> = layers.iter().map(ExpertLayer::expert_bytes).collect();
    let mut forms =
        [apart, side_by_side].into_iter().map(|(files, groups)| Random::new(files, groups, together, slots));
    let mut forms = [forms.next().expect("two forms")?, forms.next().expect("two forms")?];
    forms.iter_mut().try_for_each(Random::warm_up)?;
    let mut rates = [Vec::with_capacity(TURNS), Vec::with_capacity(TURNS)];
    for turn in 0..TURNS {
        // Either begins as often: what a turn leaves behind in the disk, the next one meets.
        for form in [turn % 2, 1 - turn % 2] {
            rates[form].push(forms[form].turn(&sizes)?);
        }
    }
    let pairs = rates[0].iter().zip(&rates[1]);
    let shares: Vec<f64> = pairs.map(|(apart, side_by_side)| side_by_side / apart - 1.0).collect();
    let wins = shares.iter().filter(|&&share| share > 0.0).count();
    let share = median(shares);
    let [apart_bytes_per_s, side_by_side_bytes_per_s] = rates.map(median);
    Ok(Some(Gain {
        expert_bytes,
        together,
        apart_bytes_per_s,
        side_by_side_bytes_per_s,
        share,
        wins,
        turns: TURNS,
    }))
}

/// Experts that a token uses in a layer, where the file says.
fn used(model: &Gguf) -> Result<Option<usize>, FoundryError> {
    let Some(architecture) = model.metadata().str("general.architecture")? else { return Ok(None) };
    let used = model.metadata().u32(&format!("{architecture}.expert_used_count"))?;
    Ok(used.filter(|&used| used > 0).map(|used| used as usize))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let half = rates.len() / 2;
    if rates.len().is_multiple_of(2) { (rates[half - 1] + rates[half]) / 2.0 } else { rates[half] }
}

/// Experts in one form, read at random.
struct Random {
    pager: Pager,
    members: Vec<u32>,
    together: usize,
    rng: Rng,
    /// Layers read so far.
    visits: usize,
    wanted: Vec<u32>,
}

impl Random {
    fn new(files: FileSet, groups: Vec<Group>, together: usize, slots: usize) -> Result<Random, PagerError> {
        let members = groups.iter().map(|group| group.members).collect();
        let pager = Pager::new(files, groups, slots)?;
        Ok(Random { pager, members, together, rng: Rng::new(1), visits: 0, wanted: Vec::new() })
    }

    /// Fills the slots: memory that was never touched is slow, and so is a disk that slept.
    fn warm_up(&mut self) -> Result<(), PagerError> {
        while self.pager.resident() < self.pager.slots() {
            self.visit()?;
        }
        Ok(())
    }

    /// Reads what some token wants of the next layer; returns its number.
    fn visit(&mut self) -> Result<usize, PagerError> {
        let group = self.visits % self.members.len();
        self.visits += 1;
        self.wanted.clear();
        while self.wanted.len() < self.together {
            let member = self.rng.below(self.members[group].into()) as u32;
            if !self.wanted.contains(&member) {
                self.wanted.push(member);
            }
        }
        self.pager.stream(group, &self.wanted, |_| Ok::<(), PagerError>(()))?;
        self.pager.tick();
        Ok(group)
    }

    /// Reads layer after layer for a while; returns bytes of experts (of `sizes`, by layer) a second.
    fn turn(&mut self, sizes: &[u64]) -> Result<f64, PagerError> {
        let all: u64 =
            sizes.iter().zip(&self.members).map(|(size, &members)| size * u64::from(members)).sum();
        let (mut bytes, start) = (0, Instant::now());
        while start.elapsed() < TURN_TIME && bytes < TURN_PASSES * all {
            let before = self.pager.stats().misses;
            let group = self.visit()?;
            bytes += (self.pager.stats().misses - before) * sizes[group];
        }
        Ok(bytes as f64 / start.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_told_only_where_most_turns_show_it() {
        let gain = |share, wins| Gain {
            expert_bytes: 1,
            together: 1,
            apart_bytes_per_s: 1.0,
            side_by_side_bytes_per_s: 1.0,
            share,
            wins,
            turns: TURNS,
        };
        assert_eq!(gain(0.1, 18).verdict(), Verdict::Gains);
        assert_eq!(gain(0.04, 20).verdict(), Verdict::GainsNothing);
        assert_eq!(gain(-0.3, 3).verdict(), Verdict::GainsNothing);
        assert_eq!(gain(0.3, 11).verdict(), Verdict::Unclear);
        assert_eq!(gain(f64::NAN, 0).verdict(), Verdict::Unclear);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 10.0]), 3.0);
    }
}
