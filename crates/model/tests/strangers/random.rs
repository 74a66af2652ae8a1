//! The random numbers of GNU's C++ library, bit for bit: what `std::normal_distribution<float>` draws from
//! `std::mt19937`, and the hash of a string. Its sources are libstdc++'s `bits/random.tcc` and
//! `hash_bytes.cc`.

/// Deviation of all values in these files.
const SPREAD: f32 = 0.1;

/// The data of the tensor `name` in the file of `seed`, as `set_tensor_data` in llama.cpp's
/// `test-llama-archs.cpp` draws them.
pub fn tensor_data(seed: u64, name: &str, count: u64) -> impl Iterator<Item = f32> {
    // `std::mt19937` takes the low half of a seed.
    let mut normal = Normal::new((seed ^ hash(name.as_bytes())) as u32);
    // The state of a Mamba layer must decay.
    let negative = name.contains("ssm_a");
    (0..count).map(move |_| {
        let value = normal.draw() * SPREAD + 0.0;
        if negative { -value.abs() } else { value }
    })
}

/// `std::hash<std::string>`: MurmurHash64A with libstdc++'s seed.
fn hash(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xc70f_6907;
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let data = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        hash = (hash ^ (data ^ data >> 47).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 47
}

/// Marsaglia's polar method, which draws two values at a time.
struct Normal {
    twister: Twister,
    saved: Option<f32>,
}

impl Normal {
    fn new(seed: u32) -> Normal {
        Normal { twister: Twister::new(seed), saved: None }
    }

    fn draw(&mut self) -> f32 {
        if let Some(saved) = self.saved.take() {
            return saved;
        }
        let (x, y, square) = loop {
            let x = (f64::from(2.0 * self.twister.unit()) - 1.0) as f32;
            let y = (f64::from(2.0 * self.twister.unit()) - 1.0) as f32;
            let square = x * x + y * y;
            if square <= 1.0 && square != 0.0 {
                break (x, y, square);
            }
        };
        let factor = (-2.0 * logarithm(square) / square).sqrt();
        self.saved = Some(x * factor);
        y * factor
    }
}

/// `logf` of the GNU C library for a normal number (from Arm's optimized routines, `logf.c`), which is not
/// always the float nearest to the logarithm: compared with it for every float from 2^-63 to 1.
fn logarithm(x: f32) -> f32 {
    /// `1/c` and `ln(c)` for a `c` in the middle of each sixteenth.
    const TABLE: [(u64, u64); 16] = [
        (0x3ff6_61ec_79f8_f3be, 0xbfd5_7bf7_808c_aade),
        (0x3ff5_71ed_4aaf_883d, 0xbfd2_bef0_a7c0_6ddb),
        (0x3ff4_9539_f0f0_10b0, 0xbfd0_1eae_7f51_3a67),
        (0x3ff3_c995_b0b8_0385, 0xbfcb_31d8_a682_24e9),
        (0x3ff3_0d19_0c88_64a5, 0xbfc6_574f_0ac0_7758),
        (0x3ff2_5e22_7b0b_8ea0, 0xbfc1_aa2b_c79c_8100),
        (0x3ff1_bb4a_4a1a_343f, 0xbfba_4e76_ce8c_0e5e),
        (0x3ff1_2358_f08a_e5ba, 0xbfb1_973c_5a61_1ccc),
        (0x3ff0_953f_4199_00a7, 0xbfa2_52f4_38e1_0c1e),
        (0x3ff0_0000_0000_0000, 0x0000_0000_0000_0000),
        (0x3fee_608c_fd9a_47ac, 0x3faa_a5aa_5df2_5984),
        (0x3fec_a4b3_1f02_6aa0, 0x3fbc_5e53_aa36_2eb4),
        (0x3feb_2036_576a_fce6, 0x3fc5_26e5_7720_db08),
        (0x3fe9_c2d1_63a1_aa2d, 0x3fcb_c286_0d22_4770),
        (0x3fe8_86e6_0378_41ed, 0x3fd1_058b_c8a0_7ee1),
        (0x3fe7_67dc_f553_4862, 0x3fd4_0430_57b6_ee09),
    ];
    const POLYNOMIAL: [u64; 3] = [0xbfd0_0ea3_48b8_8334, 0x3fd5_575b_0be0_0b6a, 0xbfdf_fffe_f20a_4123];
    let [a, b, c] = POLYNOMIAL.map(f64::from_bits);
    let offset = x.to_bits().wrapping_sub(0x3f33_0000);
    let exponent = f64::from(offset as i32 >> 23);
    let (inverse, log) = TABLE[(offset >> 19) as usize % 16];
    let mantissa = f64::from(f32::from_bits(x.to_bits().wrapping_sub(offset & 0xff80_0000)));
    let r = mantissa * f64::from_bits(inverse) - 1.0;
    let start = f64::from_bits(log) + exponent * std::f64::consts::LN_2;
    let square = r * r;
    ((a * square + (b * r + c)) * square + (start + r)) as f32
}

/// MT19937 (Matsumoto and Nishimura, 1998).
struct Twister {
    state: [u32; Twister::SIZE],
    next: usize,
}

impl Twister {
    const SIZE: usize = 624;

    fn new(seed: u32) -> Twister {
        let mut state = [seed; Twister::SIZE];
        for index in 1..Twister::SIZE {
            let before = state[index - 1];
            state[index] = (before ^ before >> 30).wrapping_mul(1_812_433_253).wrapping_add(index as u32);
        }
        Twister { state, next: Twister::SIZE }
    }

    /// In 0.0..1.0: `std::generate_canonical<float, 24>`.
    fn unit(&mut self) -> f32 {
        (self.draw() as f32 / 4_294_967_296.0).min(1.0f32.next_down())
    }

    fn draw(&mut self) -> u32 {
        if self.next == Twister::SIZE {
            self.twist();
        }
        let mut value = self.state[self.next];
        self.next += 1;
        value ^= value >> 11;
        value ^= value << 7 & 0x9d2c_5680;
        value ^= value << 15 & 0xefc6_0000;
        value ^ value >> 18
    }

    fn twist(&mut self) {
        const MIDDLE: usize = 397;
        for index in 0..Twister::SIZE {
            let both =
                self.state[index] & 0x8000_0000 | self.state[(index + 1) % Twister::SIZE] & 0x7fff_ffff;
            let matrix = if both & 1 == 0 { 0 } else { 0x9908_b0df };
            self.state[index] = self.state[(index + MIDDLE) % Twister::SIZE] ^ both >> 1 ^ matrix;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twister_draws_what_its_authors_print() {
        let mut twister = Twister::new(5489);
        (1..10_000).for_each(|_| _ = twister.draw());
        // The C++ standard demands this of its 10000th number.
        assert_eq!(twister.draw(), 4_123_659_995);
    }
}
