//! What is the gradient of an operation's input made of?

use super::axis::{Axes, Dim};
use super::op::Op;
use super::ops::{Collect, Gradient};

/// What the gradient of an input is, given that of the value.
#[derive(Debug, Clone, PartialEq)]
pub enum Adjoint {
    /// Nothing: the value does not change with the input, or changes in steps.
    Nothing,
    /// What an operation makes of these.
    Of(Op, Vec<Operand>),
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
    pub(super) fn of(op: impl Into<Op>, reads: impl Into<Vec<Operand>>) -> Self {
        Self::Of(op.into(), reads.into())
    }

    /// An operation on the gradient alone.
    pub(super) fn on_gradient(op: impl Into<Op>) -> Self {
        Self::of(op, [Operand::Gradient])
    }

    /// The gradient of what was broadcast to a value: the sum over what it stood for.
    pub(super) fn of_broadcast(input: &Axes, value: &Axes) -> Self {
        if input == value {
            return Self::on_gradient(super::ops::Heads::HandOn);
        }
        let (shape, own) = (value.shape(), input.shape());
        let skipped = shape.len().saturating_sub(own.len());
        let is_over = |at: &usize| {
            let own_at = at.checked_sub(skipped);
            own_at.is_none_or(|own_at| own.get(own_at) == Some(&1) && shape.get(*at) != Some(&1))
        };
        let over = (0..shape.len()).filter(is_over).collect();
        let (view, axes) = (value.iter().collect(), input.iter().collect());
        Self::on_gradient(Gradient::Collect(Collect { slice: None, view, over, axes }))
    }

    /// The gradient of some places of an axis alone.
    pub(super) fn of_slice(value: &Axes, slice: (usize, usize), input: &Axes) -> Self {
        Self::on_gradient(Gradient::Collect(Collect::slice(value, slice, input)))
    }
}

/// The axes and lengths of an input.
pub fn dims(inputs: &[&Axes], at: usize) -> Vec<Dim> {
    inputs.get(at).map(|axes| axes.iter().collect()).unwrap_or_default()
}
