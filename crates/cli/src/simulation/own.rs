//! Traces that adit wrote: a step's rows ask for the union of their experts, as the engine does.

use std::io::BufRead;

use anyhow::{Result, bail};

use super::trace::{EXPERTS_MAX, LAYERS_MAX, Memory, Phase, Step, Trace};
use crate::trace::{Pick, Record, Records, TracedRow};

/// More than a trace of hours of decoding has.
const USES_MAX: usize = 256 << 20;

/// A step that is being read: it counts when its end is there.
#[derive(Default)]
struct Open {
    rows: Vec<TracedRow>,
    /// Layer, and how many experts are its own in `experts`.
    visits: Vec<(usize, usize)>,
    experts: Vec<u32>,
    wait_ns: u64,
    is_open: bool,
}

pub fn read(input: impl BufRead) -> Result<Trace> {
    let mut records = Records::open(input)?;
    let mut trace = Trace::default();
    let layers = &records.header.expert_layers;
    trace.layers = layers.len();
    trace.experts_per_layer = layers.iter().map(|layer| layer.experts).max().unwrap_or(0);
    trace.expert_bytes = layers.iter().map(|layer| layer.bytes).collect();
    trace.memory = Memory::Known(records.header.division());
    if trace.layers > LAYERS_MAX || trace.experts_per_layer > EXPERTS_MAX {
        bail!("{} layers of {} experts are more than any model has", trace.layers, trace.experts_per_layer);
    }
    let mut open = Open::default();
    // Rows of the last step: how many of them stayed is told by the next one.
    let mut last = Vec::new();
    let (mut dropped, mut is_whole) = (0, false);
    while let Some(record) = records.next()? {
        match record {
            Record::Step { rows, .. } => open.begin(rows),
            Record::Visit { layer, used, wait_ns, picks, .. } => {
                open.visit(layer, picks, (trace.layers, trace.experts_per_layer, used))?;
                open.wait_ns = open.wait_ns.saturating_add(wait_ns);
            }
            Record::StepEnd { step_ns } if open.is_open => {
                settle(&mut trace, &last, open.rows.first());
                open.close(step_ns, &mut trace)?;
                last.clone_from(&open.rows);
            }
            Record::End { dropped: steps, .. } => (dropped, is_whole) = (steps, true),
            Record::StepEnd { .. } | Record::Predicted { .. } | Record::Unknown => {}
        }
    }
    if trace.uses() == 0 {
        bail!("it has no step that names an expert");
    }
    trace.remark = match (is_whole, dropped) {
        (false, _) => {
            Some(format!("cut off after {} steps: whoever wrote it was stopped", trace.steps.len()))
        }
        (true, 0) => None,
        (true, dropped) => Some(format!("{dropped} steps came too fast to be written")),
    };
    Ok(trace)
}

/// Speculation computes rows that may be taken back: they did when the next step begins before them.
fn settle(trace: &mut Trace, last: &[TracedRow], next: Option<&TracedRow>) {
    let (Some(step), Some(first), Some(next)) = (trace.steps.last_mut(), last.first(), next) else { return };
    let is_lane_alone = last.iter().all(|row| row.lane == first.lane);
    if step.phase == Phase::Decode
        && is_lane_alone
        && next.lane == first.lane
        && next.position > first.position
    {
        step.tokens = step.tokens.min(next.position - first.position);
    }
}

impl Open {
    fn begin(&mut self, rows: &[u32]) {
        self.rows.clear();
        self.rows.extend(TracedRow::all(rows));
        self.visits.clear();
        self.experts.clear();
        (self.wait_ns, self.is_open) = (0, true);
    }

    fn visit(&mut self, layer: usize, picks: &[u32], limits: (usize, usize, usize)) -> Result<()> {
        let (layers, experts, used) = limits;
        if layer >= layers || used > experts {
            bail!("a visit of layer {layer} with {used} picks in a trace of {layers} layers of {experts}");
        }
        let first = self.experts.len();
        for pick in picks.iter().map(|&word| Pick::of(word)) {
            if pick.expert as usize >= experts {
                bail!("expert {} in a trace of {experts} experts", pick.expert);
            }
            self.experts.push(pick.expert);
        }
        // The engine asks for a union, ascending.
        self.experts[first..].sort_unstable();
        let mut kept = first;
        for at in first..self.experts.len() {
            if at == first || self.experts[at] != self.experts[kept - 1] {
                self.experts[kept] = self.experts[at];
                kept += 1;
            }
        }
        self.experts.truncate(kept);
        self.visits.push((layer, kept - first));
        Ok(())
    }

    fn close(&mut self, step_ns: u64, trace: &mut Trace) -> Result<()> {
        self.is_open = false;
        if trace.uses() + self.experts.len() > USES_MAX {
            bail!("it names more than {USES_MAX} experts");
        }
        let is_decode = !self.rows.is_empty() && self.rows.iter().all(|row| row.wants_logits);
        trace.steps.push(Step {
            phase: if is_decode { Phase::Decode } else { Phase::Prefill },
            tokens: self.rows.len() as u32,
            compute_ns: Some(step_ns.saturating_sub(self.wait_ns)),
        });
        let mut rest = &self.experts[..];
        for &(layer, count) in &self.visits {
            let (experts, others) = rest.split_at(count);
            trace.push_distinct(trace.steps.len() - 1, layer, experts)?;
            rest = others;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TestTrace;

    fn row(position: u32, wants_logits: bool) -> [u32; 3] {
        [1, position, u32::from(wants_logits) << 31]
    }

    fn step(trace: TestTrace, rows: &[[u32; 3]], picks: &[u32], ns: u64) -> TestTrace {
        trace.step(rows).visit(0, rows.len(), picks).end_step(ns)
    }

    fn parsed(trace: &TestTrace) -> Result<Trace> {
        read(&trace.packed()[..])
    }

    #[test]
    fn prompts_are_unions_and_speculation_counts_what_stayed() {
        let mut trace =
            step(TestTrace::new(1, 8, 2), &[row(0, false), row(1, true)], &[5, 2, 2, 0], 1_000_077);
        // Three rows are verified, two of them stay.
        trace = step(trace, &[row(2, true), row(3, true), row(4, true)], &[1, 2, 1, 3, 1, 4], 500);
        trace = step(trace, &[row(4, true)], &[7, 6], 500);
        let trace = parsed(&trace.end()).unwrap();
        let visits: Vec<_> = trace.visits().map(|(_, experts)| experts.to_vec()).collect();
        assert_eq!(visits, [vec![0, 2, 5], vec![1, 2, 3, 4], vec![6, 7]]);
        let steps: Vec<_> = trace.steps.iter().map(|step| (step.phase, step.tokens)).collect();
        assert_eq!(steps, [(Phase::Prefill, 2), (Phase::Decode, 2), (Phase::Decode, 1)]);
        assert_eq!(trace.steps[0].compute_ns, Some(1_000_000), "the wait of 77 ns does not count");
        assert_eq!((trace.remark, trace.layers, trace.experts_per_layer), (None, 1, 8));
    }

    #[test]
    fn steps_without_an_end_are_left_out_and_it_is_said() {
        let whole = || step(TestTrace::new(1, 8, 2), &[row(0, true)], &[1, 0], 5);
        let cut = parsed(&whole().step(&[row(1, true)]).visit(0, 1, &[3, 4])).unwrap();
        assert_eq!((cut.steps.len(), cut.uses()), (1, 2));
        assert!(cut.remark.unwrap().contains("cut off after 1 steps"));
        let failed = whole().step(&[row(1, true)]).visit(0, 1, &[3, 4]);
        let failed = parsed(&step(failed, &[row(1, true)], &[5, 6], 5).end()).unwrap();
        assert_eq!((failed.steps.len(), failed.uses(), failed.remark), (2, 4, None));
    }

    #[test]
    fn nonsense_is_an_error_that_names_it() {
        let visit = |trace: TestTrace, layer, picks: &[u32]| {
            trace.step(&[row(0, true)]).visit(layer, 1, picks).end_step(1).end()
        };
        for (trace, part) in [
            (visit(TestTrace::new(1, 8, 2), 1, &[0, 1]), "layer 1"),
            (visit(TestTrace::new(1, 8, 2), u32::MAX, &[0, 1]), "layer"),
            (visit(TestTrace::new(1, 8, 2), 0, &[0, 8]), "expert 8"),
            (visit(TestTrace::new(1, 2, 2), 0, &[0, 1, 0, 1]), "4 picks"),
            (visit(TestTrace::new(1, usize::MAX, 2), 0, &[0, 1]), "more than any model"),
            (visit(TestTrace::new(5000, 8, 2), 0, &[0, 1]), "more than any model"),
            (TestTrace::new(0, 0, 0).end(), "no step"),
        ] {
            let error = format!("{:#}", parsed(&trace).unwrap_err());
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
}
