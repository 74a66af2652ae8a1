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
