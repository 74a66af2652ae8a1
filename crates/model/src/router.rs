//! The gate: which experts a row uses, and how much each counts. The model's own numbers decide; nothing here
//! knows what memory holds.

use adit_kernels::{add, sigmoid, softmax, softplus, top_k};

use crate::config::{ExpertGroups, Experts};
use crate::families::Gating;
use crate::linear::Linear;
use crate::weights::Routed;

/// Smallest sum that picked weights are divided by (as llama.cpp: the smallest normal f16).
const WEIGHT_SUM_MIN: f32 = 6.103_515_6e-5;

/// The gate of one layer.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a> {
    experts: &'a Experts,
    bias: Option<&'a [f32]>,
    correction: Option<&'a [f32]>,
    /// `used` experts of each token, where they are looked up.
    by_token: Option<&'a [i32]>,
}

impl<'a> Gate<'a> {
    pub fn new(experts: &'a Experts, linear: Linear<'a>, layer: &Routed) -> Gate<'a> {
        let bias = linear.optional_vector(layer.router_bias);
        let correction = linear.optional_vector(layer.correction);
        Gate { experts, bias, correction, by_token: layer.by_token.map(|table| linear.token_experts(table)) }
    }

    /// Puts a row's experts into `picked`, the best first. `logits` become the scores that the experts'
    /// weights are made of; `by` holds the scores that they are picked by, if those differ.
    pub fn pick(&self, logits: &mut [f32], by: &mut [f32], picked: &mut [u32]) {
        self.score(logits);
        if self.correction.is_none() && self.experts.groups.is_none() {
            return top_k(logits, picked);
        }
        by.copy_from_slice(logits);
        if let Some(correction) = self.correction {
            add(by, correction);
        }
        if let Some(groups) = self.experts.groups {
            leave_best_groups(groups, by);
        }
        top_k(by, picked);
    }

    /// As [`Gate::pick`] for a row of this token: where experts are looked up by it, their scores decide
    /// nothing but their weights.
    pub fn pick_for(&self, token: u32, logits: &mut [f32], by: &mut [f32], picked: &mut [u32]) {
        let Some(table) = self.by_token else { return self.pick(logits, by, picked) };
        self.score(logits);
        let experts = &table[token as usize * picked.len()..][..picked.len()];
        picked.iter_mut().zip(experts).for_each(|(picked, &expert)| *picked = expert as u32);
    }

    /// Makes scores of logits.
    fn score(&self, logits: &mut [f32]) {
        if let Some(bias) = self.bias {
            add(logits, bias);
        }
        match self.experts.gating {
            Gating::Softmax => softmax(logits),
            Gating::Sigmoid => sigmoid(logits),
            Gating::SoftmaxOfPicked | Gating::SigmoidOfPicked => {}
            Gating::SqrtSoftplus => {
                softplus(logits);
                logits.iter_mut().for_each(|x| *x = x.sqrt());
            }
        }
    }

    /// The weights of picked experts, from the scores that `pick` left.
    pub fn weigh(&self, scores: &[f32], picked: &[u32], weights: &mut [f32]) {
        for (weight, &expert) in weights.iter_mut().zip(picked) {
            *weight = scores[expert as usize];
        }
        match self.experts.gating {
            Gating::SoftmaxOfPicked => softmax(weights),
            Gating::SigmoidOfPicked => sigmoid(weights),
            Gating::Softmax | Gating::Sigmoid | Gating::SqrtSoftplus => {}
        }
        if self.experts.normalise {
            let sum = weights.iter().sum::<f32>().max(WEIGHT_SUM_MIN);
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        if self.experts.weights_scale != 1.0 {
            weights.iter_mut().for_each(|weight| *weight *= self.experts.weights_scale);
        }
    }
}

/// Sets the scores of all experts outside the best groups to minus infinity. A group is as good as its two
/// best experts together (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
fn leave_best_groups(groups: ExpertGroups, scores: &mut [f32]) {
    let len = scores.len() / groups.count;
    let value = |scores: &[f32]| {
        let [mut first, mut second] = [f32::NEG_INFINITY; 2];
        for &score in scores {
            if score > first {
                (first, second) = (score, first);
            } else if score > second {
                second = score;
            }
        }
        // A group of one expert has no second.
        if len > 1 { first + second } else { first }
    };
    // The worst group goes, as often as there are too many: no memory is needed to order them.
    for _ in groups.used..groups.count {
        let mut worst = (0, f32::INFINITY);
        for (group, members) in scores.chunks_exact(len).enumerate() {
            let value = value(members);
            // Of equal groups the later one goes.
            if value > f32::NEG_INFINITY && value <= worst.1 {
                worst = (group, value);
            }
        }
        scores[worst.0 * len..(worst.0 + 1) * len].fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_experts_of_the_best_groups_are_left() {
        // Sums of two best: 1.0, 1.0, 0.5.
        let all = [0.9, 0.0, 0.1, 0.5, 0.5, 0.1, 0.3, 0.2, 0.2];
        let gone = f32::NEG_INFINITY;
        let mut scores = all;
        leave_best_groups(ExpertGroups { count: 3, used: 2 }, &mut scores);
        assert_eq!(scores, [0.9, 0.0, 0.1, 0.5, 0.5, 0.1, gone, gone, gone]);
        scores = all;
        leave_best_groups(ExpertGroups { count: 3, used: 1 }, &mut scores);
        assert_eq!(scores, [0.9, 0.0, 0.1, gone, gone, gone, gone, gone, gone]);
    }

    #[test]
    fn groups_of_one_expert_are_as_good_as_it() {
        let mut scores = [0.2, 0.4, 0.1];
        leave_best_groups(ExpertGroups { count: 3, used: 1 }, &mut scores);
        assert_eq!(scores, [f32::NEG_INFINITY, 0.4, f32::NEG_INFINITY]);
    }

    #[test]
    fn experts_looked_up_by_token_are_weighed_by_their_scores() {
        let experts = Experts {
            count: 3,
            used: 2,
            feed_forward: 1,
            shared: 0,
            gating: Gating::Softmax,
            normalise: true,
            weights_scale: 1.0,
            looked_up: 1,
            sum_scale: 1.0,
            groups: None,
        };
        let table = [0, 1, 2, 0];
        let gate = Gate { experts: &experts, bias: None, correction: None, by_token: Some(&table) };
        let (mut scores, mut picked, mut weights) = ([0.0, 5.0, 0.0], [0; 2], [0.0; 2]);
        gate.pick_for(1, &mut scores, &mut [0.0; 3], &mut picked);
        gate.weigh(&scores, &picked, &mut weights);
        assert_eq!((picked, weights), ([2, 0], [0.5, 0.5]));
    }
}
