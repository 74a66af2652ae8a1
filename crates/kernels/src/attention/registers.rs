//! What the vector forms ask of an instruction set. Owns the names; the intrinsics are in its own file.

/// A register, or registers, of 16 floats. All methods must be inlined into functions that have the
/// instruction set, of which `self` is the proof.
pub trait Lanes: Copy {
    type Floats: Copy;

    fn splat(self, x: f32) -> Self::Floats;
    fn load(self, x: &[f32; 16]) -> Self::Floats;
    fn store(self, x: Self::Floats, out: &mut [f32; 16]);
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The larger of each pair, `b` where `a` is NaN.
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The largest lane of registers without NaN.
    fn largest_lane(self, x: Self::Floats) -> f32;
    fn f32s(self, bytes: &[u8; 64]) -> Self::Floats;
    fn f16s(self, bytes: &[u8; 32]) -> Self::Floats;
    fn bf16s(self, bytes: &[u8; 32]) -> Self::Floats;
    fn i8s(self, bytes: &[u8; 16]) -> Self::Floats;
    /// One f16 in all lanes.
    fn splat_f16(self, bytes: &[u8; 2]) -> Self::Floats;
    /// Has the line of `address` brought near, wherever it points.
    fn prefetch(self, address: *const u8);
    /// The same, less near: for what is needed later.
    fn prefetch_far(self, address: *const u8);
    /// `out[i][j] = x[j][i]`
    fn turn(self, x: [Self::Floats; 16]) -> [Self::Floats; 16];
}
