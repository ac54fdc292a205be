//! What code can get wrong in one operation: its numbers, and what people write in its place.

use super::op::Op;

choices! {
    /// The kinds of edits.
    Kind {
        /// An operation has another number.
        #[default]
        Parameter = "parameter",
        /// A step is left out.
        Omitted = "omitted",
        /// A step is made twice.
        Repeated = "repeated",
        /// Two steps are made in the other order.
        Moved = "moved",
        /// A step is made that does not belong there.
        Inserted = "inserted",
        /// Another operation stands in a step's place.
        Replaced = "replaced",
        /// A step reads another tensor.
        Input = "input",
        /// Axes are confused: numbers stand in other places, or are added up along another axis.
        Axes = "axes",
        /// Other cells are blocked, or in another way.
        Mask = "mask",
        /// A step is computed in fewer bits.
        Precision = "precision",
        /// Numbers are left out at random.
        Random = "random",
    }
}

impl Kind {
    /// What such a mistake is, with an example.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Self::Parameter => tr!("another number: scale is 0.17678 where 0.35355 was meant"),
            Self::Omitted => tr!("a step left out: the norm of the keys, a bias, the sinks"),
            Self::Repeated => {
                tr!("a step applied twice: softmax of the weights, a bias added twice")
            }
            Self::Moved => tr!("two steps in the other order: the rotation before the norm"),
            Self::Inserted => tr!("a step that does not belong: GELU on the values, a residual"),
            Self::Replaced => {
                tr!("another operation: softmax in base 2, LayerNorm for the RMS norm")
            }
            Self::Input => tr!("the wrong tensor is read: the keys' bias in place of the values'"),
            Self::Axes => {
                tr!("numbers in other places: heads reversed, a view instead of a transpose")
            }
            Self::Mask => tr!("other cells blocked: the mask transposed, a window on both sides"),
            Self::Precision => {
                tr!("fewer bits: products in TF32, softmax in bf16, a rounded cache")
            }
            Self::Random => tr!("numbers left out at random: dropout on the values"),
        }
    }
}

/// A number of an operation that code can have wrong.
pub struct Knob {
    /// What it is called.
    pub name: &'static str,
    /// The number as it is meant.
    pub value: f64,
    /// Which numbers it can be.
    pub range: Range,
    /// Numbers that people write there.
    pub common: Vec<f64>,
    /// The operation with another number; nothing where that makes no sense.
    pub with: Box<dyn Fn(f64) -> Option<Op>>,
}

/// Which numbers an operation's number can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Any; the value grows in proportion to it.
    Factor,
    /// Any; it stands in cells of the value as it is.
    Cell,
    /// Above 0.
    Positive,
    /// Above 0, and one that configs state: whole, or of few digits.
    Stated,
    /// Whole numbers within these bounds.
    Whole(i64, i64),
}

/// An operation that people write in the place of another.
pub struct Sibling {
    /// It.
    pub op: Op,
    /// What kind of mistake it is.
    pub kind: Kind,
    /// What the code does then: a clause that goes on behind the step's name and a colon.
    pub told: String,
}

impl Sibling {
    /// A sibling of an operation.
    pub(super) fn new(op: impl Into<Op>, kind: Kind, told: impl Into<String>) -> Self {
        Self { op: op.into(), kind, told: told.into() }
    }
}

/// A whole number as an index or a count; nothing where it is none.
pub fn whole(value: f64) -> Option<usize> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (value >= 0.0 && value.fract() == 0.0 && value < 9e15).then_some(value as usize)
}
