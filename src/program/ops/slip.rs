//! What faulty code computes and right code never does. No run has these steps; edits put them in.

use candle_core::{D, DType, Tensor};

use super::along::{Along, taken};
use super::few_bits::EightBits;
use super::fragments::Fragment;
use super::frequencies::Frequencies;
use super::functions::{Map, PowerOfTwo, Weigh, sinusoid};
use super::gradient_slips::GradientSlip;
use super::heads::Heads;
use super::linear::Linear;
use super::mask::filled;
use super::pages::{self, SharedCache, TurnedPages};
use super::pairing::Pairing;
use super::precision::Precision;
use super::rotate::Rotate;
use super::rounded_weights::{RoundedWeights, quantised};
use super::score_slips::{ScoreSlip, squared_distance};
use super::stale::Stale;
use super::starts::{Starts, beyond, elsewhere};
use super::stream::{Stream, StreamSlip};
use super::strides::Strides;
use super::turn::Turn;
use super::weights::{Weighting, weighed};
use crate::adjoint::Adjoint;
use crate::axis::{Axes, Dim, stretches};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
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
    /// Every number rounded to a type with fewer bits.
    Round(Precision),
    /// Every number becomes a power of two.
    ToPower(PowerOfTwo),
    /// Bytes of the first type of 8 bits that are read as those of the second.
    ReadAs(EightBits, EightBits),
    /// Numbers of the first type of 16 bits whose bits are read as those of the second.
    ReadBits(Precision, Precision),
    /// The first input, so many times each other, and a number.
    Add {
        /// What the others are multiplied by.
        factor: f64,
        /// What is added to all.
        addend: f64,
    },
    /// The first input times the second.
    Product,
    /// The places of an axis, counted from the first, change.
    Along(usize, Along),
    /// The weighted sum over blocks of keys, whose shape it has; of scores alone, the weights that it comes to.
    Stream(Stream),
    /// The log-sum-exp that such a pass keeps, of scores.
    StreamLse(Stream),
    /// −|q − k|² of queries and keys, in place of their dot product.
    SquaredDistance,
    /// A rotation of all features by positions from 0 on, with the usual frequencies of this base, where there should be none:
    /// of heads, or of (batch, token, feature).
    Rope {
        /// Which features are pairs.
        pairing: Pairing,
        /// The base of the frequencies.
        base: f64,
    },
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
    /// exp(s − lse): weights that are computed anew. Reads scores, and the log-sum-exp of their rows.
    Anew {
        /// What the exponent is multiplied by: 1, or ln 2 for base 2.
        factor: f64,
    },
    /// What stands in a cache at these slots, in place of those of the keys.
    Slots {
        /// The slot of each key.
        read: Vec<usize>,
        /// In which other order the axes of its pages are read, if they are.
        turned: Option<TurnedPages>,
    },
    /// Each number is the one at this place of memory; one behind the last is 0.
    Elsewhere(Vec<usize>),
    /// Heads of keys that stand anywhere in a cache.
    Starts(Starts),
    /// Pages of keys or values out of the cache that both share. Reads the pages of keys, and of values.
    OfBoth(SharedCache),
    /// Tokens of heads, (batch, head, token, feature), with so many more behind them: those that stand there in memory, and
    /// zeros behind the last.
    Beyond {
        /// How many more.
        count: usize,
        /// Whether they are the first of the next item, in memory as (batch, token, head), and not of the next head.
        is_by_token: bool,
    },
    /// Rows of heads as they are read by these strides.
    Strided(Strides),
    /// Rows and columns that are read in another layout of a tile.
    Fragment(Fragment),
    /// Weights in few bits.
    RoundedWeights(RoundedWeights),
    /// The products of queries and keys that are read so.
    OfStrided([Strides; 2]),
    /// Numbers that move, at these places of an axis alone.
    InPart {
        /// The axis, counted from the first.
        axis: usize,
        /// The places.
        places: Vec<usize>,
        /// How they move.
        moved: Heads,
    },
    /// What else becomes of scores.
    Scores(ScoreSlip),
    /// A derivative that is wrong.
    Gradient(GradientSlip),
    /// The second input at these places of an axis, and the first elsewhere.
    Only {
        /// The axis, counted from the first.
        axis: usize,
        /// The places.
        places: Vec<usize>,
    },
    /// The second input in these cells, and the first elsewhere.
    Within(Block),
    /// Scores of which these cells become a number.
    Block(Block),
    /// The first input less the mean of the rows of the second.
    LessMean,
    /// Scores of which these cells are multiplied by a number.
    Times(Block),
    /// Scores times these cells.
    Rescaled(Block),
    /// Scores plus these cells, the logarithms of how often each key counts.
    Counted(Block),
    /// What is not cleared for the next tile of queries.
    Stale(Stale),
}

impl Slip {
    /// All inputs added up.
    pub const SUM: Self = Self::Add { factor: 1.0, addend: 0.0 };

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
        Ok(match self {
            Self::Map(map) => map.value(x)?,
            Self::Bound { limit, above: true } => x.minimum(*limit)?,
            Self::Bound { limit, above: false } => x.maximum(-*limit)?,
            Self::Round(precision) => precision.round(x)?,
            Self::ToPower(power) => power.value(x)?,
            Self::ReadAs(own, other) => own.read_as(*other, x)?,
            Self::ReadBits(own, other) => own.read_as(*other, x)?,
            Self::Add { addend, .. } if others.is_empty() => x.affine(1.0, *addend)?,
            Self::Add { factor, addend } => {
                others.iter().try_fold((*x).clone(), |sum, other| {
                    let other = other.to_dtype(x.dtype())?.affine(*factor, *addend)?;
                    sum.broadcast_add(&spread(x, &other)?)
                })?
            }
            Self::Product => {
                let [other] = read(others)?;
                x.broadcast_mul(&spread(x, &other.to_dtype(x.dtype())?)?)?
            }
            Self::Along(axis, along) => along.value(x, *axis)?,
            Self::Stream(stream) => match others {
                [values] => stream.value(x, values)?,
                _ => stream.weights(x)?,
            },
            Self::StreamLse(stream) => stream.lse(x)?,
            Self::SquaredDistance => squared_distance(x, read::<1, _>(others)?[0])?,
            Self::Rope { pairing, base } => {
                let (first, places, factor) = (0, None, 1.0);
                let (pairing, is_backwards, is_at_end) = (*pairing, false, false);
                let rotate = Rotate { pairing, first, places, factor, is_backwards, is_at_end };
                let heads = if x.rank() == 3 { x.unsqueeze(1)? } else { (*x).clone() };
                let turned = Turn::of(rotate).value(&heads, &usual_frequencies(x, *base)?)?;
                turned.reshape(x.shape())?
            }
            Self::Quantise { bits, is_by_row } => quantised(x, *bits, *is_by_row)?,
            Self::Sinusoid { is_in_halves } => x.broadcast_add(&sinusoid(x, *is_in_halves)?)?,
            Self::Turn(turn) => turn.value(x, read::<1, _>(others)?[0])?,
            Self::Weigh(weigh) => weighed(weigh, x, others)?,
            Self::LessMean => {
                let [rows] = read(others)?;
                x.sub(&rows.mean(D::Minus1)?)?
            }
            Self::Anew { factor } => {
                let [lse] = read(others)?;
                (x.broadcast_sub(&lse.unsqueeze(D::Minus1)?)? * *factor)?.exp()?
            }
            Self::OfBoth(cache) => {
                let [values] = read(others)?;
                cache.value(x, values)?
            }
            Self::Beyond { count, is_by_token } => beyond(x, *count, *is_by_token)?,
            Self::Slots { read, turned: None } => taken(x, 2, read)?,
            Self::Slots { read, turned: Some(turned) } => taken(&turned.value(x)?, 2, read)?,
            Self::Starts(starts) => starts.value(x)?,
            Self::Elsewhere(places) => elsewhere(x, places)?,
            Self::Scores(slip) => slip.value(x, others)?,
            Self::Gradient(slip) => slip.value(inputs)?,
            Self::Strided(strides) => strides.value(x)?,
            Self::Fragment(fragment) => fragment.value(x)?,
            Self::RoundedWeights(own) => own.value(x)?,
            Self::OfStrided([queries, keys]) => {
                let [other] = read(others)?;
                queries.value(x)?.matmul(&keys.value(other)?.t()?.contiguous()?)?
            }
            Self::InPart { axis, places, moved } => only(x, &moved.value(inputs)?, *axis, places)?,
            Self::Only { axis, places } => only(x, read::<1, _>(others)?[0], *axis, places)?,
            Self::Within(block) => {
                let [other] = read(others)?;
                block.cells.broadcast_as(x.shape())?.where_cond(other, x)?
            }
            Self::Block(block) => filled(x, &block.cells, block.fill)?,
            Self::Times(block) => {
                block.cells.broadcast_as(x.shape())?.where_cond(&(*x * block.fill)?, x)?
            }
            Self::Rescaled(block) => x.broadcast_mul(&block.cells.to_dtype(x.dtype())?)?,
            Self::Counted(block) => x.broadcast_add(&block.cells.to_dtype(x.dtype())?)?,
            Self::Stale(stale) => stale.value(x, others)?,
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [x, others @ ..] = inputs else { return Err(Misread) };
        let size = |axis: &usize| x.get(*axis).map(|(_, size)| *size);
        let are_spread = || others.iter().all(|other| stretches(other, x) || fits_heads(x, other));
        let fits = match self {
            Self::Bound { .. }
            | Self::Round(_)
            | Self::ToPower(_)
            | Self::ReadAs(..)
            | Self::ReadBits(..)
            | Self::RoundedWeights(_)
            | Self::Quantise { .. } => others.is_empty(),
            // They read what comes first alone.
            Self::Map(_) | Self::Weigh(_) => true,
            Self::Add { .. } => are_spread(),
            Self::Product => others.len() == 1 && are_spread(),
            Self::Along(axis, along) => others.is_empty() && along.fits(x, *axis),
            Self::OfBoth(cache) => others == [*x] && cache.fits(x),
            Self::LessMean => matches!(others, [[rows @ .., _]] if rows == *x),
            Self::Anew { .. } => matches!((x, others), ([rows @ .., _], [lse]) if rows == *lse),
            Self::Beyond { count, .. } => {
                let &[b, h, (axis, tokens), d] = *x else { return Err(Misread) };
                return Ok(vec![b, h, (axis, tokens + count.min(&tokens)), d]);
            }
            Self::Slots { read, .. } => return pages::axes(x, read.len()),
            Self::Starts(starts) => {
                let &[(_, items), (_, heads), ..] = *x else { return Err(Misread) };
                let axes = pages::axes(x, starts.keys)?;
                return if starts.fits(items, heads) { Ok(axes) } else { Err(Misread) };
            }
            Self::Strided(strides) => return strides.axes(x),
            Self::Fragment(fragment) => others.is_empty() && fragment.fits(x),
            Self::InPart { axis, places, moved } => {
                moved.axes(inputs)? == *x
                    && size(axis).is_some_and(|size| places.iter().all(|place| *place < size))
            }
            Self::Elsewhere(places) => {
                let count = x.iter().map(|(_, size)| size).product::<usize>();
                others.is_empty() && places.len() == count && places.iter().all(|at| *at <= count)
            }
            Self::Scores(slip) => slip.fits(x, others),
            Self::Gradient(slip) => slip.fits(x, others),
            Self::Stale(stale) => stale.fits(x, others),
            Self::Stream(_) if others.is_empty() => x.len() == 4,
            Self::Stream(_) => return Linear::WeightedSum.axes(inputs),
            Self::StreamLse(_) => return Weighting::LogSumExp.axes(inputs),
            Self::SquaredDistance | Self::OfStrided(_) => return Linear::DotProduct.axes(inputs),
            Self::Rope { .. } => {
                let width = x.last().filter(|_| matches!(x.len(), 3 | 4));
                width.is_some_and(|(_, d)| *d > 1 && d % 2 == 0)
            }
            Self::Sinusoid { .. } => others.is_empty() && x.len() == 3,
            Self::Turn(_) => {
                let pairs = others.first().and_then(|freqs| freqs.first()).map(|(_, pairs)| *pairs);
                x.len() == 4 && pairs.zip(size(&3)).is_some_and(|(pairs, d)| 2 * pairs <= d)
            }
            Self::Only { axis, places } => {
                others == [*x]
                    && size(axis).is_some_and(|size| places.iter().all(|place| *place < size))
            }
            Self::Block(block)
            | Self::Times(block)
            | Self::Rescaled(block)
            | Self::Counted(block)
            | Self::Within(block) => {
                let cells = block.cells.dims();
                let mut pairs = cells.iter().rev().zip(x.iter().rev());
                let is_within = matches!(self, Self::Within(_));
                (if is_within { others == [*x] } else { others.is_empty() })
                    && cells.len() <= x.len()
                    && pairs.all(|(own, (_, size))| own == size || *own == 1)
            }
        };
        if fits { Ok(x.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        match (self, names) {
            (Self::Map(map), [x, ..]) => Ok(format!("{}({x})", map.name())),
            _ => Err(Misread),
        }
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Option<Self> {
        // Rows begin with what others left, and heads perhaps with what those of other items did.
        if let Self::Stale(stale) = self {
            let is_whole = matches!(part, Part::Rows(_) | Part::First(_)) || stale.is_across;
            return (!is_whole).then(|| self.clone());
        }
        if let (Self::Slots { read, turned }, Part::Keys(count)) = (self, part) {
            let read = read.iter().copied().take(count).collect();
            return Some(Self::Slots { read, turned: *turned });
        }
        if let Self::Starts(starts) = self {
            return Some(Self::Starts(starts.narrowed(part)));
        }
        // The mean is one of all keys.
        if matches!((self, part), (Self::LessMean | Self::Weigh(Weigh::LessMean), Part::Keys(_))) {
            return None;
        }
        let Some(at) = part.position_in(inputs, whole) else { return Some(self.clone()) };
        let from_last = whole.rank() - at;
        match self {
            Self::Along(axis, along) if *axis == at => {
                along.narrowed(part).map(|along| Self::Along(*axis, along))
            }
            Self::Quantise { is_by_row, .. } if !is_by_row || from_last == 1 => None,
            Self::Sinusoid { .. } | Self::Rope { .. } if matches!(part, Part::Rows(_)) => None,
            // The rows of a tile have each other's factors.
            Self::Stream(Stream { slip: StreamSlip::AlongFeatures, .. }) | Self::Gradient(_) => {
                None
            }
            Self::Weigh(Weigh::Over(over)) if over.contains(&from_last) => None,
            Self::Weigh(Weigh::Zeros(_)) if at == 2 => None,
            // One of its axes decides about the other.
            Self::Along(axis, Along::Within { axis: other, .. }) if at == *axis || at == *other => {
                None
            }
            Self::Beyond { .. } | Self::Strided(_) if at < 3 => None,
            Self::Fragment(own) if from_last == 2 => own.narrowed(part).map(Self::Fragment),
            // The mean and the largest weight of a row are those of all keys.
            Self::Weigh(Weigh::LessMean) | Self::RoundedWeights(_) | Self::Fragment(_)
                if from_last == 1 =>
            {
                None
            }
            Self::InPart { .. } | Self::OfStrided(_) | Self::Elsewhere(_) => None,
            Self::Only { axis, places } if *axis == at => {
                Some(Self::Only { axis: *axis, places: part.left(places) })
            }
            Self::Turn(turn) => Some(Self::Turn(turn.narrowed(part))),
            Self::Scores(slip) => slip.narrowed(part).map(Self::Scores),
            Self::Block(block)
            | Self::Times(block)
            | Self::Rescaled(block)
            | Self::Counted(block)
            | Self::Within(block) => {
                // Its cells have the last axes of the scores.
                let own = (at + block.cells.rank()).checked_sub(whole.rank());
                let cells = own.map_or(Ok(block.cells.clone()), |own| part.of(&block.cells, own));
                let block = Block { cells: cells.ok()?, ..*block };
                Some(match self {
                    Self::Counted(_) => Self::Counted(block),
                    Self::Times(_) => Self::Times(block),
                    Self::Rescaled(_) => Self::Rescaled(block),
                    Self::Within(_) => Self::Within(block),
                    _ => Self::Block(block),
                })
            }
            Self::Map(_)
            | Self::Bound { .. }
            | Self::Round(_)
            | Self::ToPower(_)
            | Self::ReadAs(..)
            | Self::ReadBits(..)
            | Self::Add { .. }
            | Self::Product
            | Self::Along(..)
            | Self::Stream(_)
            | Self::StreamLse(_)
            | Self::SquaredDistance
            | Self::Rope { .. }
            | Self::Quantise { .. }
            | Self::Sinusoid { .. }
            | Self::Weigh(_)
            | Self::Anew { .. }
            | Self::LessMean
            | Self::Slots { .. }
            | Self::Starts(_)
            | Self::OfBoth(_)
            | Self::Beyond { .. }
            | Self::Strided(_)
            | Self::Fragment(_)
            | Self::RoundedWeights(_)
            | Self::Stale(_)
            | Self::Only { .. } => Some(self.clone()),
        }
    }
}

/// The second at these places of an axis, and the first elsewhere.
fn only(x: &Tensor, other: &Tensor, axis: usize, places: &[usize]) -> candle_core::Result<Tensor> {
    let size = x.dim(axis)?;
    let both = Tensor::cat(&[x, other], axis)?;
    let from = |at| if places.contains(&at) { size + at } else { at };
    taken(&both, axis, &(0..size).map(from).collect::<Vec<_>>())
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

/// Those of all features of the last axis.
fn usual_frequencies(heads: &Tensor, base: f64) -> Result<Tensor> {
    let (dims, scaling) = (heads.dim(D::Minus1)?, None);
    let usual = Frequencies { dims, base, scaling, positions: 0, dtype: DType::F32 };
    Ok(Tensor::new(usual.numbers()?, heads.device())?)
}
