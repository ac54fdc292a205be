//! What can code get wrong within one operation: its numbers, and what people write in its place?

use program::{Axes, Knob, Op, Sibling};

/// The numbers of an operation that code can have wrong.
pub fn knobs(op: &Op) -> Vec<Knob> {
    op.operation().knobs()
}

/// What people write in the place of an operation, for inputs of these axes.
pub fn siblings(op: &Op, inputs: &[&Axes]) -> Vec<Sibling> {
    op.operation().siblings(inputs)
}
