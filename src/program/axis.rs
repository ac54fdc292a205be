//! Named axes: what every dimension of every tensor means, and how long it is.

use std::fmt;

table! {
    /// What one dimension of a tensor runs over.
    Axis: (&'static str, &'static str, &'static str, &'static str) {
        /// Items of the batch, B.
        Batch => ("batch", tr!("batch"), tr!("batch items"), "B"),
        /// Attention heads, H.
        Head => ("head", tr!("head"), tr!("heads"), "H"),
        /// Positions that ask, T.
        Query => ("query", tr!("query"), tr!("queries"), "T"),
        /// Positions that are attended to, S; as many as queries in self-attention, so that formulas say T.
        Key => ("key", tr!("key"), tr!("keys"), "T"),
        /// Features of a projection, `d_model`.
        Model => ("model", tr!("model"), tr!("features"), "d_model"),
        /// Features of one head, `d_k`.
        HeadDim => ("head_dim", tr!("head_dim"), tr!("features"), "d_k"),
        /// Features of one head's values, where they stand beside those of its keys, `d_v`.
        ValueDim => ("value_dim", tr!("value_dim"), tr!("value features"), "d_v"),
        /// Features of X, `d_in`.
        Input => ("input", tr!("input"), tr!("features"), "d_in"),
        /// Rows of a table of relative position biases, or of embeddings of relative positions.
        Bucket => ("bucket", tr!("bucket"), tr!("buckets"), "buckets"),
        /// Slots of a cache, which stand in pages.
        Slot => ("slot", tr!("slot"), tr!("slots"), "slots"),
        /// Runs of keys that are attended to apart, and merged.
        Split => ("split", tr!("split"), tr!("splits"), "splits"),
        /// Runs of keys that are attended to one after the other.
        Tile => ("tile", tr!("tile"), tr!("tiles"), "tiles"),
    }
}

impl Axis {
    /// The name in files, tables and messages.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What it is called where nobody need type it: the name, or what the language in force has for it.
    pub fn told(self) -> &'static str {
        self.row().1
    }

    /// What several of its places are called.
    pub fn many(self) -> &'static str {
        self.row().2
    }

    /// The axis of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.name() == name)
    }

    /// The letter that formulas use.
    pub fn symbol(self) -> &'static str {
        self.row().3
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An axis and its length.
pub type Dim = (Axis, usize);

/// A tensor's axes with their lengths, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes(Vec<Dim>);

impl Axes {
    /// Axes with their lengths.
    pub fn new(axes: impl Into<Vec<Dim>>) -> Self {
        Self(axes.into())
    }

    /// The axes and lengths, outermost first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Dim> + DoubleEndedIterator + '_ {
        self.0.iter().copied()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The lengths alone.
    pub fn shape(&self) -> Vec<usize> {
        self.iter().map(|(_, size)| size).collect()
    }

    /// The names alone.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|(axis, _)| axis.name().to_owned()).collect()
    }

    /// The length of the last axis; 1 where there is none.
    pub fn last_size(&self) -> u128 {
        self.0.last().map_or(1, |(_, size)| *size as u128)
    }

    /// The number of elements; saturates where no number could hold it.
    pub fn count(&self) -> u128 {
        self.iter().fold(1, |count, (_, size)| count.saturating_mul(size as u128))
    }

    /// The last axes of these, of the lengths that `shape` has.
    pub fn last_of(self, shape: &[usize]) -> Self {
        let last = self.0.iter().rev().zip(shape.iter().rev());
        let mut axes: Vec<Dim> = last.map(|((axis, _), size)| (*axis, *size)).collect();
        axes.reverse();
        Self(axes)
    }

    /// The batch item of an index: the first where all items share the tensor.
    pub fn item(&self, index: &[usize]) -> usize {
        match (self.iter().next(), index.first()) {
            (Some((Axis::Batch, _)), Some(item)) => *item,
            _ => 0,
        }
    }
}

impl fmt::Display for Axes {
    /// `(batch 1, head 2, query 4, key 4)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<_> = self.iter().map(|(axis, size)| format!("{axis} {size}")).collect();
        write!(f, "({})", axes.join(", "))
    }
}

/// The index of the element that stands at `at` in row-major order.
pub fn unravel(at: usize, dims: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index: Vec<usize> = dims
        .iter()
        .rev()
        .map(|dim| {
            let here = rest % dim.max(&1);
            rest /= dim.max(&1);
            here
        })
        .collect();
    index.reverse();
    index
}

/// A whole number as an index or a count; nothing where it is none.
pub fn whole(value: f64) -> Option<usize> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (value >= 0.0 && value.fract() == 0.0 && value < 9e15).then_some(value as usize)
}

/// A count with a sign: the largest there is for one that is larger.
pub fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The lengths of axes.
pub(crate) fn sizes(dims: &[Dim]) -> Vec<usize> {
    dims.iter().map(|(_, size)| *size).collect()
}

/// Whether axes have the last lengths of others, each whole or 1, so that numbers on them stand for all of these.
pub fn stretches(own: &[Dim], whole: &[Dim]) -> bool {
    let mut pairs = own.iter().rev().zip(whole.iter().rev());
    own.len() <= whole.len() && pairs.all(|((_, own), (_, size))| own == size || *own == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_show_names_and_lengths() {
        let axes = Axes::new([(Axis::Batch, 2), (Axis::Head, 3), (Axis::Query, 5), (Axis::Key, 5)]);
        assert_eq!(axes.to_string(), "(batch 2, head 3, query 5, key 5)");
        assert_eq!((axes.count(), axes.rank()), (150, 4));
    }

    #[test]
    fn names_read_back() {
        for axis in Axis::ALL {
            assert_eq!(Axis::named(axis.name()), Some(axis));
        }
    }

    #[test]
    fn a_count_beyond_any_number_saturates() {
        assert_eq!(Axes::new(vec![(Axis::Batch, usize::MAX); 3]).count(), u128::MAX);
    }
}
