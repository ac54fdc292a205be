//! What faulty code does: hand on a value as it is, or the same numbers in other places.

use candle_core::Tensor;

use crate::error::Result;
use crate::program::axis::{Axes, Axis, Dim};
use crate::program::op::{Misread, Operation};
use crate::program::terms::{Term, Value};

/// Its first input as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct HandOn;

impl Operation for HandOn {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs.first().map(|first| (*first).clone()).ok_or(Misread.into())
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        inputs.first().map(|first| first.to_vec()).ok_or(Misread)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        names.first().map(ToString::to_string).ok_or(Misread)
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        Ok(vec![Term(vec![inputs.first().ok_or(Misread)?.at(cell)?])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// The numbers of its inputs, side by side along their first axis where there are several, viewed as another shape,
/// with its axes in another order, and viewed as the shape of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Rearrange {
    /// The ranges of the first axis that are taken, in this order; none means all of it.
    pub blocks: Vec<(usize, usize)>,
    /// The shape that the numbers are viewed as.
    pub view: Vec<usize>,
    /// The order of that shape's axes.
    pub order: Vec<usize>,
    /// The axes of the result.
    pub result: Vec<Dim>,
}

impl Operation for Rearrange {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let all = match inputs {
            [only] => (*only).clone(),
            several => Tensor::cat(several, 0)?,
        };
        let taken = if self.blocks.is_empty() {
            all
        } else {
            let blocks = self.blocks.iter().map(|(from, count)| all.narrow(0, *from, *count));
            Tensor::cat(&blocks.collect::<Result<Vec<_>, _>>()?, 0)?
        };
        let shape: Vec<usize> = self.result.iter().map(|(_, size)| *size).collect();
        let viewed = taken.reshape(self.view.as_slice())?.permute(self.order.as_slice())?;
        Ok(viewed.contiguous()?.reshape(shape)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let count = |dims: &[Dim]| -> usize { dims.iter().map(|(_, size)| size).product() };
        let read: usize = inputs.iter().map(|dims| count(dims)).sum();
        let first: usize =
            inputs.iter().filter_map(|dims| dims.first()).map(|(_, size)| size).sum();
        let taken = match self.blocks.as_slice() {
            [] => read,
            blocks if blocks.iter().all(|(from, count)| from + count <= first) => {
                let rows: usize = blocks.iter().map(|(_, count)| count).sum();
                read.checked_div(first).ok_or(Misread)? * rows
            }
            _ => return Err(Misread),
        };
        let viewed: usize = self.view.iter().product();
        let fits = taken == viewed && viewed == count(&self.result);
        if fits { Ok(self.result.clone()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let axes: Vec<&str> = self.result.iter().map(|(axis, _)| axis.name()).collect();
        Ok(format!("{} read as ({})", names.join(" and "), axes.join(", ")))
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn mixes_items(&self) -> bool {
        // The items stay where they are only as the outermost axis of the view, which no place leaves or enters.
        let items = self.result.first().filter(|(axis, _)| *axis == Axis::Batch);
        items.is_some_and(|(_, size)| {
            let is_in_place = self.order.first() == Some(&0) && self.view.first() == Some(size);
            !is_in_place || !self.blocks.is_empty()
        })
    }
}
