//! What is a part of a run: one item of its batch, some of its query rows, the keys that those see, or the first tokens, which
//! no others have a say in.

use candle_core::Tensor;

use super::axis::{Axes, Axis};

/// Rows that are computed of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryRows {
    /// The first row.
    pub first: usize,
    /// How many rows.
    pub count: usize,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One item of the batch.
    Item(usize),
    /// Some of the query rows.
    Rows(QueryRows),
    /// The first so many keys, of which a mask hides the others.
    Keys(usize),
    /// The first so many tokens, where none reads a later one: queries, keys and all else that there is of each.
    First(usize),
    /// The first `count` of `all` input tokens, where no row reads others.
    Tokens {
        /// How many there are left.
        count: usize,
        /// How many there were.
        all: usize,
    },
}

/// What there is of one item, of what is there of each or of all alike.
pub(super) fn of_item<T: Clone>(all: &[T], item: usize) -> Vec<T> {
    if all.len() > 1 { all.get(item..=item).unwrap_or_default().to_vec() } else { all.to_vec() }
}

impl Part {
    /// The axis that it is a part of.
    pub fn axis(self) -> Axis {
        match self {
            Self::Item(_) => Axis::Batch,
            Self::Rows(_) | Self::First(_) | Self::Tokens { .. } => Axis::Query,
            Self::Keys(_) => Axis::Key,
        }
    }

    /// The first place, and how many there are.
    pub fn places(self) -> (usize, usize) {
        match self {
            Self::Item(item) => (item, 1),
            Self::Rows(rows) => (rows.first, rows.count),
            Self::Keys(count) | Self::First(count) | Self::Tokens { count, .. } => (0, count),
        }
    }

    /// Where an axis of the part stands among these, if it has more than one place there.
    pub(super) fn position(self, axes: &Axes) -> Option<usize> {
        let has_part = |size: usize| match self {
            Self::Tokens { all, .. } => size == all,
            Self::Item(_) | Self::Rows(_) | Self::Keys(_) | Self::First(_) => size > 1,
        };
        let is_own =
            |axis: Axis| axis == self.axis() || matches!(self, Self::First(_)) && axis == Axis::Key;
        axes.iter().position(|(axis, size)| is_own(axis) && has_part(size))
    }

    /// The part of a tensor that has the axis at this place; all of it where that is 1 long.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(self, tensor: &Tensor, axis: usize) -> candle_core::Result<Tensor> {
        let (first, count) = self.places();
        match tensor.dims().get(axis) {
            Some(size) if *size > 1 => tensor.narrow(axis, first, count)?.contiguous(),
            Some(_) | None => Ok(tensor.clone()),
        }
    }

    /// Where an axis of the part stands in a value that is made of a narrowed input. Nothing where the first input is
    /// whole, as input tokens are.
    pub(super) fn position_in(self, inputs: &[&Axes], whole: &Axes) -> Option<usize> {
        let at = self.position(whole)?;
        let size = |axes: &Axes| axes.iter().nth(at).map(|(_, size)| size);
        let is_whole = inputs.first().is_some_and(|first| first.rank() == whole.rank())
            && inputs.first().and_then(|first| size(first)) == size(whole)
            && size(whole) != Some(self.places().1);
        Some(at).filter(|_| !is_whole)
    }

    /// What is left in the part of places along its axis.
    pub(super) fn left(self, places: &[usize]) -> Vec<usize> {
        let (first, count) = self.places();
        let within = places.iter().filter(|place| (first..first + count).contains(place));
        within.map(|place| place - first).collect()
    }
}
