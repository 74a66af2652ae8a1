//! Rotary position embeddings: frequencies fixed at load, angles once for a position, rotation of every
//! head. Owns the scaling formulas (linear, per-dimension factors, YaRN) as ggml's `ggml_rope_ext` has them;
//! knows no family.

use crate::isa::{Isa, per_isa};

/// Which two elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(2i, 2i + 1)`: the `llama` family as GGUF stores it.
    Normal,
    /// `(i, i + n_rot / 2)`: GPT-NeoX, Qwen, Gemma.
    Neox,
}

/// How positions beyond the trained context are treated. The default does nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// Factor on every frequency: 1 / the scaling factor in the file.
    pub freq_scale: f32,
    /// Weight of YaRN's mixture of scaled and unscaled frequencies: 0 without YaRN, else 1.
    pub ext_factor: f32,
    /// Factor on sine and cosine, on top of YaRN's own.
    pub attn_factor: f32,
    pub beta_fast: f32,
    pub beta_slow: f32,
    /// Context length before scaling; YaRN only.
    pub original_context: u32,
}

impl Default for RopeScaling {
    fn default() -> RopeScaling {
        RopeScaling {
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 0,
        }
    }
}

/// The angle that each pair turns by for each step of the position.
pub struct RopeTable {
    /// `[n_rot / 2]`.
    frequencies: Vec<f64>,
    /// Factor on sine and cosine.
    magnitude: f64,
}

impl RopeTable {
    /// Frequencies for heads whose first `n_rot` elements are turned. `factors` divides the frequency of
    /// each of the `n_rot / 2` pairs (`rope_freqs.weight` of Llama 3).
    pub fn new(n_rot: usize, freq_base: f32, scaling: &RopeScaling, factors: Option<&[f32]>) -> RopeTable {
        assert!(n_rot.is_multiple_of(2), "{n_rot} elements are not pairs");
        assert!(factors.is_none_or(|factors| factors.len() >= n_rot / 2), "too few frequency factors");
        let (low, high) = yarn_ramp_ends(n_rot, freq_base, scaling);
        let frequency = |pair: usize| {
            let factor = factors.map_or(1.0, |factors| factors[pair] as f64);
            let unscaled = (freq_base as f64).powf(-2.0 * pair as f64 / n_rot as f64) / factor;
            let scaled = unscaled * scaling.freq_scale as f64;
            let ramp = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let mix = ramp * scaling.ext_factor as f64;
            scaled * (1.0 - mix) + unscaled * mix
        };
        let yarn = match scaling.ext_factor {
            0.0 => 1.0,
            _ => 1.0 - 0.1 * (scaling.freq_scale as f64).ln(),
        };
        RopeTable {
            frequencies: (0..n_rot / 2).map(frequency).collect(),
            magnitude: scaling.attn_factor as f64 * yarn,
        }
    }

    /// Elements of a head that are turned, and floats that [`RopeTable::angles`] writes.
    pub fn n_rot(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Writes what [`rope`] needs for one position: `n_rot / 2` cosines, then as many sines.
    pub fn angles(&self, position: usize, out: &mut [f32]) {
        assert!(out.len() == self.n_rot(), "{} floats for {} angles", out.len(), self.n_rot());
        let (cosines, sines) = out.split_at_mut(self.frequencies.len());
        for ((cosine, sine), frequency) in cosines.iter_mut().zip(sines).zip(&self.frequencies) {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            *cosine = (cos * self.magnitude) as f32;
            *sine = (sin * self.magnitude) as f32;
        }
    }
}

/// The pairs between which YaRN goes from unscaled to scaled frequencies (`ggml_rope_yarn_corr_dims`).
fn yarn_ramp_ends(n_rot: usize, freq_base: f32, scaling: &RopeScaling) -> (f64, f64) {
    let pair_of = |rotations: f32| {
        let per_turn = scaling.original_context as f64 / (rotations as f64 * std::f64::consts::TAU);
        n_rot as f64 * per_turn.ln() / (2.0 * (freq_base as f64).ln())
    };
    let low = pair_of(scaling.beta_fast).floor().max(0.0);
    let high = pair_of(scaling.beta_slow).ceil().min(n_rot as f64 - 1.0);
    (low, high)
}

/// Turns the first `angles.len()` elements of one head by [`RopeTable::angles`] of its position.
pub fn rope(x: &mut [f32], angles: &[f32], style: RopeStyle) {
    rope_heads(x, x.len().max(1), angles, style);
}

/// As [`rope`] on every head of `head_dim` elements.
pub fn rope_heads(x: &mut [f32], head_dim: usize, angles: &[f32], style: RopeStyle) {
    assert!(head_dim > 0 && x.len().is_multiple_of(head_dim), "{} / {head_dim} heads", x.len());
    assert!(angles.len() <= head_dim && angles.len().is_multiple_of(2), "{} of {head_dim}", angles.len());
    for head in x.chunks_exact_mut(head_dim) {
        let turned = &mut head[..angles.len()];
        match style {
            RopeStyle::Normal => turn_normal(Isa::best(), turned, angles),
            RopeStyle::Neox => turn_neox(Isa::best(), turned, angles),
        }
    }
}

#[inline(always)]
fn turn(a: &mut f32, b: &mut f32, cos: f32, sin: f32) {
    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
}

#[inline(always)]
fn turn_normal_body(x: &mut [f32], angles: &[f32]) {
    let (cosines, sines) = angles.split_at(angles.len() / 2);
    for (([a, b], cos), sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cosines).zip(sines) {
        turn(a, b, *cos, *sin);
    }
}

#[inline(always)]
fn turn_neox_body(x: &mut [f32], angles: &[f32]) {
    let (cosines, sines) = angles.split_at(angles.len() / 2);
    let (first, second) = x.split_at_mut(angles.len() / 2);
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
        turn(a, b, *cos, *sin);
    }
}

per_isa!(fn turn_normal(x: &mut [f32], angles: &[f32]) = turn_normal_body);
per_isa!(fn turn_neox(x: &mut [f32], angles: &[f32]) = turn_neox_body);

#[cfg(test)]
mod tests {
    use super::*;

    /// ggml's loop in f32, with the running product of its `theta`.
    fn ggml_cache(
        n_rot: usize,
        base: f32,
        s: &RopeScaling,
        factors: Option<&[f32]>,
        position: f32,
    ) -> Vec<f32> {
        let corr = |rot: f32| {
            n_rot as f32 * (s.original_context as f32 / (rot * 2.0 * std::f32::consts::PI)).ln()
                / (2.0 * base.ln())
        };
        let (low, high) =
            (corr(s.beta_fast).floor().max(0.0), corr(s.beta_slow).ceil().min(n_rot as f32 - 1.0));
        let (mut theta, mut cosines, mut sines) = (position, vec![], vec![]);
        for pair in 0..n_rot / 2 {
            let extrapolated = theta / factors.map_or(1.0, |f| f[pair]);
            let (mut angle, mut magnitude) = (extrapolated * s.freq_scale, s.attn_factor);
            if s.ext_factor != 0.0 {
                let ramp = 1.0 - ((pair as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                angle = angle * (1.0 - ramp * s.ext_factor) + extrapolated * ramp * s.ext_factor;
                magnitude *= 1.0 + 0.1 * (1.0 / s.freq_scale).ln();
            }
            cosines.push(angle.cos() * magnitude);
            sines.push(angle.sin() * magnitude);
            theta *= base.powf(-2.0 / n_rot as f32);
        }
        [cosines, sines].concat()
    }

    #[test]
    fn angles_follow_ggml_for_every_scaling() {
        let linear = RopeScaling { freq_scale: 0.25, ..Default::default() };
        let yarn = RopeScaling {
            freq_scale: 1.0 / 4.0,
            ext_factor: 1.0,
            attn_factor: 0.9,
            original_context: 4096,
            ..Default::default()
        };
        let factors: Vec<f32> = (0..64).map(|i| 1.0 + i as f32 * 0.1).collect();
        for (scaling, factors) in
            [(RopeScaling::default(), None), (linear, None), (yarn, None), (yarn, Some(&factors[..]))]
        {
            for n_rot in [2, 64, 128] {
                let table = RopeTable::new(n_rot, 10_000.0, &scaling, factors);
                let mut angles = vec![0.0; n_rot];
                for position in [0, 1, 17, 300] {
                    table.angles(position, &mut angles);
                    let expected = ggml_cache(n_rot, 10_000.0, &scaling, factors, position as f32);
                    for (ours, ggml) in angles.iter().zip(&expected) {
                        assert!(
                            (ours - ggml).abs() < 2e-4,
                            "{scaling:?} {n_rot} at {position}: {ours} {ggml}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn styles_pair_different_elements_and_leave_the_rest() {
        // A quarter turn of pair 0, no turn of pair 1.
        let angles = [0.0, 1.0, 1.0, 0.0];
        let mut normal = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope(&mut normal, &angles, RopeStyle::Normal);
        assert_eq!(normal, [-2.0, 1.0, 3.0, 4.0, 5.0]);
        let mut neox = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope(&mut neox, &angles, RopeStyle::Neox);
        assert_eq!(neox, [-3.0, 2.0, 1.0, 4.0, 5.0]);
        let mut heads = [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        rope_heads(&mut heads, 5, &angles, RopeStyle::Neox);
        assert_eq!(heads, [-3.0, 2.0, 1.0, 4.0, 5.0, -3.0, 2.0, 1.0, 4.0, 5.0]);
    }

    #[test]
    fn every_instruction_set_turns_alike() {
        for n_rot in (2..=40).step_by(2) {
            let mut angles = vec![0.0; n_rot];
            RopeTable::new(n_rot, 1e6, &RopeScaling::default(), None).angles(12_345, &mut angles);
            let x: Vec<f32> = (0..n_rot).map(|i| (i as f32 * 1.7).sin()).collect();
            for turn in [turn_normal, turn_neox] {
                let mut expected = x.clone();
                turn(Isa::Scalar, &mut expected, &angles);
                for isa in Isa::all() {
                    let mut turned = x.clone();
                    turn(isa, &mut turned, &angles);
                    assert_eq!(turned, expected, "{} {n_rot}", isa.name());
                }
            }
        }
    }
}
