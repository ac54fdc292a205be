//! Which steps does differential attention have beside others?

use super::{Builder, rms_norm};
use base::error::Result;
use program::{Differential, Name, Scaling};

/// What differential attention is given: `λ_init`, the vectors of λ, and the weight of the norm of heads' outputs.
pub(super) struct OfPairs {
    init: f64,
    vectors: [usize; 4],
    norm: usize,
}

impl Builder<'_> {
    /// What differential attention is given, if this is it.
    pub(super) fn of_pairs(&mut self) -> Option<OfPairs> {
        let init = self.config.plain.lambda_init?;
        let vectors = Name::LAMBDA.map(|name| self.given(name));
        Some(OfPairs { init, vectors, norm: self.given(Name::WHeadNorm) })
    }

    /// The weights of each pair of heads, the second's times λ subtracted from the first's.
    pub(super) fn subtracted(&mut self, weights: usize, of_pairs: &OfPairs) -> Result<usize> {
        let lambda = Differential::Lambda { init: of_pairs.init, slip: None };
        let lambda = self.then(Name::Lambda, lambda, &of_pairs.vectors)?;
        self.then(Name::WeightsDiff, Differential::Weights { slip: None }, &[weights, lambda])
    }

    /// The output of every head, normalised, times 1 − `λ_init`.
    pub(super) fn of_one_size(&mut self, heads: usize, of_pairs: &OfPairs) -> Result<usize> {
        let norm = rms_norm(self.config.plain.head_norm_eps);
        let heads = self.then(Name::HeadNorm, norm, &[heads, of_pairs.norm])?;
        let scale = Scaling::By { factor: 1.0 - of_pairs.init };
        self.then(Name::HeadScaled, scale, &[heads])
    }
}
