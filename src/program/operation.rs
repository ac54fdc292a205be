//! What is an operation? Whoever adds one answers these questions, most of which have a default.

use std::fmt::Debug;

use candle_core::Tensor;

use super::adjoint::Adjoint;
use super::axis::{Axes, Dim};
use super::misread::Misread;
use super::part::Part;
use super::pattern::Pattern;
use super::rows::{Chain, Rows};
use super::terms::{Term, Value};
use base::error::Result;

/// What an operation is: everything that there is to know of it, in one place.
///
/// The functions get what the operation reads in order. They may be asked with inputs that do not fit, of which
/// [`Operation::axes`] says so; the others are [`Misread`] then.
pub trait Operation: Debug {
    /// The value for these inputs.
    ///
    /// # Errors
    /// If candle fails, as it does for inputs that do not fit.
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor>;

    /// The axes of the value.
    ///
    /// # Errors
    /// If the inputs do not fit.
    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread>;

    /// The formula with the names of the inputs in it, where [`Operation::pattern`] does not say it as well: `scores_raw / √d_k`.
    ///
    /// # Errors
    /// Where it does, where there are too many or too few inputs, or where only faulty code has the operation, which no page
    /// shows.
    fn formula(&self, _names: &[&str]) -> Result<String, Misread> {
        Err(Misread)
    }

    /// Of which cells of the inputs a cell of the value is made: the rule by which its terms are told.
    fn pattern(&self, _inputs: &[&Axes]) -> Pattern {
        Pattern::ByCell
    }

    /// The terms whose sum is the value at a cell, where [`Operation::pattern`] has no rule for them.
    ///
    /// # Errors
    /// If there is no such cell.
    fn terms(&self, _inputs: &[Value], _cell: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    /// Floating-point operations: a multiply-add counts 2, softmax 5 an element (maximum, subtraction, exponential, sum,
    /// division), a norm 4, a rotation 3, a soft cap 3, moving and selecting numbers nothing.
    fn flops(&self, _inputs: &[&Axes], _output: &Axes) -> u128 {
        0
    }

    /// How rows of the value follow from the same rows of the first input, which is of this shape: in place of
    /// [`Operation::value`], for f32. Nothing where they do not, or the inputs do not fit.
    fn rows<'a>(&'a self, _read: &[usize], _others: &[&'a Tensor]) -> Option<Rows<'a>> {
        None
    }

    /// The operation for a part of the run alone, whose inputs have these axes; `whole` are those of the whole value.
    /// Nothing where what it gives for the part depends on the rest.
    fn narrowed(&self, _part: Part, _inputs: &[&Axes], _whole: &Axes) -> Option<Self>
    where
        Self: Sized + Clone,
    {
        Some(self.clone())
    }

    /// What the gradient of the input at that place is made of; `value` are the axes of the value.
    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint;

    /// What is known of its numbers beforehand.
    fn facts(&self) -> Facts {
        Facts::default()
    }
}

/// What is known of an operation's numbers beforehand.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// What a blocked cell becomes, if the operation writes into blocked cells.
    pub fill: Option<f64>,
    /// A number of the formula that is worth telling beside it: its name, what it is made of, its value.
    pub constant: Option<(&'static str, String, f64)>,
    /// The least and the most that a value can be.
    pub range: Option<(f64, f64)>,
    /// Whether the numbers of a row are shares of 1.
    pub is_share: bool,
}

/// The value of an operation by its rows, if these follow from those of what it reads first.
pub(super) fn by_rows(operation: &dyn Operation, inputs: &[&Tensor]) -> Option<Tensor> {
    let (read, others) = inputs.split_first()?;
    let mut chain = Chain::of(read)?;
    chain.add(operation.rows(read.dims(), others)?);
    chain.computed(|_| true, &|_, _, _| Ok(())).ok()?.pop()?
}
