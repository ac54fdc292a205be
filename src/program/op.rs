//! The operations that a trace is made of: a closed list, each with its value, axes, formula, terms and cost.

use std::fmt::Debug;

use candle_core::Tensor;

use super::axis::{Axes, Dim};
use super::ops::{
    AddMask, Alibi, AlibiSlopes, AnyOf, Append, BlockedKeys, Causal, DotProduct, Dropout,
    DropoutScale, Frequencies, HandOn, KeepSome, MaskFill, MergeHeads, Not, Project, Rearrange,
    RepeatHeads, RmsNorm, Rotate, Scale, ScaleBy, SoftCap, Softmax, SplitHeads, SumBiases,
    SumHeads, WeightedSum, Window, ZeroEmptyRows,
};
use super::terms::{Reason, Term, Value};
use crate::error::{Error, Result};

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

    /// The operation for one item of the batch alone.
    fn of_item(&self, _item: usize) -> Option<Op> {
        None
    }

    /// Whether the value for an item of the batch depends on other items.
    fn mixes_items(&self) -> bool {
        false
    }

    /// Whether every row sums to 1.
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

/// The inputs of an operation that reads so many.
pub(super) fn read<const N: usize, T: Copy>(inputs: &[T]) -> Result<[T; N], Misread> {
    inputs.try_into().map_err(|_| Misread)
}

macro_rules! ops {
    ($($(#[$about:meta])* $name:ident,)+) => {
        /// One step's operation. The formulas are those of "Attention Is All You Need" (Vaswani et al., 2017), section
        /// 3.2, unless an operation names another source.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            /// An input, a weight or a mask: its value comes from outside.
            Given,
            $($(#[$about])* $name($name),)+
        }

        $(impl From<$name> for Op {
            fn from(operation: $name) -> Self {
                Self::$name(operation)
            }
        })+

        impl Op {
            /// What the operation is.
            #[must_use]
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    Self::Given => &Outside,
                    $(Self::$name(operation) => operation,)+
                }
            }

            /// The operation's name, without its parameters.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    Self::Given => "Given",
                    $(Self::$name(_) => stringify!($name),)+
                }
            }
        }
    };
}

ops! {
    /// x · Wᵀ (+ b), as `nn.Linear`.
    Project,
    /// (batch, token, model) to (batch, head, token, `head_dim`).
    SplitHeads,
    /// Every head to a root mean square of 1, times a weight.
    RmsNorm,
    /// The frequencies of rotary positions.
    Frequencies,
    /// Pairs of features turned by their positions.
    Rotate,
    /// The keys or values of a cache, and behind them the run's own.
    Append,
    /// Every head so many times, one after the other.
    RepeatHeads,
    /// Q · Kᵀ of every head.
    DotProduct,
    /// Scores / √`d_k`.
    Scale,
    /// Scores · a factor.
    ScaleBy,
    /// C · tanh(scores / C).
    SoftCap,
    /// True where a key lies after the query.
    Causal,
    /// True where a key lies before the query's window.
    Window,
    /// True where a row of 0 and 1 has a 0, or from an item's length on.
    BlockedKeys,
    /// True where any of several masks is.
    AnyOf,
    /// The slopes of linear position biases.
    AlibiSlopes,
    /// −slope · distance.
    Alibi,
    /// Position biases and a float mask, added up.
    SumBiases,
    /// Scores + a float mask.
    AddMask,
    /// The fill where the mask is true, the score elsewhere.
    MaskFill,
    /// exp(s) / Σ exp(s) over the keys of every row.
    Softmax,
    /// 1 / (1 − p).
    DropoutScale,
    /// Weights · keep / (1 − p).
    Dropout,
    /// Weights · V of every head.
    WeightedSum,
    /// (batch, head, query, `head_dim`) to (batch, query, model): the heads side by side.
    MergeHeads,
    /// The heads added up.
    SumHeads,
    /// True where a mask is not.
    Not,
    /// Zeros in the rows whose keys are all blocked.
    ZeroEmptyRows,
    /// Some weights · a factor, the others 0.
    KeepSome,
    /// Its first input as it is.
    HandOn,
    /// The same numbers in other places.
    Rearrange,
}

impl Op {
    /// The operation's value for these inputs. Replaying a trace's steps gives their values again; f64 inputs
    /// give an f64 value.
    ///
    /// # Errors
    /// If the number of inputs is not the operation's, or candle refuses them: check with [`Op::axes`] first.
    pub fn eval(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.operation().value(inputs)
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
            let what = format!("does not fit {}", found.join(" and "));
            Error::tensor(self.name(), what, "read the inputs that the operation's page names")
        })
    }

    /// The formula with the names of the tensors in it: `scores_raw / √d_k`.
    #[must_use]
    pub fn formula(&self, names: &[&str]) -> String {
        self.operation().formula(names).unwrap_or_else(|Misread| self.name().to_owned())
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
