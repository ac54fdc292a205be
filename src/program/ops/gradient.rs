//! What gradients are made of where no operation of the forward pass does it.

use candle_core::{D, Tensor};

use super::collect::{Collect, summed};
use super::functions::Map;
use super::loops;
use super::norm::Norm;
use super::pairs::OfPairs;
use super::picked::Picked;
use super::product::{Product, beside_zeros};
use super::relative::Relative;
use crate::adjoint::Adjoint;
use crate::axis::{Axes, Dim, sizes};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::{Multiplier, Pattern, Place, Products, Read};
use crate::rows::{Numbers, Rows};
use crate::terms::{Term, Value};
use base::error::Result;

/// Steps of gradients. `d` is the gradient of what was computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Gradient {
    /// A product of matrices.
    Product(Product),
    /// Sums of numbers, or of products of two.
    Collect(Collect),
    /// The features of every head from a place on, behind zeros: of heads whose last features stand behind others.
    Back {
        /// The place.
        from: usize,
        /// How many zeros.
        before: usize,
        /// The axes of the result.
        axes: Vec<Dim>,
    },
    /// P · (d − delta): of the scores that softmax makes weights of ("`FlashAttention`", Dao et al., 2022, appendix B.2).
    /// Reads P, d and delta, for every row of P the sum of P · d.
    Softmax,
    /// −Σ `p_sink` · delta over all rows of a head, where `p_sink` is the sink's share of the row. Reads scores, sinks, delta.
    Sinks,
    /// d · (1 − (y / C)²): of the scores of a soft cap. Reads d and the capped scores y.
    SoftCap {
        /// C.
        cap: f64,
    },
    /// d where x is within ±C, 0 elsewhere. Reads d and x.
    Clip {
        /// C.
        limit: f64,
    },
    /// d · x · f′(gate). Reads d, x and the gate.
    Gate {
        /// f.
        map: Map,
    },
    /// Of the input of a norm. Reads d, x, and the weight if there is one.
    Norm(Norm),
    /// Of the weight of a norm: the sum of d · x / root over all rows that have it. Reads d and x.
    NormWeight {
        /// The norm.
        norm: Norm,
        /// The axes of the weight.
        axes: Vec<Dim>,
    },
    /// Of what pairs of heads are subtracted by.
    Pairs(OfPairs),
    /// Of a table of relative positions: the sum over all pairs of a bucket. Reads d (head, query, key).
    Table {
        /// Which pairs are in which bucket.
        relative: Relative,
        /// The axes of the table.
        axes: Vec<Dim>,
        /// Whether each pair overwrites what those before it gave, as faulty code does.
        is_last: bool,
    },
    /// Of products with all relative positions, of which some were picked: the sum over all pairs of each. Reads d (batch,
    /// head, query, key).
    Picked {
        /// Which pairs read which product.
        picked: Picked,
        /// The axes of the products.
        axes: Vec<Dim>,
        /// Whether each pair overwrites what those before it gave, as faulty code does.
        is_last: bool,
    },
}

impl Operation for Gradient {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::Product(own) => own.value(inputs)?,
            Self::Collect(collect) => collect.value(inputs)?,
            Self::Back { from, before, .. } => {
                let [d] = read(inputs)?;
                let own = d.narrow(3, *from, d.dim(3)?.saturating_sub(*from))?;
                own.contiguous()?.pad_with_zeros(3, *before, 0)?
            }
            Self::Softmax => {
                let [weights, d, delta] = read(inputs)?;
                weights.mul(&d.broadcast_sub(&delta.unsqueeze(D::Minus1)?)?)?
            }
            Self::Sinks => {
                let [scores, sinks, delta] = read(inputs)?;
                let share = sink_shares(scores, sinks)?;
                let rows = share.mul(delta)?.neg()?;
                summed(&rows, &[0, 2])?.reshape(sinks.shape())?
            }
            Self::SoftCap { cap } => {
                let [d, capped] = read(inputs)?;
                d.mul(&(capped / *cap)?.sqr()?.affine(-1.0, 1.0)?)?
            }
            Self::Clip { limit } => {
                let [d, x] = read(inputs)?;
                x.abs()?.le(*limit)?.where_cond(d, &d.zeros_like()?)?
            }
            Self::Gate { map } => {
                let [d, x, gate] = read(inputs)?;
                d.mul(x)?.mul(&slope(*map, gate)?)?
            }
            Self::Norm(norm) => {
                let [d, x, weight @ ..] = inputs else { return Err(Misread.into()) };
                norm.gradient(d, x, weight)?
            }
            Self::NormWeight { norm, axes } => {
                let [d, x] = read(inputs)?;
                let own = d.mul(&norm.value(x, &[])?)?;
                let rank = own.rank();
                let is_kept = |at: &usize| at + 1 == rank || (axes.len() == 2 && *at == 1);
                let over = (0..rank).filter(|at| !is_kept(at)).collect::<Vec<_>>();
                summed(&own, &over)?.reshape(sizes(axes))?
            }
            Self::Pairs(own) => own.value(inputs)?,
            Self::Table { relative, axes, is_last } => {
                let [d] = read(inputs)?;
                relative.gradient(d, &sizes(axes), *is_last)?
            }
            Self::Picked { picked, axes, is_last } => {
                let [d] = read(inputs)?;
                picked.gradient(d, &sizes(axes), *is_last)?
            }
        })
    }

    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        match (self, others) {
            (Self::Collect(collect), _) => collect.rows(read, others),
            (Self::Softmax, [d, delta]) => {
                let [rows @ .., columns] = read else { return None };
                let fits = d.dims() == read && delta.dims() == rows;
                let both = Numbers::of(d).zip(Numbers::of(delta)).filter(|_| fits);
                both.map(|(d, delta)| loops::softmax_gradient(*columns, d, delta))
            }
            _ => None,
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Product(own), _) => own.axes(inputs),
            (Self::Collect(collect), _) => collect.axes(inputs),
            (Self::Pairs(own), _) => own.axes(inputs),
            (Self::Back { from, before, axes }, [[b, h, t, (own, size)]]) => {
                let made = [*b, *h, *t, (*own, before + size.checked_sub(*from).ok_or(Misread)?)];
                if made == axes.as_slice() { Ok(axes.clone()) } else { Err(Misread) }
            }
            (Self::Softmax, [weights, d, rows])
                if weights == d && weights.starts_with(rows) && rows.len() + 1 == d.len() =>
            {
                Ok(weights.to_vec())
            }
            (Self::Sinks, [[b, h, q, _], [own], [d_b, d_h, d_q]])
                if (b, h, q, h) == (d_b, d_h, d_q, own) =>
            {
                Ok(vec![*own])
            }
            (Self::SoftCap { .. } | Self::Clip { .. }, [d, x]) if d == x => Ok(d.to_vec()),
            (Self::Gate { .. }, [d, x, gate]) if sizes(d) == sizes(x) && d.len() == gate.len() => {
                Ok(gate.to_vec())
            }
            (Self::Norm(norm), [d, x, weight @ ..]) if d == x => norm.axes(x, weight),
            (Self::NormWeight { norm, axes }, [d, x]) if d == x => {
                norm.axes(x, &[axes]).map(|_| axes.clone())
            }
            (Self::Table { relative, axes, .. }, [[heads, (_, queries), (_, keys)]])
                if axes.get(1) == Some(heads)
                    && (*queries, *keys) == (relative.queries, relative.keys) =>
            {
                Ok(axes.clone())
            }
            (Self::Picked { picked, axes, .. }, [d]) if picked.axes(axes)? == *d => {
                Ok(axes.clone())
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, others @ ..] = names else { return Err(Misread) };
        let second = others.first().copied().unwrap_or_default();
        Ok(match self {
            Self::Product(own) => own.formula(first, second),
            Self::Collect(collect) => collect.formula(names),
            Self::Pairs(own) => own.formula(names)?,
            Self::Back { from, .. } => {
                tr!("{first} from feature {from} on, behind zeros", first, from)
            }
            Self::Softmax => {
                let [weights, d, delta] = read(names)?;
                format!("{weights} · ({d} − {delta})")
            }
            Self::Sinks => {
                let [_, sinks, delta] = read(names)?;
                tr!("−Σ share of {sinks} · {delta} over queries", sinks, delta)
            }
            Self::SoftCap { cap } => format!("{first} · (1 − ({second} / {cap})²)"),
            Self::Clip { limit } => {
                tr!("{first} where {second} is within ±{limit}, else 0", first, second, limit)
            }
            Self::Gate { map } => {
                let [d, x, gate] = read(names)?;
                format!("{d} · {x} · {}′({gate})", map.name())
            }
            Self::Norm(norm) => norm.gradient_formula(names),
            Self::NormWeight { norm, .. } => {
                let normed = norm.formula(second, &[]);
                tr!("Σ {first} · {normed} over rows", first, normed)
            }
            Self::Table { .. } | Self::Picked { .. } => {
                tr!("Σ {first} over the pairs of each bucket", first)
            }
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let size = |input: usize, axis: usize| {
            inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
        };
        let minus = || Multiplier::Number("−1".to_owned(), -1.0, None);
        let own = |input| inputs.first().map(|first| Read::same(input, first));
        match self {
            Self::Product(own) => own.pattern(inputs),
            Self::Back { from, before, .. } => {
                let place = Place::on(3).back(*before).moved(*from);
                let d = Read::of(0, [Place::on(0), Place::on(1), Place::on(2), place]);
                let count = size(0, 3).saturating_sub(*from);
                beside_zeros(Products::one([d.into()]), (3, *before, count, before + count))
            }
            Self::Collect(collect) => collect.pattern(inputs),
            Self::Softmax => own(0).zip(own(1)).map_or(Pattern::ByCell, |(weights, d)| {
                let rank = weights.at.len();
                let delta =
                    Read::of(2, (0..rank.saturating_sub(1)).map(Place::on).collect::<Vec<_>>());
                Pattern::Sum(vec![
                    Products::one([weights.clone().into(), d.into()]),
                    Products::one([minus(), weights.into(), delta.into()]),
                ])
            }),
            Self::SoftCap { cap } => own(0).zip(own(1)).map_or(Pattern::ByCell, |(d, capped)| {
                let by = Multiplier::Number(format!("−1 / {cap}²"), -1.0 / (cap * cap), None);
                let square = [d.clone().into(), capped.clone().into(), capped.into(), by];
                Pattern::Sum(vec![Products::one([d.into()]), Products::one(square)])
            }),
            Self::Sinks
            | Self::Clip { .. }
            | Self::Gate { .. }
            | Self::Norm(_)
            | Self::NormWeight { .. }
            | Self::Pairs(_)
            | Self::Table { .. }
            | Self::Picked { .. } => Pattern::ByCell,
        }
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        self.by_cell(inputs, cell)
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let numbers = |at: usize| inputs.get(at).map_or(0, |axes| axes.count());
        match self {
            Self::Product(own) => own.flops(inputs, output),
            Self::Collect(_) => numbers(0).saturating_mul(inputs.len() as u128),
            Self::Back { .. } => 0,
            Self::Softmax => output.count().saturating_mul(2),
            Self::Sinks => numbers(0).saturating_mul(5),
            Self::SoftCap { .. } | Self::Gate { .. } => output.count().saturating_mul(4),
            Self::Clip { .. } | Self::Table { .. } | Self::Picked { .. } => numbers(0),
            Self::Pairs(_) => numbers(0).saturating_mul(2),
            Self::Norm(_) => output.count().saturating_mul(8),
            Self::NormWeight { .. } => numbers(0).saturating_mul(6),
        }
    }

    /// What is added up is of all parts of the run.
    fn narrowed(&self, _: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        None
    }
}

/// The share that a sink has of every row of its head: (batch, head, query).
fn sink_shares(scores: &Tensor, sinks: &Tensor) -> Result<Tensor> {
    let heads = scores.dim(1)?;
    let sinks = sinks.reshape((1, heads, 1, 1))?;
    let largest = scores.max_keepdim(D::Minus1)?;
    let largest = largest.broadcast_maximum(&sinks)?;
    let own = sinks.broadcast_sub(&largest)?.exp()?;
    let others = scores.broadcast_sub(&largest)?.exp()?.sum_keepdim(D::Minus1)?;
    Ok(own.div(&(&own + others)?)?.squeeze(D::Minus1)?)
}

/// The derivative of a gate's function.
pub(super) fn slope(map: Map, gate: &Tensor) -> candle_core::Result<Tensor> {
    let share = candle_nn::ops::sigmoid(gate)?;
    match map {
        Map::Softplus => Ok(share),
        _ => share.mul(&share.affine(-1.0, 1.0)?),
    }
}
