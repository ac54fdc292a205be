//! Multi-head attention, step by step, with PyTorch's numbers.
//!
//! **A trace is a program that has been run.** A [`Trace`] is a list of [steps](trace::Step) in order of execution;
//! each holds its name, its [operation](trace::Op), the steps that it reads, its [named axes](trace::Axes) and its
//! value. Inputs, weights and masks are steps too. Everything else here reads that list: tables, files,
//! comparisons.
//!
//! ```
//! use mha_trace::source::Sources;
//! use mha_trace::{Run, Settings};
//!
//! // The defaults: one item of four tokens, d_model 8, two heads, a causal mask, seed 42.
//! let run = Run::new(&Settings::default(), Sources::default())?;
//! let trace = run.trace()?;
//!
//! // What `torch.manual_seed(42); torch.randn(1, 4, 8)` draws first, to the bit.
//! let x = trace.step("x").expect("every run has x");
//! assert_eq!(x.value.flatten_all()?.to_vec1::<f32>()?[0], 1.926_915_3);
//!
//! // Head 0 of the attention weights: the second token looks at itself and at the first.
//! let weights = trace.step("weights").expect("every run has weights");
//! assert_eq!(weights.axes.to_string(), "(batch 1, head 2, query 4, key 4)");
//! assert_eq!(trace.formula(weights), "softmax(masked_scores) over keys");
//! let row = weights.value.get(0)?.get(0)?.get(1)?.to_vec1::<f32>()?;
//! let rounded: Vec<String> = row.iter().map(|weight| format!("{weight:.3}")).collect();
//! assert_eq!(rounded, ["0.609", "0.391", "0.000", "0.000"]);
//!
//! // A step's value follows from the values that it reads.
//! let again = trace.replay(weights)?.flatten_all()?.to_vec1::<f32>()?;
//! assert_eq!(again, weights.value.flatten_all()?.to_vec1::<f32>()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Data flows one way through the modules: [`config`] says what is to be computed, [`mod@file`] reads and writes
//! tensors without loss, [`source`] has the numbers (PyTorch's generator, files, masks), [`trace`] computes,
//! [`verdict`] compares, [`view`] shows.
#![deny(missing_docs)]

mod bare_words;
pub mod config;
pub mod error;
pub mod file;
pub mod source;
pub mod trace;
pub mod verdict;
pub mod view;

pub use candle_core;
pub use config::{Config, Settings};
pub use error::{Error, Result};
pub use trace::{Run, Trace};
