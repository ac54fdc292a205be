//! Pages for browsers: what they show is what the library says, they work, and nothing in a file is markup to them.

mod browser;
#[path = "../common/mod.rs"]
mod common;
mod comparisons;
mod first_screen;
mod hostile;
mod numbers;
mod reading;
mod use_of_it;
