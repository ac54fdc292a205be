//! What a page keeps of a trace that is too large for it: the first places of every axis.

use std::collections::BTreeMap;

use candle_core::Tensor;

use super::texts;
use base::error::Result;
use base::lang;

/// The bytes of tensors that a page holds before they are written as text, which takes a third more: a run of two items
/// of 64 tokens with `d_model` 128 and 8 heads is held whole with two sides in f32, and such a page opens within a second.
const MOST: u128 = 4_500_000;
/// No axis is cut to less than this.
const LEAST: usize = 4;

/// The axes of a tensor, by name.
pub type Sizes = Vec<(String, usize)>;

/// How many places are kept of the axes of each name.
#[derive(Debug, Default)]
pub struct Kept {
    longest: BTreeMap<String, usize>,
    kept: BTreeMap<String, usize>,
}

impl Kept {
    /// What is kept of these tensors: their axes, and the bytes of a number in all that is held of them.
    pub fn of(tensors: &[(Sizes, u128)]) -> Self {
        let mut longest: BTreeMap<String, usize> = BTreeMap::new();
        for (name, size) in tensors.iter().flat_map(|(axes, _)| axes) {
            let own = longest.entry(name.clone()).or_default();
            *own = (*own).max(*size);
        }
        let mut all = Self { kept: longest.clone(), longest };
        while all.bytes(tensors) > MOST {
            let most = all.kept.values_mut().max().filter(|size| **size > LEAST);
            let Some(most) = most else { break };
            *most = most.div_ceil(2);
        }
        all
    }

    fn bytes(&self, tensors: &[(Sizes, u128)]) -> u128 {
        let of = |(axes, size): &(Sizes, u128)| {
            axes.iter().fold(*size, |sum, axis| sum.saturating_mul(self.size(axis) as u128))
        };
        tensors.iter().map(of).fold(0, u128::saturating_add)
    }

    /// How many places the page has of an axis.
    pub fn size(&self, (name, size): &(String, usize)) -> usize {
        self.kept.get(name).map_or(*size, |kept| *kept.min(size))
    }

    /// The part of a tensor that the page has.
    pub fn cut(&self, axes: &Sizes, tensor: &Tensor) -> Result<Tensor> {
        let cut = axes.iter().enumerate().try_fold(tensor.clone(), |cut, (at, axis)| {
            let size = self.size(axis).min(cut.dims().get(at).copied().unwrap_or(0));
            cut.narrow(at, 0, size)
        });
        Ok(cut?)
    }

    /// What to say of what is left out, if anything is.
    pub fn notice(&self) -> Option<String> {
        let cut = self.kept.iter().filter_map(|(name, kept)| {
            let longest = self.longest.get(name).filter(|longest| *longest > kept)?;
            Some(texts::kept(*kept, *longest, name))
        });
        let cut: Vec<String> = cut.collect();
        (!cut.is_empty()).then(|| texts::thinned(&lang::list(&cut)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(sizes: &[(&str, usize)]) -> Sizes {
        sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
    }

    #[test]
    fn small_ones_are_whole_and_large_ones_fit() {
        let small = [(axes(&[("query", 5), ("key", 7)]), 4)];
        let kept = Kept::of(&small);
        assert_eq!((kept.notice(), kept.size(&("key".to_owned(), 7))), (None, 7));
        let large = [(axes(&[("head", 32), ("query", 9000), ("key", 9000)]), 4)];
        let kept = Kept::of(&large);
        assert!(kept.bytes(&large) <= MOST);
        let notice = kept.notice().expect("it is cut");
        assert!(notice.contains("of 9000"), "{notice}");
    }

    #[test]
    fn what_cannot_be_cut_enough_ends() {
        let many: Vec<(Sizes, u128)> =
            (0..200).map(|_| (axes(&[("a", 4), ("b", 4), ("c", 4), ("d", 4)]), 800)).collect();
        assert_eq!(Kept::of(&many).notice(), None);
    }
}
