//! Other people's files: the names of their tensors, the layouts of their weights, the orders of their axes, the
//! configs of their models.

mod axis_order;
mod hints;
mod inputs;
mod layer;
mod layout;
mod matched;
mod model;
mod names;
mod steps;

pub use axis_order::AxisOrder;
pub use hints::{heads, mask_fill};
pub use inputs::{Inputs, NameMap, find_inputs, with_batch};
pub use layer::Weights;
pub use layout::read_weights;
pub use matched::Match;
pub use names::meanings;
pub use steps::{Named, Unmatched, name_steps};
