//! A walk through a trace in the terminal.

mod help;
mod outside;
mod screen;
mod sheet;
mod state;
mod tables;
mod terminal;

pub use state::Route;
pub use terminal::walk;
