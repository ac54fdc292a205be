//! Which operations are there? A closed list of families, each of which answers the questions of [`Operation`].

use candle_core::Tensor;

use super::axis::{Axes, Dim};
use super::misread::Misread;
use super::operation::{Operation, by_rows};
use super::ops::{
    Added, Biasing, BlockedKeys, ByPosition, Differential, Distances, Frequencies, Heads, Linear,
    Masking, Norm, Relative, Rotary, Rotate, Scaling, Slip, Temperature, Turn, Weigh, Weighting,
};
use super::part::Part;
use super::working::Move;
use base::error::{Error, Result};

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

            /// The operation for a part of the run, as [`Operation::narrowed`] has it.
            pub(super) fn narrowed(
                &self,
                part: Part,
                inputs: &[&Axes],
                whole: &Axes,
            ) -> Option<Self> {
                match self {
                    Self::Given => Some(Self::Given),
                    $(Self::$family(own) => own.narrowed(part, inputs, whole).map(Self::$family),)+
                }
            }
        }
    };
}
families! { Linear, Heads, Added, Scaling, Rotary, Masking, Biasing, Weighting, Slip }

/// Operations that stand within a family.
macro_rules! within {
    ($($family:ident::$variant:ident($operation:ident)),+) => {
        $(impl From<$operation> for Op {
            fn from(operation: $operation) -> Self {
                $family::$variant(operation).into()
            }
        })+
    };
}
within! {
    Scaling::Norm(Norm),
    Scaling::Temperature(Temperature),
    Rotary::Frequencies(Frequencies),
    Rotary::Rotate(Rotate),
    Masking::ByPosition(ByPosition),
    Masking::Keys(BlockedKeys),
    Biasing::Distances(Distances),
    Biasing::Relative(Relative),
    Weighting::Differential(Differential),
    Slip::Turn(Turn),
    Slip::Weigh(Weigh)
}

impl Op {
    /// The operation's value for these inputs. Replaying a trace's steps gives their values again; f64 inputs
    /// give an f64 value.
    ///
    /// # Errors
    /// If the number of inputs is not the operation's, or candle refuses them: check with [`Op::axes`] first.
    pub fn eval(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let operation = self.operation();
        by_rows(operation, inputs).map_or_else(|| operation.value(inputs), Ok)
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

    /// The moves that the operation is made of, and the axes after each, as [`Heads::moves`] has them.
    #[must_use]
    pub fn moves(&self, input: &Axes) -> Vec<(Move, Axes)> {
        if let Self::Heads(heads) = self { heads.moves(input) } else { Vec::new() }
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
}
