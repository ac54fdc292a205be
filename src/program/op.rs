//! The operations that a trace is made of: a closed list, each with its value, axes, formula, terms and cost.

use std::fmt::Debug;

use candle_core::Tensor;

use super::axis::{Axes, Dim};
use super::narrow::{Narrowed, Part};
use super::ops::{Added, Biasing, Heads, Linear, Masking, Rotary, Scaling, Slip, Weighting};
use super::pattern::Pattern;
use super::rows::{self, Rows};
use super::slips::{Knob, Sibling};
use super::terms::{Reason, Term, Value};
use super::working::{Move, Working};
use base::error::{Error, Result};

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

    /// How rows of the value follow from the same rows of the first input, which is of this shape: in place of
    /// [`Operation::value`], for f32. Nothing where they do not, or the inputs do not fit.
    fn rows<'a>(&'a self, _read: &[usize], _others: &[&'a Tensor]) -> Option<Rows<'a>> {
        None
    }

    /// The axes of the value.
    ///
    /// # Errors
    /// If the inputs do not fit.
    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread>;

    /// The formula with the names of the inputs in it: `scores_raw / √d_k`.
    ///
    /// # Errors
    /// If there are too many or too few inputs.
    fn formula(&self, names: &[&str]) -> Result<String, Misread>;

    /// The terms whose sum is the value at a cell.
    ///
    /// # Errors
    /// If there is no such cell.
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>>;

    /// What [`Operation::terms`] tells of one cell, as a rule for all of them.
    fn pattern(&self, _inputs: &[&Axes]) -> Pattern {
        Pattern::ByCell
    }

    /// What it works out on the way to a cell, which the terms alone do not show.
    ///
    /// # Errors
    /// If there is no such cell.
    fn working(&self, _inputs: &[Value], _cell: &[usize]) -> Result<Working> {
        Ok(Working::Plain)
    }

    /// Floating-point operations: a multiply-add counts 2, softmax 5 an element (maximum, subtraction, exponential, sum,
    /// division), a norm 4, a rotation 3, a soft cap 3, moving and selecting numbers nothing.
    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128;

    /// Why a cell of a boolean value is true; nothing where it is not, or where the operation only hands on what others
    /// say.
    fn reason(&self, _cell: &[usize]) -> Option<Reason> {
        None
    }

    /// What a blocked cell becomes, if the operation writes into blocked cells.
    fn fill(&self) -> Option<f64> {
        None
    }

    /// A number of the formula that is worth telling beside it: its name, what it is made of, its value.
    fn constant(&self) -> Option<(&'static str, String, f64)> {
        None
    }

    /// The moves by which code makes the value of its input, one after the other, and the axes after each; nothing where it
    /// does more than to move numbers, or moves them at once.
    fn moves(&self, _input: &Axes) -> Vec<(Move, Axes)> {
        Vec::new()
    }

    /// The operation for a part of the run alone, whose inputs have these axes; `whole` are those of the whole value.
    fn narrowed(&self, _part: Part, _inputs: &[&Axes], _whole: &Axes) -> Narrowed {
        Narrowed::Same
    }

    /// The numbers in it that code can have wrong.
    fn knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    /// What people write in its place, for inputs of these axes.
    fn siblings(&self, _inputs: &[&Axes]) -> Vec<Sibling> {
        Vec::new()
    }

    /// Whether the numbers of a row are shares of 1.
    fn is_share(&self) -> bool {
        false
    }

    /// The least and the most that a value can be, where that is known beforehand.
    fn range(&self) -> Option<(f64, f64)> {
        None
    }
}

/// Inputs that do not fit an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misread;

impl From<Misread> for Error {
    fn from(_: Misread) -> Self {
        Self::tensor(
            "operation",
            "cannot be computed from these tensors",
            "read the inputs that the operation's page names",
        )
    }
}

/// The index of a cell of so many axes.
pub(super) fn at<const N: usize>(cell: &[usize]) -> Result<[usize; N], Misread> {
    cell.try_into().map_err(|_| Misread)
}

/// The inputs of an operation that reads so many.
pub(super) fn read<const N: usize, T: Copy>(inputs: &[T]) -> Result<[T; N], Misread> {
    inputs.try_into().map_err(|_| Misread)
}

/// One step's operation, by its family. The formulas are those of "Attention Is All You Need" (Vaswani et al., 2017),
/// section 3.2, unless an operation names another source.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// An input, a weight or a mask: its value comes from outside.
    Given,
    /// A matrix product.
    Linear(Linear),
    /// Numbers that move: heads split, shared, side by side.
    Heads(Heads),
    /// Keys and values beside those of tokens.
    Added(Added),
    /// Numbers scaled, each or by rows.
    Scaling(Scaling),
    /// Rotary positions.
    Rotary(Rotary),
    /// A mask, or its use.
    Masking(Masking),
    /// A bias of scores, or its use.
    Biasing(Biasing),
    /// Weights, from scores or from other weights.
    Weighting(Weighting),
    /// What only faulty code computes.
    Slip(Slip),
}

macro_rules! families {
    ($($family:ident),+) => {
        $(impl From<$family> for Op {
            fn from(operation: $family) -> Self {
                Self::$family(operation)
            }
        })+

        impl Op {
            /// What the operation is.
            #[must_use]
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    Self::Given => &Outside,
                    $(Self::$family(operation) => operation,)+
                }
            }
        }
    };
}
families! { Linear, Heads, Added, Scaling, Rotary, Masking, Biasing, Weighting, Slip }

impl Op {
    /// The operation's value for these inputs. Replaying a trace's steps gives their values again; f64 inputs
    /// give an f64 value.
    ///
    /// # Errors
    /// If the number of inputs is not the operation's, or candle refuses them: check with [`Op::axes`] first.
    pub fn eval(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let operation = self.operation();
        rows::alone(operation, inputs).map_or_else(|| operation.value(inputs), Ok)
    }

    /// The axes of the value, from those of the inputs.
    ///
    /// # Errors
    /// If the inputs do not fit the operation: too few, other axes, or lengths that differ.
    pub fn axes(&self, inputs: &[&Axes]) -> Result<Axes> {
        let dims: Vec<Vec<Dim>> = inputs.iter().map(|axes| axes.iter().collect()).collect();
        let dims: Vec<&[Dim]> = dims.iter().map(Vec::as_slice).collect();
        self.operation().axes(&dims).map(Axes::new).map_err(|Misread| {
            let found: Vec<_> = inputs.iter().map(ToString::to_string).collect();
            let what = tr!("does not fit {found}", found = found.join(tr!(" and ")));
            Error::tensor(
                format!("{self:?}"),
                what,
                "read the inputs that the operation's page names",
            )
        })
    }

    /// The formula with the names of the tensors in it: `scores_raw / √d_k`.
    #[must_use]
    pub fn formula(&self, names: &[&str]) -> String {
        self.operation().formula(names).unwrap_or_else(|Misread| format!("{self:?}"))
    }

    /// Floating-point operations of the step, as [`Operation::flops`] counts them.
    #[must_use]
    pub fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        self.operation().flops(inputs, output)
    }
}

/// What comes from outside has no operation to be computed by.
#[derive(Debug)]
struct Outside;

impl Operation for Outside {
    fn value(&self, _: &[&Tensor]) -> Result<Tensor> {
        Err(Misread.into())
    }

    fn axes(&self, _: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        Err(Misread)
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        Ok("given".to_owned())
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}
