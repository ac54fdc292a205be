//! A number followed back through the steps that it is made of.

use std::collections::HashMap;

use super::cell::Cell;
use super::graph::Trace;
use super::name::Name;
use super::pattern::Pattern;
use super::terms::Term;
use base::error::Result;

/// A number and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// The cell.
    pub cell: Cell,
    /// Its value.
    pub value: f64,
    /// Its terms, the largest first; nothing where they are not followed.
    pub branches: Vec<Branch>,
    /// How many smaller terms are left out, and what they add up to.
    pub rest: Option<(usize, f64)>,
    /// Whether the same cell is followed as far in an earlier part of the tree.
    pub is_above: bool,
}

/// A term, and the computed numbers in it, followed further.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// The term.
    pub term: Term,
    /// What its factors are made of, of those that a step computed.
    pub factors: Vec<Tree>,
}

/// How far a number is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Through how many steps: 1 gives the terms of the number alone.
    pub depth: usize,
    /// How many terms of a sum, the largest; terms of 0 are left out unless all are asked for, by `usize::MAX`.
    pub terms: usize,
    /// How many numbers in all; the last ones are not followed further.
    pub numbers: usize,
}

/// A tree, and whether it ends where more could be followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// The tree.
    pub tree: Tree,
    /// Whether the depth ended it.
    pub is_deeper: bool,
    /// Whether there were too many numbers.
    pub is_larger: bool,
}

impl Trace {
    /// Follows a number back to the numbers that it is made of, and those to theirs.
    ///
    /// # Errors
    /// If there is no such step, or no such cell in it.
    pub fn follow(&self, cell: &Cell, reach: Reach) -> Result<Followed> {
        let (is_deeper, is_larger) = (false, false);
        let (seen, patterns) = (HashMap::new(), HashMap::new());
        let mut walk = Walk { trace: self, reach, seen, patterns, is_deeper, is_larger };
        let tree = walk.tree(cell, reach.depth)?;
        Ok(Followed { tree, is_deeper: walk.is_deeper, is_larger: walk.is_larger })
    }
}

struct Walk<'a> {
    trace: &'a Trace,
    reach: Reach,
    /// The cells that were followed, and how far.
    seen: HashMap<Cell, usize>,
    /// The rules of the steps that were met.
    patterns: HashMap<Name, Pattern>,
    is_deeper: bool,
    is_larger: bool,
}

impl Walk<'_> {
    fn tree(&mut self, cell: &Cell, depth: usize) -> Result<Tree> {
        let (step, value) = self.trace.cell(cell)?;
        let (mut branches, mut rest) = (Vec::new(), None);
        let is_above = self.seen.get(cell).is_some_and(|before| *before >= depth);
        self.is_larger |= self.seen.len() >= self.reach.numbers;
        self.is_deeper |= depth == 0;
        if !is_above && depth > 0 && self.seen.len() < self.reach.numbers {
            self.seen.insert(cell.clone(), depth);
            let pattern = self.patterns.entry(step.name);
            let pattern = pattern.or_insert_with(|| self.trace.pattern(step));
            let (mut terms, _) = self.trace.worked_out(step, pattern, &cell.index)?;
            let size = |term: &Term| term.value().abs();
            // NaN counts as the largest.
            terms.sort_by(|left, right| size(right).total_cmp(&size(left)));
            // Terms of 0 make nothing of it, unless it is one of them.
            let nonzero = terms.iter().filter(|term| term.value() != 0.0).count().max(1);
            let kept = if self.reach.terms < usize::MAX { nonzero } else { terms.len() };
            let left_out = terms.split_off(self.reach.terms.min(kept).min(terms.len()));
            let sum = || left_out.iter().fold(0.0, |sum, term| sum + term.value());
            rest = (!left_out.is_empty()).then(|| (left_out.len(), sum()));
            for term in terms {
                let factors = self.factors(&term, depth - 1)?;
                branches.push(Branch { term, factors });
            }
        }
        Ok(Tree { cell: cell.clone(), value, branches, rest, is_above })
    }

    /// The computed numbers in a term, where they are followed.
    fn factors(&mut self, term: &Term, depth: usize) -> Result<Vec<Tree>> {
        let mut followed = Vec::new();
        for cell in term.0.iter().filter_map(|factor| factor.cell.as_ref()) {
            if !self.trace.cell(cell)?.0.is_computed() {
                continue;
            }
            if depth == 0 {
                self.is_deeper = true;
            } else {
                followed.push(self.tree(cell, depth)?);
            }
        }
        Ok(followed)
    }
}
