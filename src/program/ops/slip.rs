//! What faulty code computes and right code never does. No run has these steps; edits put them in.

use candle_core::{D, Tensor};

use super::along::{Along, taken};
use super::functions::{Map, Norm, Weigh, sinusoid};
use super::linear::Linear;
use super::mask::broadcasts;
use super::pairing::Pairing;
use super::precision::Precision;
use super::rotate::Rotate;
use super::scaling::number;
use super::score_slips::{ScoreSlip, SinkSlip};
use super::stream::Stream;
use super::turn::Turn;
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation};
use crate::terms::{Term, Value};
use base::error::Result;

/// A computation that only faulty code makes. Each keeps the shape of what it reads first.
#[derive(Debug, Clone, PartialEq)]
pub enum Slip {
    /// A function of every number.
    Map(Map),
    /// Numbers beyond the limit become it, on one side.
    Bound {
        /// The limit.
        limit: f64,
        /// Whether it bounds them from above; else −limit does from below.
        above: bool,
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
    /// The places of an axis, counted from the first, change.
    Along(usize, Along),
    /// The weighted sum over blocks of keys, whose shape it has; of scores alone, the weights that it comes to.
    Stream(Stream),
    /// −|q − k|² of queries and keys, in place of their dot product.
    SquaredDistance,
    /// A rotation by positions from 0 on, with the usual frequencies of base 10000, where there should be none.
    Rope(Pairing),
    /// Every number rounded to so many bits between ± the largest, as symmetric quantisation does.
    Quantise {
        /// Bits of the whole numbers.
        bits: u32,
        /// Whether the largest is that of a row, and not of all numbers.
        is_by_row: bool,
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
    /// What else becomes of scores.
    Scores(ScoreSlip),
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

impl Slip {
    /// The type that numbers are rounded to.
    #[must_use]
    pub fn precision(&self) -> Option<Precision> {
        match self {
            Self::Round(precision) => Some(*precision),
            Self::Turn(turn) => turn.rounded.map(|(_, precision)| precision),
            _ => None,
        }
    }
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
            (Self::Bound { limit, above: true }, _) => x.minimum(*limit)?,
            (Self::Bound { limit, above: false }, _) => x.maximum(-*limit)?,
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
            (Self::Along(axis, along), _) => along.value(x, *axis)?,
            (Self::Stream(stream), []) => stream.weights(x)?,
            (Self::Stream(stream), [values]) => stream.value(x, values)?,
            (Self::SquaredDistance, [keys]) => squared_distance(x, keys)?,
            (Self::Rope(pairing), _) => {
                let (pairing, places, is_backwards) = (*pairing, None, false);
                let (first, factor, is_at_end) = (0, 1.0, false);
                let rotate = Rotate { pairing, first, places, factor, is_backwards, is_at_end };
                rotate.turn().value(x, &usual_frequencies(x)?)?
            }
            (Self::Quantise { bits, is_by_row }, _) => quantised(x, *bits, *is_by_row)?,
            (Self::Sinusoid { is_in_halves }, _) => {
                x.broadcast_add(&sinusoid(x, *is_in_halves)?)?
            }
            (Self::Turn(turn), [freqs]) => turn.value(x, freqs)?,
            (Self::Weigh(weigh), _) => weigh.value(x)?,
            (Self::Scores(slip), _) => slip.value(x, others)?,
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
                | Self::Stream(_)
                | Self::SquaredDistance
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
            | Self::Bound { .. }
            | Self::Round(_)
            | Self::Weigh(_)
            | Self::Quantise { .. }
            | Self::Shift { .. } => others.is_empty(),
            Self::Norm(norm) => {
                norm.over.iter().all(|at| (1..=x.len()).contains(at))
                    && others.iter().all(|other| fits_last(x, other) || is_of_heads(x, other))
            }
            Self::Sum => others.iter().all(|other| fits_last(x, other) || fits_heads(x, other)),
            Self::Product | Self::AddTimes { .. } => {
                others.len() == 1
                    && others
                        .iter()
                        .all(|m| broadcasts(m, x) || fits_last(x, m) || fits_heads(x, m))
            }
            Self::Along(axis, along) => others.is_empty() && along.fits(x, *axis),
            Self::Scores(slip) => slip.fits(x, others),
            Self::Stream(_) if others.is_empty() => x.len() == 4,
            Self::Stream(_) => return Linear::WeightedSum.axes(inputs),
            Self::SquaredDistance => return Linear::DotProduct.axes(inputs),
            Self::Rope(_) => x.len() == 4 && size(&3).is_some_and(|d| d > 1 && d % 2 == 0),
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
            Self::Bound { limit, above: true } => format!("min({all}, {limit})"),
            Self::Bound { limit, .. } => format!("max({all}, −{limit})"),
            Self::Norm(_) => format!("norm of {all}"),
            Self::Round(precision) => format!("{all} in {}", precision.name()),
            Self::Sum => names.join(" + "),
            Self::Product => names.join(" · "),
            Self::AddTimes { factor, .. } => names.join(&format!(" + {factor} · ")),
            Self::Along(_, along) => along.formula(&all),
            Self::Stream(Stream { block, .. }) => format!("{all} in blocks of {block} keys"),
            Self::SquaredDistance => format!("−|{}|²", names.join(" − ")),
            Self::Rope(_) => format!("{all}, turned by positions"),
            Self::Quantise { bits, .. } => format!("{all} in {bits} bits"),
            Self::Sinusoid { .. } => format!("{all} + sinusoidal positions"),
            Self::Turn(_) => format!("{all}, turned"),
            Self::Weigh(_) => format!("weights of {all}"),
            Self::Scores(slip) => slip.formula(names.first().copied().unwrap_or_default()),
            Self::Only { places, .. } => format!("{all} at {places:?}"),
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
            Self::Along(axis, along) if *axis == at => match along.narrowed(part) {
                Some(along) => Narrowed::To(Self::Along(*axis, along).into()),
                None => Narrowed::Mixed,
            },
            Self::Quantise { is_by_row, .. } if !is_by_row || from_last == 1 => Narrowed::Mixed,
            Self::Sinusoid { .. } | Self::Rope(_) if matches!(part, Part::Rows(_)) => {
                Narrowed::Mixed
            }
            Self::Norm(norm) if norm.over.contains(&from_last) => Narrowed::Mixed,
            Self::Weigh(Weigh::Over(over)) if over.contains(&from_last) => Narrowed::Mixed,
            Self::Only { axis, places } if *axis == at => {
                Narrowed::To(Self::Only { axis: *axis, places: part.left(places) }.into())
            }
            Self::Turn(turn) => Narrowed::To(Self::Turn(turn.narrowed(part)).into()),
            Self::Scores(slip) => match (slip, part) {
                (ScoreSlip::Alibi { first }, Part::Rows(rows)) => {
                    let first = first + rows.first;
                    Narrowed::To(Self::Scores(ScoreSlip::Alibi { first }).into())
                }
                (ScoreSlip::Sinks(SinkSlip::OverQueries) | ScoreSlip::Identity, Part::Rows(_)) => {
                    Narrowed::Mixed
                }
                _ => Narrowed::Same,
            },
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
            | Self::Bound { .. }
            | Self::Norm(_)
            | Self::Round(_)
            | Self::Sum
            | Self::Product
            | Self::AddTimes { .. }
            | Self::Along(..)
            | Self::Stream(_)
            | Self::SquaredDistance
            | Self::Rope(_)
            | Self::Quantise { .. }
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

/// Whether a parameter has a number for every feature of every head, on axes of their own.
fn is_of_heads(x: &[Dim], other: &[Dim]) -> bool {
    match (x, other) {
        ([_, heads, _, head_dim], [own, of_each]) => heads == own && head_dim == of_each,
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

/// −|q − k|² for every query and key of (batch, head, token, feature).
fn squared_distance(queries: &Tensor, keys: &Tensor) -> candle_core::Result<Tensor> {
    let products = (queries.matmul(&keys.t()?.contiguous()?)? * 2.0)?;
    let own = queries.sqr()?.sum_keepdim(D::Minus1)?;
    let others = keys.sqr()?.sum_keepdim(D::Minus1)?.transpose(2, 3)?;
    products.broadcast_sub(&own)?.broadcast_sub(&others)
}

/// 10000^(−2i / d) for every pair i of the d features ("`RoFormer`", Su et al., 2021, section 3.2.2).
#[allow(clippy::cast_precision_loss, reason = "features of a head are few")]
fn usual_frequencies(heads: &Tensor) -> candle_core::Result<Tensor> {
    let features = heads.dim(D::Minus1)?;
    let frequency = |pair: usize| 10_000_f64.powf(-2.0 * pair as f64 / features as f64);
    let all: Vec<f32> = (0..features / 2)
        .map(|pair| {
            #[allow(clippy::cast_possible_truncation, reason = "models have them in f32")]
            let narrow = frequency(pair) as f32;
            narrow
        })
        .collect();
    Tensor::new(all, heads.device())
}

/// Numbers in so many bits, by the largest of a row or of all.
fn quantised(x: &Tensor, bits: u32, is_by_row: bool) -> candle_core::Result<Tensor> {
    let size = x.abs()?;
    let largest = if is_by_row { size.max_keepdim(D::Minus1)? } else { size.max_all()? };
    let most = f64::from((1_u32 << (bits - 1)) - 1);
    let step = (largest / most)?.broadcast_as(x.shape())?;
    let whole = x.div(&step)?.round()?.mul(&step)?;
    // A row of zeros stays one.
    step.eq(0.0)?.where_cond(x, &whole)
}
