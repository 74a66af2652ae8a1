//! How long steps of the model take, by their number of rows, as medians of the last ones; and which part of
//! a proposal is worth verifying. Owns times only: knows neither tokens nor where a proposal comes from.

use super::GUESSES_MAX;

/// Steps whose median counts.
const RECENT: usize = 15;
/// Steps after which a median is believed.
const PLAIN_MIN: usize = 4;
const MANY_MIN: usize = 2;
/// What must be gained at least: less than this is lost again in what no step's time shows, such as experts
/// that left memory for those of rejected rows.
const GAIN_MIN: f64 = 1.03;

/// The last samples of a time, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Recent {
    samples: [f64; RECENT],
    count: usize,
}

impl Recent {
    fn push(&mut self, sample: f64) {
        self.samples[self.count % RECENT] = sample;
        self.count += 1;
    }

    fn median(&self) -> f64 {
        let mut sorted = self.samples;
        let known = &mut sorted[..self.count.min(RECENT)];
        known.sort_unstable_by(f64::total_cmp);
        // Of an even number the lower: the first steps of a kind are slow.
        known.get(known.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
    }
}

/// What rows take that nobody has measured yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    /// Part of a plain step that a row more takes.
    pub row_share: f64,
    /// Rows are computed in tiles of so many: fewer take as long.
    pub tile: usize,
}

/// Every row reads the same weights.
pub(super) const DENSE: Prior = Prior { row_share: 0.35, tile: 4 };
/// Every row asks for experts of its own.
pub(super) const ROUTED: Prior = Prior { row_share: 1.0, tile: 1 };

/// Times of steps with 1 row (plain) and with more.
pub(super) struct Clock {
    prior: Prior,
    plain: Recent,
    many: [Recent; GUESSES_MAX],
}

/// How many guesses of a proposal to verify, and the tokens a nanosecond that this is expected to bring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub guesses: usize,
    pub rate: f64,
}

impl Clock {
    pub fn new(prior: Prior) -> Clock {
        Clock { prior, plain: Recent::default(), many: Default::default() }
    }

    pub fn note(&mut self, rows: usize, ns: f64) {
        match rows {
            1 => self.plain.push(ns),
            _ => self.many[rows - 2].push(ns),
        }
    }

    /// Forgets all but plain steps: the times may be of a disk, a context or company that is gone.
    pub fn forget_many(&mut self) {
        self.many = Default::default();
    }

    /// Time of a plain step once enough have been seen.
    pub fn plain_ns(&self) -> Option<f64> {
        (self.plain.count >= PLAIN_MIN).then(|| self.plain.median())
    }

    /// Whether steps with a guess have been measured.
    pub fn knows_many(&self) -> bool {
        self.many.iter().any(|recent| recent.count >= MANY_MIN)
    }

    /// Whether only a trial can show that guesses pay, for want of a prior by which they could.
    pub fn needs_trial(&self) -> bool {
        self.prior.row_share >= 1.0 && !self.knows_many()
    }

    /// Expected time of a step of `rows`: measured, or that of its full tile, or on the line through its
    /// measured neighbours; without any, by the prior.
    pub fn step_ns(&self, rows: usize) -> f64 {
        let plain_ns = self.plain.median();
        let at = |rows: usize| match rows {
            1 => Some(plain_ns),
            _ => self.many.get(rows - 2).filter(|recent| recent.count > 0).map(Recent::median),
        };
        let full = rows.next_multiple_of(self.prior.tile).min(GUESSES_MAX + 1);
        if let Some(ns) = at(rows).or_else(|| at(full)) {
            return ns;
        }
        let measured = |rows: usize| Some((rows, at(rows)?));
        let line = |(left, left_ns): (usize, f64), (right, right_ns): (usize, f64)| {
            left_ns + (right_ns - left_ns) / (right - left) as f64 * (full as f64 - left as f64)
        };
        let below = (2..full).rev().find_map(measured);
        let above = (full + 1..=GUESSES_MAX + 1).find_map(measured);
        match (below, above) {
            (_, Some(above)) => line(below.unwrap_or((1, plain_ns)), above),
            (Some(below), None) => line((1, plain_ns), below).max(below.1),
            (None, None) => plain_ns * (1.0 + self.prior.row_share * (full - 1) as f64),
        }
    }

    /// The best number of guesses, each of which comes through with its chance if those before it did and
    /// costs `guess_ns`. What has been spent already (`sunk_ns`) counts for all numbers alike.
    pub fn choose(&self, chances: &[f64], guess_ns: f64, sunk_ns: f64) -> Choice {
        let none = Choice { guesses: 0, rate: 1.0 / (self.step_ns(1) + sunk_ns).max(1.0) };
        let (mut best, mut through, mut tokens) = (none, 1.0, 1.0);
        for (index, chance) in chances.iter().enumerate() {
            let guesses = index + 1;
            through *= chance;
            tokens += through;
            let rate = tokens / (self.step_ns(guesses + 1) + sunk_ns + guesses as f64 * guess_ns).max(1.0);
            if rate > best.rate {
                best = Choice { guesses, rate };
            }
        }
        if best.rate > none.rate * GAIN_MIN { best } else { none }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(times: &[(usize, f64)]) -> Clock {
        measured(ROUTED, times)
    }

    fn measured(prior: Prior, times: &[(usize, f64)]) -> Clock {
        let mut clock = Clock::new(prior);
        for &(rows, ns) in times {
            (0..PLAIN_MIN).for_each(|_| clock.note(rows, ns));
        }
        clock
    }

    #[test]
    fn rows_with_experts_of_their_own_are_taken_to_need_as_long_as_plain_steps() {
        let clock = clock(&[(1, 100.0)]);
        assert_eq!([1, 2, 9].map(|rows| clock.step_ns(rows)), [100.0, 200.0, 900.0]);
        assert!(!clock.knows_many());
    }

    #[test]
    fn a_step_never_measured_lies_on_the_line_through_its_neighbours() {
        let mut clock = clock(&[(1, 100.0), (3, 140.0), (5, 200.0)]);
        assert_eq!([2, 4, 6].map(|rows| clock.step_ns(rows)), [120.0, 170.0, 225.0]);
        assert!(clock.knows_many());
        clock.forget_many();
        assert_eq!(clock.step_ns(3), 300.0);
    }

    #[test]
    fn rows_of_a_tile_that_is_not_full_take_as_long_as_a_full_one() {
        let clock = measured(DENSE, &[(1, 100.0)]);
        assert_eq!(clock.step_ns(2), clock.step_ns(4));
        assert!(clock.step_ns(4) > 200.0 && clock.step_ns(4) < clock.step_ns(5));
        let clock = measured(DENSE, &[(1, 100.0), (4, 160.0), (2, 220.0)]);
        assert_eq!([2, 3, 4, 5].map(|rows| clock.step_ns(rows)), [220.0, 160.0, 160.0, 240.0]);
    }

    #[test]
    fn one_slow_step_changes_no_median() {
        let mut clock = clock(&[(1, 100.0)]);
        clock.note(1, 9e9);
        assert_eq!(clock.plain_ns(), Some(100.0));
    }

    #[test]
    fn cheap_rows_are_taken_with_small_chances_and_dear_ones_not_at_all() {
        let cheap = clock(&[(1, 100.0), (2, 105.0)]);
        assert_eq!(cheap.choose(&[0.5; 8], 0.0, 0.0).guesses, 3);
        assert_eq!(cheap.choose(&[0.95; 8], 0.0, 0.0).guesses, 8);
        let dear = clock(&[(1, 100.0), (2, 190.0)]);
        assert_eq!(dear.choose(&[0.5; 8], 0.0, 0.0).guesses, 0);
    }

    #[test]
    fn guesses_that_cost_too_much_are_not_asked_for_but_used_once_they_are_paid() {
        let clock = clock(&[(1, 100.0), (2, 110.0)]);
        assert_eq!(clock.choose(&[0.7], 80.0, 0.0).guesses, 0);
        assert_eq!(clock.choose(&[0.7], 0.0, 80.0).guesses, 1);
    }
}
