//! The figures of the answer that is coming, in one line: what a person who watches a model larger than
//! their memory wants to see.

use std::time::Instant;

use adit_model::{Model, PagerStats, machine};

use crate::size::ByteSize;

pub struct Gauge {
    model_bytes: u64,
    answer: Option<Answer>,
}

/// Since the first token of the current answer, which came out of the prompt.
struct Answer {
    started: Instant,
    before: PagerStats,
    /// Tokens computed one by one.
    tokens: u64,
}

impl Gauge {
    pub fn new(model_bytes: u64) -> Gauge {
        Gauge { model_bytes, answer: None }
    }

    /// A token has come. Returns the line.
    pub fn tick(&mut self, model: &Model) -> String {
        let pager = model.pager_stats();
        let answer = match &mut self.answer {
            Some(answer) => {
                answer.tokens += 1;
                answer
            }
            none => none.insert(Answer { started: Instant::now(), before: pager, tokens: 0 }),
        };
        let budget = model.plan().budget;
        let resident = machine::resident_bytes().map_or("?".to_owned(), megabytes);
        let mut figures = vec![
            format!("model {}", ByteSize(self.model_bytes)),
            format!("resident {resident} of {} MB", megabytes(budget)),
        ];
        let (hits, misses) = (pager.hits - answer.before.hits, pager.misses - answer.before.misses);
        if answer.tokens > 0 && hits + misses > 0 {
            let read = pager.bytes_read - answer.before.bytes_read;
            figures.push(format!("hits {:.0} %", 100.0 * hits as f64 / (hits + misses) as f64));
            figures.push(format!("{:.1} MB/token", read as f64 / 1e6 / answer.tokens as f64));
        }
        if answer.tokens > 0 {
            let seconds = answer.started.elapsed().as_secs_f64();
            figures.push(format!("{:.1} tok/s", answer.tokens as f64 / seconds));
        }
        figures.join(" | ")
    }

    /// The answer is over; the next token begins another.
    pub fn reset(&mut self) {
        self.answer = None;
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}
