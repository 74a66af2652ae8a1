//! Which experts a model chose, step by step, as read from a file or recorded in memory. Owns what every form
//! has in common: unpacking, limits, and checks of what a trace may hold.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use adit_model::Division;
use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;

use super::{csv, jsonl, own};
use crate::trace::Records;

/// More than a trace of a day of decoding has; a packed file that never ends stops here.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// More than all experts of a token need.
const LINE_BYTES_MAX: usize = 4 << 20;
/// More than any model has.
pub const LAYERS_MAX: usize = 1 << 12;
pub const EXPERTS_MAX: usize = 1 << 14;
const MEMBERS_MAX: usize = 1 << 20;

/// The experts of one layer in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Place of the step in the trace.
    pub step: u32,
    pub layer: u32,
    /// Where the experts begin in `Trace::experts`.
    first: u32,
    /// How many they are; none is named twice.
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows of a prompt, whose experts are asked for together.
    Prefill,
    Decode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub phase: Phase,
    /// Tokens by which the sequence grew: fewer than the rows where speculation failed.
    pub tokens: u32,
    /// Time of the step without its waits for experts, where the trace tells.
    pub compute_ns: Option<u64>,
}

/// A token by itself, of which no times are known.
pub const TOKEN: Step = Step { phase: Phase::Decode, tokens: 1, compute_ns: None };

/// What a trace tells of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// How the run that was traced divided its budget.
    Known(Division),
    /// What stays in memory of the layers.
    Backbone(u64),
    #[default]
    Unknown,
}

/// Visits in the order in which a model makes them.
#[derive(Debug, Default, PartialEq)]
pub struct Trace {
    visits: Vec<Visit>,
    experts: Vec<u32>,
    pub steps: Vec<Step>,
    pub layers: usize,
    /// Experts of each layer: as the file says, or else one more than the highest that it names.
    pub experts_per_layer: usize,
    /// Bytes of one expert of each layer; empty where the file does not say.
    pub expert_bytes: Vec<u64>,
    pub memory: Memory,
    /// Why it may be less than what happened.
    pub remark: Option<String>,
}

impl Trace {
    /// Reads a trace of adit's, a route trace (CSV with a comment header) or one JSON object a line, the
    /// latter two packed with gzip or not.
    pub fn read(path: &Path) -> Result<Trace> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut packed = BufReader::new(file);
        let start = packed.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
        let is_own = Records::<&[u8]>::recognise(start);
        let is_packed = start.starts_with(&[0x1f, 0x8b]);
        let trace = match (is_own, is_packed) {
            (true, _) => own::read(packed),
            (false, true) => Trace::parse(Box::new(MultiGzDecoder::new(packed))),
            (false, false) => Trace::parse(Box::new(packed)),
        };
        let small = trace.and_then(|trace| match trace.members() {
            0..=MEMBERS_MAX => Ok(trace),
            members => bail!("{members} experts in all are more than any model has"),
        });
        small.with_context(|| format!("{} is no usable trace", path.display()))
    }

    fn parse(text: Box<dyn Read>) -> Result<Trace> {
        let mut lines = Lines { input: BufReader::new(text.take(UNPACKED_BYTES_MAX + 1)), bytes: 0, line: 0 };
        let mut first = String::new();
        if !lines.next(&mut first)? {
            bail!("it is empty");
        }
        let trace = match first.trim_start().as_bytes().first() {
            Some(b'{') => jsonl::parse(first, &mut lines),
            Some(b'#') => csv::parse(first, &mut lines),
            _ => bail!("line 1 is neither a JSON object nor the header of a route trace"),
        };
        let trace = trace.with_context(|| format!("line {}", lines.line))?;
        if trace.visits.is_empty() {
            bail!("it names no expert");
        }
        Ok(trace)
    }

    /// Takes memory for so many steps, visits and experts, all of them counted.
    pub fn reserve(&mut self, steps: usize, visits: usize, uses: usize) {
        self.steps.reserve_exact(steps);
        self.visits.reserve_exact(visits);
        self.experts.reserve_exact(uses);
    }

    pub fn heap_bytes(&self) -> u64 {
        let steps = self.steps.capacity() * size_of::<Step>();
        let visits = self.visits.capacity() * size_of::<Visit>();
        (steps + visits + self.experts.capacity() * size_of::<u32>()) as u64
    }

    /// Whether another step can be added without taking memory.
    pub fn has_room_for_step(&self) -> bool {
        self.steps.len() < self.steps.capacity()
    }

    /// Whether a visit of so many experts can.
    pub fn has_room_for(&self, experts: usize) -> bool {
        self.visits.len() < self.visits.capacity() && self.experts.len() + experts <= self.experts.capacity()
    }

    pub fn visits(&self) -> impl Iterator<Item = (Visit, &[u32])> {
        self.visits.iter().map(|&visit| (visit, self.experts_of(visit)))
    }

    fn experts_of(&self, visit: Visit) -> &[u32] {
        &self.experts[visit.first as usize..][..visit.count as usize]
    }

    /// Experts asked for, each as often as it was.
    pub fn uses(&self) -> usize {
        self.experts.len()
    }

    /// All experts of the model.
    pub fn members(&self) -> usize {
        self.layers * self.experts_per_layer
    }

    /// Tokens of all steps of a phase.
    pub fn tokens(&self, phase: Phase) -> u64 {
        self.steps.iter().filter(|step| step.phase == phase).map(|step| u64::from(step.tokens)).sum()
    }

    /// What figures are about: decoding, or the prompt where there is nothing else.
    pub fn counted(&self) -> Phase {
        if self.tokens(Phase::Decode) > 0 { Phase::Decode } else { Phase::Prefill }
    }

    /// Experts that a token uses in all layers: those of the decoding step that uses most, or of any step
    /// where there is none.
    pub fn token_cycle(&self) -> usize {
        let mut cycles = vec![0; self.steps.len()];
        self.visits.iter().for_each(|visit| cycles[visit.step as usize] += visit.count as usize);
        let counted = self.counted();
        let cycles = cycles.iter().zip(&self.steps).filter(|(_, step)| step.phase == counted);
        cycles.map(|(&cycle, _)| cycle).max().unwrap_or(0)
    }

    /// Bytes of the largest expert: what a slot has room for.
    pub fn slot_bytes(&self) -> Option<u64> {
        self.expert_bytes.iter().copied().max()
    }

    /// Seconds of arithmetic for one token of the counted phase, where the trace tells.
    pub fn compute_s(&self) -> Option<f64> {
        let counted = self.counted();
        let steps = self.steps.iter().filter(|step| step.phase == counted);
        let timed = steps.filter_map(|step| Some((step.compute_ns?, step.tokens)));
        let (ns, tokens) =
            timed.fold((0.0, 0.0), |(ns, tokens), (t, n)| (ns + t as f64, tokens + f64::from(n)));
        (tokens > 0.0).then(|| ns / 1e9 / tokens)
    }

    /// How often each expert was asked for, layer by layer.
    pub fn heat(&self) -> Vec<u32> {
        let mut heat = vec![0; self.members()];
        for (visit, experts) in self.visits() {
            let first = visit.layer as usize * self.experts_per_layer;
            experts.iter().for_each(|&expert| heat[first + expert as usize] += 1);
        }
        heat
    }

    /// Adds a visit behind the last one; `step` is the same or the next, and a [`TOKEN`] unless it was
    /// already added to `steps`.
    pub fn push(&mut self, step: usize, layer: usize, experts: &[u32]) -> Result<()> {
        if layer >= LAYERS_MAX {
            bail!("layer {layer} is beyond {LAYERS_MAX}, more than any model has");
        }
        if let Some(highest) = experts.iter().find(|&&expert| expert as usize >= EXPERTS_MAX) {
            bail!("expert {highest} is beyond {EXPERTS_MAX}, more than any model has");
        }
        let mut sorted = experts.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("token {step} names expert {} of layer {layer} twice", pair[0]);
        }
        self.push_distinct(step, layer, experts)
    }

    /// The same for experts that are known to be distinct and within the limits.
    pub fn push_distinct(&mut self, step: usize, layer: usize, experts: &[u32]) -> Result<()> {
        let Some(&highest) = experts.iter().max() else { return Ok(()) };
        let first = u32::try_from(self.experts.len()).context("the trace is too long")?;
        self.visits.push(Visit {
            step: u32::try_from(step).context("the trace is too long")?,
            layer: layer as u32,
            first,
            count: experts.len() as u32,
        });
        self.experts.extend_from_slice(experts);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, TOKEN);
        }
        self.layers = self.layers.max(layer + 1);
        self.experts_per_layer = self.experts_per_layer.max(highest as usize + 1);
        Ok(())
    }
}

/// Lines of text, counted, up to the limit.
pub struct Lines {
    input: BufReader<std::io::Take<Box<dyn Read>>>,
    bytes: u64,
    line: usize,
}

impl Lines {
    /// False at the end.
    pub fn next(&mut self, line: &mut String) -> Result<bool> {
        self.line += 1;
        line.clear();
        let read = self.input.read_line(line).context("the text is damaged or cut off")?;
        self.bytes += read as u64;
        if self.bytes > UNPACKED_BYTES_MAX {
            bail!("it has more than {} MiB", UNPACKED_BYTES_MAX >> 20);
        }
        if read > LINE_BYTES_MAX {
            bail!("it is longer than {} MiB", LINE_BYTES_MAX >> 20);
        }
        Ok(read > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace> {
        Trace::parse(Box::new(std::io::Cursor::new(text.to_owned())))
    }

    const ROUTE: &str = "# route_trace v1\n\
        # model=m.gguf arch=a n_layer=2 n_expert=8 n_expert_used=2\n\
        # layer=0 expert_bytes=100 dense_bytes=7\n\
        # layer=1 expert_bytes=50 dense_bytes=7\n\
        turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n\
        0,0,0,0,0,3,0.6,0,100\n0,0,0,0,1,1,0.4,0,100\n0,0,1,0,0,2,0.9,0,100\n\
        0,0,0,1,0,5,0.6,0,50\n0,1,1,1,0,4,0.6,1,0\n";

    fn visits(trace: &Trace) -> Vec<(u32, u32, Vec<u32>)> {
        trace.visits().map(|(visit, experts)| (visit.step, visit.layer, experts.to_vec())).collect()
    }

    #[test]
    fn a_route_trace_is_put_into_token_order() {
        let trace = parse(ROUTE).unwrap();
        let expected = [(0, 0, vec![3, 1]), (0, 1, vec![5]), (1, 0, vec![2]), (1, 1, vec![4])];
        assert_eq!(visits(&trace), expected);
        assert_eq!((trace.steps.len(), trace.layers, trace.experts_per_layer), (2, 2, 8));
        assert_eq!((trace.expert_bytes.as_slice(), trace.token_cycle()), (&[100, 50][..], 3));
    }

    #[test]
    fn json_lines_are_tokens() {
        let trace =
            parse("{\"tok\": 7, \"layers\": [[3, 1], [5]]}\n{\"tok\": 8, \"layers\": [[2], [4]]}\n").unwrap();
        let expected = [(0, 0, vec![3, 1]), (0, 1, vec![5]), (1, 0, vec![2]), (1, 1, vec![4])];
        assert_eq!(visits(&trace), expected);
        assert_eq!((trace.steps.len(), trace.layers, trace.experts_per_layer), (2, 2, 6));
        assert!(trace.expert_bytes.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let route = |row: &str| format!("{ROUTE}{row}\n");
        for (text, part) in [
            (String::new(), "empty"),
            ("hello\n".into(), "neither"),
            ("# something else\n".into(), "route_trace v1"),
            ("# route_trace v1\n".into(), "names no expert"),
            ("{\"layers\": [[1]]".into(), "line 1"),
            ("{\"tok\": 0, \"layers\": [[1, 1]]}\n".into(), "twice"),
            ("{\"tok\": 0, \"layers\": [[-1]]}\n".into(), "line 1"),
            ("{\"tok\": 0, \"layers\": [[99999]]}\n".into(), "expert 99999"),
            ("{\"tok\": 0, \"layers\": [[0]]}\n{\"tok\": 1}\n".into(), "line 2"),
            (route("0,1,2,0"), "line 11"),
            (route("0,1,2,0,0,x,0.1,0,0"), "expert"),
            (route("0,1,2,0,0,8,0.1,0,0"), "n_expert=8"),
            (route("0,1,2,7,0,1,0.1,0,0"), "n_layer=2"),
            (route("0,1,1,1,1,4,0.6,1,0"), "twice"),
            (ROUTE.replace("n_layer=2", "n_layer=99999999"), "n_layer=99999999"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
}
