//! How one number came about, as text.

mod asked;
mod cell;
mod reason;
mod step;
mod terms;
mod tree;
mod working;

pub use asked::Asked;
pub use cell::{explanation, explanation_json};
pub use reason::words;
pub use step::{step_json, step_page};
#[cfg(feature = "walk")]
pub(super) use working::MARK;
pub(super) use working::{dropped, masked, moved};
