//! Gates that come with the queries (Qwen3-Next): each head of the query projection is a query, then the gate
//! on what that head attends.

use adit_kernels::mul_sigmoid;

use crate::config::AttentionConfig;
use crate::forward::Pass;

impl Pass<'_> {
    /// query = the queries in `gated_query`
    pub fn take_queries(&mut self, config: &AttentionConfig, count: usize) {
        let (linear, scratch) = (self.linear, &mut *self.scratch);
        let (width, head) = (config.query_width(), config.head_dim);
        let both = &scratch.gated_query;
        linear.pool.rows(&mut scratch.query[..count * width], width, |row, query| {
            let both = both[row * 2 * width..][..2 * width].chunks_exact(2 * head);
            query
                .chunks_exact_mut(head)
                .zip(both)
                .for_each(|(query, both)| query.copy_from_slice(&both[..head]));
        });
    }

    /// attended *= sigmoid(the gates in `gated_query`)
    pub fn gate_by_queries(&mut self, config: &AttentionConfig, count: usize) {
        let (linear, scratch) = (self.linear, &mut *self.scratch);
        let (width, head) = (config.attended_width(), config.head_dim);
        let both = &scratch.gated_query;
        linear.pool.rows(&mut scratch.attended[..count * width], width, |row, attended| {
            let both = both[row * 2 * width..][..2 * width].chunks_exact(2 * head);
            attended.chunks_exact_mut(head).zip(both).for_each(|(out, both)| mul_sigmoid(out, &both[head..]));
        });
    }
}
