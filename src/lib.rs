//! Multi-head attention, step by step, with PyTorch's numbers.
#![deny(missing_docs)]

mod attention;
pub mod check;
pub mod config;
pub mod error;
pub mod file;
pub mod foreign;
pub mod program;
mod run;
pub mod torch;
pub mod view;

pub use attention::{Outside, attention};
pub use candle_core;
pub use config::{Config, Settings};
pub use error::{Error, Result};
pub use program::Trace;
pub use run::{Run, Sources, key_mask_rows, to_record};
