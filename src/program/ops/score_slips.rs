//! What faulty code makes of scores, beside the wrong numbers of the right operations.

use candle_core::{D, Tensor};

use super::alibi::{Distance, Distances, alibi_slopes};
use super::bias::Biasing;
use super::mask::{broadcasts, filled};
use crate::axis::{Axis, Dim};
use crate::kind::Kind;
use crate::misread::Misread;
use crate::operation::Operation;
use crate::part::Part;
use base::error::Result;
use base::lang;

/// What only faulty code makes of scores. Each keeps their shape.
#[derive(Debug, Clone, PartialEq)]
pub enum ScoreSlip {
    /// outer · tanh(inner · s): a soft cap of which a part is missing, or where there should be none.
    Cap {
        /// What tanh is multiplied by.
        outer: f64,
        /// What the scores are multiplied by before it.
        inner: f64,
    },
    /// Position biases with the usual slopes are added where there should be none.
    Alibi {
        /// The position of the first query row.
        first: usize,
    },
    /// A float mask read as a boolean one: these of its cells become the fill. Reads scores and the mask.
    FillWhere(Cells, f64),
    /// Weights by which every query takes the value of its own key.
    Identity,
    /// Softmax beside sinks that goes wrong. Reads scores and sinks.
    Sinks(SinkSlip),
}

/// Cells of a float mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    /// Those that are not above 0.
    NotPositive,
    /// Those that are 0.
    Zero,
    /// Those that are not 0.
    NotZero,
}

table! {
    /// What goes wrong with sinks, with the kind of mistake and a clause that tells it.
    SinkSlip: (Kind, &'static str) {
        /// The last column is kept, not the first.
        FirstDropped =>
            (Kind::Axes, "the sink stands behind the keys, and the first column is dropped"),
        /// Their absolute value is added to the sum.
        Raw => (Kind::Replaced, "the sink itself is added to softmax's sum, not its exponential"),
        /// As many as heads.
        OverQueries => (Kind::Axes, "there is a sink for every query, not for every head"),
        /// They are added as exp(sink) as they are.
        Unshifted =>
            (Kind::Replaced, "the maximum of the scores is not subtracted from the sink"),
    }
}

impl ScoreSlip {
    pub(super) fn value(&self, scores: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
        Ok(match (self, others) {
            (Self::Cap { outer, inner }, []) => ((scores * *inner)?.tanh()? * *outer)?,
            (Self::Alibi { first }, []) => {
                let (_, heads, queries, keys) = scores.dims4()?;
                let slopes = Tensor::new(alibi_slopes(heads), scores.device())?;
                let distances = Distances::new(Distance::Absolute, *first, queries, keys);
                let biases = Biasing::Distances(distances).value(&[&slopes])?;
                scores.broadcast_add(&biases.to_dtype(scores.dtype())?)?
            }
            (Self::FillWhere(cells, fill), [mask]) => {
                let is_filled = match cells {
                    Cells::NotPositive => mask.le(0.0)?,
                    Cells::Zero => mask.eq(0.0)?,
                    Cells::NotZero => mask.ne(0.0)?,
                };
                filled(scores, &is_filled, *fill)?
            }
            (Self::Identity, []) => {
                let keys = scores.dim(D::Minus1)?;
                let one = Tensor::eye(keys, scores.dtype(), scores.device())?;
                one.broadcast_as(scores.shape())?.contiguous()?
            }
            (Self::Sinks(slip), [sinks]) => slip.value(scores, sinks)?,
            _ => return Err(Misread.into()),
        })
    }

    pub(super) fn fits(&self, scores: &[Dim], others: &[&[Dim]]) -> bool {
        let is_scores = matches!(scores, [_, (Axis::Head, _), (Axis::Query, _), (Axis::Key, _)]);
        is_scores
            && match (self, others) {
                (Self::Cap { .. } | Self::Alibi { .. }, []) => true,
                (Self::Identity, []) => scores[2].1 == scores[3].1,
                (Self::FillWhere(..), [mask]) => broadcasts(mask, scores),
                (Self::Sinks(slip), [[(Axis::Head, heads)]]) => {
                    let along = if *slip == SinkSlip::OverQueries { 2 } else { 1 };
                    scores.get(along).is_some_and(|(_, size)| size == heads)
                }
                _ => false,
            }
    }

    /// The same of a part of the run; nothing where that depends on the rest.
    pub(super) fn narrowed(&self, part: Part) -> Option<Self> {
        match (self, part) {
            (Self::Alibi { first }, Part::Rows(rows)) => {
                Some(Self::Alibi { first: first + rows.first })
            }
            (Self::Sinks(SinkSlip::OverQueries) | Self::Identity, Part::Rows(_)) => None,
            _ => Some(self.clone()),
        }
    }
}

/// −|q − k|² for every query and key of (batch, head, token, feature).
pub(super) fn squared_distance(queries: &Tensor, keys: &Tensor) -> candle_core::Result<Tensor> {
    let products = (queries.matmul(&keys.t()?.contiguous()?)? * 2.0)?;
    let own = queries.sqr()?.sum_keepdim(D::Minus1)?;
    let others = keys.sqr()?.sum_keepdim(D::Minus1)?.transpose(2, 3)?;
    products.broadcast_sub(&own)?.broadcast_sub(&others)
}

impl SinkSlip {
    /// The kind of mistake that it is, and a clause that tells it.
    pub fn told(self) -> (Kind, &'static str) {
        let (kind, told) = self.row();
        (kind, lang::text(told))
    }

    fn value(self, scores: &Tensor, sinks: &Tensor) -> candle_core::Result<Tensor> {
        let (batch, heads, queries, keys) = scores.dims4()?;
        let shape = if self == Self::OverQueries { (1, 1, queries, 1) } else { (1, heads, 1, 1) };
        let sinks = sinks.reshape(shape)?.broadcast_as((batch, heads, queries, 1))?.contiguous()?;
        let softmax = candle_nn::ops::softmax_last_dim;
        match self {
            Self::FirstDropped => {
                softmax(&Tensor::cat(&[scores, &sinks], 3)?)?.narrow(3, 1, keys)?.contiguous()
            }
            Self::OverQueries => {
                softmax(&Tensor::cat(&[scores, &sinks], 3)?)?.narrow(3, 0, keys)?.contiguous()
            }
            Self::Raw | Self::Unshifted => {
                let exps = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
                let own = if self == Self::Raw { sinks.abs()? } else { sinks.exp()? };
                exps.broadcast_div(&(exps.sum_keepdim(D::Minus1)? + own)?)
            }
        }
    }
}
