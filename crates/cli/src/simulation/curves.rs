//! What policies make of a trace at every size of memory: many simulations, shared between processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Trace;
use super::pool::{Kind, Outcome, simulate};
use super::trace::Phase;

/// Sizes of memory, as shares of all experts: close together where curves bend.
const SHARES: usize = 50;
/// The same for traces of more uses than this, whose simulation takes seconds.
const SHARES_OF_LONG: usize = 14;
const USES_LONG: usize = 2 << 20;

/// One trace, simulated at many sizes.
pub struct Curves {
    pub name: String,
    pub tokens: u64,
    pub prefill_tokens: u64,
    pub layers: usize,
    pub experts_per_layer: usize,
    /// How often each expert was asked for, layer by layer.
    pub heat: Vec<u32>,
    /// Experts of one token, as a share of all.
    pub token_cycle_share: f64,
    pub disk_gb_per_s: f64,
    pub compute_s: Option<f64>,
    pub remark: Option<String>,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub kind: Kind,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Slots as a share of all experts.
    pub share: f64,
    pub hit_rate: f64,
    /// GB that a token reads; `None` where the trace gives no sizes.
    pub gb_per_token: Option<f64>,
    /// 1 / max(disk, compute); `None` as above, or where nothing takes time.
    pub tok_per_s: Option<f64>,
}

impl Curves {
    /// Simulates `kinds`, and the optimum if it is not among them.
    pub fn new(
        name: &str,
        trace: &Trace,
        kinds: &[Kind],
        disk_gb_per_s: f64,
        compute_s: Option<f64>,
    ) -> Curves {
        let mut kinds = kinds.to_vec();
        if !kinds.contains(&Kind::Optimum) {
            kinds.push(Kind::Optimum);
        }
        let (members, counted) = (trace.members(), trace.counted());
        let slots = sizes(members, if trace.uses() > USES_LONG { SHARES_OF_LONG } else { SHARES });
        let outcomes = simulate_all(trace, &kinds, &slots, counted);
        let tokens = trace.tokens(counted).max(1);
        let point = |(&slots, &outcome): (&usize, &Outcome)| {
            let gb = outcome.bytes as f64 / 1e9 / tokens as f64;
            let gb = (!trace.expert_bytes.is_empty()).then_some(gb);
            let seconds = gb.map_or(0.0, |gb| (gb / disk_gb_per_s).max(compute_s.unwrap_or(0.0)));
            Point {
                share: slots as f64 / members as f64,
                hit_rate: outcome.hit_rate(),
                gb_per_token: gb,
                tok_per_s: (seconds > 0.0).then(|| 1.0 / seconds),
            }
        };
        let line = |(&kind, outcomes): (&Kind, &[Outcome])| Line {
            kind,
            points: slots.iter().zip(outcomes).map(point).collect(),
        };
        Curves {
            name: name.to_owned(),
            tokens,
            prefill_tokens: if counted == Phase::Decode { trace.tokens(Phase::Prefill) } else { 0 },
            layers: trace.layers,
            experts_per_layer: trace.experts_per_layer,
            heat: trace.heat(),
            token_cycle_share: trace.token_cycle() as f64 / members as f64,
            disk_gb_per_s,
            compute_s,
            remark: trace.remark.clone(),
            lines: kinds.iter().zip(outcomes.chunks(slots.len())).map(line).collect(),
        }
    }
}

/// About `count` numbers of slots from 1 % to all of `members`; in all cases 1 % and all.
fn sizes(members: usize, count: usize) -> Vec<usize> {
    let share = |at: usize| (at as f64 / (count - 1) as f64).powf(1.5) * 0.99 + 0.01;
    let mut sizes: Vec<usize> =
        (0..count).map(|at| ((share(at) * members as f64).round() as usize).clamp(1, members)).collect();
    sizes.dedup();
    sizes
}

/// Kind after kind, size after size.
fn simulate_all(trace: &Trace, kinds: &[Kind], slots: &[usize], counted: Phase) -> Vec<Outcome> {
    let jobs = kinds.len() * slots.len();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return done;
            }
            let (kind, slots) = (kinds[job / slots.len()], slots[job % slots.len()]);
            done.push((job, simulate(trace, slots, kind).of(counted)));
        }
    };
    let mut outcomes = vec![Outcome::default(); jobs];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let theirs = others.into_iter().flat_map(|other| other.join().expect("no simulation panics"));
        mine.into_iter().chain(theirs).for_each(|(job, outcome)| outcomes[job] = outcome);
    });
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_from_one_percent_to_all() {
        let all = sizes(6144, SHARES);
        assert_eq!((all.len(), all[0], all[SHARES - 1]), (SHARES, 61, 6144));
        assert!(all.is_sorted());
        assert_eq!(sizes(3, SHARES), [1, 2, 3]);
    }

    #[test]
    fn curves_are_the_simulations_one_by_one() {
        let mut trace = Trace::default();
        (0..300u32).for_each(|at| trace.push(at as usize / 3, at as usize % 3, &[at * at % 7]).unwrap());
        trace.expert_bytes = vec![1_000_000; 3];
        let curves = Curves::new("t", &trace, &[Kind::Lru], 2.0, Some(1e-3));
        assert_eq!(curves.lines.iter().map(|line| line.kind).collect::<Vec<_>>(), [Kind::Lru, Kind::Optimum]);
        for line in &curves.lines {
            for point in &line.points {
                let slots = (point.share * trace.members() as f64).round() as usize;
                let outcome = simulate(&trace, slots, line.kind).decode;
                assert_eq!(point.hit_rate, outcome.hit_rate());
                let seconds = (outcome.bytes as f64 / 1e9 / 100.0 / 2.0).max(1e-3);
                assert_eq!(point.tok_per_s, Some(1.0 / seconds));
            }
            assert!(line.points.iter().all(|point| point.hit_rate <= line.points.last().unwrap().hit_rate));
        }
    }
}
