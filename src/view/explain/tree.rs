//! A number followed back towards what is given, as a tree of lines.

use candle_core::DType;
use serde_json::{Value, json};

use super::terms::{exact, product};
use crate::View;
use crate::number::brief;
use crate::page::Block;
use base::error::Result;
use program::{Branch, Cell, Factor, Followed, Reach, Term, Trace, Tree};

/// How many terms of a sum are followed, unless all are asked for.
const LARGEST: usize = 3;

/// More numbers than this nobody reads.
const NUMBERS: usize = 5000;

fn follow(trace: &Trace, cell: &Cell, depth: usize, full: bool) -> Result<Followed> {
    let terms = if full { usize::MAX } else { LARGEST };
    trace.follow(cell, Reach { depth, terms, numbers: NUMBERS })
}

/// The terms of a cell, the largest first, and what they are made of, through so many steps.
///
/// # Errors
/// If the run has no such cell.
pub fn tree(trace: &Trace, cell: &Cell, depth: usize, view: &View) -> Result<Vec<Block>> {
    let Followed { tree, is_deeper, is_larger, .. } = follow(trace, cell, depth, view.full)?;
    let mut lines = Lines { blocks: Vec::new(), decimals: view.decimals };
    lines.terms(&tree, "  ");
    let mut notes = Vec::new();
    if is_larger {
        notes.push(tr!("more than {NUMBERS} numbers: only the first ones are followed", NUMBERS));
    }
    if is_deeper {
        notes.push(
            tr!("a larger --depth follows further back, and --depth all back to the inputs")
                .to_owned(),
        );
    }
    lines.blocks.extend(notes.into_iter().map(|note| Block::Prose(1, note)));
    Ok(lines.blocks)
}

struct Lines {
    blocks: Vec<Block>,
    decimals: usize,
}

impl Lines {
    fn number(&self, value: f64) -> String {
        brief(value, self.decimals)
    }

    /// A line of the tree: what stands before it, whether it is the last of its branch, and its text. What stands before
    /// the lines below it is given back.
    fn line(&mut self, before: &str, is_last: bool, text: String) -> String {
        let (turn, on) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
        let below = format!("{before}{on}");
        let first = format!("{before}{turn}");
        self.blocks.push(Block::Branch { first, below: format!("{below}  "), text });
        below
    }

    /// The terms of a number, a line each.
    fn terms(&mut self, tree: &Tree, before: &str) {
        let count = tree.branches.len();
        for (at, Branch { term, factors, .. }) in tree.branches.iter().enumerate() {
            let is_last = at + 1 == count && tree.rest.is_none();
            let text = format!("{} = {}", self.number(term.value()), self.product(term));
            let below = self.line(before, is_last, text);
            self.numbers(factors, &below);
        }
        self.rest(tree, before);
    }

    fn rest(&mut self, tree: &Tree, before: &str) {
        if let Some((count, sum)) = tree.rest {
            let all = if count == 1 {
                tr!("1 more term").to_owned()
            } else {
                tr!("{count} more, together", count)
            };
            self.line(before, true, format!("{} = {all}", self.number(sum)));
        }
    }

    /// Numbers and what they are made of; one of a single term has it on its own line, and one that only moves stands
    /// beside those that it comes from.
    fn numbers(&mut self, numbers: &[Tree], before: &str) {
        for (at, tree) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            let (names, tree) = moved(tree);
            let own = format!("{} = {}", names.join(" = "), self.number(tree.value));
            match tree.branches.as_slice() {
                _ if tree.is_above => {
                    self.line(before, is_last, tr!("{own}, as above", own));
                }
                [Branch { term, .. }] if moves(term) => {
                    self.line(before, is_last, own);
                }
                [Branch { term, factors, .. }] if tree.rest.is_none() => {
                    let made = self.product(term);
                    let below = self.line(before, is_last, format!("{own} = {made}"));
                    self.numbers(factors, &below);
                }
                _ => {
                    let below = self.line(before, is_last, own);
                    self.terms(tree, &below);
                }
            }
        }
    }

    fn product(&self, term: &Term) -> String {
        product(term, self.decimals)
    }
}

/// Whether a number is another one that has moved.
fn moves(term: &Term) -> bool {
    let is_cell =
        |factor: &Factor| factor.cell.as_ref().is_some_and(|cell| cell.to_string() == factor.name);
    matches!(term.0.as_slice(), [only] if is_cell(only))
}

/// The names of a number along the steps that only move it, and the first that is made of others.
fn moved(mut tree: &Tree) -> (Vec<String>, &Tree) {
    let mut names = vec![tree.cell.to_string()];
    while let [Branch { term, factors, .. }] = tree.branches.as_slice()
        && moves(term)
    {
        names.extend(term.0.iter().map(|factor| factor.name.clone()));
        match factors.first() {
            Some(next) => tree = next,
            None => break,
        }
    }
    (names, tree)
}

/// The same as JSON, of a run in that type.
///
/// # Errors
/// If the run has no such cell.
pub fn tree_json(
    trace: &Trace,
    cell: &Cell,
    depth: usize,
    full: bool,
    dtype: DType,
) -> Result<Value> {
    Ok(node(&follow(trace, cell, depth, full)?.tree, dtype))
}

fn node(tree: &Tree, dtype: DType) -> Value {
    let exact = |value| exact(value, dtype);
    let branch = |branch: &Branch| {
        let names: Vec<&str> = branch.term.0.iter().map(|factor| factor.name.as_str()).collect();
        let factors: Vec<Value> = branch.factors.iter().map(|factor| node(factor, dtype)).collect();
        json!({ "factors": names, "product": exact(branch.term.value()), "made_of": factors })
    };
    let rest = tree.rest.map(|(count, sum)| json!({ "terms": count, "sum": exact(sum) }));
    json!({
        "cell": tree.cell.to_string(),
        "value": exact(tree.value),
        "terms": tree.branches.iter().map(branch).collect::<Vec<_>>(),
        "rest": rest,
        "above": tree.is_above,
    })
}
