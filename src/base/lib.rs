//! What everything else says its words with: texts in the reader's language, errors as data, and what the machine can hold.

#[macro_use]
pub mod lang;

mod choice;
pub mod error;
pub mod memory;

pub use error::{Error, Result};
