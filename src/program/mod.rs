//! What computing is: steps with named axes, the operations between them, and the one interpreter that runs them.

mod axis;
mod blocked;
mod called;
mod cell;
mod choice;
mod edit;
mod explain;
mod graph;
mod name;
mod narrow;
mod op;
pub mod ops;
mod role;
mod row;
mod slips;
mod terms;
mod working;

pub(crate) use axis::unravel;
pub use axis::{Axes, Axis, Dim};
pub use blocked::{Became, EmptyRows};
pub use cell::Cell;
pub(crate) use choice::choices;
pub use edit::{Change, Edit};
pub use explain::{Explanation, NanCause, NanSource, RowCell};
pub use graph::{Given, Program, Step, Trace};
pub use name::{Name, Projection};
pub use narrow::{Narrowed, Part};
pub use op::{Misread, Op, Operation};
pub use ops::*;
pub use role::Role;
pub(crate) use role::{BlockedCells, Size};
pub(crate) use slips::whole;
pub use slips::{Kind, Knob, Range, Sibling};
pub(crate) use terms::broadcast;
pub use terms::{Factor, Reason, Term, Value};
pub use working::{Exponential, Exponentials, Normed, Turned, Working};
