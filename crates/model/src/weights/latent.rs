//! Binding of latent attention, of files new and old.

use super::binder::Binder;
use super::{Derived, Latent, LatentQuery, PerHead, Projection, Tensor};
use crate::config::LatentConfig;
use crate::error::ModelError;
use crate::families::Presence;

impl Binder<'_> {
    pub fn latent(&mut self, layer: usize, config: &LatentConfig) -> Result<Latent, ModelError> {
        let width = self.config.width;
        let at = |part: &str| format!("blk.{layer}.{part}");
        let queries = config.query_width();
        let none = Presence::Never;
        let query = match config.query_rank {
            0 => {
                let scaled = self.config.family.latent_query_scales;
                LatentQuery::Direct(self.product(&at("attn_q"), queries, width, scaled)?)
            }
            rank => LatentQuery::LowRank {
                down: self.projection(&at("attn_q_a"), rank, width, none)?,
                norm: self.vector(&at("attn_q_a_norm.weight"), rank)?,
                up: self.projection(&at("attn_q_b"), queries, rank, none)?,
            },
        };
        let stored = config.attention.head_dim;
        let compress = self.projection(&at("attn_kv_a_mqa"), stored, width, none)?;
        let latent_norm = self.vector(&at("attn_kv_a_norm.weight"), config.latent)?;
        let (key_up, value_up, key_up_is_derived) = self.up_projections(layer, config)?;
        let traits = &self.config.family.attention;
        let heads = config.attention.heads;
        let outputs = config.output_width();
        let output = self.projection(&at("attn_output"), width, outputs, none)?;
        Ok(Latent {
            query,
            compress,
            latent_norm,
            rotated_norm: self.optional_vector(traits.qk_norm, &at("attn_k_norm.weight"), config.rotated)?,
            sinks: self.optional_vector(traits.sinks, &at("attn_sinks.weight"), heads)?,
            gate: self.attention_gate(traits.gate, &at("attn_gate"), [heads, outputs])?,
            key_up,
            value_up,
            key_up_is_derived,
            output: Projection { scale: output.scale.filter(|_| traits.output_scales), ..output },
        })
    }

    /// What takes queries to latents and latents to outputs, and whether the former is derived.
    fn up_projections(
        &mut self,
        layer: usize,
        config: &LatentConfig,
    ) -> Result<(PerHead, PerHead, bool), ModelError> {
        let LatentConfig { latent, unrotated, value_dim, .. } = *config;
        let heads = config.attention.heads;
        let together = format!("blk.{layer}.attn_kv_b.weight");
        if self.gguf.tensor(&together).is_none() {
            let key_up =
                self.per_head(&format!("blk.{layer}.attn_k_b.weight"), [heads, latent, unrotated])?;
            let value_up =
                self.per_head(&format!("blk.{layer}.attn_v_b.weight"), [heads, value_dim, latent])?;
            return Ok((key_up, value_up, false));
        }
        let stride = unrotated + value_dim;
        let both = self.matrix(&together, heads * stride, latent)?;
        let keys = PerHead { first: Tensor { rows: unrotated, ..both }, stride };
        let values = PerHead { first: Tensor { rows: value_dim, first_row: unrotated, ..both }, stride };
        let derived = Derived::turned(keys, heads);
        let key_up = derived.matrices(self.derived.len());
        self.derived.push(derived);
        Ok((key_up, values, true))
    }

    /// A tensor of `[heads][rows][cols]`, or of `[heads * rows][cols]`.
    pub fn per_head(&mut self, name: &str, [heads, rows, cols]: [usize; 3]) -> Result<PerHead, ModelError> {
        let is_flat = self.gguf.tensor(name).is_some_and(|info| info.dims.len() == 2);
        let dims = [cols, rows, heads].map(|dim| dim as u64);
        let info = match is_flat && heads > 1 {
            true => self.claim(name, &[dims[0], dims[1] * dims[2]])?,
            false => self.claim(name, &dims)?,
        };
        self.must_compute(info)?;
        let handle = self.resident(info);
        Ok(PerHead { first: Tensor { kind: info.kind, rows, cols, handle, first_row: 0 }, stride: rows })
    }
}
