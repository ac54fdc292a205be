//! Multi-head attention, step by step, with PyTorch's numbers.
#![deny(missing_docs)]

pub mod config;
pub mod error;
pub mod file;
pub mod source;
pub mod trace;
pub mod verdict;
pub mod view;

pub use config::{Config, Settings};
pub use error::{Error, Result};
pub use trace::{Run, Trace};
