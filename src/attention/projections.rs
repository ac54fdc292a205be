//! Queries, keys and values: projected from X and memory, or from latents of these, with a key that all heads share beside them
//! (DeepSeek-V2, section 2.1).

use super::{Builder, after, rms_norm};
use base::error::Result;
use program::{Axis, Heads, Linear, Name, QueryRows};

/// What latents are made by: their projections and, behind these, the weights of their norms.
pub(super) struct Latents {
    queries: Option<(Vec<usize>, usize)>,
    keys: Option<(Vec<usize>, usize)>,
    /// The projection of the key that all heads share.
    shared: Option<Vec<usize>>,
}

impl Builder<'_> {
    /// Queries, keys and values of the heads, and the key that all share if there is one.
    pub(super) fn projected(
        &mut self,
        [x, memory, memory_v]: [usize; 3],
        [w_q, w_k, w_v]: [&[usize]; 3],
        latents: Latents,
    ) -> Result<([usize; 3], Option<usize>)> {
        let sizes = &self.config.sizes;
        let of_keys = Linear::Project { tokens: Axis::Key, rows: None };
        let (q_source, rows) = self.latent_of_queries(x, latents.queries)?;
        let has_latent = latents.keys.is_some();
        let kv_source = self.latent_of_keys(memory, latents.keys)?;
        let v_source = if has_latent { kv_source } else { memory_v };
        let of_queries = Linear::Project { tokens: Axis::Query, rows };
        let q = self.then(Name::Q, of_queries, &after(q_source, w_q))?;
        let split = |heads| Heads::Split { heads };
        if sizes.absorbs() {
            let queries = self.then(Name::QHeads, split(sizes.heads), &[q])?;
            let latent = self.then(Name::CHeads, split(1), &[kv_source])?;
            let shared = self.shared_key(memory, latents.shared)?;
            return Ok(([queries, latent, latent], shared));
        }
        let k = self.then(Name::K, of_keys.clone(), &after(kv_source, w_k))?;
        let v = if self.config.plain.k_eq_v {
            self.then(Name::V, Heads::HandOn, &[k])?
        } else {
            self.then(Name::V, of_keys.clone(), &after(v_source, w_v))?
        };

        let queries = self.then(Name::QHeads, split(sizes.heads), &[q])?;
        let keys = self.then(Name::KHeads, split(sizes.kv_heads), &[k])?;
        let values = self.then(Name::VHeads, split(sizes.value_heads()), &[v])?;
        let shared = self.shared_key(memory, latents.shared)?;
        Ok(([queries, keys, values], shared))
    }

    /// The key that all heads share, as one head.
    fn shared_key(&mut self, memory: usize, w_kr: Option<Vec<usize>>) -> Result<Option<usize>> {
        let Some(w_kr) = w_kr else { return Ok(None) };
        let of_keys = Linear::Project { tokens: Axis::Key, rows: None };
        let k_r = self.then(Name::KR, of_keys, &after(memory, &w_kr))?;
        self.then(Name::KRHeads, Heads::Split { heads: 1 }, &[k_r]).map(Some)
    }

    /// Queries in the latent of keys, and behind them their features that meet the shared key.
    pub(super) fn absorbed(&mut self, queries: usize, w_k: usize) -> Result<usize> {
        let absorbed = self.then(Name::QAbsorbed, Linear::Absorb, &[queries, w_k])?;
        match self.config.sizes.shared_dim() {
            0 => Ok(absorbed),
            features => self.then(Name::QJoined, Heads::Extend { features }, &[absorbed, queries]),
        }
    }

    /// The parameters of latents, as far as there are any.
    pub(super) fn latents(&mut self) -> Latents {
        let own = self.config.sizes.latent;
        let [of_queries, of_keys, shared] = Name::LATENT;
        let mut given = |(weight, bias), norm| (self.parameters(weight, bias), self.given(norm));
        Latents {
            queries: own.and_then(|own| own.queries).map(|_| given(of_queries, Name::WCqNorm)),
            keys: own.map(|_| given(of_keys, Name::WCkvNorm)),
            shared: own.filter(|own| own.shared > 0).map(|_| self.parameters(shared.0, shared.1)),
        }
    }

    /// What queries are projected from, and which rows of it: X, or the latent of its computed rows.
    fn latent_of_queries(
        &mut self,
        x: usize,
        latent: Option<(Vec<usize>, usize)>,
    ) -> Result<(usize, Option<QueryRows>)> {
        let rows = self.config.sizes.queries;
        let Some((parameters, norm)) = latent else { return Ok((x, rows)) };
        let project = Linear::Project { tokens: Axis::Query, rows };
        let latent = self.then(Name::CQ, project, &after(x, &parameters))?;
        let norm = [latent, norm];
        Ok((self.then(Name::CQNorm, rms_norm(self.config.plain.lora_norm_eps), &norm)?, None))
    }

    /// What keys and values are projected from: the memory, or its latent.
    fn latent_of_keys(
        &mut self,
        memory: usize,
        latent: Option<(Vec<usize>, usize)>,
    ) -> Result<usize> {
        let Some((parameters, norm)) = latent else { return Ok(memory) };
        let project = Linear::Project { tokens: Axis::Key, rows: None };
        let latent = self.then(Name::CKv, project, &after(memory, &parameters))?;
        self.then(Name::CKvNorm, rms_norm(self.config.plain.lora_norm_eps), &[latent, norm])
    }
}
