//! What is the gradient of an operation's input made of?

use std::any::Any;

use super::axis::{Axes, Dim};

/// What the gradient of an input is, given that of the value.
#[derive(Debug)]
pub enum Adjoint {
    /// Nothing: the value does not change with the input, or changes in steps.
    Nothing,
    /// The gradient of the value as it is.
    Same,
    /// What an operation, which `Op` is made of again, gives of these.
    Of(Box<dyn Any>, Vec<Operand>),
    /// It is not known here.
    Unknown,
}

/// What the operation of an adjoint reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The gradient of the value.
    Gradient,
    /// The value.
    Value,
    /// For every row of the value the sum of its numbers times those of their gradient.
    Delta,
    /// An input, by its place.
    Input(usize),
}

impl Adjoint {
    /// What an operation of a family, or of what stands within one, gives of these.
    pub(super) fn of(operation: impl Any, reads: impl Into<Vec<Operand>>) -> Self {
        Self::Of(Box::new(operation), reads.into())
    }

    /// An operation on the gradient alone.
    pub(super) fn on_gradient(operation: impl Any) -> Self {
        Self::of(operation, [Operand::Gradient])
    }
}

/// The axes and lengths of an input.
pub fn dims(inputs: &[&Axes], at: usize) -> Vec<Dim> {
    inputs.get(at).map(|axes| axes.iter().collect()).unwrap_or_default()
}
