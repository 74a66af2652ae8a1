//! What a model knows of its experts before the first token: how hot earlier runs found them, which of them
//! never leave, and what is read while nobody waits. None of it changes a bit of any result.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Model;
use crate::error::{ModelError, PinError};

/// How often experts are used: what one run hands on to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Heat {
    /// Tokens that it is made of; what is long ago counts less.
    pub tokens: f32,
    /// Uses for each token, 0 to 1, of all experts of the first layer that has some, then of the next.
    pub rates: Box<[f32]>,
}

/// One expert of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExpertPlace {
    /// Its layer, counted among all layers.
    pub layer: usize,
    pub expert: usize,
}

impl Model {
    /// What this run and, weaker, those that it began with have used; `None` for a dense model.
    pub fn heat(&self) -> Option<Heat> {
        let (rates, tokens) = self.pager.as_ref()?.heat();
        Some(Heat { tokens, rates })
    }

    /// Begins with what an earlier run of the same model used.
    pub fn warm(&mut self, heat: &Heat) {
        if let Some(pager) = &mut self.pager {
            pager.warm(&heat.rates, heat.tokens);
        }
    }

    /// From now on these experts, once read, never leave. Error, and nothing is pinned, when one of them does
    /// not exist or is named twice, or when they leave no room for what a token needs of one layer.
    pub fn pin(&mut self, places: &[ExpertPlace]) -> Result<(), ModelError> {
        let layers = self.expert_layers();
        let Some((pager, experts)) = self.pager.as_mut().zip(self.config.experts.as_ref()) else {
            return Err(PinError::NoExperts.into());
        };
        let mut seen = HashSet::new();
        let mut members = Vec::with_capacity(places.len());
        for &place @ ExpertPlace { layer, expert } in places {
            let Some(group) = layers.iter().position(|routed| routed.layer == layer) else {
                let (first, last) = (layers[0].layer, layers[layers.len() - 1].layer);
                return Err(PinError::NoSuchLayer { layer, first, last }.into());
            };
            let count = layers[group].experts;
            if expert >= count {
                return Err(PinError::NoSuchExpert { layer, expert, count }.into());
            }
            if !seen.insert(place) {
                return Err(PinError::Twice { layer, expert }.into());
            }
            members.push((group, expert as u32));
        }
        let (slots, used) = (pager.slots(), experts.used);
        let most = slots.saturating_sub(used + pager.pinned());
        if places.len() > most {
            return Err(PinError::TooMany { pins: places.len(), slots, used, most }.into());
        }
        members.iter().for_each(|&(group, member)| pager.pin(group, member));
        Ok(())
    }

    /// Whether there are free slots and experts known that would be worth reading into them.
    pub fn wants_prewarm(&self) -> bool {
        self.pager.as_ref().is_some_and(|pager| pager.prewarmable() > 0)
    }

    /// While nobody waits: reads pinned experts, then those used most, into the slots that are free, each
    /// slot at most once, until there are none or `stop` is set. After that at most what is in flight is
    /// awaited. Nothing leaves memory for it. Returns how many were read.
    pub fn prewarm(&mut self, stop: &AtomicBool) -> Result<usize, ModelError> {
        let most = self.pager.as_ref().map_or(0, |pager| pager.prewarmable());
        let mut read = 0;
        while read < most && !stop.load(Ordering::Relaxed) {
            // Somebody else may want the memory meanwhile.
            self.mind_memory();
            let pager = self.pager.as_mut().expect("slots belong to a pager");
            match pager.prewarm(most - read)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }
}
