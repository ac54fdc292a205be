//! Sums along axes: what gradients of shared, broadcast and taken numbers are.

use candle_core::{DType, Tensor};

use super::loops;
use crate::adjoint::Adjoint;
use crate::axis::{Axes, Dim, sizes, unravel};
use crate::misread::Misread;
use crate::pattern::{Pattern, Place, Products, Read};
use crate::rows::{Numbers, Rows};
use base::error::Result;

/// The sum over these axes, which stay: added up in f64, as there may be as many numbers as tokens.
pub(super) fn summed(x: &Tensor, over: &[usize]) -> candle_core::Result<Tensor> {
    if over.is_empty() {
        return Ok(x.clone());
    }
    x.to_dtype(DType::F64)?.sum_keepdim(over)?.to_dtype(x.dtype())
}

/// Some places of an axis or all, viewed as another shape and added up along some of its axes; of two inputs, their
/// product.
#[derive(Debug, Clone, PartialEq)]
pub struct Collect {
    /// The axis that some places are taken of, and the first of them.
    pub slice: Option<(usize, usize)>,
    /// The shape that the numbers are viewed as.
    pub view: Vec<Dim>,
    /// The axes of that shape that are summed over.
    pub over: Vec<usize>,
    /// The axes of the result.
    pub axes: Vec<Dim>,
}

impl Collect {
    /// Places of an axis as they are, as many as the result has.
    fn slice(value: &Axes, slice: (usize, usize), axes: &Axes) -> Self {
        let mut view: Vec<Dim> = value.iter().collect();
        if let (Some(dim), Some(own)) = (view.get_mut(slice.0), axes.iter().nth(slice.0)) {
            *dim = own;
        }
        Self { slice: Some(slice), view, over: Vec::new(), axes: axes.iter().collect() }
    }

    /// The sum over all that the last axis holds.
    #[must_use]
    pub fn over_last(value: &Axes) -> Self {
        let view: Vec<Dim> = value.iter().collect();
        let last = view.len().saturating_sub(1);
        Self { slice: None, view, over: vec![last], axes: value.iter().take(last).collect() }
    }

    /// The gradient of some places of an axis alone.
    pub(super) fn of_slice(value: &Axes, slice: (usize, usize), input: &Axes) -> Adjoint {
        Adjoint::on_gradient(Self::slice(value, slice, input))
    }

    /// The gradient of what was broadcast to a value: the sum over what it stood for.
    pub(super) fn of_broadcast(input: &Axes, value: &Axes) -> Adjoint {
        if input == value {
            return Adjoint::Same;
        }
        let (shape, own) = (value.shape(), input.shape());
        let skipped = shape.len().saturating_sub(own.len());
        let is_over = |at: &usize| {
            let own_at = at.checked_sub(skipped);
            own_at.is_none_or(|own_at| own.get(own_at) == Some(&1) && shape.get(*at) != Some(&1))
        };
        let over = (0..shape.len()).filter(is_over).collect();
        let (view, axes) = (value.iter().collect(), input.iter().collect());
        Adjoint::on_gradient(Self { slice: None, view, over, axes })
    }

    fn shape(&self) -> Vec<usize> {
        sizes(&self.axes)
    }

    /// The shape of an input of which the places are taken.
    fn taken(&self, all: &[usize]) -> Vec<usize> {
        let mut taken = all.to_vec();
        if let Some((axis, _)) = self.slice {
            let others = all.iter().enumerate().filter(|(at, _)| *at != axis);
            let others: usize = others.map(|(_, size)| size).product();
            if let Some(size) = taken.get_mut(axis) {
                *size = sizes(&self.view).iter().product::<usize>() / others.max(1);
            }
        }
        taken
    }

    pub(super) fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = match inputs {
            [only] => (*only).clone(),
            [one, other] => one.mul(other)?,
            _ => return Err(Misread.into()),
        };
        let x = match self.slice {
            Some((axis, first)) => {
                let count = self.taken(x.dims()).get(axis).copied().ok_or(Misread)?;
                x.narrow(axis, first, count)?.contiguous()?
            }
            None => x,
        };
        Ok(summed(&x.reshape(sizes(&self.view))?, &self.over)?.reshape(self.shape())?)
    }

    /// The sums of products of two over all that the last axis holds.
    pub(super) fn rows<'a>(&self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        let ([other], [.., columns]) = (others, read) else { return None };
        let is_last = self.slice.is_none()
            && self.over == [read.len() - 1]
            && sizes(&self.view) == read
            && other.dims() == read;
        let other = Numbers::of(other).filter(|_| is_last)?;
        Some(loops::summed_products(*columns, other))
    }

    pub(super) fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [first, others @ ..] = inputs else { return Err(Misread) };
        let all = sizes(first);
        let taken = self.taken(&all);
        let is_within = self.slice.is_none_or(|(axis, from)| {
            all.get(axis).zip(taken.get(axis)).is_some_and(|(all, count)| from + count <= *all)
        });
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let kept = self.view.iter().enumerate().filter(|(at, _)| !self.over.contains(at));
        let kept: usize = kept.map(|(_, (_, size))| size).product();
        let fits = is_within
            && count(&taken) == count(&sizes(&self.view))
            && kept == count(&self.shape())
            && others.len() <= 1
            && others.iter().all(|other| other == first);
        if fits { Ok(self.axes.clone()) } else { Err(Misread) }
    }

    pub(super) fn formula(&self, names: &[&str]) -> String {
        let product = names.join(" · ");
        let over = self.over.iter().filter_map(|at| self.view.get(*at));
        let over: Vec<&str> = over.map(|(axis, _)| axis.told()).collect();
        let over = over.join(tr!(" and "));
        let part = self.slice.and_then(|(axis, from)| {
            let (axis, count) = self.view.get(axis)?;
            Some(tr!("{axis} {from} to {last}", axis = axis.told(), from, last = from + count - 1))
        });
        match part {
            Some(part) if self.over.is_empty() => tr!("{product}, {part}", product, part),
            Some(part) => tr!("Σ {product} over {over}, {part}", product, over, part),
            None => tr!("Σ {product} over {over}", product, over),
        }
    }

    /// From a place of the value to those of the inputs: which of their cells are added up.
    pub(super) fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let Some(first) = inputs.first() else { return Pattern::ByCell };
        let sizes = sizes(&self.view);
        let of_over: Vec<usize> =
            self.over.iter().filter_map(|at| sizes.get(*at).copied()).collect();
        let (count, rank) = (of_over.iter().product::<usize>(), self.axes.len());
        let taken = self.taken(&first.shape());
        let kept: Vec<usize> = (0..sizes.len())
            .filter(|at| !self.over.contains(at) && sizes.get(*at) != Some(&1))
            .collect();
        let long: Vec<usize> = (0..rank).filter(|at| self.axes[*at].1 != 1).collect();
        let is_same = kept.iter().map(|at| sizes[*at]).eq(long.iter().map(|at| self.axes[*at].1));
        let is_flat = long.len() == 1;
        if !is_same && !is_flat {
            return Pattern::ByCell;
        }
        let kept_sizes: Vec<usize> = kept.iter().map(|at| sizes[*at]).collect();
        // What a place on an axis of the view follows from: an axis of the value, and what its places become.
        let of_view = |at: usize| -> Option<(usize, Vec<usize>)> {
            let listed = |sizes: &[usize], own: usize| {
                let all = 0..sizes.iter().product::<usize>();
                all.map(|place| unravel(place, sizes)[own]).collect::<Vec<_>>()
            };
            if let Some(own) = self.over.iter().position(|over| *over == at) {
                return Some((rank, listed(&of_over, own)));
            }
            let own = kept.iter().position(|kept| *kept == at)?;
            if is_same {
                Some((long[own], (0..kept_sizes[own]).collect()))
            } else {
                Some((long[0], listed(&kept_sizes, own)))
            }
        };
        let mut view = 0;
        let mut places = Vec::with_capacity(taken.len());
        for size in &taken {
            let (mut parts, mut product) = (Vec::new(), 1);
            while product < *size && view < sizes.len() {
                product *= sizes[view];
                parts.push(view);
                view += 1;
            }
            let mut place = Place::fixed();
            let mut stride = *size;
            for part in parts {
                stride /= sizes[part].max(1);
                if let Some((axis, list)) = of_view(part) {
                    place =
                        place.and(Place::listed(axis, list.into_iter().map(|own| own * stride)));
                }
            }
            if *size == 1 && sizes.get(view) == Some(&1) {
                view += 1;
            }
            places.push(place);
        }
        if let Some((axis, from)) = self.slice
            && let Some(place) = places.get_mut(axis)
        {
            *place = place.clone().moved(from);
        }
        let factors = (0..inputs.len()).map(|input| Read::of(input, places.clone()).into());
        Pattern::Sum(vec![Products { count, when: None, factors: factors.collect() }])
    }
}
