//! The computation: a program of named operations on tensors with named axes, and its trace.

mod attention;
mod axis;
mod empty;
mod memory;
mod op;
mod program;
mod reading;
mod record;
mod run;
mod terms;

pub use attention::attention;
pub use axis::{Axes, Axis};
pub use empty::{Became, EmptyRows};
pub use op::Op;
pub use program::{Given, Program, Step, Trace};
pub use reading::Reading;
pub use run::Run;
pub use terms::{Cell, Factor, Term};
