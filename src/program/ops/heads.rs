//! Numbers that move: features split into heads, heads shared, a cache put before them, heads side by side.

use candle_core::Tensor;

use super::collect::Collect;
use super::gradient::Gradient;
use super::pages;
use crate::adjoint::{Adjoint, dims};
use crate::axis::Axis::{Batch, Head, HeadDim, Key, Model};
use crate::axis::{Axes, Dim};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::{Pattern, Place, Read};
use crate::terms::{Term, Value};
use crate::working::{Move, Working};
use base::error::Result;

/// Numbers that move to other places.
#[derive(Debug, Clone, PartialEq)]
pub enum Heads {
    /// (batch, token, model) to (batch, head, token, `head_dim`): head h is features `h·d_k` … `(h+1)·d_k − 1`.
    Split {
        /// The number of heads.
        heads: usize,
    },
    /// Every head so many times, one after the other: 0 0 1 1 ("GQA", Ainslie et al., 2023).
    Repeat {
        /// How many query heads share a key head.
        times: usize,
        /// Whether all heads are repeated together, 0 1 0 1, as they should not be.
        is_tiled: bool,
    },
    /// The keys or values of a cache, and behind them the run's own.
    Append,
    /// The features of every head, and behind them those of the one head that all share ("DeepSeek-V2", 2024, equation 17).
    Join,
    /// The features of every head, and behind them the last ones of the same head of another: the turned features of queries
    /// behind those that are taken to the latent.
    Extend {
        /// How many of the other's features.
        features: usize,
    },
    /// (batch, head, query, `head_dim`) to (batch, query, model): the heads side by side.
    Merge,
    /// (batch, head, query, `head_dim`) to (batch, query, model): the heads added up, and the sum repeated to their width,
    /// as it should not be.
    Sum,
    /// What stands in the slots of a cache that are the keys', one after the other.
    Gather,
    /// What its first input holds, as it is.
    HandOn,
    /// The same numbers in another order.
    Rearrange(Rearrange),
}

/// The numbers of the inputs, below each other along their first axis where there are several, viewed as another shape,
/// with its axes in another order, and viewed as the shape of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Rearrange {
    /// The ranges of the first axis that are taken, in this order: from where on, and how many. None means all of it.
    pub blocks: Vec<(usize, usize)>,
    /// The shape that the numbers are viewed as.
    pub view: Vec<usize>,
    /// The order of that shape's axes.
    pub order: Vec<usize>,
    /// The axes of the result.
    pub result: Vec<Dim>,
}

impl Operation for Heads {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, ..] = inputs else { return Err(Misread.into()) };
        Ok(match self {
            Self::Split { heads } => {
                let (batch, tokens, model) = first.dims3()?;
                let split = first.reshape((batch, tokens, *heads, model / heads))?;
                split.transpose(1, 2)?.contiguous()?
            }
            Self::Repeat { times, is_tiled: true } => Tensor::cat(&vec![first; *times], 1)?,
            Self::Repeat { times, is_tiled: false } => {
                let (batch, count, tokens, head_dim) = first.dims4()?;
                let shape = (batch, count, *times, tokens, head_dim);
                first.unsqueeze(2)?.broadcast_as(shape)?.contiguous()?.flatten(1, 2)?
            }
            Self::Append => Tensor::cat(&read::<2, _>(inputs)?, 2)?,
            Self::Join => {
                let [own, shared] = read(inputs)?;
                let (batch, heads, tokens, _) = own.dims4()?;
                let shared = shared.broadcast_as((batch, heads, tokens, shared.dim(3)?))?;
                Tensor::cat(&[own, &shared.contiguous()?], 3)?
            }
            Self::Extend { features } => {
                let [own, other] = read(inputs)?;
                let from = other.dim(3)?.checked_sub(*features).ok_or(Misread)?;
                Tensor::cat(&[own, &other.narrow(3, from, *features)?.contiguous()?], 3)?
            }
            Self::Merge => first.transpose(1, 2)?.contiguous()?.flatten_from(2)?,
            Self::Sum => Tensor::cat(&vec![first.sum(1)?; first.dim(1)?], 2)?,
            Self::Gather => pages::gathered(inputs)?,
            Self::HandOn => (*first).clone(),
            Self::Rearrange(rearrange) => rearrange.value(inputs)?,
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        Ok(match (self, inputs) {
            (Self::Split { heads }, [[b, t, (Model, d)]]) if *heads > 0 && d % heads == 0 => {
                vec![*b, (Head, *heads), *t, (HeadDim, d / heads)]
            }
            (Self::Repeat { times, .. }, [[b, (Head, h), t, d]]) => {
                vec![*b, (Head, h.saturating_mul(*times)), *t, *d]
            }
            (Self::Append, [[b, h, (Key, past), d], [o_b, o_h, (Key, own), o_d]])
                if (b, h, d) == (o_b, o_h, o_d) =>
            {
                vec![*b, *h, (Key, past.saturating_add(*own)), *d]
            }
            (
                Self::Join,
                [[b, h @ (Head, _), t, (HeadDim, own)], [s_b, (Head, 1), s_t, (HeadDim, shared)]],
            ) if (b, t) == (s_b, s_t) => vec![*b, *h, *t, (HeadDim, own.saturating_add(*shared))],
            (
                Self::Extend { features },
                [[b, h, t, (HeadDim, own)], [o_b, o_h, o_t, (_, other)]],
            ) if (b, h, t) == (o_b, o_h, o_t) && features <= other => {
                vec![*b, *h, *t, (HeadDim, own.saturating_add(*features))]
            }
            (Self::Merge | Self::Sum, [[b @ (Batch, _), (Head, h), q, (HeadDim, d)]]) => {
                vec![*b, *q, (Model, h.saturating_mul(*d))]
            }
            (Self::Gather, [cache, [(Key, keys)]]) => pages::axes(cache, *keys)?,
            (Self::HandOn, [first, ..]) => first.to_vec(),
            (Self::Rearrange(rearrange), _) => rearrange.axes(inputs)?,
            (
                Self::Split { .. }
                | Self::Repeat { .. }
                | Self::Append
                | Self::Join
                | Self::Extend { .. }
                | Self::Merge
                | Self::Sum
                | Self::Gather
                | Self::HandOn,
                _,
            ) => {
                return Err(Misread);
            }
        })
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, ..] = names else { return Err(Misread) };
        Ok(match self {
            Self::Split { heads: 1 } => tr!("{first} as one head", first),
            Self::Split { heads } => tr!("{first} split into {heads} heads", first, heads),
            Self::Repeat { times, .. } => tr!("{times} times every head of {first}", first, times),
            Self::Append => names.join(", then "),
            Self::Join => {
                let [own, shared] = read(names)?;
                tr!("{one}, and behind it {other}, in every head", one = own, other = shared)
            }
            Self::Extend { features } => {
                let [own, other] = read(names)?;
                tr!(
                    "{own}, and behind it the last {features} features of {other}",
                    own,
                    features,
                    other
                )
            }
            Self::Merge => tr!("{first} side by side", first),
            Self::Gather => {
                let [cache, slots] = read(names)?;
                tr!("{cache} at {slots}", cache, slots)
            }
            Self::HandOn | Self::Sum | Self::Rearrange(_) => return Err(Misread),
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let size = |input: usize, axis: usize| {
            inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
        };
        let [batch, second, third, fourth] = [0, 1, 2, 3].map(Place::on);
        match self {
            Self::Split { heads } => {
                let head_dim = size(0, 2) / heads;
                let feature = Place::listed(1, (0..*heads).map(|head| head * head_dim));
                Pattern::moved(Read::of(0, [batch, third, feature.and(fourth)]))
            }
            Self::Repeat { times, is_tiled } => {
                let heads = size(0, 1);
                let head = |at| if *is_tiled { at % heads } else { at / times };
                let head = Place::listed(1, (0..heads * times).map(head));
                Pattern::moved(Read::of(0, [batch, head, third, fourth]))
            }
            Self::Append => {
                let past = size(0, 2);
                let own = Read::of(1, [batch, second, third.back(past), fourth]);
                Pattern::behind(inputs, (2, size(1, 2)), own)
            }
            Self::Join => {
                let shared = [batch, Place::fixed(), third, fourth.back(size(0, 3))];
                Pattern::behind(inputs, (3, size(1, 3)), Read::of(1, shared))
            }
            Self::Extend { features } => {
                let (own, other) = (size(0, 3), size(1, 3));
                let from = fourth.back(own).moved(other.saturating_sub(*features));
                let other = Read::of(1, [batch, second, third, from]);
                Pattern::behind(inputs, (3, *features), other)
            }
            Self::Merge => {
                let (heads, head_dim) = (size(0, 1), size(0, 3));
                let of = |part: fn(usize, usize) -> usize| {
                    Place::listed(2, (0..heads * head_dim).map(|at| part(at, head_dim)))
                };
                Pattern::moved(Read::of(
                    0,
                    [batch, of(|at, of| at / of), second, of(|at, of| at % of)],
                ))
            }
            Self::HandOn => {
                inputs.first().map_or(Pattern::ByCell, |axes| Pattern::moved(Read::same(0, axes)))
            }
            // What only faulty code does, and what follows no rule.
            Self::Gather | Self::Sum | Self::Rearrange(_) => Pattern::ByCell,
        }
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        if *self == Self::Gather { pages::terms(inputs, cell) } else { Ok(Vec::new()) }
    }

    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
        let Some(own) = inputs.get(input) else { return Adjoint::Nothing };
        let first = inputs.first().map(|axes| axes.shape()).unwrap_or_default();
        let size = |at: usize| first.get(at).copied().unwrap_or_default();
        let collect = |slice, view: Vec<Dim>, over: usize| {
            let (over, axes) = (vec![over], own.iter().collect());
            Adjoint::on_gradient(Collect { slice, view, over, axes })
        };
        match (self, input) {
            (Self::Split { .. }, _) => Adjoint::on_gradient(Self::Merge),
            (Self::Merge, _) => Adjoint::on_gradient(Self::Split { heads: size(1) }),
            (Self::Repeat { times, is_tiled }, _) => {
                let over = if *is_tiled { 1 } else { 2 };
                let mut view = dims(inputs, 0);
                view.insert(over.min(view.len()), (Head, *times));
                collect(None, view, over)
            }
            (Self::Append, 0) => Collect::of_slice(value, (2, 0), own),
            (Self::Append, _) => Collect::of_slice(value, (2, size(2)), own),
            (Self::Join | Self::Extend { .. }, 0) => Collect::of_slice(value, (3, 0), own),
            (Self::Join, _) => {
                let mut view = dims(inputs, 1);
                view.splice(1..2, [(Head, size(1))]);
                collect(Some((3, size(3))), view, 1)
            }
            (Self::HandOn, 0) => Adjoint::on_gradient(Self::HandOn),
            (Self::HandOn, _) => Adjoint::Nothing,
            (Self::Extend { features }, _) => {
                let before = own.shape().last().map_or(0, |all| all.saturating_sub(*features));
                let axes = dims(inputs, 1);
                Adjoint::on_gradient(Gradient::Back { from: size(3), before, axes })
            }
            (Self::Rearrange(made), 0) if made.blocks.is_empty() && inputs.len() == 1 => {
                Adjoint::on_gradient(Self::Rearrange(made.back(own)))
            }
            (Self::Gather | Self::Sum | Self::Rearrange(_), _) => Adjoint::Unknown,
        }
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Option<Self> {
        let Self::Rearrange(own) = self else { return Some(self.clone()) };
        if let Part::First(_) = part {
            return None;
        }
        let read = inputs.first()?;
        let is_there = read.iter().any(|(axis, _)| axis == part.axis());
        match part.position_in(inputs, whole) {
            Some(at) => own.narrowed(part, at, read).map(Self::Rearrange),
            // What is read has another axis in the place of the part's.
            None if part.position(whole).is_some() && !is_there => None,
            None => Some(self.clone()),
        }
    }
}

impl Heads {
    /// The moves by which code makes the value of its input, one after the other, and the axes after each; nothing where it
    /// does more than to move numbers, or moves them at once.
    pub fn moves(&self, input: &Axes) -> Vec<(Move, Axes)> {
        let dims: Vec<Dim> = input.iter().collect();
        match (self, dims.as_slice()) {
            (Self::Split { heads }, [b, t, (Model, d)]) if *heads > 0 => {
                let (head, own) = ((Head, *heads), (HeadDim, d / heads));
                vec![
                    (Move::Reshape, Axes::new([*b, *t, head, own])),
                    (Move::Transpose, Axes::new([*b, head, *t, own])),
                ]
            }
            (Self::Merge, [b, (Head, h), q, (HeadDim, d)]) => vec![
                (Move::Transpose, Axes::new([*b, *q, (Head, *h), (HeadDim, *d)])),
                (Move::Reshape, Axes::new([*b, *q, (Model, h.saturating_mul(*d))])),
            ],
            _ => Vec::new(),
        }
    }

    /// From where in an input of this shape a feature came to its cell.
    pub(crate) fn moved(&self, input: &[usize], cell: &[usize]) -> Working {
        let (head, head_dim, own, is_split) = match (self, input, cell) {
            (Self::Split { heads: heads @ 2.. }, [_, _, width], [_, head, _, own]) => {
                (*head, width / heads, *own, true)
            }
            (Self::Merge, [_, heads, _, head_dim], [_, _, feature]) if *heads > 1 => {
                (feature / head_dim.max(&1), *head_dim, feature % head_dim.max(&1), false)
            }
            _ => return Working::Plain,
        };
        Working::Moved { head, head_dim, own, is_split }
    }
}

impl Rearrange {
    /// The same numbers in the same places, on axes of other names.
    pub(crate) fn relabelled(axes: &Axes) -> Self {
        let (view, result) = (axes.shape(), axes.iter().collect());
        Self { blocks: Vec::new(), order: (0..view.len()).collect(), view, result }
    }

    /// The way back of one that takes all of one input with these axes.
    fn back(&self, input: &Axes) -> Self {
        let view = self.order.iter().filter_map(|at| self.view.get(*at).copied()).collect();
        let mut order = vec![0; self.order.len()];
        for (to, from) in self.order.iter().enumerate() {
            if let Some(place) = order.get_mut(*from) {
                *place = to;
            }
        }
        Self { blocks: Vec::new(), view, order, result: input.iter().collect() }
    }

    fn value(&self, inputs: &[&Tensor]) -> candle_core::Result<Tensor> {
        let all = match inputs {
            [only] => (*only).clone(),
            several => Tensor::cat(several, 0)?,
        };
        let blocks = self.blocks.iter().map(|(from, count)| all.narrow(0, *from, *count));
        let blocks: Vec<Tensor> = blocks.collect::<Result<_, _>>()?;
        let taken = if blocks.is_empty() { all } else { Tensor::cat(&blocks, 0)? };
        let shape: Vec<usize> = self.result.iter().map(|(_, size)| *size).collect();
        let viewed = taken.reshape(self.view.as_slice())?.permute(self.order.as_slice())?;
        viewed.contiguous()?.reshape(shape)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let count = |dims: &[Dim]| -> usize { dims.iter().map(|(_, size)| size).product() };
        let read: usize = inputs.iter().map(|dims| count(dims)).sum();
        let rows: usize = inputs.iter().filter_map(|dims| dims.first()).map(|(_, size)| size).sum();
        let is_within = self.blocks.iter().all(|(from, count)| from + count <= rows);
        let taken = match self.blocks.iter().map(|(_, count)| count).sum::<usize>() {
            0 => read,
            taken => read.checked_div(rows).ok_or(Misread)? * taken,
        };
        let fits = is_within
            && taken == self.view.iter().product::<usize>()
            && taken == count(&self.result);
        if fits { Ok(self.result.clone()) } else { Err(Misread) }
    }

    /// The same for a part of the run, which is cut at this axis of the result.
    fn narrowed(&self, part: Part, at: usize, read: &Axes) -> Option<Self> {
        // The places stay where they are only as an axis of the view that no order moves.
        let size = self.result.get(at).map(|(_, size)| size);
        let stays = self.order.get(at) == Some(&at) && self.view.get(at) == size;
        let before = |shape: &[usize], at: usize| shape.iter().take(at).product::<usize>();
        let sizes: Vec<usize> = self.result.iter().map(|(_, size)| *size).collect();
        let is_first = self.order.iter().take(at).all(|from| *from < at);
        let of_input = read.iter().position(|(axis, _)| axis == part.axis())?;
        let outer = before(&self.view, at);
        let is_same = before(&read.shape(), of_input) == outer && outer == before(&sizes, at);
        if !self.blocks.is_empty() || !stays || !is_first || !is_same {
            return None;
        }
        let mut narrow = self.clone();
        (*narrow.view.get_mut(at)?, narrow.result.get_mut(at)?.1) =
            (part.places().1, part.places().1);
        Some(narrow)
    }
}
