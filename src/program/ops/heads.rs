//! Numbers that move: features split into heads, heads shared, a cache put before them, heads side by side.

use candle_core::{DType, Tensor};

use crate::axis::Axis::{Batch, Head, HeadDim, Key, Model};
use crate::axis::{Axes, Dim, unravel};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation, at, read};
use crate::pattern::{Pattern, Place, Products, Read, When};
use crate::slips::{Kind, Sibling};
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
    Join {
        /// Whether the shared ones stand first, as they should not.
        is_shared_first: bool,
    },
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
            Self::Join { is_shared_first } => {
                let [own, shared] = read(inputs)?;
                let (batch, heads, tokens, _) = own.dims4()?;
                let shared = shared.broadcast_as((batch, heads, tokens, shared.dim(3)?))?;
                let parts = [own, &shared.contiguous()?];
                let parts = if *is_shared_first { [parts[1], parts[0]] } else { parts };
                Tensor::cat(&parts, 3)?
            }
            Self::Extend { features } => {
                let [own, other] = read(inputs)?;
                let from = other.dim(3)?.checked_sub(*features).ok_or(Misread)?;
                Tensor::cat(&[own, &other.narrow(3, from, *features)?.contiguous()?], 3)?
            }
            Self::Merge => first.transpose(1, 2)?.contiguous()?.flatten_from(2)?,
            Self::Sum => Tensor::cat(&vec![first.sum(1)?; first.dim(1)?], 2)?,
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
                Self::Join { .. },
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
            (Self::HandOn, [first, ..]) => first.to_vec(),
            (Self::Rearrange(rearrange), _) => rearrange.axes(inputs)?,
            (
                Self::Split { .. }
                | Self::Repeat { .. }
                | Self::Append
                | Self::Join { .. }
                | Self::Extend { .. }
                | Self::Merge
                | Self::Sum
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
            Self::Repeat { times, is_tiled: false } => {
                tr!("{times} times every head of {first}", first, times)
            }
            Self::Repeat { times, is_tiled: true } => {
                tr!("{times} times all heads of {first}", first, times)
            }
            Self::Append => names.join(", then "),
            Self::Join { is_shared_first } => {
                let [own, shared] = read(names)?;
                let (one, other) = if *is_shared_first { (shared, own) } else { (own, shared) };
                tr!("{one}, and behind it {other}, in every head", one, other)
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
            Self::Sum => tr!("the heads of {first} added up", first),
            Self::HandOn => (*first).to_owned(),
            Self::Rearrange(Rearrange { result, .. }) => {
                let axes: Vec<&str> = result.iter().map(|(axis, _)| axis.name()).collect();
                format!("{} read as ({})", names.join(" and "), axes.join(", "))
            }
        })
    }

    /// The cell that the number comes from: that of the inputs which ends there if they hold their places.
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        if let (Self::Sum, [heads, ..]) = (self, inputs) {
            let ([b, t, model], head_dim) = (at(cell)?, heads.tensor.dim(3)?);
            let term = |head| Ok(Term(vec![heads.at(&[b, head, t, model % head_dim])?]));
            return (0..heads.tensor.dim(1)?).map(term).collect();
        }
        let (mut places, mut start) = (Vec::new(), 0_u32);
        for input in inputs {
            let count = u32::try_from(input.tensor.elem_count()).map_err(|_| Misread)?;
            let end = start.checked_add(count).ok_or(Misread)?;
            let place = Tensor::arange(start, end, input.tensor.device())?;
            places.push(place.to_dtype(DType::F64)?.reshape(input.tensor.shape())?);
            start = end;
        }
        let mut from = self.value(&places.iter().collect::<Vec<_>>())?;
        for at in cell {
            from = from.get(*at)?;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let mut from = from.to_scalar::<f64>()? as usize;
        for input in inputs {
            let count = input.tensor.elem_count();
            if from < count {
                return Ok(vec![Term(vec![input.at(&unravel(from, input.tensor.dims()))?])]);
            }
            from -= count;
        }
        Err(Misread.into())
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let size = |input: usize, axis: usize| {
            inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
        };
        let [batch, second, third, fourth] = [0, 1, 2, 3].map(Place::on);
        // The places of one input, and behind them those of the other, on an axis.
        let behind = |axis: usize, first: (usize, usize), other: Read| {
            let (input, count) = first;
            let whole = count + size(other.input, axis);
            let of_first = Read::of(input, [0, 1, 2, 3].map(Place::on));
            let within = |range| When::Within(axis, range);
            Pattern::Sum(vec![
                Products::one([of_first.into()]).when(within([0, count])),
                Products::one([other.into()]).when(within([count, whole])),
            ])
        };
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
                behind(2, (0, past), Read::of(1, [batch, second, third.back(past), fourth]))
            }
            Self::Join { is_shared_first: false } => {
                let own = size(0, 3);
                let shared = [batch, Place::fixed(), third, fourth.back(own)];
                behind(3, (0, own), Read::of(1, shared))
            }
            Self::Extend { features } => {
                let (own, other) = (size(0, 3), size(1, 3));
                let from = fourth.back(own).moved(other.saturating_sub(*features));
                behind(3, (0, own), Read::of(1, [batch, second, third, from]))
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
            // What only faulty code does.
            Self::Join { is_shared_first: true } | Self::Sum | Self::Rearrange(_) => {
                Pattern::ByCell
            }
        }
    }

    fn siblings(&self, _: &[&Axes]) -> Vec<Sibling> {
        let Self::Join { is_shared_first: false } = self else { return Vec::new() };
        let told = tr!("the features that all heads share stand before those of each head");
        vec![Sibling::new(Self::Join { is_shared_first: true }, Kind::Axes, told)]
    }

    fn working(&self, inputs: &[Value], cell: &[usize]) -> Result<Working> {
        let moved =
            |head, head_dim, own, is_split| Working::Moved { head, head_dim, own, is_split };
        Ok(match (self, inputs, cell) {
            (Self::Split { heads }, [whole], [_, head, _, own]) if *heads > 1 => {
                moved(*head, whole.tensor.dim(2)? / heads, *own, true)
            }
            (Self::Merge, [heads], [_, _, feature]) if heads.tensor.dim(1)? > 1 => {
                let head_dim = heads.tensor.dim(3)?.max(1);
                moved(feature / head_dim, head_dim, feature % head_dim, false)
            }
            _ => Working::Plain,
        })
    }

    fn moves(&self, input: &Axes) -> Vec<(Move, Axes)> {
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

    fn flops(&self, inputs: &[&Axes], _: &Axes) -> u128 {
        let adds = *self == Self::Sum;
        inputs.first().filter(|_| adds).map_or(0, |heads| heads.count())
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Narrowed {
        let Self::Rearrange(own) = self else { return Narrowed::Same };
        let Some(at) = part.position_in(inputs, whole) else { return Narrowed::Same };
        // The places stay where they are only as an axis of the view that no order moves.
        let size = own.result.get(at).map(|(_, size)| size);
        let stays = own.order.get(at) == Some(&at) && own.view.get(at) == size;
        let before = |shape: &[usize]| shape.iter().take(at).product::<usize>();
        let sizes: Vec<usize> = own.result.iter().map(|(_, size)| *size).collect();
        let is_first = own.order.iter().take(at).all(|from| *from < at);
        let read = inputs.first().map_or_else(Vec::new, |read| read.shape());
        let of_input =
            inputs.first().and_then(|read| read.iter().position(|(axis, _)| axis == part.axis()));
        let is_read =
            of_input.is_some_and(|at| read.iter().take(at).product::<usize>() == before(&own.view));
        let is_same = is_read && before(&own.view) == before(&sizes);
        if !own.blocks.is_empty() || !stays || !is_first || !is_same {
            return Narrowed::Mixed;
        }
        let mut narrow = own.clone();
        if let (Some(view), Some((_, size))) = (narrow.view.get_mut(at), narrow.result.get_mut(at))
        {
            (*view, *size) = (part.places().1, part.places().1);
        }
        Narrowed::To(Self::Rearrange(narrow).into())
    }
}

impl Rearrange {
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
}
