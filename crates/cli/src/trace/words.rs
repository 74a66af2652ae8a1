//! How records are made of 32-bit words: what each kind of record holds, and at which place.

/// A record begins with its kind in the low 8 bits and its length in words, this one counted, above.
pub const STEP: u32 = 1;
pub const VISIT: u32 = 2;
pub const PREDICTED: u32 = 3;
pub const STEP_END: u32 = 4;
pub const END: u32 = 5;

/// Words of each kind before what differs in length.
pub const STEP_WORDS: usize = 4;
pub const ROW_WORDS: usize = 3;
pub const VISIT_WORDS: usize = 8;
pub const PREDICTED_WORDS: usize = 3;
pub const STEP_END_WORDS: usize = 3;
pub const END_WORDS: usize = 5;
/// Where a visit's wait stands.
pub const VISIT_WAIT: usize = 6;

/// A record's length has 24 bits.
pub const RECORD_WORDS_MAX: usize = (1 << 24) - 1;

/// In a row's last word, beside the lane.
pub const WANTS_LOGITS: u32 = 1 << 31;
/// In a pick, beside the expert; its weight as half a float stands in the upper half.
pub const RESIDENT: u32 = 1 << 15;
pub const EXPERT_MASK: u32 = (1 << 14) - 1;

pub fn head(kind: u32, words: usize) -> u32 {
    assert!(words <= RECORD_WORDS_MAX, "no step is that long");
    kind | (words as u32) << 8
}

/// The low and the high half, in this order.
pub fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

pub fn whole(halves: [u32; 2]) -> u64 {
    u64::from(halves[0]) | u64::from(halves[1]) << 32
}
