//! Speculative decoding: cheap guesses at the next tokens, verified together in one step of the model.
//!
//! Owns who guesses, how many guesses are worth a step, and the accounts of what that gains. Verification is
//! the engine's: it draws each token from the model's own logits, with the same random numbers as without
//! guesses, and goes on as long as the draw equals the guess. A row's logits do not depend on other rows, so
//! the answer is the same bit for bit, greedy or sampled, and nothing here can change it.

mod account;
mod clock;
mod draft;
mod lookup;

use std::path::PathBuf;
use std::time::Instant;

use adit_model::{Config, ModelError};

use account::{Account, Chances};
use clock::{Choice, Clock, DENSE, ROUTED};
pub use draft::DraftFile;
use lookup::Lookup;

use crate::error::EngineError;

/// The most tokens guessed for one step.
pub const GUESSES_MAX: usize = 8;
/// Guesses are told apart by so many grades of likelihood.
pub(crate) const GRADES: usize = 8;
/// Every so many tokens at least a plain step is made, to know what it takes.
const PLAIN_EVERY: u64 = 32;
/// Tokens without a guess after which the times of steps with guesses are out of date.
const OUTDATED_AFTER: u64 = 512;
/// What is tried although its price is unknown must be as likely as this.
const TRIAL_CHANCE_MIN: f64 = 0.5;

/// When guesses are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    Never,
    /// As many as pay by the times measured; never, once they have cost what they may.
    #[default]
    Auto,
    /// As many as there are, whatever they cost.
    Always,
}

/// Which guesses are made.
#[derive(Debug, Clone)]
pub struct SpeculationOptions {
    /// What followed earlier in prompt and answer.
    pub lookup: When,
    /// A small model of the same vocabulary.
    pub draft: Option<PathBuf>,
    pub draft_when: When,
    /// Tokens guessed for one step, 1 to [`GUESSES_MAX`].
    pub guesses_max: usize,
}

impl Default for SpeculationOptions {
    fn default() -> Self {
        SpeculationOptions {
            lookup: When::Auto,
            draft: None,
            draft_when: When::Auto,
            guesses_max: GUESSES_MAX,
        }
    }
}

impl SpeculationOptions {
    /// Plain decoding.
    pub fn off() -> Self {
        SpeculationOptions { lookup: When::Never, ..Self::default() }
    }

    /// What of these a model can do: a state that goes from token to token cannot take back wrong guesses.
    pub(crate) fn for_model(&self, config: &Config) -> Result<SpeculationOptions, EngineError> {
        match config.has_state() {
            false => Ok(self.clone()),
            true if self.lookup == When::Always || self.draft.is_some() => Err(EngineError::GuessesWithState),
            true => Ok(SpeculationOptions::off()),
        }
    }
}

/// A guess at one token. Better grades come through more often; how often is learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guess {
    pub token: u32,
    pub grade: usize,
}

/// Whoever guesses tokens. A wrong guess costs time and nothing else.
pub(crate) trait Proposer: Send {
    /// The token after `timeline` (never empty) and those `proposed` after it already. `spare_ns` may be
    /// spent on catching up with a timeline that was not followed.
    fn guess(
        &mut self,
        timeline: &[u32],
        proposed: &[u32],
        spare_ns: f64,
    ) -> Result<Option<Guess>, ModelError>;

    /// Nanoseconds that a guess takes; 0 means that it may be asked on every step.
    fn guess_ns(&self) -> f64;
}

/// Counters of one proposer since loading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProposerStats {
    /// Tokens proposed to the model, and how many of them it chose itself.
    pub proposed: u64,
    pub accepted: u64,
    /// Steps that verified proposals.
    pub steps: u64,
    /// How often the account was empty, or no gain in sight, and a pause began.
    pub switched_off: u64,
    /// Time of those steps and of making their proposals.
    pub spent_s: f64,
    /// What their tokens would have taken in plain steps, at the median of the last ones, less that time.
    pub saved_s: f64,
}

struct Source {
    proposer: Box<dyn Proposer>,
    when: When,
    chances: Chances,
    account: Account,
    stats: ProposerStats,
}

impl Source {
    /// Books what a proposal has saved, or lost where `ns` is negative.
    fn settle(&mut self, ns: f64, plain_ns: f64, token: u64) {
        self.stats.saved_s += ns / 1e9;
        if self.when == When::Auto {
            self.account.settle(ns, plain_ns, token);
            self.stats.switched_off += u64::from(self.account.is_off());
        }
    }
}

/// All proposers of an engine and the times of its steps.
pub(crate) struct Speculation {
    clock: Clock,
    sources: [Option<Source>; 2],
    guesses_max: usize,
    /// The proposal: for verification by `by`, or kept to be graded only.
    tokens: Vec<u32>,
    grades: Vec<usize>,
    by: Option<usize>,
    /// Whose first guess is graded by a step that verifies nothing of it: source and guess.
    watched: Option<(usize, Guess)>,
    /// Time spent on guesses for the coming step.
    guessing_ns: f64,
    /// Tokens decoded; those at which a step was last plain and last verified guesses.
    token: u64,
    plain_at: u64,
    many_at: u64,
}

const LOOKUP: usize = 0;
const DRAFT: usize = 1;

impl Speculation {
    /// For a model with routed experts or a dense one.
    pub fn new(options: &SpeculationOptions, draft: Option<draft::Draft>, is_routed: bool) -> Speculation {
        let lookup = (options.lookup != When::Never).then(|| Box::new(Lookup::default()) as _);
        let draft = draft.map(|draft| Box::new(draft) as Box<dyn Proposer>);
        let proposers: [(Option<Box<dyn Proposer>>, When); 2] =
            [(lookup, options.lookup), (draft, options.draft_when)];
        let count = proposers.iter().filter(|(proposer, _)| proposer.is_some()).count();
        let source = |(proposer, when): (Option<Box<dyn Proposer>>, When)| {
            proposer.map(|proposer| Source {
                proposer,
                when,
                chances: Chances::new(),
                account: Account::new(count),
                stats: ProposerStats::default(),
            })
        };
        Speculation {
            clock: Clock::new(if is_routed { ROUTED } else { DENSE }),
            sources: proposers.map(source),
            guesses_max: options.guesses_max.clamp(1, GUESSES_MAX),
            tokens: Vec::with_capacity(GUESSES_MAX),
            grades: Vec::with_capacity(GUESSES_MAX),
            by: None,
            watched: None,
            guessing_ns: 0.0,
            token: 0,
            plain_at: 0,
            many_at: 0,
        }
    }

    /// Counters of prompt lookup and of the draft model.
    pub fn stats(&self) -> [ProposerStats; 2] {
        let of = |source: &Option<Source>| source.as_ref().map_or(ProposerStats::default(), |it| it.stats);
        [of(&self.sources[LOOKUP]), of(&self.sources[DRAFT])]
    }

    /// The model has read `ns` of a prompt.
    pub fn earn(&mut self, ns: f64) {
        self.sources.iter_mut().flatten().for_each(|source| source.account.earn(ns));
    }

    /// The tokens to verify after `timeline`, at most `most` and maybe none.
    pub fn propose(&mut self, timeline: &[u32], most: usize) -> &[u32] {
        let most = most.min(self.guesses_max);
        self.clear();
        if most > 0 {
            let start = Instant::now();
            self.choose(timeline, most);
            self.guessing_ns = start.elapsed().as_nanos() as f64;
        }
        &self.tokens
    }

    /// The proposal is not verified: the step failed.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.grades.clear();
        (self.by, self.watched, self.guessing_ns) = (None, None, 0.0);
    }

    fn choose(&mut self, timeline: &[u32], most: usize) {
        if self.token - self.many_at >= OUTDATED_AFTER {
            self.clock.forget_many();
            self.many_at = self.token;
        }
        for index in [LOOKUP, DRAFT] {
            let Some(source) = &mut self.sources[index] else { continue };
            if source.when == When::Always {
                self.gather(index, timeline, most);
                if !self.tokens.is_empty() {
                    self.by = Some(index);
                    return;
                }
                continue;
            }
            if source.account.resume(self.token) && source.proposer.guess_ns() > 0.0 {
                source.chances = Chances::new();
            }
        }
        let mut rate = 0.0;
        if self.is_auto(LOOKUP) {
            rate = self.choose_lookup(timeline, most);
        }
        if self.is_auto(DRAFT) && self.may_speculate(DRAFT) {
            self.choose_draft(timeline, most, rate);
        }
    }

    fn is_auto(&self, index: usize) -> bool {
        self.sources[index].as_ref().is_some_and(|source| source.when == When::Auto)
    }

    /// Whether the source is on, and the time of plain steps known and fresh.
    fn may_speculate(&self, index: usize) -> bool {
        let is_on = self.sources[index].as_ref().is_some_and(|source| !source.account.is_off());
        is_on && self.clock.plain_ns().is_some() && self.token - self.plain_at < PLAIN_EVERY
    }

    /// Asks for guesses until there are `most` or no more.
    fn gather(&mut self, index: usize, timeline: &[u32], most: usize) {
        while self.tokens.len() < most && self.guess(index, timeline) {}
    }

    /// Asks for one more guess; tells whether it came.
    fn guess(&mut self, index: usize, timeline: &[u32]) -> bool {
        let Some(source) = &mut self.sources[index] else { return false };
        let spare_ns = if source.when == When::Always { f64::MAX } else { source.account.balance_ns() };
        match source.proposer.guess(timeline, &self.tokens, spare_ns) {
            Ok(Some(guess)) => {
                self.tokens.push(guess.token);
                self.grades.push(guess.grade);
                true
            }
            Ok(None) => false,
            Err(_) => {
                // The answer does not need it. A model that cannot compute would fail every time.
                source.when = When::Never;
                source.stats.switched_off += 1;
                false
            }
        }
    }

    /// Guesses that cost nothing are made on every step, if only to be graded. Returns the expected rate.
    fn choose_lookup(&mut self, timeline: &[u32], most: usize) -> f64 {
        self.gather(LOOKUP, timeline, most);
        let Some(&token) = self.tokens.first() else { return 0.0 };
        self.watched = Some((LOOKUP, Guess { token, grade: self.grades[0] }));
        let mut choice = Choice { guesses: 0, rate: 0.0 };
        if self.may_speculate(LOOKUP) {
            choice = self.best_prefix(LOOKUP, 0.0);
        }
        self.keep(LOOKUP, choice.guesses);
        choice.rate
    }

    /// The draft is asked if it promises more than `rate`, and for one guess after the other as long as the
    /// next promises more.
    fn choose_draft(&mut self, timeline: &[u32], most: usize, rate: f64) {
        let Some(source) = &self.sources[DRAFT] else { return };
        let (guess_ns, chance) = (source.proposer.guess_ns(), source.chances.of_first());
        let forecast = self.clock.choose(&[chance; GUESSES_MAX][..most], guess_ns, 0.0);
        let is_trial = forecast.guesses == 0 && self.is_trial(DRAFT, chance, guess_ns);
        if forecast.guesses == 0 && !is_trial {
            if self.clock.knows_many() && self.by.is_none() {
                self.switch_off(DRAFT);
            }
            return;
        }
        if self.by.is_some() && forecast.rate <= rate {
            return;
        }
        let most_guesses = self.within_stake(DRAFT, if is_trial { 1 } else { most }, guess_ns);
        self.keep(LOOKUP, 0);
        let mut through = 1.0;
        while self.tokens.len() < most_guesses {
            let made = self.tokens.len();
            let sunk_ns = made as f64 * guess_ns;
            // One more is asked for if it comes through often enough for what it takes.
            let more_ns = guess_ns + self.clock.step_ns(made + 2) - self.clock.step_ns(made + 1);
            let rate_now = self.best_prefix(DRAFT, sunk_ns).rate;
            if made > 0 && through * chance <= rate_now * more_ns || !self.guess(DRAFT, timeline) {
                break;
            }
            through *= self.chance(DRAFT, made);
        }
        if self.tokens.is_empty() {
            // The draft cannot follow; what lookup found, if anything, is still good.
            self.choose_lookup(timeline, most);
            return;
        }
        let sunk_ns = self.tokens.len() as f64 * guess_ns;
        let choice = self.best_prefix(DRAFT, sunk_ns);
        let guesses = if is_trial { self.tokens.len() } else { choice.guesses };
        if let (Some(&token), 0) = (self.tokens.first(), guesses) {
            self.watched = Some((DRAFT, Guess { token, grade: self.grades[0] }));
        }
        self.keep(DRAFT, guesses);
    }

    fn keep(&mut self, index: usize, guesses: usize) {
        self.tokens.truncate(guesses);
        self.grades.truncate(guesses);
        self.by = (guesses > 0).then_some(index);
    }

    fn chance(&self, index: usize, guess: usize) -> f64 {
        self.sources[index].as_ref().map_or(0.0, |source| source.chances.of(self.grades[guess]))
    }

    /// How many of the guesses made to verify, `sunk_ns` being spent on all of them.
    fn best_prefix(&self, index: usize, sunk_ns: f64) -> Choice {
        let made = self.tokens.len();
        let mut chances = [0.0; GUESSES_MAX];
        (0..made).for_each(|guess| chances[guess] = self.chance(index, guess));
        let mut choice = self.clock.choose(&chances[..made], 0.0, sunk_ns);
        let most = self.within_stake(index, choice.guesses, 0.0);
        if most < choice.guesses {
            choice = self.clock.choose(&chances[..most], 0.0, sunk_ns);
        }
        if choice.guesses == 0 && made > 0 && sunk_ns == 0.0 && self.is_trial(index, chances[0], 0.0) {
            choice.guesses = 1;
        }
        choice
    }

    /// The most guesses of which all may fail without losing more than the account has and a plain step.
    fn within_stake(&self, index: usize, most: usize, guess_ns: f64) -> usize {
        let plain_ns = self.clock.step_ns(1);
        let stake_ns = self.sources[index].as_ref().map_or(0.0, |it| it.account.balance_ns()) + plain_ns;
        let loss_ns = |guesses: usize| self.clock.step_ns(guesses + 1) - plain_ns + guesses as f64 * guess_ns;
        (1..=most).rev().find(|&guesses| loss_ns(guesses) <= stake_ns).unwrap_or(most.min(1))
    }

    /// Whether a guess should be verified to learn what that takes, and the account bears the likely loss.
    fn is_trial(&self, index: usize, chance: f64, guess_ns: f64) -> bool {
        let balance_ns = self.sources[index].as_ref().map_or(0.0, |source| source.account.balance_ns());
        let loss_ns = (1.0 - chance) * self.clock.step_ns(1) + guess_ns;
        self.clock.needs_trial() && chance >= TRIAL_CHANCE_MIN && loss_ns <= balance_ns
    }

    fn switch_off(&mut self, index: usize) {
        if let Some(source) = &mut self.sources[index] {
            source.account.switch_off(self.token);
            source.stats.switched_off += 1;
        }
    }

    /// A step of `ns` has verified the proposal, or was plain, and gave the tokens `drawn`: one more than
    /// guesses came through.
    pub fn settle(&mut self, drawn: &[u32], ns: f64) {
        let rows = self.tokens.len() + 1;
        self.clock.note(rows, ns);
        self.token += drawn.len() as u64;
        let all_ns = ns + self.guessing_ns;
        self.earn(all_ns);
        let Some(by) = self.by else {
            self.plain_at = self.token;
            self.grade_watched(drawn);
            self.charge_unused();
            return;
        };
        self.many_at = self.token;
        if self.watched.is_some_and(|(index, _)| index != by) {
            self.grade_watched(drawn);
        }
        let Some(source) = &mut self.sources[by] else { return };
        let accepted = self.tokens.iter().zip(drawn).filter(|(guess, drawn)| guess == drawn).count();
        for (index, ((guess, drawn), &grade)) in self.tokens.iter().zip(drawn).zip(&self.grades).enumerate() {
            source.chances.note(grade, guess == drawn);
            if index == 0 {
                source.chances.note_first(guess == drawn);
            }
        }
        source.stats.proposed += self.tokens.len() as u64;
        source.stats.accepted += accepted as u64;
        source.stats.steps += 1;
        source.stats.spent_s += all_ns / 1e9;
        if let Some(plain_ns) = self.clock.plain_ns() {
            source.settle(drawn.len() as f64 * plain_ns - all_ns, plain_ns, self.token);
        }
    }

    fn grade_watched(&mut self, drawn: &[u32]) {
        let Some((index, guess)) = self.watched else { return };
        if let Some(source) = &mut self.sources[index] {
            source.chances.note(guess.grade, drawn.first() == Some(&guess.token));
            source.chances.note_first(drawn.first() == Some(&guess.token));
        }
    }

    /// A draft's guess that was not worth verifying has cost its time all the same.
    fn charge_unused(&mut self) {
        let Some((DRAFT, _)) = self.watched else { return };
        let plain_ns = self.clock.step_ns(1);
        if let Some(source) = &mut self.sources[DRAFT] {
            source.stats.spent_s += self.guessing_ns / 1e9;
            source.settle(-self.guessing_ns, plain_ns, self.token);
        }
    }
}
