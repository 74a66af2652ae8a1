//! Who leaves when a slot is needed: pure functions over use counts, without files, slots or clocks, so
//! that a simulator can run the same code as the engine.
//!
//! The score of a member is the sum of two exponentially decayed use counts, one that forgets within
//! tokens and one that remembers a conversation. Its age is counted in whole tokens up to its group's
//! last visit, not up to now: otherwise the members of groups that this token has not reached yet
//! would look older than those it has passed, and a cache below one token cycle would always drop
//! what comes next, as LRU does. Where scores tie, the group that comes next stays.

/// Half-lives of the two counts, in tokens.
pub const HALF_LIVES_TOKENS: [f32; 2] = [2.0, 32.0];

/// A count below this is forgotten: far under any difference that matters, and far above the
/// subnormal numbers, on which arithmetic is slow.
const FORGOTTEN: f32 = 1e-9;

/// The decayed use counts of one member of a group, at its group's last visit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uses {
    pub counts: [f32; 2],
}

/// Ages the counts of all members of one group by the tokens since the group's last visit.
pub fn age(uses: &mut [Uses], tokens: u64) {
    if tokens == 0 {
        return;
    }
    let factors = HALF_LIVES_TOKENS.map(|half_life| (-(tokens as f32) / half_life).exp2());
    for member in uses {
        for (count, factor) in member.counts.iter_mut().zip(factors) {
            let aged = *count * factor;
            *count = if aged < FORGOTTEN { 0.0 } else { aged };
        }
    }
}

/// Counts one use, after `age`.
pub fn count_use(uses: &mut Uses) {
    for count in &mut uses.counts {
        *count += 1.0;
    }
}

/// What a member is worth. The lowest leaves first.
pub fn score(uses: Uses) -> f32 {
    uses.counts.iter().sum()
}

/// How many visits of other groups pass before `group` is visited, when `current` is being visited
/// and groups come in turn: 0 for the next one, `groups - 1` for `current` itself.
pub fn distance(group: usize, current: usize, groups: usize) -> usize {
    (group + groups - current + groups - 1) % groups
}

/// The slot to empty: the lowest score, among equals the greatest distance, among those the first.
/// A score of infinity means that the slot cannot be emptied now; None when that is so for all.
pub fn victim(scores: &[f32], distance_of: impl Fn(usize) -> usize) -> Option<usize> {
    let lowest = scores.iter().copied().fold(f32::INFINITY, f32::min);
    if lowest == f32::INFINITY {
        return None;
    }
    let mut best: Option<(usize, usize)> = None;
    for (slot, &score) in scores.iter().enumerate() {
        if score == lowest {
            let distance = distance_of(slot);
            if best.is_none_or(|(_, greatest)| distance > greatest) {
                best = Some((slot, distance));
            }
        }
    }
    best.map(|(slot, _)| slot)
}
