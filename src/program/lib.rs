//! What computing is: steps with named axes, the operations between them, and the one interpreter that runs them.

#[macro_use]
extern crate base;

#[macro_use]
mod tables;

mod adjoint;
mod apart;
mod axis;
mod backward;
mod blocked;
mod called;
mod cell;
mod edit;
mod explain;
mod graph;
mod kind;
mod misread;
mod name;
mod narrow;
mod op;
mod operation;
pub mod ops;
mod order;
mod pairs;
mod part;
mod pattern;
mod pattern_terms;
mod raw;
mod role;
mod rope_keys;
mod rope_scaling;
mod row;
mod rows;
mod run;
mod selection;
mod small;
mod terms;
mod tree;
mod why;
mod working;

pub use adjoint::{Adjoint, Operand};
pub use axis::{Axes, Axis, Dim};
pub use axis::{signed, unravel, whole};
pub use blocked::{Became, EmptyRows};
pub use cell::Cell;
pub use edit::{Apart, Change, Edit};
pub use explain::{Explanation, NanCause, NanSource, RowCell};
pub use graph::{Given, Program, Step, Trace};
pub use kind::Kind;
pub use misread::Misread;
pub use name::{Forward, Name, Projection};
pub use op::{Op, Total, added_up};
pub use operation::{Facts, Operation};
pub use ops::*;
pub use pairs::{CHUNK, chunk, first_number, of_pairs};
pub use part::{Part, QueryRows};
pub use pattern::{Function, Multiplier, Pattern, Place, Products, Read, Row, Turning, When};
pub use raw::{make_ready, state_threads};
pub use role::Role;
pub use role::{BlockedCells, Size};
pub use rows::Numbers;
pub use rows::Rows;
pub use run::Receiver;
pub use selection::{Lists, Selection, comes_from, parent};
pub use terms::broadcast;
pub use terms::{Factor, Reason, Term, Value};
pub use tree::{Branch, Followed, Reach, Tree};
pub use working::{Exponential, Exponentials, Move, Normed, Turned, Working};
