//! In which order a foreign tensor may have its axes.

use std::fmt;

use candle_core::Tensor;

use base::error::Result;
use program::{Axes, Axis, Dim};

/// A way to read a tensor as one with given axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisOrder {
    /// The axes that the tensor has then, outermost first.
    found: Vec<Dim>,
    /// The axes that are wanted.
    wanted: Axes,
    /// Whether batch and head are one axis, the outermost.
    merged: bool,
}

impl AxisOrder {
    /// The ways in which a tensor of these lengths can have these axes, the plain one first: in another order, without
    /// axes of length 1, or with batch and head as one. Queries come before keys in all of them, as scores the other
    /// way round are a mistake rather than an order.
    pub fn all(axes: &Axes, dims: &[usize]) -> Vec<Self> {
        let order = |found: Vec<Dim>, merged| Self { found, wanted: axes.clone(), merged };
        let dims_wanted: Vec<Dim> = axes.iter().collect();
        let mut orders = Vec::new();
        arrange(&dims_wanted, dims, &mut Vec::new(), &mut orders);
        let mut all: Vec<Self> = orders.into_iter().map(|found| order(found, false)).collect();
        if let [(Axis::Batch, batch), (Axis::Head, heads), rest @ ..] = dims_wanted.as_slice()
            && let [both, others @ ..] = dims
            && *batch > 1
            && *heads > 1
            && batch.checked_mul(*heads) == Some(*both)
            && rest.iter().map(|(_, size)| size).eq(others)
        {
            all.push(order(dims_wanted, true));
        }
        all.sort_by_key(|order| !order.is_plain());
        all
    }

    /// Whether the tensor has the axes that are wanted, as they are wanted.
    pub fn is_plain(&self) -> bool {
        !self.merged && self.found.iter().copied().eq(self.wanted.iter())
    }

    /// The axes, outermost first, keys as queries: the order that a code has for all its tensors.
    pub fn order(&self) -> Vec<Axis> {
        let as_query = |axis| if axis == Axis::Key { Axis::Query } else { axis };
        self.found.iter().map(|(axis, _)| as_query(*axis)).collect()
    }

    /// The same without axes of one place.
    pub fn long(&self) -> Vec<Axis> {
        let sizes = self.found.iter().map(|(_, size)| *size);
        self.order()
            .into_iter()
            .zip(sizes)
            .filter(|(_, size)| *size > 1)
            .map(|(axis, _)| axis)
            .collect()
    }

    /// The names of the axes, outermost first.
    pub fn names(&self) -> Vec<String> {
        self.found.iter().map(|(axis, _)| axis.name().to_owned()).collect()
    }

    /// The tensor with the axes that are wanted.
    ///
    /// # Errors
    /// If the tensor has other lengths than the reading was made for.
    pub fn apply(&self, tensor: &Tensor) -> Result<Tensor> {
        if self.is_plain() {
            return Ok(tensor.clone());
        }
        if self.merged {
            return Ok(tensor.reshape(self.wanted.shape())?);
        }
        let long = |axes: &mut dyn Iterator<Item = Dim>| -> Vec<Dim> {
            axes.filter(|(_, size)| *size != 1).collect()
        };
        let found = long(&mut self.found.iter().copied());
        let wanted = long(&mut self.wanted.iter());
        let order: Vec<usize> = wanted
            .iter()
            .filter_map(|(axis, _)| found.iter().position(|(other, _)| other == axis))
            .collect();
        let shape: Vec<usize> = found.iter().map(|(_, size)| *size).collect();
        let permuted = tensor.reshape(shape)?.permute(order)?.contiguous()?;
        Ok(permuted.reshape(self.wanted.shape())?)
    }
}

/// Every order of `axes` that has these lengths; an axis of length 1 may be absent.
fn arrange(axes: &[Dim], dims: &[usize], found: &mut Vec<Dim>, orders: &mut Vec<Vec<Dim>>) {
    let Some((dim, rest)) = dims.split_first() else {
        if axes.iter().all(|(_, size)| *size == 1) {
            orders.push(found.clone());
        }
        return;
    };
    let mut one_taken = false;
    for (at, (axis, size)) in axes.iter().enumerate() {
        let long = || axes.iter().filter(|(_, size)| *size > 1);
        let waits = |for_axis: Axis| long().any(|(other, _)| *other == for_axis);
        // Nobody writes features before what they belong to.
        let is_odd = match axis {
            Axis::Key => waits(Axis::Query),
            Axis::HeadDim => waits(Axis::Batch) || waits(Axis::Head),
            // A state the other way round is told from a right one by its lengths alone.
            Axis::ValueDim => {
                let is_alike = |(other, own): &Dim| *other == Axis::HeadDim && own == size;
                waits(Axis::Batch) || waits(Axis::Head) || long().any(is_alike)
            }
            Axis::Model | Axis::Input => long().any(|(other, _)| other != axis),
            _ => false,
        };
        // Which of several axes of length 1 comes first changes nothing.
        if size != dim || (is_odd && *size > 1) || (*size == 1 && one_taken) {
            continue;
        }
        one_taken |= *size == 1;
        let mut others = axes.to_vec();
        others.remove(at);
        found.push((*axis, *size));
        arrange(&others, rest, found, orders);
        found.pop();
    }
}

impl fmt::Display for AxisOrder {
    /// `(batch, query, head, head_dim)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names().join(", ");
        if self.merged {
            return write!(f, "({})", names.replacen("batch, head", "batch · head", 1));
        }
        write!(f, "({names})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn heads(batch: usize, heads: usize, tokens: usize) -> Axes {
        Axes::new([
            (Axis::Batch, batch),
            (Axis::Head, heads),
            (Axis::Query, tokens),
            (Axis::HeadDim, 4),
        ])
    }

    fn shown(axes: &Axes, dims: &[usize]) -> Vec<String> {
        AxisOrder::all(axes, dims).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_order_fits_where_all_lengths_differ() {
        assert_eq!(shown(&heads(2, 3, 5), &[2, 5, 3, 4]), ["(batch, query, head, head_dim)"]);
        assert_eq!(shown(&heads(2, 3, 5), &[6, 5, 4]), ["(batch · head, query, head_dim)"]);
        assert_eq!(shown(&heads(1, 3, 5), &[5, 3, 4]), ["(query, head, head_dim)"]);
        assert!(shown(&heads(2, 3, 5), &[2, 5, 4, 4]).is_empty());
    }

    #[test]
    fn two_orders_fit_equal_lengths_and_the_plain_one_is_first() {
        let axes = heads(2, 5, 5);
        let both = ["(batch, head, query, head_dim)", "(batch, query, head, head_dim)"];
        assert_eq!(shown(&axes, &[2, 5, 5, 4]), both);
        let scores =
            Axes::new([(Axis::Batch, 1), (Axis::Head, 3), (Axis::Query, 5), (Axis::Key, 5)]);
        assert_eq!(shown(&scores, &[1, 3, 5, 5]), ["(batch, head, query, key)"]);
    }

    #[test]
    fn a_reading_puts_the_axes_in_order() {
        let tensor = Tensor::arange(0_u32, 60, &Device::Cpu).and_then(|t| t.reshape((5, 3, 4)));
        let tensor = tensor.expect("a tensor");
        let axes = heads(1, 3, 5);
        let read = AxisOrder::all(&axes, &[5, 3, 4])[0].apply(&tensor).expect("fits");
        assert_eq!(read.dims(), [1, 3, 5, 4]);
        let cell = |tensor: &Tensor, at: &[usize]| {
            at.iter().fold(tensor.clone(), |tensor, at| tensor.get(*at).expect("within"))
        };
        let (read, raw) = (cell(&read, &[0, 2, 1, 3]), cell(&tensor, &[1, 2, 3]));
        assert_eq!(read.to_scalar::<u32>().expect("one"), raw.to_scalar::<u32>().expect("one"));
    }
}
