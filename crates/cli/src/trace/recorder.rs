//! Watches the engine and puts what it sees into the ring. A step for which there is no room is dropped from
//! that record on: without its end, readers leave it out.

use std::sync::Arc;
use std::thread::Thread;

use adit_model::{Observer, Routing, Row, Scout};
use half::f16;

use super::ring::Ring;
use super::words::{
    self, EXPERT_MASK, PREDICTED, PREDICTED_WORDS, RESIDENT, ROW_WORDS, STEP, STEP_END, STEP_END_WORDS,
    STEP_WORDS, VISIT, VISIT_WAIT, VISIT_WORDS, WANTS_LOGITS,
};

pub struct Recorder {
    ring: Arc<Ring>,
    /// The thread that takes from the ring.
    writer: Thread,
    /// It is woken when so many words wait for it.
    wake_words: usize,
    /// Words of a set of one layer's experts.
    set_words: usize,
    /// Where the next word goes, published or not.
    at: usize,
    step: u64,
    /// Where the visit under way begins: it is published when its wait is known.
    visit: Option<usize>,
    /// The step under way does not fit.
    is_lost: bool,
}

impl Recorder {
    /// `experts` of a layer.
    pub fn new(ring: Arc<Ring>, writer: Thread, wake_words: usize, experts: usize) -> Recorder {
        let set_words = experts.div_ceil(u32::BITS as usize);
        Recorder { ring, writer, wake_words, set_words, at: 0, step: 0, visit: None, is_lost: false }
    }

    /// Begins a record, if there is room for all of it.
    fn begin(&mut self, kind: u32, words: usize) -> bool {
        if !self.is_lost && self.ring.room(self.at) < words {
            self.is_lost = true;
        }
        if !self.is_lost {
            self.put(words::head(kind, words));
        }
        !self.is_lost
    }

    fn put(&mut self, word: u32) {
        self.ring.put(self.at, word);
        self.at += 1;
    }

    fn put_long(&mut self, value: u64) {
        words::halves(value).into_iter().for_each(|word| self.put(word));
    }

    fn publish(&mut self) {
        if self.visit.is_some() || self.is_lost {
            return;
        }
        let filled = self.ring.filled();
        self.ring.publish(self.at);
        // Asleep it is when there was nothing, and it lets little lie for a while.
        if filled == 0 || (filled < self.wake_words && self.ring.filled() >= self.wake_words) {
            self.writer.unpark();
        }
    }
}

impl Observer for Recorder {
    fn begin_step(&mut self, rows: &[Row]) {
        // What a step that failed left unpublished is written over.
        if let Some(start) = self.visit.take() {
            self.at = start;
        }
        self.is_lost = self.ring.is_abandoned();
        if self.begin(STEP, STEP_WORDS + ROW_WORDS * rows.len()) {
            self.put_long(self.step);
            self.put(rows.len() as u32);
            for row in rows {
                self.put(row.token);
                self.put(row.position as u32);
                self.put(row.lane as u32 | if row.wants_logits { WANTS_LOGITS } else { 0 });
            }
            self.publish();
        }
        self.step += 1;
    }

    fn predicted(&mut self, layer: usize, scout: Scout, experts: &[u32]) {
        if self.begin(PREDICTED, PREDICTED_WORDS + self.set_words) {
            self.put(layer as u32);
            self.put(scout as u32);
            for first in (0..self.set_words as u32).map(|word| word * u32::BITS) {
                let inside = experts.iter().filter(|&&expert| (first..first + u32::BITS).contains(&expert));
                let set = inside.fold(0, |set, expert| set | 1 << (expert - first));
                self.put(set);
            }
            self.publish();
        }
    }

    fn routed(&mut self, routing: &Routing<'_>) {
        let start = self.at;
        if self.begin(VISIT, VISIT_WORDS + routing.picked.len()) {
            self.put(routing.layer as u32);
            self.put((routing.picked.len() / routing.used.max(1)) as u32);
            self.put(routing.used as u32);
            self.put_long(routing.missing_bytes);
            self.put_long(0);
            for (&expert, &weight) in routing.picked.iter().zip(routing.weights) {
                let resident = if (routing.is_resident)(expert) { RESIDENT } else { 0 };
                let weight = u32::from(f16::from_f32(weight).to_bits()) << 16;
                self.put(expert & EXPERT_MASK | resident | weight);
            }
            self.visit = Some(start);
        }
    }

    fn streamed(&mut self, wait_ns: u64) {
        if let Some(start) = self.visit.take() {
            for (place, word) in words::halves(wait_ns).into_iter().enumerate() {
                self.ring.put(start + VISIT_WAIT + place, word);
            }
            self.publish();
        }
    }

    fn end_step(&mut self, step_ns: u64) {
        if self.begin(STEP_END, STEP_END_WORDS) {
            self.put_long(step_ns);
            self.publish();
        }
        self.ring.count_step(!self.is_lost);
    }
}
