//! Which part of a tensor is shown.

use super::View;
use program::unravel;

/// A tensor with more elements than this is cut to its edges, as torch's printing does.
const THRESHOLD: usize = 1000;

/// An axis of a table that is longer than this is cut: so many numbers fit a line of 120 columns.
const LONGEST: usize = 12;

/// Where a step has more tables than this, each outer axis is cut to its first and its last place.
const MOST_TABLES: usize = 8;

/// One axis: the indices that are shown, with a gap where some are left out.
pub struct Shown {
    pub indices: Vec<Option<usize>>,
    /// How many are left out.
    pub left_out: usize,
}

/// What is shown of the axes of a tensor, of which some may be picked to a single place: all that is not too much, or
/// what the view asks for.
pub fn shown(sizes: &[(usize, Option<usize>)], view: &View) -> Vec<Shown> {
    let kept = |&(size, picked): &(usize, Option<usize>)| picked.map_or(size, |_| 1);
    let outer = sizes.len().saturating_sub(2);
    let tables: usize = sizes.iter().take(outer).map(kept).product();
    let is_large = sizes.iter().map(kept).product::<usize>() > THRESHOLD;
    let edge = |at: usize, size: usize| match view.edge {
        _ if view.full => None,
        Some(edge) => Some(edge),
        None if at < outer => (tables > MOST_TABLES).then_some(1),
        None => (is_large || size > LONGEST).then_some(View::EDGE),
    };
    let axis = |(at, &(size, picked)): (usize, &(usize, Option<usize>))| {
        if let Some(only) = picked {
            return Shown { indices: vec![Some(only)], left_out: 0 };
        }
        match edge(at, size) {
            // A gap takes the room of one.
            Some(edge) if size > edge.saturating_mul(2).saturating_add(1) => {
                let ends = (0..edge).map(Some).chain([None]).chain((size - edge..size).map(Some));
                Shown { indices: ends.collect(), left_out: size - 2 * edge }
            }
            _ => Shown { indices: (0..size).map(Some).collect(), left_out: 0 },
        }
    };
    sizes.iter().enumerate().map(axis).collect()
}

/// Every combination of the shown indices, the last running fastest; a gap stands once for all that it hides, and
/// ends its index.
pub fn product(axes: &[Shown]) -> Vec<Vec<Option<usize>>> {
    let sizes: Vec<usize> = axes.iter().map(|axis| axis.indices.len()).collect();
    let count = sizes.iter().product();
    let pick = |at: usize| -> Vec<Option<usize>> {
        let index = unravel(at, &sizes);
        let mut picked: Vec<Option<usize>> =
            axes.iter().zip(index).filter_map(|(axis, at)| axis.indices.get(at).copied()).collect();
        if let Some(gap) = picked.iter().position(Option::is_none) {
            picked.truncate(gap + 1);
        }
        picked
    };
    let mut all: Vec<_> = (0..count).map(pick).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(sizes: &[usize], view: &View) -> Vec<usize> {
        let axes: Vec<_> = sizes.iter().map(|size| (*size, None)).collect();
        shown(&axes, view).iter().map(|axis| axis.left_out).collect()
    }

    #[test]
    fn what_is_too_much_is_cut() {
        let view = View::default();
        assert_eq!(left_out(&[1, 2, 4, 8], &view), [0; 4], "the walkthrough is whole");
        assert_eq!(left_out(&[3, 2, 128], &view), [0, 0, 122]);
        assert_eq!(left_out(&[3, 8, 2, 16], &view), [0, 6, 0, 10]);
        assert_eq!(left_out(&[8, 12, 11], &view), [0, 6, 5], "beyond a thousand");
        assert_eq!(left_out(&[2, 12, 12], &view), [0; 3]);
    }

    #[test]
    fn an_edge_that_is_given_is_obeyed() {
        let view = View { edge: Some(1), ..View::default() };
        assert_eq!(left_out(&[1, 3, 4, 8], &view), [0, 0, 2, 6]);
        let whole = View { full: true, ..view };
        assert_eq!(left_out(&[1, 3, 4, 8], &whole), [0; 4]);
    }
}
