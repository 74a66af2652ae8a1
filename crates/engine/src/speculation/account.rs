//! What a proposer has gained and cost: its chances by grade, its balance in time, its pauses.
//!
//! A proposer may spend a small share of the time that the model works, and what it has saved before. Once
//! that is used up it is switched off for a number of tokens that doubles each time, and stays off until
//! the share has made good its loss. So no run loses more than the share and the one step that went over.

use super::GRADES;

/// Share of the model's time that all proposers together may lose.
const SHARE: f64 = 0.01;
/// Savings that may be staked again, in plain steps: a text that changes its nature must not cost them all.
const STAKE_MAX: f64 = 16.0;
/// Tokens of the first pause and of the longest.
const PAUSE_MIN: u64 = 32;
const PAUSE_MAX: u64 = 4096;
/// Savings after which the next pause is a short one again, in plain steps.
const FORGIVEN_AFTER: f64 = 8.0;
/// Weight of the newest outcome: a text copies or does not for some ten tokens.
const NEWEST: f64 = 0.125;

/// How likely guesses of each grade come through, learned from the last ones.
pub(super) struct Chances {
    by_grade: [f64; GRADES],
    /// Of first guesses, whatever their grade.
    first: f64,
}

impl Chances {
    pub fn new() -> Chances {
        // Better grades are better, says their order; how good they are is learned soon.
        let by_grade = std::array::from_fn(|grade| 0.3 + 0.08 * grade as f64);
        Chances { by_grade, first: 0.6 }
    }

    pub fn of(&self, grade: usize) -> f64 {
        self.by_grade[grade]
    }

    /// Of a first guess that has not been made yet.
    pub fn of_first(&self) -> f64 {
        self.first
    }

    pub fn note(&mut self, grade: usize, came_through: bool) {
        let chance = &mut self.by_grade[grade];
        *chance += NEWEST * (f64::from(u8::from(came_through)) - *chance);
    }

    pub fn note_first(&mut self, came_through: bool) {
        self.first += NEWEST * (f64::from(u8::from(came_through)) - self.first);
    }
}

/// Nanoseconds that a proposer may still lose, and when it is off.
pub(super) struct Account {
    share: f64,
    balance_ns: f64,
    saved_since_pause_ns: f64,
    pause: u64,
    is_off: bool,
    /// Token number from which it may be on again.
    resume_at: u64,
}

impl Account {
    /// The account of one of `proposers`.
    pub fn new(proposers: usize) -> Account {
        Account {
            share: SHARE / proposers as f64,
            balance_ns: 0.0,
            saved_since_pause_ns: 0.0,
            pause: PAUSE_MIN,
            is_off: false,
            resume_at: 0,
        }
    }

    pub fn balance_ns(&self) -> f64 {
        self.balance_ns
    }

    /// The model has worked this long.
    pub fn earn(&mut self, ns: f64) {
        self.balance_ns += self.share * ns;
    }

    /// A proposal has saved time, or lost it where `ns` is negative.
    pub fn settle(&mut self, ns: f64, plain_ns: f64, token: u64) {
        let most = self.balance_ns.max(STAKE_MAX * plain_ns);
        self.balance_ns = (self.balance_ns + ns).min(most);
        self.saved_since_pause_ns += ns;
        if self.saved_since_pause_ns > FORGIVEN_AFTER * plain_ns {
            self.pause = PAUSE_MIN;
        }
        if self.balance_ns < 0.0 {
            self.switch_off(token);
        }
    }

    pub fn switch_off(&mut self, token: u64) {
        self.is_off = true;
        self.resume_at = token + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.saved_since_pause_ns = 0.0;
    }

    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Switches on again if the pause is over and the loss made good; tells whether it did.
    pub fn resume(&mut self, token: u64) -> bool {
        let resumes = self.is_off && token >= self.resume_at && self.balance_ns >= 0.0;
        self.is_off &= !resumes;
        resumes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN_NS: f64 = 1000.0;

    #[test]
    fn a_proposer_that_only_loses_costs_its_share_and_one_step_at_most() {
        let mut account = Account::new(1);
        let (mut lost, mut offs) = (0.0, 0);
        for token in 1..=20_000 {
            account.earn(PLAIN_NS);
            account.resume(token);
            if !account.is_off() {
                lost += PLAIN_NS;
                account.settle(-PLAIN_NS, PLAIN_NS, token);
                offs += u32::from(account.is_off());
            }
            assert!(lost <= SHARE * token as f64 * PLAIN_NS + PLAIN_NS, "{lost} after {token} tokens");
        }
        assert!((5..40).contains(&offs), "pauses grow: {offs}");
    }

    #[test]
    fn what_was_saved_may_be_lost_again_but_not_all_of_it() {
        let mut account = Account::new(1);
        (0..1000).for_each(|token| account.settle(PLAIN_NS, PLAIN_NS, token));
        let mut losses = 0;
        while !account.is_off() {
            account.settle(-PLAIN_NS, PLAIN_NS, 1000);
            losses += 1;
        }
        assert_eq!(losses, STAKE_MAX as u32 + 1);
    }

    #[test]
    fn a_pause_ends_when_its_tokens_are_over_and_the_loss_is_made_good() {
        let mut account = Account::new(1);
        account.settle(-PLAIN_NS, PLAIN_NS, 10);
        assert!(account.is_off() && !account.resume(10 + PAUSE_MIN), "the loss is not made good");
        account.earn(PLAIN_NS / SHARE);
        assert!(!account.resume(10 + PAUSE_MIN - 1), "the pause is not over");
        assert!(account.resume(10 + PAUSE_MIN) && !account.is_off());
    }

    #[test]
    fn chances_follow_what_happens() {
        let mut chances = Chances::new();
        (0..30).for_each(|_| chances.note(3, true));
        (0..30).for_each(|_| chances.note(2, false));
        assert!(chances.of(3) > 0.95 && chances.of(2) < 0.05);
        assert_eq!(chances.of(4), Chances::new().of(4), "other grades stay");
    }
}
