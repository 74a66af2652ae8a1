//! Which experts a model chose, token by token, as read from a file. Owns what every form has in common:
//! unpacking, limits, and checks of what a trace may hold.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;

use super::{csv, jsonl};

/// More than a trace of a day of decoding has; a packed file that never ends stops here.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// More than all experts of a token need.
const LINE_BYTES_MAX: usize = 4 << 20;
/// More than any model has.
pub const LAYERS_MAX: usize = 1 << 12;
pub const EXPERTS_MAX: usize = 1 << 14;

/// The experts of one layer for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Place of the token in the trace.
    pub token: u32,
    pub layer: u32,
    /// Where the experts begin in `Trace::experts`.
    first: u32,
    /// How many they are; none is named twice.
    count: u32,
}

/// Visits in the order in which a model that takes one token at a time makes them.
#[derive(Debug, Default, PartialEq)]
pub struct Trace {
    visits: Vec<Visit>,
    experts: Vec<u32>,
    pub tokens: usize,
    pub layers: usize,
    /// Experts of each layer: as the file says, or else one more than the highest that it names.
    pub experts_per_layer: usize,
    /// Bytes of one expert of each layer; empty where the file does not say.
    pub expert_bytes: Vec<u64>,
}

impl Trace {
    /// Reads a route trace (CSV with a comment header) or one JSON object a line, packed with gzip or not.
    pub fn read(path: &Path) -> Result<Trace> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut packed = BufReader::new(file);
        let start = packed.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
        let is_packed = start.starts_with(&[0x1f, 0x8b]);
        let lines: Box<dyn Read> =
            if is_packed { Box::new(MultiGzDecoder::new(packed)) } else { Box::new(packed) };
        let trace = Trace::parse(lines).with_context(|| format!("{} is no usable trace", path.display()))?;
        Ok(trace)
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

    /// Experts that a token uses in all layers: those of the token that uses most.
    pub fn token_cycle(&self) -> usize {
        let mut cycles = vec![0; self.tokens];
        self.visits.iter().for_each(|visit| cycles[visit.token as usize] += visit.count as usize);
        cycles.into_iter().max().unwrap_or(0)
    }

    /// Adds a visit behind the last one; `token` is the same or the next.
    pub fn push(&mut self, token: usize, layer: usize, experts: &[u32]) -> Result<()> {
        if layer >= LAYERS_MAX {
            bail!("layer {layer} is beyond {LAYERS_MAX}, more than any model has");
        }
        let Some(&highest) = experts.iter().max() else { return Ok(()) };
        if highest as usize >= EXPERTS_MAX {
            bail!("expert {highest} is beyond {EXPERTS_MAX}, more than any model has");
        }
        for (place, expert) in experts.iter().enumerate() {
            if experts[..place].contains(expert) {
                bail!("token {token} names expert {expert} of layer {layer} twice");
            }
        }
        let first = u32::try_from(self.experts.len()).context("the trace is too long")?;
        self.visits.push(Visit {
            token: u32::try_from(token).context("the trace is too long")?,
            layer: layer as u32,
            first,
            count: experts.len() as u32,
        });
        self.experts.extend_from_slice(experts);
        self.tokens = self.tokens.max(token + 1);
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
        trace.visits().map(|(visit, experts)| (visit.token, visit.layer, experts.to_vec())).collect()
    }

    #[test]
    fn a_route_trace_is_put_into_token_order() {
        let trace = parse(ROUTE).unwrap();
        let expected = [(0, 0, vec![3, 1]), (0, 1, vec![5]), (1, 0, vec![2]), (1, 1, vec![4])];
        assert_eq!(visits(&trace), expected);
        assert_eq!((trace.tokens, trace.layers, trace.experts_per_layer), (2, 2, 8));
        assert_eq!((trace.expert_bytes.as_slice(), trace.token_cycle()), (&[100, 50][..], 3));
    }

    #[test]
    fn json_lines_are_tokens() {
        let trace =
            parse("{\"tok\": 7, \"layers\": [[3, 1], [5]]}\n{\"tok\": 8, \"layers\": [[2], [4]]}\n").unwrap();
        let expected = [(0, 0, vec![3, 1]), (0, 1, vec![5]), (1, 0, vec![2]), (1, 1, vec![4])];
        assert_eq!(visits(&trace), expected);
        assert_eq!((trace.tokens, trace.layers, trace.experts_per_layer), (2, 2, 6));
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
