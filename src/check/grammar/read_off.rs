//! What do masks that are read off from recorded numbers change, and from which numbers are they read off?

use candle_core::Tensor;

use super::Grammar;
use crate::candidate::Candidate;
use config::Sizes;
use program::{Name, Trace};

/// That these cells are blocked, true = blocked, and no others.
pub fn masked(
    right: &Trace,
    sizes: &Sizes,
    cells: Tensor,
    told: String,
    cost: u32,
) -> Option<Candidate> {
    let mut grammar = Grammar { right, sizes, found: Vec::new() };
    grammar.masked_as(cells, told, cost);
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
