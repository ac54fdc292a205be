//! What do people get wrong with what stands behind keys, features or columns?

use super::Sibling;
use program::{Added, Along, Axes, Heads, Kind, Slip};

/// The last `count` places of an axis before the others, where they should stand behind them.
fn in_front(whole: usize, count: usize, axis: usize, kind: Kind, told: &str) -> Sibling {
    let places = (0..whole).map(|at| (at + whole - count) % whole.max(1)).collect();
    Sibling::after(Slip::Along(axis, Along::Take(places)), kind, told)
}

fn size(inputs: &[&Axes], input: usize, axis: usize) -> usize {
    inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
}

pub fn of_heads(own: &Heads, inputs: &[&Axes]) -> Vec<Sibling> {
    match own {
        Heads::Join => {
            let (own, shared) = (size(inputs, 0, 3), size(inputs, 1, 3));
            let told = tr!("the features that all heads share stand before those of each head");
            vec![in_front(own + shared, shared, 3, Kind::Axes, told)]
        }
        Heads::Split { .. }
        | Heads::Repeat { .. }
        | Heads::Append
        | Heads::Extend { .. }
        | Heads::Merge
        | Heads::Sum
        | Heads::Gather
        | Heads::HandOn
        | Heads::Rearrange(_) => Vec::new(),
    }
}

pub fn siblings(own: &Added, inputs: &[&Axes]) -> Vec<Sibling> {
    let first = || {
        let told = tr!("the added key stands in front of the others");
        in_front(size(inputs, 0, 2) + 1, 1, 2, Kind::Axes, told)
    };
    match *own {
        Added::Learned => {
            let told = tr!("zeros are appended in place of what was learned");
            vec![Sibling::new(Added::Zeros, Kind::Replaced, told), first()]
        }
        Added::Zeros => vec![first()],
        Added::Columns { is_blocked: true, .. } => Vec::new(),
        Added::Columns { keys, count, is_blocked: false } => {
            let blocked = Added::Columns { keys, count, is_blocked: true };
            let told = tr!("nobody sees the added keys: they are not appended, \
                or their columns are padded as blocked");
            let last = inputs.first().map_or(0, |axes| axes.rank().saturating_sub(1));
            let front =
                tr!("the columns of the added keys stand in front of the mask, not behind it");
            vec![
                Sibling::new(blocked, Kind::Mask, told),
                in_front(keys + count, count, last, Kind::Mask, front),
            ]
        }
    }
}
