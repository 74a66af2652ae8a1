//! Prompt lookup: what followed the last time these tokens came. Owns nothing but a place in the timeline;
//! costs no model any time, so that its guesses can be graded on plain steps too.

use adit_model::ModelError;

use super::{GRADES, Guess, Proposer};

/// Tokens of the longest match that is looked for. One as long as this is as good as a longer one, and a
/// match's length is the grade of what it proposes.
const MATCH_MAX: usize = GRADES;
/// How far back is looked, in tokens: some microseconds.
const REACH: usize = 16 << 10;

/// The place after the match that the current proposal follows, and the match's length.
#[derive(Default)]
pub(super) struct Lookup {
    next: usize,
    matched: usize,
}

impl Proposer for Lookup {
    fn guess(
        &mut self,
        timeline: &[u32],
        proposed: &[u32],
        _spare_ns: f64,
    ) -> Result<Option<Guess>, ModelError> {
        if proposed.is_empty() {
            (self.next, self.matched) = longest_match(timeline);
        }
        if self.matched == 0 {
            return Ok(None);
        }
        // A match near the end runs into what it proposes: a loop that goes on.
        let at = self.next + proposed.len();
        let token = timeline.get(at).copied().unwrap_or_else(|| proposed[at - timeline.len()]);
        Ok(Some(Guess { token, grade: (self.matched + proposed.len()).min(MATCH_MAX) - 1 }))
    }

    fn guess_ns(&self) -> f64 {
        0.0
    }
}

/// Where the longest earlier run of tokens that equals the timeline's end is followed, the latest of the
/// longest, and its length: 0 if even the last token is new.
fn longest_match(timeline: &[u32]) -> (usize, usize) {
    let mut best = (0, 0);
    let Some((last, before)) = timeline.split_last() else { return best };
    for at in (before.len().saturating_sub(REACH)..before.len()).rev() {
        if before[at] != *last {
            continue;
        }
        let backwards = before[..=at].iter().rev().zip(timeline.iter().rev());
        let length = backwards.take(MATCH_MAX).take_while(|(earlier, now)| earlier == now).count();
        if length > best.1 {
            best = (at + 1, length);
            if length == MATCH_MAX {
                break;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(timeline: &[u32], count: usize) -> (Vec<u32>, Vec<usize>) {
        let (mut lookup, mut tokens, mut grades) = (Lookup::default(), Vec::new(), Vec::new());
        for _ in 0..count {
            let Some(guess) = lookup.guess(timeline, &tokens, 0.0).unwrap() else { break };
            tokens.push(guess.token);
            grades.push(guess.grade);
        }
        (tokens, grades)
    }

    #[test]
    fn the_longest_match_is_continued() {
        let timeline = [1, 2, 3, 4, 9, 3, 7, 1, 2, 3];
        assert_eq!(proposal(&timeline, 4), (vec![4, 9, 3, 7], vec![2, 3, 4, 5]));
    }

    #[test]
    fn of_matches_of_one_length_the_latest_is_continued() {
        assert_eq!(proposal(&[5, 1, 5, 2, 5], 1), (vec![2], vec![0]));
    }

    #[test]
    fn a_loop_goes_on_beyond_the_end_of_what_is_known() {
        let (tokens, grades) = proposal(&[8, 1, 2, 1, 2], 5);
        assert_eq!((tokens, grades), (vec![1, 2, 1, 2, 1], vec![1, 2, 3, 4, 5]));
        assert_eq!(proposal(&[6; 12], 3), (vec![6, 6, 6], vec![GRADES - 1; 3]));
    }

    #[test]
    fn a_token_that_is_new_proposes_nothing() {
        assert_eq!(proposal(&[1, 2, 3], 2), (vec![], vec![]));
        assert_eq!(proposal(&[1], 2), (vec![], vec![]));
        assert_eq!(proposal(&[], 2), (vec![], vec![]));
    }

    #[test]
    fn what_lies_too_far_back_is_forgotten() {
        let mut timeline = vec![1, 2];
        timeline.extend(100..100 + REACH as u32);
        timeline.push(1);
        assert_eq!(proposal(&timeline, 1), (vec![], vec![]));
        timeline.remove(1);
        timeline.remove(1);
        assert_eq!(proposal(&timeline, 1), (vec![101], vec![0]));
    }
}
