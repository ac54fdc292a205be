//! How did the numbers of a trace come about?

use super::axis::Axes;
use super::cell::Cell;
use super::graph::{Program, Step, Trace};
use super::misread::Misread;
use super::name::Name;
use super::op::Op;
use super::ops::Weighting;
use super::pattern::Pattern;
use super::pattern_terms::Worked;
use super::role::{BlockedCells, Role};
use super::terms::{Reason, Term, Value, broadcast};
use super::working::{Exponential, Exponentials, Working};
use base::error::{Error, Result, near_miss, shown};
use base::lang::{self, Language};

/// How the number in a cell came about.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// The cell's step.
    pub step: &'a Step,
    /// The cell's value.
    pub value: f64,
    /// What adds up to it; nothing for what is given, and for masks.
    pub terms: Vec<Term>,
    /// What was worked out on the way.
    pub working: Working,
    /// Of a row of scores: the step's own numbers of that row, if it has one for every score, and why keys are blocked.
    pub row: Vec<RowCell>,
    /// Why the cell is blocked, where it is.
    pub reasons: Vec<Reason>,
    /// Where a NaN comes from.
    pub nan: Option<NanSource>,
}

/// What there is to say of a key in a row that softmax reads.
#[derive(Debug, Clone, PartialEq)]
pub struct RowCell {
    /// The step's own number, if it has one for the key.
    pub value: Option<f64>,
    /// Why the key is blocked, where it is.
    pub reasons: Vec<Reason>,
}

/// Where a NaN comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct NanSource {
    /// The first cell on the way that is NaN.
    pub cell: Cell,
    /// Why it is.
    pub cause: NanCause,
}

/// Why a number is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanCause {
    /// It is given as such.
    Given,
    /// It was recorded as such, and what it is made of gives a number.
    Recorded,
    /// Softmax of −∞ alone: every key of its row is blocked.
    EmptyRow,
    /// ∞ − ∞, or 0 · ∞, of numbers that are none themselves.
    Infinite,
}

impl Trace {
    /// Explains a cell.
    ///
    /// # Errors
    /// If there is no such step, or no such cell in it.
    pub fn explain(&self, cell: &Cell) -> Result<Explanation<'_>> {
        let (step, value) = self.cell(cell)?;
        let (terms, working) = self.worked_out(step, &self.pattern(step), &cell.index)?;
        let row = match &working {
            Working::Softmax(row) => self.row(step, row)?,
            _ => Vec::new(),
        };
        let nan = if value.is_nan() { Some(self.nan_source(step, &cell.index)?) } else { None };
        let reasons = self.reasons(step, &cell.index)?;
        Ok(Explanation { step, value, terms, working, row, reasons, nan })
    }

    /// The step of a cell, which it has.
    fn step_of(&self, cell: &Cell) -> Result<&Step> {
        let found = Name::named(&cell.step).and_then(|name| self.step(name));
        let step = found.ok_or_else(|| self.no_step(&cell.step))?;
        let sizes = step.axes.shape();
        let is_there = sizes.len() == cell.index.len()
            && cell.index.iter().zip(&sizes).all(|(at, size)| at < size);
        if !is_there {
            let what = tr!(
                "has no cell {index}; its shape is {axes}",
                index = format!("{:?}", cell.index),
                axes = step.axes
            );
            let fix = tr!("give one index per axis, counted from 0");
            return Err(Error::tensor(step.name, what, fix));
        }
        Ok(step)
    }

    /// The step of a cell, and its value.
    pub(super) fn cell(&self, cell: &Cell) -> Result<(&Step, f64)> {
        let step = self.step_of(cell)?;
        Ok((step, value_of(step).at(&cell.index)?.value))
    }

    /// How the number in a cell of a step of this pattern is worked out.
    pub(super) fn worked_out(
        &self,
        step: &Step,
        pattern: &Pattern,
        cell: &[usize],
    ) -> Result<Worked> {
        let inputs: Vec<Value> = self.read_by(step).into_iter().map(value_of).collect();
        if step.name.row().is_boolean {
            return Ok((Vec::new(), Working::Plain));
        }
        let (terms, working) = pattern.worked_out(&inputs, cell)?;
        Ok(match (&step.op, terms.as_slice(), inputs.as_slice()) {
            (op, [], _) => (op.operation().terms(&inputs, cell)?, working),
            (Op::Heads(heads), _, [input]) => (terms, heads.moved(input.tensor.dims(), cell)),
            (Op::Weighting(Weighting::Dropout { p }), [Term(factors)], _) => {
                let is_kept = factors.get(1).is_some_and(|keep| keep.value != 0.0);
                (terms, Working::Dropped { is_kept, p: *p })
            }
            _ => (terms, working),
        })
    }

    /// What there is to say of every key in a row that softmax reads.
    fn row(&self, step: &Step, row: &Exponentials) -> Result<Vec<RowCell>> {
        let scores = self.read_by(step).into_iter().next();
        let has_own = scores.is_some_and(|scores| scores.axes == step.axes);
        let cell = |key: &Exponential| {
            let Some((scores, place)) = scores.zip(key.score.cell.as_ref()) else {
                return Ok(RowCell { value: None, reasons: Vec::new() });
            };
            let own = has_own.then(|| value_of(step).at(&place.index)).transpose()?;
            let reasons = self.reasons(scores, &place.index)?;
            Ok(RowCell { value: own.map(|own| own.value), reasons })
        };
        row.keys.iter().map(cell).collect()
    }

    /// Why a cell of a mask is true, or why masks block a cell of scores or weights.
    fn reasons(&self, step: &Step, cell: &[usize]) -> Result<Vec<Reason>> {
        let mut reasons = Vec::new();
        self.add_reasons(step, cell, &mut reasons)?;
        Ok(reasons)
    }

    fn add_reasons(&self, step: &Step, cell: &[usize], reasons: &mut Vec<Reason>) -> Result<()> {
        let row = step.name.row();
        if row.is_boolean {
            if value_of(step).at(cell)?.value == 0.0 {
                return Ok(());
            }
            if step.op == Op::Given {
                reasons.push(Reason::Given(step.name));
                return Ok(());
            }
            if let Op::Masking(mask) = &step.op {
                reasons.extend(mask.reason(cell));
            }
        } else if row.blocked == BlockedCells::Unknown || !row.is_of_scores() {
            return Ok(());
        } else if row.role == Role::Setting && step.op == Op::Given {
            if value_of(step).at(cell)?.value == f64::NEG_INFINITY {
                reasons.push(Reason::Infinite(step.name));
            }
            return Ok(());
        }
        // Dropout's draw blocks no key.
        for read in self.read_by(step).into_iter().filter(|read| read.name.role() != Role::Random) {
            let place = broadcast(cell, read.value.dims());
            // What is said of tokens says nothing of keys that are added to them.
            let is_there = place.iter().zip(read.value.dims()).all(|(at, size)| at < size);
            if read.name.row().is_of_scores() && is_there {
                self.add_reasons(read, &place, reasons)?;
            }
        }
        Ok(())
    }

    /// Where the NaN in a cell comes from: of the cells that it is worked out from, the first that is NaN, and so on.
    fn nan_source(&self, step: &Step, index: &[usize]) -> Result<NanSource> {
        let (terms, working) = self.worked_out(step, &self.pattern(step), index)?;
        let factors = terms.iter().flat_map(|term| &term.0);
        // A factor that is made of a cell can be NaN where the cell is not.
        let mut cells = factors.chain(working.reads()).filter_map(|factor| factor.cell.as_ref());
        let is_nan = |cell: &&Cell| self.cell(cell).is_ok_and(|(_, value)| value.is_nan());
        if let Some(cell) = cells.find(is_nan) {
            return self.nan_source(self.step_of(cell)?, &cell.index);
        }
        let cause = match &working {
            _ if step.op == Op::Given => NanCause::Given,
            Working::Softmax(row) if row.largest == f64::NEG_INFINITY => NanCause::EmptyRow,
            _ if terms.is_empty() => NanCause::Infinite,
            _ if terms.iter().map(Term::value).sum::<f64>().is_nan() => NanCause::Infinite,
            _ => NanCause::Recorded,
        };
        Ok(NanSource { cell: value_of(step).at(index)?.cell.ok_or(Misread)?, cause })
    }
}

impl<V> Program<V> {
    /// The rule by which the cells of a step are made of those that it reads. Masks have none but for what joins others:
    /// they are told by their reasons.
    pub fn pattern(&self, step: &Step<V>) -> Pattern {
        let axes: Vec<&Axes> = self.read_by(step).into_iter().map(|read| &read.axes).collect();
        match step.op.operation().pattern(&axes) {
            Pattern::Sum(_) if step.name.row().is_boolean => Pattern::ByCell,
            pattern => pattern,
        }
    }

    /// The step's formula, with the names of the steps it reads: `scores_raw / √d_k`.
    pub fn formula(&self, step: &Step<V>) -> String {
        let names: Vec<&str> = self.read_by(step).iter().map(|read| read.name.as_str()).collect();
        let own = step.op.operation().formula(&names).ok();
        let formula = own.or_else(|| self.pattern(step).formula(&names));
        formula.unwrap_or_else(|| format!("{:?}", step.op))
    }

    /// The error for a step that this run does not have.
    pub fn no_step(&self, name: &str) -> Error {
        let names: Vec<&str> = self.steps().iter().map(|step| step.name.as_str()).collect();
        let shown_names = self.steps().iter().filter(|step| !step.name.row().is_inner);
        let listed: Vec<&str> = shown_names.map(|step| step.name.as_str()).collect();
        let missing = Name::named(name).filter(|name| !name.row().brought_by.is_empty());
        let near = near_miss(name, &names).or_else(|| self.step_about(name));
        let fix = match (missing, near) {
            (Some(missing), _) => {
                tr!("it comes with {brought_by}", brought_by = missing.row().brought_by)
            }
            (None, Some(near)) => tr!("did you mean {near}?", near),
            (None, None) => tr!("this run has {listed}", listed = lang::list(&listed)),
        };
        Error::config(tr!("this run has no step {shown}", shown = shown(name)), fix)
    }

    /// The step that a word tells of, as `softmax` or `attention weights`: the function of its formula, or else a part of its
    /// title in any language, of which the shortest counts.
    fn step_about(&self, word: &str) -> Option<&'static str> {
        let word = word.to_lowercase();
        // The function of a formula: softmax(QKᵀ).
        let word = word.split_once('(').map_or(word.as_str(), |(function, _)| function.trim());
        let steps = || self.steps().iter().filter(|step| !step.name.row().is_inner);
        let is_function = |step: &&Step<V>| self.formula(step).starts_with(&format!("{word}("));
        let in_all = |step: &Step<V>| {
            let name = step.name;
            Language::ALL.iter().map(move |language| language.within(|| name.title()))
        };
        let titled = steps().flat_map(|step| in_all(step).map(move |title| (title, step)));
        let titled = titled.filter(|(title, _)| title.to_lowercase().contains(word));
        let titled = titled.filter(|_| word.chars().count() > 1);
        let titled = titled.min_by_key(|(title, _)| title.len()).map(|(_, step)| step);
        steps().find(is_function).or(titled).map(|step| step.name.as_str())
    }
}

fn value_of(step: &Step) -> Value<'_> {
    Value { name: step.name, tensor: &step.value }
}
