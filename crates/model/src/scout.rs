//! Scouts: guesses at the experts that are needed soon, given to the pager as hints. Owns what they
//! remember. A hint only moves bytes early: which experts run is decided by the gate alone.
//!
//! Next-layer gate: the hidden state changes little from layer to layer, so the next layer's norm and router,
//! applied to the hidden state before this layer's experts, pick mostly what the next layer will pick.
//! Token memory: the first routed layer sees little more than the token itself, so it picks what it picked
//! when the same token was last there.

use std::time::Instant;

use adit_pager::{HintAccount, Pager};

use crate::config::Config;
use crate::families::BlockInput;
use crate::forward::Row;
use crate::linear::Linear;
use crate::moe::router_logits;
use crate::observe::Observer;
use crate::router::Gate;
use crate::scratch::Scratch;
use crate::weights::{Layer, Weights};

/// Who makes hints. The number is its account with the pager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scout {
    /// The gate of the next routed layer.
    Next = 0,
    /// The gate of the one after it.
    Next2 = 1,
    /// What the same token used before, in the first routed layer.
    Token = 2,
}

impl Scout {
    pub const ALL: [Scout; 3] = [Scout::Next, Scout::Next2, Scout::Token];

    pub fn name(self) -> &'static str {
        match self {
            Scout::Next => "next",
            Scout::Next2 => "next2",
            Scout::Token => "token",
        }
    }
}

/// The scouts that may work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoutSet(u8);

impl ScoutSet {
    pub const NONE: ScoutSet = ScoutSet(0);
    pub const ALL: ScoutSet = ScoutSet(0b111);

    pub fn with(self, scout: Scout) -> ScoutSet {
        ScoutSet(self.0 | 1 << scout as u8)
    }

    pub fn has(self, scout: Scout) -> bool {
        self.0 & (1 << scout as u8) != 0
    }
}

/// A scout and its account.
#[derive(Debug, Clone, Copy)]
pub struct ScoutReport {
    pub scout: Scout,
    pub account: HintAccount,
}

/// Tokens that the token memory has places for; a power of two.
const TOKENS: usize = 4096;
/// In a step of more rows most experts are needed anyway.
const TOKEN_ROWS_MAX: usize = 16;
const NOBODY: u32 = u32::MAX;

pub(crate) struct Scouts {
    set: ScoutSet,
    /// The first routed layer, and its experts per token.
    first: Option<usize>,
    used: usize,
    /// Token that each place holds, or `NOBODY`.
    tokens: Vec<u32>,
    /// `[TOKENS][used]`: its experts.
    experts: Vec<u16>,
    /// What the step used of that layer.
    first_used: Vec<u32>,
    /// Rows that want each expert, in the step under way.
    votes: Vec<u32>,
    /// Experts, the surest first.
    ranked: Vec<u32>,
}

impl Scouts {
    pub fn new(config: &Config, weights: &Weights, set: ScoutSet) -> Scouts {
        let (count, used) = config.experts.as_ref().map_or((0, 0), |experts| (experts.count, experts.used));
        let places = if count > 0 { TOKENS } else { 0 };
        Scouts {
            set,
            first: weights.layers.iter().position(|layer| layer.feed_forward.routed().is_some()),
            used,
            tokens: vec![NOBODY; places],
            experts: vec![0; places * used],
            first_used: Vec::with_capacity(count),
            votes: vec![0; count],
            ranked: Vec::with_capacity(count),
        }
    }

    /// What they take, in bytes.
    pub fn heap_bytes(config: &Config) -> usize {
        config.experts.as_ref().map_or(0, |experts| {
            TOKENS * (size_of::<u32>() + experts.used * size_of::<u16>())
                + 3 * experts.count * size_of::<u32>()
        })
    }

    fn wants(&self, pager: &Pager, scout: Scout) -> bool {
        self.set.has(scout) && pager.wants_hints(scout as usize)
    }

    /// Applies the gates of the next routed layers among `later` to the hidden state of `rows`.
    pub fn look_ahead(
        &mut self,
        config: &Config,
        linear: &Linear<'_>,
        scratch: &mut Scratch,
        (pager, mut observer): (&mut Pager, Option<&mut (dyn Observer + 'static)>),
        (later, rows): (&[Layer], &[Row]),
    ) {
        let is_routed = |layer: &&Layer| layer.feed_forward.routed().is_some();
        // In the last layer only rows that want logits go on: one of a prompt's many, or none.
        let whole =
            if rows.iter().all(|row| row.wants_logits) { later } else { &later[..later.len().max(1) - 1] };
        if whole.iter().find(is_routed).is_none() && !rows.iter().any(|row| row.wants_logits) {
            // More of a prompt follows. It will use of the first layer what this part has used.
            if self.wants(pager, Scout::Token) {
                pager.hint(Scout::Token as usize, 0, &self.first_used);
            }
        }
        for (scout, layer) in [Scout::Next, Scout::Next2].into_iter().zip(whole.iter().filter(is_routed)) {
            if !self.wants(pager, scout) {
                continue;
            }
            let count = rows.len();
            let start = Instant::now();
            let (Some(routed), Some(experts)) = (layer.feed_forward.routed(), &config.experts) else {
                unreachable!("only routed layers are left");
            };
            let states = (&mut *scratch, BlockInput::Hidden);
            router_logits(config, linear, (layer, routed), states, count, &[routed.router.kind]);
            self.rank(Gate::new(experts, *linear, routed), scratch, count);
            pager.hint(scout as usize, routed.group, &self.ranked);
            if let Some(observer) = &mut observer {
                observer.predicted(routed.group, scout, &self.ranked);
            }
            pager.charge(scout as usize, start.elapsed().as_nanos() as u64);
        }
    }

    /// Orders the experts that rows of logits pick: by the number of rows, or for one row by their scores.
    fn rank(&mut self, gate: Gate<'_>, scratch: &mut Scratch, count: usize) {
        let Scratch { router, scores, picked, .. } = scratch;
        let picked = &mut picked[..self.used];
        self.ranked.clear();
        self.votes.fill(0);
        for row in router.chunks_exact_mut(self.votes.len()).take(count) {
            gate.pick(row, scores, picked);
            for &expert in &*picked {
                if self.votes[expert as usize] == 0 {
                    self.ranked.push(expert);
                }
                self.votes[expert as usize] += 1;
            }
        }
        if count > 1 {
            let votes = &self.votes;
            self.ranked.sort_unstable_by_key(|&expert| std::cmp::Reverse(votes[expert as usize]));
        }
    }

    /// Before the first layer of a step: what its tokens used when they were last there.
    pub fn hint_from_tokens(
        &mut self,
        pager: &mut Pager,
        observer: Option<&mut (dyn Observer + 'static)>,
        rows: &[Row],
    ) {
        if rows.len() > TOKEN_ROWS_MAX || !self.wants(pager, Scout::Token) {
            return;
        }
        let start = Instant::now();
        self.ranked.clear();
        for row in rows {
            let place = row.token as usize % TOKENS;
            if self.tokens[place] == row.token {
                for &expert in &self.experts[place * self.used..(place + 1) * self.used] {
                    if !self.ranked.contains(&u32::from(expert)) {
                        self.ranked.push(expert.into());
                    }
                }
            }
        }
        // The group of the first routed layer is the first group.
        pager.hint(Scout::Token as usize, 0, &self.ranked);
        pager.read_hints();
        if let Some(observer) = observer {
            observer.predicted(0, Scout::Token, &self.ranked);
        }
        pager.charge(Scout::Token as usize, start.elapsed().as_nanos() as u64);
    }

    /// Remembers what the rows of a layer, if they are all of the step, picked.
    pub fn learn(&mut self, layer: usize, scratch: &Scratch, rows: &[Row], count: usize) {
        if self.first != Some(layer) || !self.set.has(Scout::Token) || count < rows.len() {
            return;
        }
        self.first_used.clear();
        self.first_used.extend_from_slice(&scratch.members);
        for (row, picked) in rows.iter().zip(scratch.picked.chunks_exact(self.used)) {
            let place = row.token as usize % TOKENS;
            self.tokens[place] = row.token;
            for (expert, &picked) in self.experts[place * self.used..].iter_mut().zip(picked) {
                *expert = picked as u16;
            }
        }
    }
}
