//! Whether jobs of a kind go faster with help, learnt by timing them. It changes the speed, never a result.
//!
//! A kind is remembered by a digest of what its caller says about it. Each kind is done with help and alone,
//! then in the way that has been faster. Help is tried in a row of jobs of all kinds, because it is only good
//! while the helpers are awake from the job before: at the start, and again after [`TRY_AGAIN`] jobs whose
//! help has been slower, so that a core that has become free is found. A job so long that waking is nothing
//! to it tries help by itself, and sooner: else a prompt would be over first.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Kinds remembered. Two that fall on one place take turns in forgetting; that costs speed only.
const KINDS: usize = 256;
/// Jobs in a row that try help.
const TRIAL: u32 = 32;
/// After so many jobs alone, help is tried again: trials in vain cost two percent at most.
const TRY_AGAIN: u32 = 2048;
/// A job of so many nanoseconds is long.
const LONG_NS: u64 = 500_000;
/// Long jobs of a kind alone before help is tried again, times how much slower it was.
const TRY_LONG_AGAIN: u64 = 32;
/// In a close race, one job in so many is done alone, to keep that average up to date.
const COMPARE: u32 = 16;
/// A duration counts for one part in `MEMORY` of the average.
const MEMORY: u64 = 8;
/// A stalled job counts as so many times the other way's, lest one stall end good help.
const MOST_TIMES: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Alone,
    Helped,
}

/// Written by one caller at a time; if two race, an average is off for a while.
pub struct Experience {
    kinds: Box<[Kind]>,
    /// Jobs of the present trial that are left.
    trial: AtomicU32,
    /// Jobs done alone, because that has been faster, since the last trial.
    refused: AtomicU32,
}

/// What is known of a kind.
#[derive(Default)]
pub struct Kind {
    digest: AtomicU64,
    /// Average durations in nanoseconds by [`Way`]; 0 for none yet.
    average_ns: [AtomicU64; 2],
    jobs: AtomicU32,
    /// Help has been slower once and was given a second chance.
    doubted: AtomicBool,
}

impl Experience {
    pub fn new() -> Experience {
        Experience {
            kinds: (0..KINDS).map(|_| Kind::default()).collect(),
            trial: AtomicU32::new(TRIAL),
            refused: AtomicU32::new(0),
        }
    }

    /// The record of jobs that are alike in all of `traits`.
    pub fn kind(&self, traits: [usize; 4]) -> &Kind {
        let mix = |digest: u64, value: usize| {
            (digest ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        let digest = traits.into_iter().fold(1, mix);
        let kind = &self.kinds[digest as usize % KINDS];
        if kind.digest.swap(digest, Ordering::Relaxed) != digest {
            kind.average_ns.iter().for_each(|average| average.store(0, Ordering::Relaxed));
            kind.doubted.store(false, Ordering::Relaxed);
        }
        kind
    }

    /// How to do the next job, which is of this kind.
    pub fn choose(&self, kind: &Kind) -> Way {
        let trial = self.trial.load(Ordering::Relaxed);
        if trial > 0 {
            self.trial.store(trial - 1, Ordering::Relaxed);
            return Way::Helped;
        }
        let (alone, helped) = (kind.average(Way::Alone), kind.average(Way::Helped));
        if helped == 0 {
            Way::Helped
        } else if alone == 0 {
            Way::Alone
        } else if helped > alone && !kind.doubted.swap(true, Ordering::Relaxed) {
            kind.forget_help();
            Way::Helped
        } else if helped > alone && alone >= LONG_NS && kind.is_due(helped / alone * TRY_LONG_AGAIN) {
            Way::Helped
        } else if helped > alone {
            let refused = self.refused.load(Ordering::Relaxed) + 1;
            if refused == TRY_AGAIN {
                self.trial.store(TRIAL, Ordering::Relaxed);
            }
            self.refused.store(refused % TRY_AGAIN, Ordering::Relaxed);
            Way::Alone
        } else {
            let jobs = kind.jobs.fetch_add(1, Ordering::Relaxed);
            let close_race = helped > alone / 10 * 9;
            if close_race && jobs.is_multiple_of(COMPARE) { Way::Alone } else { Way::Helped }
        }
    }
}

impl Kind {
    fn average(&self, way: Way) -> u64 {
        self.average_ns[way as usize].load(Ordering::Relaxed)
    }

    /// Counts a job that would rather be done alone. After `most` of them help is due again, and what it
    /// took earlier is forgotten.
    fn is_due(&self, most: u64) -> bool {
        let due = u64::from(self.jobs.fetch_add(1, Ordering::Relaxed)) >= most;
        if due {
            self.jobs.store(0, Ordering::Relaxed);
            self.forget_help();
        }
        due
    }

    fn forget_help(&self) {
        self.average_ns[Way::Helped as usize].store(0, Ordering::Relaxed);
    }

    pub fn learn(&self, way: Way, took: Duration) {
        let other = self.average(if way == Way::Alone { Way::Helped } else { Way::Alone });
        let most = if other == 0 { u64::MAX } else { other * MOST_TIMES };
        let took = (took.as_nanos() as u64).clamp(1, most);
        let average = match self.average(way) {
            0 => took,
            average => (average * (MEMORY - 1) + took).div_ceil(MEMORY),
        };
        self.average_ns[way as usize].store(average, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAITS: [usize; 4] = [1, 2, 3, 4];

    /// Does jobs that take so many microseconds alone and helped; how many of them were helped.
    fn helped(experience: &Experience, jobs: u32, alone: u64, helped: u64) -> u32 {
        let kind = experience.kind(TRAITS);
        let one = |_: &u32| {
            let way = experience.choose(kind);
            kind.learn(way, Duration::from_micros(if way == Way::Alone { alone } else { helped }));
            way == Way::Helped
        };
        (0..jobs).filter(one).count() as u32
    }

    #[test]
    fn good_help_is_always_taken_and_bad_help_seldom() {
        assert_eq!(helped(&Experience::new(), 1000, 100, 55), 999);
        assert_eq!(helped(&Experience::new(), 10 * TRY_AGAIN, 100, 140) / TRIAL, 10);
    }

    #[test]
    fn a_close_race_is_watched() {
        let share = helped(&Experience::new(), 1600, 100, 95);
        assert!((1480..=1510).contains(&share), "{share}");
    }

    #[test]
    fn habits_follow_the_machine() {
        let experience = Experience::new();
        helped(&experience, 100, 100, 55);
        // Somebody takes the other core: help becomes slow, then fast again.
        assert!(helped(&experience, 1000, 100, 3000) < 30);
        helped(&experience, TRY_AGAIN, 100, 55);
        assert_eq!(helped(&experience, 100, 100, 55), 100);
    }

    #[test]
    fn a_long_job_soon_tries_help_again() {
        let experience = Experience::new();
        // Five jobs meet stalls; the helper is well again after them.
        helped(&experience, TRIAL, 2000, 1100);
        helped(&experience, 5, 2000, 30_000);
        assert!(helped(&experience, 300, 2000, 1100) >= 150);
        // Help stays bad: it is seldom tried.
        helped(&experience, 100, 2000, 9000);
        assert!(helped(&experience, 1000, 2000, 9000) <= 10);
    }

    #[test]
    fn a_first_stall_is_forgiven() {
        let experience = Experience::new();
        helped(&experience, TRIAL, 100, 55);
        let kind = experience.kind([7, 7, 7, 7]);
        // Helped, alone, helped again, and so on.
        for (way, took) in [(Way::Helped, 50_000), (Way::Alone, 100), (Way::Helped, 55), (Way::Helped, 55)] {
            assert_eq!(experience.choose(kind), way);
            kind.learn(way, Duration::from_micros(took));
        }
    }

    #[test]
    fn one_stall_does_not_end_good_help() {
        let experience = Experience::new();
        helped(&experience, 100, 100, 55);
        assert_eq!(helped(&experience, 1, 100, 50_000), 1);
        assert!(helped(&experience, 100, 100, 55) >= 90);
    }

    #[test]
    fn other_jobs_are_other_kinds() {
        let experience = Experience::new();
        helped(&experience, 100, 100, 3000);
        assert_eq!(experience.choose(experience.kind([1, 2, 3, 5])), Way::Helped);
        assert_eq!(experience.choose(experience.kind(TRAITS)), Way::Alone);
    }
}
