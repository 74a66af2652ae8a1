//! Sub-scales that are packed in bits, unpacked four at a time with plain integers: what the vector kernels
//! share. The truth is in `formats`.

/// Four bytes each, as they are read. (Not by `map`: see `avx2::lanes`.)
#[inline(always)]
fn three_words(packed: &[u8; 12]) -> [u32; 3] {
    let words = packed.as_chunks::<4>().0;
    [u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1]), u32::from_le_bytes(words[2])]
}

/// The 8 scales and the 8 minimums of Q4_K and Q5_K, a byte each; as `formats::k_scales`.
#[inline(always)]
pub fn k_scale_bytes(packed: &[u8; 12]) -> (u64, u64) {
    let [a, b, c] = three_words(packed);
    let high_bits = |x: u32| x >> 2 & 0x3030_3030;
    let scales = (c & 0x0f0f_0f0f | high_bits(a)) as u64;
    let mins = (c >> 4 & 0x0f0f_0f0f | high_bits(b)) as u64;
    ((a & 0x3f3f_3f3f) as u64 | scales << 32, (b & 0x3f3f_3f3f) as u64 | mins << 32)
}

/// The 16 scales of Q3_K, a byte each, plus 32; as `formats::q3k_scales`.
#[inline(always)]
pub fn q3k_scale_bytes(packed: &[u8; 12]) -> [u32; 4] {
    let [a, b, c] = three_words(packed);
    let scale = |low: u32, high: u32| low & 0x0f0f_0f0f | (high & 0x0303_0303) << 4;
    [scale(a, c), scale(b, c >> 2), scale(a >> 4, c >> 4), scale(b >> 4, c >> 6)]
}
