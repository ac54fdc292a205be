//! What a page says of a cell beside its terms: sentences of `explain`, in which the script puts the numbers.

use serde::Serialize;

use crate::explain::{dropped, masked, moved};
use crate::label::fill;
use program::{Axes, Heads, Masking, Multiplier, Op, Pattern, Read, Step, Weighting, When};

/// A sentence, of the cells that it holds of. In braces stand `name` and `value` of the cell that is read, and places:
/// those of the cell itself, counted from 0, and behind them those of the cell that is read.
#[derive(Serialize)]
pub struct Note {
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
    read: Read,
    text: String,
}

/// What there is to say of a step's cells, of inputs with these axes.
pub fn notes<V>(step: &Step<V>, pattern: Option<&Pattern>, inputs: &[&Axes]) -> Vec<Note> {
    let Some(Pattern::Sum(products)) = pattern else { return Vec::new() };
    let reads = |at: usize| {
        products
            .first()?
            .factors
            .iter()
            .filter_map(|factor| match factor {
                Multiplier::Read(read) => Some(read.clone()),
                _ => None,
            })
            .nth(at)
    };
    let Some(read) = reads(0) else { return Vec::new() };
    let when = |cell: &Read, is_true| Some(When::Is(cell.clone(), is_true));
    match (&step.op, reads(1)) {
        (Op::Masking(Masking::Fill { .. }), _) => {
            let put = fill(step);
            let fills = products.iter().map(|products| products.when.clone());
            let of = |when: Option<When>| {
                let is_blocked = matches!(when, Some(When::Is(_, true)));
                let fill = put.as_deref().filter(|_| is_blocked);
                Note { when, read: read.clone(), text: masked("{value}", "{name}", fill) }
            };
            fills.map(of).collect()
        }
        (Op::Weighting(Weighting::Dropout { p }), Some(keep)) => [true, false]
            .map(|kept| Note {
                when: when(&keep, kept),
                read: read.clone(),
                text: dropped(kept, *p),
            })
            .into(),
        // The places of the cell, and of that which is read: (item, head, token, own), (item, token, feature).
        (Op::Heads(Heads::Split { heads }), _) if *heads > 1 => {
            let head_dim = step.axes.last_size();
            let text = moved(["{6}", "{1}", "{3}"], head_dim, true);
            vec![Note { when: None, read, text }]
        }
        // (item, token, feature), (item, head, token, own).
        (Op::Heads(Heads::Merge), _) => match inputs {
            [heads] if heads.shape().get(1).is_some_and(|heads| *heads > 1) => {
                let text = moved(["{2}", "{4}", "{6}"], heads.last_size(), false);
                vec![Note { when: None, read, text }]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
