//! Which operations are there? A closed list of families, each of which answers the questions of [`Operation`].

use std::any::Any;

use candle_core::Tensor;

use super::adjoint::Adjoint;
use super::axis::{Axes, Dim};
use super::misread::Misread;
use super::operation::{Operation, by_rows};
use super::ops::{
    Added, Biasing, BlockedKeys, ByPosition, Collect, Delta, Dequantize, Differential, Distances,
    Frequencies, Gradient, Heads, Linear, Masking, Norm, Parted, Picked, Product, Relative, Rotary,
    Rotate, Scaling, Selected, Slip, Temperature, Turn, Weigh, Weighting,
};
use super::part::Part;
use super::pattern::Pattern;
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
    /// A step of attention over splits or tiles of the keys.
    Parted(Parted),
    /// A step of the delta rule.
    Delta(Delta),
    /// A step of a gradient.
    Gradient(Gradient),
    /// What several operations give, added up.
    Total(Total),
    /// What only faulty code computes.
    Slip(Slip),
}

macro_rules! families {
    ($($family:ident),+) => {
        /// An operation of one of the families.
        fn of_family(operation: Box<dyn Any>) -> Result<Op, Box<dyn Any>> {
            $(let operation = match operation.downcast::<$family>() {
                Ok(own) => return Ok(Op::$family(*own)),
                Err(other) => other,
            };)+
            Err(operation)
        }

        $(impl From<$family> for Op {
            fn from(operation: $family) -> Self {
                Self::$family(operation)
            }
        })+

        impl Op {
            /// What the operation is.
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
families! { Linear, Heads, Added, Scaling, Rotary, Masking, Biasing, Weighting, Parted, Delta, Gradient, Total, Slip }

/// Operations that stand within a family.
macro_rules! within {
    ($($family:ident::$variant:ident($operation:ident)),+) => {
        /// An operation of one of the families, or that stands within one.
        pub(super) fn of_any(operation: Box<dyn Any>) -> Option<Op> {
            let operation = match of_family(operation) {
                Ok(op) => return Some(op),
                Err(other) => other,
            };
            $(let operation = match operation.downcast::<$operation>() {
                Ok(own) => return Some((*own).into()),
                Err(other) => other,
            };)+
            drop(operation);
            None
        }

        $(impl From<$operation> for Op {
            fn from(operation: $operation) -> Self {
                $family::$variant(operation).into()
            }
        })+
    };
}
within! {
    Scaling::Norm(Norm),
    Scaling::Dequantize(Dequantize),
    Scaling::Temperature(Temperature),
    Rotary::Frequencies(Frequencies),
    Rotary::Rotate(Rotate),
    Masking::ByPosition(ByPosition),
    Masking::Keys(BlockedKeys),
    Masking::Selected(Selected),
    Biasing::Distances(Distances),
    Biasing::Relative(Relative),
    Biasing::Picked(Picked),
    Weighting::Differential(Differential),
    Gradient::Collect(Collect),
    Gradient::Product(Product),
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
    pub fn moves(&self, input: &Axes) -> Vec<(Move, Axes)> {
        if let Self::Heads(heads) = self { heads.moves(input) } else { Vec::new() }
    }

    /// Floating-point operations of the step, as [`Operation::flops`] counts them.
    pub fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        self.operation().flops(inputs, output)
    }
}

/// What several operations give back to what they all read, added up: so many inputs are read by each.
#[derive(Debug, Clone, PartialEq)]
pub struct Total(pub Vec<(Op, usize)>);

impl Total {
    /// Each operation, and its share of all inputs.
    fn shares<'a, T>(&'a self, all: &'a [T]) -> impl Iterator<Item = (&'a Op, &'a [T])> {
        let mut rest = all;
        self.0.iter().map(move |(op, count)| {
            let (own, others) = rest.split_at(*count.min(&rest.len()));
            rest = others;
            (op, own)
        })
    }

    /// The sum, where each operation's value is given by something else.
    ///
    /// # Errors
    /// If that fails, or there is nothing to add up.
    pub fn value_by(
        &self,
        inputs: &[&Tensor],
        value: impl Fn(&Op, &[&Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        added_up(self.shares(inputs).map(|(op, own)| value(op, own)))
    }
}

/// The sum of tensors of one shape, added one after the other.
///
/// # Errors
/// If one cannot be made, they do not fit, or there is none.
pub fn added_up(mut terms: impl Iterator<Item = Result<Tensor>>) -> Result<Tensor> {
    let first = terms.next().ok_or(Misread)??;
    terms.try_fold(first, |sum, term| Ok(sum.add(&term?)?))
}

impl Operation for Total {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.value_by(inputs, |op, own| op.operation().value(own))
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        if self.0.iter().map(|(_, count)| count).sum::<usize>() != inputs.len() {
            return Err(Misread);
        }
        let each = self.shares(inputs).map(|(op, own)| op.operation().axes(own));
        let each = each.collect::<Result<Vec<_>, _>>()?;
        let first = each.first().ok_or(Misread)?.clone();
        each.iter().all(|axes| *axes == first).then_some(first).ok_or(Misread)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let each = self
            .shares(names)
            .map(|(op, own)| op.operation().formula(own).unwrap_or_else(|_| own.join(" · ")));
        Ok(each.collect::<Vec<_>>().join(" + "))
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let mut products = Vec::new();
        let mut first = 0;
        for (op, own) in self.shares(inputs) {
            let Pattern::Sum(each) = op.operation().pattern(own) else { return Pattern::ByCell };
            products.extend(each.into_iter().map(|product| product.further(first)));
            first += own.len();
        }
        Pattern::Sum(products)
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let each = self.shares(inputs).map(|(op, own)| op.flops(own, output));
        let sums = output.count().saturating_mul(self.0.len().saturating_sub(1) as u128);
        each.fold(sums, u128::saturating_add)
    }

    /// What is added up is of all parts of the run.
    fn narrowed(&self, _: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        None
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

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Nothing
    }
}
