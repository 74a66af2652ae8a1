//! What a step tells whoever watches it: its rows, what scouts predicted, what the gate decided, which
//! experts were resident, how long was waited. Decides nothing and knows no file; a watcher changes no bit.

use std::any::Any;

use crate::forward::Row;
use crate::scout::Scout;

/// Watches steps as they are computed. It is called on the engine's thread, inside the token loop, so it
/// must neither wait nor allocate. Layers are counted among those with experts.
///
/// In a step: `begin_step`, for each layer `predicted` (any number of times), `routed` and `streamed`, then
/// `end_step`; after an error there is no `end_step`.
pub trait Observer: Any + Send {
    fn begin_step(&mut self, rows: &[Row]);

    /// `scout` expects these experts in `layer`, which is still to come in this step. Further calls for
    /// the same scout and layer add to it.
    fn predicted(&mut self, layer: usize, scout: Scout, experts: &[u32]);

    /// The gate of a layer has decided, and nothing has been read for it yet.
    fn routed(&mut self, routing: &Routing<'_>);

    /// The layer that was routed last is computed; so long it had nothing to compute and waited for bytes.
    fn streamed(&mut self, wait_ns: u64);

    /// The step is over: its wall time, waits included.
    fn end_step(&mut self, step_ns: u64);
}

/// What the gate of one layer decided.
pub struct Routing<'a> {
    pub layer: usize,
    /// Picks of one row.
    pub used: usize,
    /// rows x used: experts in order of rank. In the last layer only those rows of the step are left that
    /// want logits.
    pub picked: &'a [u32],
    /// rows x used: the weight of each pick.
    pub weights: &'a [f32],
    /// Bytes that will be read for the experts that are not resident, each counted once.
    pub missing_bytes: u64,
    /// Whether an expert has a slot, its bytes there or on their way because of a hint.
    pub is_resident: &'a dyn Fn(u32) -> bool,
}
