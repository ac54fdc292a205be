//! Cells of traces, and how the numbers in them came about.

use std::str::FromStr;

use super::graph::{Program, Step, Trace};
use super::name::Name;
use super::op::Op;
use super::terms::{Reason, Term, Value, broadcast};
use crate::error::{Error, Result, near_miss, shown};

/// A cell of a step, written as `scores[0,1,2,3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The step's name.
    pub step: String,
    /// An index an axis, outermost first.
    pub index: Vec<usize>,
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().strip_suffix(']').and_then(|text| text.split_once('['));
        let wrong = || format!("`{}` is no cell such as scores[0,1,2,3]", shown(text));
        let (step, index) = parts.ok_or_else(wrong)?;
        let index: Result<Vec<usize>, _> = index.split(',').map(|at| at.trim().parse()).collect();
        Ok(Self { step: step.trim().to_owned(), index: index.map_err(|_| wrong())? })
    }
}

/// How the number in a cell came about.
#[derive(Debug)]
#[non_exhaustive]
pub struct Explanation<'a> {
    /// The cell's step.
    pub step: &'a Step,
    /// The cell's value.
    pub value: f64,
    /// What adds up to it; nothing for what is given, and for masks.
    pub terms: Vec<Term>,
    /// Why the cell is blocked, where it is.
    pub reasons: Vec<Reason>,
}

impl Trace {
    /// Explains a cell.
    ///
    /// # Errors
    /// If there is no such step, or no such cell in it.
    pub fn explain(&self, cell: &Cell) -> Result<Explanation<'_>> {
        let found = Name::named(&cell.step).and_then(|name| self.position(name));
        let at = found.ok_or_else(|| self.no_step(&cell.step))?;
        let step = &self.steps()[at];
        let sizes = step.axes.shape();
        let is_there = sizes.len() == cell.index.len()
            && cell.index.iter().zip(&sizes).all(|(at, size)| at < size);
        if !is_there {
            let what = format!("has no cell {:?}: it is {}", cell.index, step.axes);
            let fix = "give an index an axis, counted from 0";
            return Err(Error::tensor(step.name, what, fix));
        }
        let value = value_of(step).at(&cell.index)?.value;
        let inputs: Vec<Value> = self.read_by(step).into_iter().map(value_of).collect();
        let terms = step.op.operation().terms(&inputs, &cell.index)?;
        let mut reasons = Vec::new();
        self.add_reasons(step, &cell.index, &mut reasons)?;
        Ok(Explanation { step, value, terms, reasons })
    }

    /// Why a cell of a mask is true, or why a mask blocks a cell of scores.
    fn add_reasons(&self, step: &Step, cell: &[usize], reasons: &mut Vec<Reason>) -> Result<()> {
        let is_mask = step.name.row().is_boolean;
        if is_mask && value_of(step).at(cell)?.value == 0.0 {
            return Ok(());
        }
        if is_mask && step.op == Op::Given {
            reasons.push(Reason::Given(step.name));
            return Ok(());
        }
        reasons.extend(step.op.operation().reason(cell));
        if !is_mask && step.op.operation().fill().is_none() {
            return Ok(());
        }
        for mask in self.read_by(step).into_iter().filter(|read| read.name.row().is_boolean) {
            self.add_reasons(mask, &broadcast(cell, mask.value.dims()), reasons)?;
        }
        Ok(())
    }
}

impl<V> Program<V> {
    /// The error for a step that this run does not have.
    pub(crate) fn no_step(&self, name: &str) -> Error {
        let names: Vec<&str> = self.steps().iter().map(|step| step.name.as_str()).collect();
        let shown_names = self.steps().iter().filter(|step| !step.name.row().is_inner);
        let listed: Vec<&str> = shown_names.map(|step| step.name.as_str()).collect();
        let fix = match near_miss(name, &names) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("this run has {}", listed.join(", ")),
        };
        Error::config(format!("this run has no step {}", shown(name)), fix)
    }
}

fn value_of(step: &Step) -> Value<'_> {
    Value { name: step.name, tensor: &step.value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_reads() {
        let cell = Cell { step: "scores".to_owned(), index: vec![0, 1, 2, 3] };
        assert_eq!("scores[0,1,2,3]".parse(), Ok(cell.clone()));
        assert_eq!(" scores[0, 1,2, 3] ".parse(), Ok(cell));
        for text in ["scores", "scores[]", "scores[a]", "scores[0", "scores[-1]"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }
}
