//! A small seeded random generator whose numbers are the same on every machine and for ever: files made
//! from a seed must be. Not for secrets.

/// xoshiro256++ (Blackman and Vigna, <https://prng.di.unimi.it/>), seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        let mut splitmix = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng { state: [splitmix(), splitmix(), splitmix(), splitmix()] }
    }

    /// A stream of its own for each name, so that what one thing gets does not hang on the others.
    pub fn named(seed: u64, name: &str) -> Rng {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Rng::new(seed ^ hash)
    }

    pub fn u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Below `end`, near enough to uniform for small `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(end)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// In 0.0..1.0, with 24 random bits.
    pub fn unit(&mut self) -> f32 {
        (self.u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Near enough to normal with mean 0 and deviation 1: a sum of four uniforms, whose arithmetic is
    /// exact, so that no machine's logarithm changes a file.
    pub fn normal(&mut self) -> f32 {
        const SQRT_3: f32 = 1.732_050_8;
        ((self.unit() + self.unit()) + (self.unit() + self.unit()) - 2.0) * SQRT_3
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut rng = Rng::new(1);
        // From a transcription of the authors' C code into Python.
        let expected: [u64; 3] = [0xcfc5_d07f_6f03_c29b, 0xbf42_4132_963f_e08d, 0x19a3_7d57_57aa_f520];
        assert_eq!(std::array::from_fn(|_| rng.u64()), expected);
        assert_ne!(Rng::named(1, "a").u64(), Rng::named(1, "b").u64());
    }

    #[test]
    fn normals_have_mean_0_and_deviation_1() {
        let mut rng = Rng::new(7);
        let numbers: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let deviation = (numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 1e5).sqrt();
        assert!(mean.abs() < 0.02 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = Rng::new(3);
        for _ in 0..1000 {
            assert!((-2..=3).contains(&rng.between(-2, 3)));
            assert!(rng.below(1) == 0);
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        let mut bytes = [0; 13];
        rng.fill(&mut bytes);
        assert!(bytes.iter().any(|&byte| byte != 0));
    }
}
