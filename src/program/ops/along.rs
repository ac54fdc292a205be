//! Numbers that faulty code takes from another place of an axis, or adds up along it.

use candle_core::Tensor;

use crate::axis::Dim;
use crate::part::Part;

/// What becomes of the places of one axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Along {
    /// Each takes its numbers from the place that stands here, some perhaps twice.
    Take(Vec<usize>),
    /// These are 0.
    Zero(Vec<usize>),
    /// Each has what stands before it, and the first has 0.
    Slide,
    /// Each has the sum or the mean of all.
    Reduce {
        /// Whether it is the mean.
        is_mean: bool,
    },
    /// Each has the sum of all up to it.
    Accumulate,
    /// Each has the sum of those at its place in all blocks of so many up to its own.
    CarryOn(usize),
    /// Each has less the mean of those in its block of so many.
    LessMean(usize),
    /// Each is multiplied by its own number.
    Each(Vec<f64>),
    /// The same at these places of another axis alone.
    Within {
        /// That axis, counted from the first.
        axis: usize,
        /// The places.
        places: Vec<usize>,
        /// What becomes of them there.
        along: Box<Along>,
    },
}

impl Along {
    pub(super) fn value(&self, x: &Tensor, axis: usize) -> candle_core::Result<Tensor> {
        let size = x.dim(axis)?;
        match self {
            Self::Take(places) => taken(x, axis, places),
            Self::Zero(places) => {
                let kept = |at| if places.contains(&at) { 0.0 } else { 1.0 };
                each(x, axis, (0..size).map(kept).collect())
            }
            Self::Slide => {
                let first = x.narrow(axis, 0, 1)?.zeros_like()?;
                Tensor::cat(&[first, x.narrow(axis, 0, size - 1)?], axis)
            }
            Self::Reduce { is_mean } => {
                let all = if *is_mean { x.mean_keepdim(axis)? } else { x.sum_keepdim(axis)? };
                all.broadcast_as(x.shape())?.contiguous()
            }
            Self::Accumulate => x.cumsum(axis),
            Self::CarryOn(block) => {
                let blocks = (0..size).step_by((*block).max(1));
                let mut parts: Vec<Tensor> = Vec::new();
                for first in blocks {
                    let count = (*block).min(size - first);
                    let own = x.narrow(axis, first, count)?;
                    let before = parts.last().map(|part| part.narrow(axis, 0, count));
                    parts.push(before.map_or(Ok(own.clone()), |before| own.add(&before?))?);
                }
                Tensor::cat(&parts, axis)
            }
            Self::LessMean(block) => {
                let mut parts = Vec::new();
                for first in (0..size).step_by((*block).max(1)) {
                    let own = x.narrow(axis, first, (*block).min(size - first))?;
                    parts.push(own.broadcast_sub(&own.mean_keepdim(axis)?)?);
                }
                Tensor::cat(&parts, axis)
            }
            Self::Each(factors) => each(x, axis, factors.clone()),
            Self::Within { axis: of, places, along } => {
                let both = Tensor::cat(&[x, &along.value(x, axis)?], *of)?;
                let size = x.dim(*of)?;
                let from = |at| if places.contains(&at) { size + at } else { at };
                taken(&both, *of, &(0..size).map(from).collect::<Vec<_>>())
            }
        }
    }

    pub(super) fn fits(&self, x: &[Dim], axis: usize) -> bool {
        let Some((_, size)) = x.get(axis) else { return false };
        match self {
            Self::Take(places) => places.len() == *size && places.iter().all(|place| place < size),
            Self::Each(factors) => factors.len() == *size,
            Self::CarryOn(block) | Self::LessMean(block) => *block > 0,
            Self::Within { axis: of, places, along } => {
                let of_other = x.get(*of).filter(|_| *of != axis);
                of_other.is_some_and(|(_, size)| places.iter().all(|place| place < size))
                    && along.fits(x, axis)
            }
            Self::Zero(_) | Self::Slide | Self::Reduce { .. } | Self::Accumulate => true,
        }
    }

    /// The same for a part of that axis; nothing where that depends on the rest.
    pub(super) fn narrowed(&self, part: Part) -> Option<Self> {
        match self {
            Self::Zero(places) => Some(Self::Zero(part.left(places))),
            Self::Each(factors) => {
                let (first, count) = part.places();
                Some(Self::Each(factors.iter().copied().skip(first).take(count).collect()))
            }
            // The first tokens or keys have what they take if that is among them.
            Self::Take(places) => {
                let (Part::First(count) | Part::Keys(count)) = part else { return None };
                let first = places.iter().take(count).copied().collect::<Vec<_>>();
                first.iter().all(|place| *place < count).then_some(Self::Take(first))
            }
            Self::Slide
            | Self::Reduce { .. }
            | Self::Accumulate
            | Self::CarryOn(_)
            | Self::LessMean(_)
            | Self::Within { .. } => None,
        }
    }
}

/// Every place of an axis times its own number.
fn each(x: &Tensor, axis: usize, factors: Vec<f64>) -> candle_core::Result<Tensor> {
    let mut shape = vec![1; x.rank()];
    if let Some(own) = shape.get_mut(axis) {
        *own = factors.len();
    }
    x.broadcast_mul(&Tensor::from_vec(factors, shape, x.device())?.to_dtype(x.dtype())?)
}

/// The places of an axis in this order.
pub(super) fn taken(x: &Tensor, axis: usize, places: &[usize]) -> candle_core::Result<Tensor> {
    let places: std::result::Result<Vec<u32>, _> =
        places.iter().map(|at| u32::try_from(*at)).collect();
    let places = Tensor::new(places.map_err(candle_core::Error::wrap)?, x.device())?;
    x.contiguous()?.index_select(&places, axis)
}
