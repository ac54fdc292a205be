//! What faulty code computes and right code never does. No run has these steps; edits put them in.

use candle_core::Tensor;

use super::functions::{Map, Norm, Weigh, sinusoid};
use super::mask::broadcasts;
use super::precision::Precision;
use super::scaling::number;
use super::turn::Turn;
use crate::error::Result;
use crate::program::axis::{Axes, Dim};
use crate::program::narrow::{Narrowed, Part};
use crate::program::op::{Misread, Operation};
use crate::program::terms::{Term, Value};

/// A computation that only faulty code makes. Each keeps the shape of what it reads first.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Slip {
    /// A function of every number.
    Map(Map),
    /// Numbers beyond ± the limit become it.
    Clip {
        /// The limit.
        limit: f64,
    },
    /// A norm; reads perhaps a weight and a bias beside the numbers.
    Norm(Norm),
    /// Every number rounded to a type with fewer bits.
    Round(Precision),
    /// All inputs added up.
    Sum,
    /// The first input times the second.
    Product,
    /// The first input, so many times the second, and a number.
    AddTimes {
        /// What the second is multiplied by.
        factor: f64,
        /// What is added to all.
        addend: f64,
    },
    /// The places of one axis in another order, some perhaps twice.
    Take {
        /// The axis, counted from the first.
        axis: usize,
        /// The place that each one takes its numbers from.
        places: Vec<usize>,
    },
    /// Zeros at these places of an axis.
    Zero {
        /// The axis, counted from the first.
        axis: usize,
        /// The places.
        places: Vec<usize>,
    },
    /// Every place of an axis has what stands before it, and the first has 0.
    Slide {
        /// The axis, counted from the first.
        axis: usize,
    },
    /// The sum or the mean over an axis, at every place of it.
    Reduce {
        /// The axis, counted from the first.
        axis: usize,
        /// Whether it is the mean.
        is_mean: bool,
    },
    /// Sinusoidal positions are added to (batch, token, feature) ("Attention Is All You Need", section 3.5).
    Sinusoid {
        /// Whether sines stand before cosines, and not between them.
        is_in_halves: bool,
    },
    /// A rotation by positions that goes wrong. Reads heads and frequencies.
    Turn(Turn),
    /// What stands where softmax should.
    Weigh(Weigh),
    /// The second input at these places of an axis, and the first elsewhere.
    Only {
        /// The axis, counted from the first.
        axis: usize,
        /// The places.
        places: Vec<usize>,
    },
    /// Scores of which these cells become a number.
    Block(Block),
    /// A number is added to every other.
    Shift {
        /// It.
        addend: f64,
    },
    /// The second input in the shape of the first.
    Instead,
}

/// Cells that become a number.
#[derive(Debug, Clone)]
pub struct Block {
    /// Which: a boolean tensor of the scores' axes, or with 1 in place of a size.
    pub cells: Tensor,
    /// The number.
    pub fill: f64,
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.cells.id() == other.cells.id() && self.fill.total_cmp(&other.fill).is_eq()
    }
}

impl Operation for Slip {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x, others @ ..] = inputs else { return Err(Misread.into()) };
        Ok(match (self, others) {
            (Self::Map(map), _) => map.value(x)?,
            (Self::Clip { limit }, _) => x.clamp(-*limit, *limit)?,
            (Self::Norm(norm), _) => norm.value(x, others)?,
            (Self::Round(precision), _) => precision.round(x)?,
            (Self::Sum, _) => others
                .iter()
                .try_fold((*x).clone(), |sum, other| sum.broadcast_add(&spread(&sum, other)?))?,
            (Self::Product, [other]) => {
                x.broadcast_mul(&spread(x, &other.to_dtype(x.dtype())?)?)?
            }
            (Self::AddTimes { factor, addend }, [other]) => {
                let other = other.to_dtype(x.dtype())?.affine(*factor, *addend)?;
                x.broadcast_add(&spread(x, &other)?)?
            }
            (Self::Take { axis, places }, _) => taken(x, *axis, places)?,
            (Self::Zero { axis, places }, _) => {
                let size = *x.dims().get(*axis).ok_or(Misread)?;
                let kept: Vec<f64> =
                    (0..size).map(|at| if places.contains(&at) { 0.0 } else { 1.0 }).collect();
                let mut shape = vec![1; x.rank()];
                if let Some(own) = shape.get_mut(*axis) {
                    *own = size;
                }
                let kept = Tensor::from_vec(kept, shape, x.device())?.to_dtype(x.dtype())?;
                x.broadcast_mul(&kept)?
            }
            (Self::Slide { axis }, _) => {
                let size = *x.dims().get(*axis).ok_or(Misread)?;
                let first = x.narrow(*axis, 0, 1)?.zeros_like()?;
                Tensor::cat(&[first, x.narrow(*axis, 0, size - 1)?], *axis)?
            }
            (Self::Reduce { axis, is_mean }, _) => {
                let all = if *is_mean { x.mean_keepdim(*axis)? } else { x.sum_keepdim(*axis)? };
                all.broadcast_as(x.shape())?.contiguous()?
            }
            (Self::Sinusoid { is_in_halves }, _) => {
                x.broadcast_add(&sinusoid(x, *is_in_halves)?)?
            }
            (Self::Turn(turn), [freqs]) => turn.value(x, freqs)?,
            (Self::Weigh(weigh), _) => weigh.value(x)?,
            (Self::Only { axis, places }, [other]) => {
                let size = *x.dims().get(*axis).ok_or(Misread)?;
                let both = Tensor::cat(&[*x, *other], *axis)?;
                let from = |at| if places.contains(&at) { size + at } else { at };
                taken(&both, *axis, &(0..size).map(from).collect::<Vec<_>>())?
            }
            (Self::Block(block), _) => {
                let (fill, shape) = (number(block.fill, x)?, x.shape());
                let cells = block.cells.broadcast_as(shape)?;
                cells.where_cond(&fill.broadcast_as(shape)?, x)?
            }
            (Self::Shift { addend }, _) => x.affine(1.0, *addend)?,
            (Self::Instead, [other]) => other.contiguous()?.reshape(x.shape())?,
            (
                Self::Product
                | Self::AddTimes { .. }
                | Self::Turn(_)
                | Self::Only { .. }
                | Self::Instead,
                _,
            ) => return Err(Misread.into()),
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [x, others @ ..] = inputs else { return Err(Misread) };
        let sizes = |dims: &[Dim]| dims.iter().map(|(_, size)| *size).collect::<Vec<_>>();
        let size = |axis: &usize| x.get(*axis).map(|(_, size)| *size);
        let fits = match self {
            Self::Map(_)
            | Self::Clip { .. }
            | Self::Round(_)
            | Self::Weigh(_)
            | Self::Shift { .. } => others.is_empty(),
            Self::Norm(norm) => {
                norm.over.iter().all(|at| (1..=x.len()).contains(at))
                    && others.iter().all(|other| fits_last(x, other))
            }
            Self::Sum => others.iter().all(|other| fits_last(x, other) || fits_heads(x, other)),
            Self::Product | Self::AddTimes { .. } => {
                others.len() == 1
                    && others
                        .iter()
                        .all(|m| broadcasts(m, x) || fits_last(x, m) || fits_heads(x, m))
            }
            Self::Take { axis, places } => size(axis).is_some_and(|size| {
                places.len() == size && places.iter().all(|place| *place < size)
            }),
            Self::Zero { axis, .. } | Self::Slide { axis } | Self::Reduce { axis, .. } => {
                others.is_empty() && *axis < x.len()
            }
            Self::Sinusoid { .. } => others.is_empty() && x.len() == 3,
            Self::Turn(_) => {
                let pairs = others.first().and_then(|freqs| freqs.first()).map(|(_, pairs)| *pairs);
                x.len() == 4 && pairs.zip(size(&3)).is_some_and(|(pairs, d)| 2 * pairs <= d)
            }
            Self::Only { axis, places } => {
                others.len() == 1
                    && others.iter().all(|other| other == x)
                    && size(axis).is_some_and(|size| places.iter().all(|place| *place < size))
            }
            Self::Block(block) => {
                let cells = block.cells.dims();
                let mut pairs = cells.iter().rev().zip(x.iter().rev());
                others.is_empty()
                    && cells.len() <= x.len()
                    && pairs.all(|(own, (_, size))| own == size || *own == 1)
            }
            Self::Instead => others.len() == 1 && others.iter().all(|o| sizes(o) == sizes(x)),
        };
        if fits { Ok(x.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let all = names.join(", ");
        Ok(match self {
            Self::Map(map) => format!("{} of {all}", map.name()),
            Self::Clip { limit } => format!("{all} within ±{limit}"),
            Self::Norm(_) => format!("norm of {all}"),
            Self::Round(precision) => format!("{all} in {}", precision.name()),
            Self::Sum => names.join(" + "),
            Self::Product => names.join(" · "),
            Self::AddTimes { factor, .. } => names.join(&format!(" + {factor} · ")),
            Self::Zero { places, .. } => format!("{all}, 0 at {places:?}"),
            Self::Slide { .. } => format!("{all}, one place later"),
            Self::Reduce { is_mean: true, .. } => format!("mean of {all}"),
            Self::Reduce { is_mean: false, .. } => format!("sum of {all}"),
            Self::Sinusoid { .. } => format!("{all} + sinusoidal positions"),
            Self::Turn(_) => format!("{all}, turned"),
            Self::Weigh(_) => format!("weights of {all}"),
            Self::Take { places, .. } | Self::Only { places, .. } => {
                format!("{all} at {places:?}")
            }
            Self::Block(Block { fill, .. }) => format!("{fill} in some cells of {all}"),
            Self::Shift { addend } => format!("{all} + {addend}"),
            Self::Instead => names.last().copied().unwrap_or_default().to_owned(),
        })
    }

    /// None: only faulty code has such steps, and no run of it is explained cell by cell.
    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Narrowed {
        let Some(at) = part.position_in(inputs, whole) else { return Narrowed::Same };
        let from_last = whole.rank() - at;
        match self {
            Self::Take { axis, .. } | Self::Slide { axis } | Self::Reduce { axis, .. }
                if *axis == at =>
            {
                Narrowed::Mixed
            }
            Self::Zero { axis, places } if *axis == at => {
                Narrowed::To(Self::Zero { axis: *axis, places: part.left(places) }.into())
            }
            Self::Sinusoid { .. } if matches!(part, Part::Rows(_)) => Narrowed::Mixed,
            Self::Norm(norm) if norm.over.contains(&from_last) => Narrowed::Mixed,
            Self::Weigh(Weigh::Over(over)) if over.contains(&from_last) => Narrowed::Mixed,
            Self::Only { axis, places } if *axis == at => {
                Narrowed::To(Self::Only { axis: *axis, places: part.left(places) }.into())
            }
            Self::Turn(turn) => Narrowed::To(Self::Turn(turn.narrowed(part)).into()),
            Self::Block(block) => {
                // Its cells have the last axes of the scores.
                let own = (at + block.cells.rank()).checked_sub(whole.rank());
                match own.map(|own| part.of(&block.cells, own)) {
                    Some(Ok(cells)) => Narrowed::To(Self::Block(Block { cells, ..*block }).into()),
                    Some(Err(_)) => Narrowed::Mixed,
                    None => Narrowed::Same,
                }
            }
            Self::Map(_)
            | Self::Clip { .. }
            | Self::Norm(_)
            | Self::Round(_)
            | Self::Sum
            | Self::Product
            | Self::AddTimes { .. }
            | Self::Take { .. }
            | Self::Zero { .. }
            | Self::Slide { .. }
            | Self::Reduce { .. }
            | Self::Sinusoid { .. }
            | Self::Weigh(_)
            | Self::Only { .. }
            | Self::Shift { .. }
            | Self::Instead => Narrowed::Same,
        }
    }
}

/// Whether a tensor can be added to or multiplied with another, whose shape stays.
fn fits_last(x: &[Dim], other: &[Dim]) -> bool {
    let mut pairs = x.iter().rev().zip(other.iter().rev());
    other.len() <= x.len() && pairs.all(|((_, size), (_, own))| size == own || *own == 1)
}

/// Whether a vector has a number for every feature of every head.
fn fits_heads(x: &[Dim], other: &[Dim]) -> bool {
    match (x, other) {
        ([_, (_, heads), _, (_, head_dim)], [(_, all)]) => heads * head_dim == *all,
        _ => false,
    }
}

/// A vector of all heads' features as heads have them; all else as it is.
fn spread(x: &Tensor, other: &Tensor) -> candle_core::Result<Tensor> {
    match (x.dims(), other.dims()) {
        ([_, heads, _, head_dim], [all]) if all != head_dim && heads * head_dim == *all => {
            other.reshape((1, *heads, 1, *head_dim))
        }
        _ => Ok(other.clone()),
    }
}

pub(super) fn taken(x: &Tensor, axis: usize, places: &[usize]) -> candle_core::Result<Tensor> {
    let places: std::result::Result<Vec<u32>, _> =
        places.iter().map(|at| u32::try_from(*at)).collect();
    let places = Tensor::new(places.map_err(candle_core::Error::wrap)?, x.device())?;
    x.contiguous()?.index_select(&places, axis)
}
