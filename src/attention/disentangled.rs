//! The terms of content and relative position that disentangled attention adds to its scores ("`DeBERTa`", He et al., 2021).

use super::{Builder, after};
use base::error::Result;
use config::PositionTerm;
use program::{Axis, Biasing, Heads, Linear, Name, Picked, Scaling};

/// What the terms are made of that comes from outside.
pub(super) struct Positions {
    /// The embeddings, and the parameters of their norm.
    embeddings: (usize, Vec<usize>),
    /// The parameters of the projections to keys and queries, where they are not those of tokens.
    projections: [Option<Vec<usize>>; 2],
}

impl Builder<'_> {
    /// The embeddings of relative positions and what they are projected by, where scores have terms of them.
    pub(super) fn positions(&mut self) -> Option<Positions> {
        let config = self.config;
        config.plain.disentangled.as_ref()?;
        let embeddings = self.given(Name::RelEmbeddings);
        let norm = config.plain.rel_norm_eps.map(|_| [Name::WRelNorm, Name::BRelNorm]);
        let norm = norm.into_iter().flatten().map(|name| self.given(name)).collect();
        let is_own = |term| config.has_term(term) && !config.plain.share_att_key;
        let [of_keys, of_queries] = Name::OF_POSITIONS;
        let own = [(PositionTerm::C2p, of_keys), (PositionTerm::P2c, of_queries)];
        let projections =
            own.map(|(term, (weight, bias))| is_own(term).then(|| self.parameters(weight, bias)));
        Some(Positions { embeddings: (embeddings, norm), projections })
    }

    /// Scores, and the terms of relative positions; `w_q` and `w_k` are the parameters of the tokens' projections.
    pub(super) fn with_positions(
        &mut self,
        scores: usize,
        [queries, keys]: [usize; 2],
        [w_q, w_k]: [&[usize]; 2],
        positions: Option<Positions>,
    ) -> Result<usize> {
        let Some(Positions { embeddings: (mut embeddings, norm), projections }) = positions else {
            return Ok(scores);
        };
        if let Some(eps) = self.config.plain.rel_norm_eps {
            let norm_of = program::Norm { is_centred: true, ..program::Norm::rms(eps) };
            let read = after(embeddings, &norm);
            embeddings = self.then(Name::RelNorm, Scaling::Norm(norm_of), &read)?;
        }
        let [of_keys, of_queries] = projections;
        let c2p = [Name::PosK, Name::PosKHeads, Name::C2pProducts, Name::C2pPicked, Name::C2p];
        let p2c = [Name::PosQ, Name::PosQHeads, Name::P2cProducts, Name::P2cPicked, Name::P2c];
        let all = [
            (PositionTerm::C2p, c2p, queries, of_keys.unwrap_or_else(|| w_k.to_vec())),
            (PositionTerm::P2c, p2c, keys, of_queries.unwrap_or_else(|| w_q.to_vec())),
        ];
        let mut terms = Vec::new();
        for (term, names, heads, parameters) in all {
            if self.config.has_term(term) {
                terms.push(self.term(term, names, heads, &after(embeddings, &parameters))?);
            }
        }
        let terms = match terms[..] {
            [only] => only,
            [] => return Ok(scores),
            [..] => self.then(Name::RelAtt, Biasing::Add, &terms)?,
        };
        self.then(Name::ScoresRelative, Biasing::Add, &[scores, terms])
    }

    /// A term: relative positions projected, met by the heads of queries or of keys, the one of each distance, scaled.
    fn term(
        &mut self,
        term: PositionTerm,
        [projected, split, products, picked, scaled]: [Name; 5],
        heads: usize,
        read: &[usize],
    ) -> Result<usize> {
        let (sizes, plain) = (&self.config.sizes, &self.config.plain);
        let positions = sizes.positions;
        let span = positions.map_or(0, |own| own.span);
        let op = Picked {
            span,
            max_distance: positions.map_or(0, |own| own.max_distance),
            is_logarithmic: plain.position_buckets.is_some(),
            is_of_keys: term == PositionTerm::P2c,
            first: sizes.first_position(),
            queries: sizes.query_count(),
            keys: sizes.keys(),
            zero: span,
            is_backwards: false,
            is_absolute: false,
            is_turned: false,
        };
        let project = Linear::Project { tokens: Axis::Bucket, rows: None };
        let own = self.then(projected, project, read)?;
        let own = self.then(split, Heads::Split { heads: sizes.heads }, &[own])?;
        let all = self.then(products, Linear::DotProduct, &[heads, own])?;
        let own = self.then(picked, Biasing::Picked(op), &[all])?;
        self.then(scaled, self.scale(), &[own])
    }
}
