//! What do masks that are read off from recorded numbers change, and from which numbers are they read off?

use candle_core::Tensor;

use super::Grammar;
use super::part_keys::Keys;
use crate::candidate::{Candidate, Edits, cost};
use config::Sizes;
use program::{Axis, Block, Change, Edit, Kind, Name, Slip, Trace};

/// That these cells are blocked, true = blocked, and no others, if that is said; and that keys count as often as these logarithms
/// say, likewise.
pub fn counted(
    right: &Trace,
    sizes: &Sizes,
    blocked: Option<Tensor>,
    logs: Option<Tensor>,
    told: String,
    cost: u32,
) -> Option<Candidate> {
    let mut grammar = Grammar { right, sizes, found: Vec::new() };
    let at = grammar.blocked_at().first()?.name;
    let mut edits = Edits::new();
    let kind = if blocked.is_some() { Kind::Mask } else { Kind::Repeated };
    if let Some(cells) = blocked {
        grammar.masked_as(cells, "", cost);
        edits.extend(grammar.found.pop()?.edits);
    }
    if let Some(cells) = logs {
        let readers = grammar.readers_of_scores();
        // What is the largest is not larger for being there twice.
        let readers =
            readers.into_iter().filter(|step| !matches!(step.name, Name::SplitMax | Name::TileMax));
        let count = Slip::Counted(Block { cells, fill: 0.0 });
        edits.extend(readers.map(|step| Edit::new(step.name, Change::before(0, count.clone()))));
    }
    grammar.add_all(kind, cost, edits, at, told);
    grammar.found.pop()
}

/// That parts have these keys.
pub fn with_keys(right: &Trace, sizes: &Sizes, keys: &Keys, told: String) -> Option<Candidate> {
    let mut grammar = Grammar { right, sizes, found: Vec::new() };
    let is_tile = right.parts()?.axis == Axis::Tile;
    let steps = if is_tile {
        [Name::TileMax, Name::TileSum, Name::TileAcc]
    } else {
        [Name::SplitMax, Name::SplitSum, Name::SplitAcc]
    };
    let edits = steps.into_iter().filter_map(|at| grammar.with_keys(at, keys)).collect();
    grammar.add_all(Kind::Axes, cost::FITTED, edits, steps[0], told);
    grammar.found.pop()
}

/// The operands of products of queries, keys and values: the step, the slot that reads one of them, and what it reads.
pub fn products(right: &Trace, sizes: &Sizes) -> Vec<(Name, usize, Name)> {
    Grammar { right, sizes, found: Vec::new() }.products()
}

/// The scores of which some are blocked, and the values whose weighted sums heads give.
pub fn scores_and_values(right: &Trace, sizes: &Sizes) -> Option<[Name; 2]> {
    let grammar = Grammar { right, sizes, found: Vec::new() };
    let scores = grammar.read(grammar.blocked_at().first()?).first().copied()?;
    let (.., values) = grammar.products().pop()?;
    Some([scores, values])
}
