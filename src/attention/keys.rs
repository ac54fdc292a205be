//! The keys and values that queries meet: those of the run's own tokens, and others beside them; and their scores.

use super::Builder;
use super::disentangled::Positions;
use base::error::Result;
use config::Start;
use program::{Added, Biasing, Dequantize, Heads, Linear, Masking, Name, Scaling};

/// Keys and values that are not projected from the run's own tokens, in pairs.
pub(super) struct Others {
    /// Those of an earlier layer, in place of own ones.
    earlier: Option<(usize, usize)>,
    /// Those of a cache.
    past: Option<(usize, usize)>,
    /// A learned one.
    learned: Option<(usize, usize)>,
}

impl Builder<'_> {
    /// Queries, keys and values of a run that starts at them, where they are given as a cache stores them.
    pub(super) fn as_stored(&mut self, heads: [usize; 3]) -> Result<[usize; 3]> {
        if self.config.start != Start::Heads {
            return Ok(heads);
        }
        let [queries, keys, values] = heads;
        let gathered = self.gathered([keys, values])?;
        self.dequantized(heads, [queries, gathered[0], gathered[1]])
    }

    /// Keys and values, out of their pages where these are given.
    fn gathered(&mut self, heads: [usize; 2]) -> Result<[usize; 2]> {
        let Some(slots) = self.given_outside(Name::Slots) else { return Ok(heads) };
        let pages = Name::PAGES.map(|[_, pages, _]| self.given_outside(pages));
        let mut all = heads;
        for ((own, pages), [.., name]) in all.iter_mut().zip(pages).zip(Name::PAGES) {
            let Some(pages) = pages else { continue };
            *own = self.then(name, Heads::Gather, &[pages, slots])?;
        }
        Ok(all)
    }

    /// Queries, keys and values, those that are given in few bits made of these numbers: of what was gathered from pages, or
    /// of what is given in place of heads.
    fn dequantized(&mut self, heads: [usize; 3], gathered: [usize; 3]) -> Result<[usize; 3]> {
        // What is given stands before all that is made of it.
        let read = [0, 1, 2].map(|slot| {
            let [_, numbers, scale, zero, _] = Name::FEW_BITS[slot];
            let of_slots = Name::SCALE_PAGES.into_iter().find(|(own, _)| *own == scale);
            let pages = of_slots.and_then(|(_, pages)| self.given_outside(pages));
            let scales = pages.or_else(|| self.given_outside(scale))?;
            let is_gathered = gathered[slot] != heads[slot];
            let codes = if is_gathered { gathered[slot] } else { self.given(numbers) };
            Some(([codes, scales], pages.is_some(), self.given_outside(zero)))
        });
        let mut all = gathered;
        for ((own, read), [_, _, scale, _, name]) in all.iter_mut().zip(read).zip(Name::FEW_BITS) {
            let Some(([codes, mut scales], is_of_slots, zero)) = read else { continue };
            if let Some(slots) = self.program.position(Name::Slots).filter(|_| is_of_slots) {
                scales = self.then(scale, Heads::Gather, &[scales, slots])?;
            }
            let read: Vec<usize> = [codes, scales].into_iter().chain(zero).collect();
            *own = self.then(name, Dequantize::RIGHT, &read)?;
        }
        Ok(all)
    }

    /// Those that the run is given, and the learned ones.
    pub(super) fn others(&mut self, learned: Option<(usize, usize)>) -> Others {
        let (sizes, plain) = (&self.config.sizes, &self.config.plain);
        let (has_past, is_shared) = (sizes.past_len > 0, plain.shared_kv.is_some());
        let past = has_past.then(|| (self.given(Name::KPast), self.given(Name::VPast)));
        let earlier = is_shared.then(|| (self.given(Name::KShared), self.given(Name::VShared)));
        Others { earlier, past, learned }
    }

    /// Keys and values of the run's own tokens with all others, and of as many heads as queries.
    pub(super) fn with_others(
        &mut self,
        [mut keys, mut values]: [usize; 2],
        Others { earlier: of_earlier, past, learned: bias_kv }: Others,
    ) -> Result<[usize; 2]> {
        let sizes = &self.config.sizes;
        if let Some((k_shared, v_shared)) = of_earlier {
            (keys, values) = (k_shared, v_shared);
        }
        if let Some((k_past, v_past)) = past {
            keys = self.then(Name::KCached, Heads::Append, &[k_past, keys])?;
            values = self.then(Name::VCached, Heads::Append, &[v_past, values])?;
        }
        if let Some((bias_k, bias_v)) = bias_kv {
            let learned = Added::Learned;
            keys = self.then(Name::KWithBias, learned.clone(), &[keys, bias_k])?;
            values = self.then(Name::VWithBias, learned, &[values, bias_v])?;
        }
        if sizes.has_zero_attn {
            keys = self.then(Name::KWithZero, Added::Zeros, &[keys])?;
            values = self.then(Name::VWithZero, Added::Zeros, &[values])?;
        }
        let own = if sizes.absorbs() { 1 } else { sizes.kv_heads };
        if own < sizes.heads {
            let repeat = Heads::Repeat { times: sizes.heads / own.max(1), is_tiled: false };
            keys = self.then(Name::KRepeated, repeat.clone(), &[keys])?;
            values = self.then(Name::VRepeated, repeat, &[values])?;
        }
        Ok([keys, values])
    }

    /// What the terms of scores are scaled by.
    pub(super) fn scale(&self) -> Scaling {
        match self.config.plain.scale {
            Some(factor) => Scaling::By { factor },
            None => {
                Scaling::Root { head_dim: self.config.sizes.head_dim, terms: self.config.terms() }
            }
        }
    }

    /// The scores of all keys, masked.
    pub(super) fn scores(
        &mut self,
        [queries, keys]: [usize; 2],
        (projections, positions): ([&[usize]; 2], Option<Positions>),
        attn_bias: Option<usize>,
        mask: Option<usize>,
    ) -> Result<usize> {
        let mut scores = self.then(Name::ScoresRaw, Linear::DotProduct, &[queries, keys])?;
        scores = self.then(Name::Scores, self.scale(), &[scores])?;
        if let Some(cap) = self.config.plain.softcap {
            scores = self.then(Name::ScoresCapped, Scaling::SoftCap { cap }, &[scores])?;
        }
        scores = self.with_positions(scores, [queries, keys], projections, positions)?;
        if let Some(attn_bias) = attn_bias {
            scores = self.then(Name::ScoresBiased, Biasing::Add, &[scores, attn_bias])?;
        }
        if let Some(mask) = mask {
            let fill = Masking::Fill { fill: self.config.masks.fill };
            scores = self.then(Name::MaskedScores, fill, &[scores, mask])?;
        }
        Ok(scores)
    }
}
