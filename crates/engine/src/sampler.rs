//! From logits to one token. Owns the candidate list and the random state; allocates nothing after `new`.
//!
//! Order of the filters as in llama.cpp's default chain: top-k, top-p, min-p, then temperature.

/// How tokens are chosen. A temperature of 0 is greedy: the highest logit, the lower id on a tie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerOptions {
    pub temperature: f32,
    /// Keep the k best; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set whose probabilities reach p; 1 keeps all.
    pub top_p: f32,
    /// Drop what is less likely than this share of the best; 0 drops nothing.
    pub min_p: f32,
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 0 }
    }
}

impl SamplerOptions {
    pub fn greedy() -> Self {
        SamplerOptions { temperature: 0.0, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    logit: f32,
    token: u32,
}

pub struct Sampler {
    options: SamplerOptions,
    candidates: Vec<Candidate>,
    random: SplitMix64,
}

impl Sampler {
    pub fn new(vocabulary: usize) -> Sampler {
        let options = SamplerOptions::greedy();
        let candidates = vec![Candidate::default(); vocabulary];
        Sampler { options, candidates, random: SplitMix64(options.seed) }
    }

    /// Sets the options and starts the random sequence anew.
    pub fn reset(&mut self, options: SamplerOptions) {
        self.options = options;
        self.random = SplitMix64(options.seed);
    }

    /// Chooses a token from one row of logits.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let options = self.options;
        if options.temperature <= 0.0 {
            return greedy(logits);
        }
        self.candidates.clear();
        let rows = logits.iter().enumerate();
        self.candidates.extend(rows.map(|(token, &logit)| Candidate { logit, token: token as u32 }));
        let descending =
            |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token));
        if options.top_k > 0 && options.top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(options.top_k - 1, descending);
            self.candidates.truncate(options.top_k);
        }
        self.candidates.sort_unstable_by(descending);
        self.keep_top_p(options.top_p);
        self.keep_min_p(options.min_p);
        self.draw(options.temperature)
    }

    /// Candidates are sorted, best first.
    fn keep_top_p(&mut self, top_p: f32) {
        if top_p >= 1.0 {
            return;
        }
        let best = self.candidates[0].logit;
        let total: f64 = self.candidates.iter().map(|candidate| exponential(candidate.logit - best)).sum();
        let mut reached = 0.0;
        let enough = self.candidates.iter().position(|candidate| {
            reached += exponential(candidate.logit - best);
            reached >= f64::from(top_p) * total
        });
        self.candidates.truncate(enough.map_or(self.candidates.len(), |last| last + 1));
    }

    fn keep_min_p(&mut self, min_p: f32) {
        if min_p <= 0.0 {
            return;
        }
        let floor = self.candidates[0].logit + min_p.ln();
        let kept = self.candidates.iter().take_while(|candidate| candidate.logit >= floor).count();
        self.candidates.truncate(kept.max(1));
    }

    fn draw(&mut self, temperature: f32) -> u32 {
        let best = self.candidates[0].logit;
        let weight = |candidate: &Candidate| exponential((candidate.logit - best) / temperature);
        let total: f64 = self.candidates.iter().map(weight).sum();
        let mut left = self.random.unit() * total;
        for candidate in &self.candidates {
            left -= weight(candidate);
            if left < 0.0 {
                return candidate.token;
            }
        }
        self.candidates[0].token
    }
}

/// The index of the highest logit; the lowest such index. NaN never wins.
pub fn greedy(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, &logit) in logits.iter().enumerate() {
        if logit > logits[best] || (logits[best].is_nan() && !logit.is_nan()) {
            best = token;
        }
    }
    best as u32
}

fn exponential(value: f32) -> f64 {
    f64::from(value).exp()
}

/// Steele, Lea and Flood's SplitMix64: one word of state, the same sequence everywhere.
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number in `[0, 1)` with 53 random bits.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> SamplerOptions {
        SamplerOptions { temperature, top_k, top_p, min_p, seed: 7 }
    }

    fn draws(options: SamplerOptions, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(logits.len());
        sampler.reset(options);
        (0..count).map(|_| sampler.sample(logits)).collect()
    }

    #[test]
    fn greedy_takes_the_highest_and_the_lower_id_on_a_tie() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(greedy(&[f32::NAN, -1.0, f32::NAN]), 1);
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.7).sin()).collect();
        let chosen = options(1.0, 0, 1.0, 0.0);
        assert_eq!(draws(chosen, &logits, 50), draws(chosen, &logits, 50));
    }

    #[test]
    fn top_k_and_top_p_and_min_p_bound_the_choice() {
        let logits = [2.0, 1.9, 1.8, -1.0, -9.0];
        assert!(draws(options(1.0, 2, 1.0, 0.0), &logits, 200).iter().all(|&token| token < 2));
        assert!(draws(options(5.0, 0, 0.5, 0.0), &logits, 200).iter().all(|&token| token < 2));
        assert!(draws(options(5.0, 0, 1.0, 0.5), &logits, 200).iter().all(|&token| token < 3));
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.0, (3.0f32).ln()];
        let ones =
            draws(options(1.0, 0, 1.0, 0.0), &logits, 4000).iter().filter(|&&token| token == 1).count();
        assert!((2850..3150).contains(&ones), "3 in 4 expected, got {ones} of 4000");
    }

    #[test]
    fn logits_that_are_not_numbers_still_give_a_token() {
        let token = draws(options(0.8, 40, 0.95, 0.05), &[f32::NAN; 8], 1)[0];
        assert!(token < 8);
    }
}
