//! Multi-head attention, step by step, with PyTorch's numbers.
//!
//! **A trace is a program that has been run.** A [`Program`](program::Program) is a list of [steps](program::Step) in
//! order of execution; each holds its [name](program::Name), its [operation](program::Op), the steps that it reads and
//! its [named axes](program::Axes). A [`Trace`] is such a program with a value in every step. Inputs, weights and masks
//! are steps too. Everything else here reads that list: tables, files, comparisons.
//!
//! ```
//! use mha_trace::program::Name;
//! use mha_trace::{Run, Settings, Sources};
//!
//! // The defaults: one item of four tokens, d_model 8, two heads, a causal mask, seed 42.
//! let run = Run::new(&Settings::default(), Sources::default())?;
//! let trace = run.trace()?;
//!
//! // What `torch.manual_seed(42); torch.randn(1, 4, 8)` draws first, to the bit.
//! let x = trace.step(Name::X).expect("every run has x");
//! assert_eq!(x.value.flatten_all()?.to_vec1::<f32>()?[0], 1.926_915_3);
//!
//! // Head 0 of the attention weights: the second token looks at itself and at the first.
//! let weights = trace.step(Name::Weights).expect("every run has weights");
//! assert_eq!(weights.axes.to_string(), "(batch 1, head 2, query 4, key 4)");
//! assert_eq!(trace.formula(weights), "softmax(masked_scores) over keys");
//! let row = weights.value.get(0)?.get(0)?.get(1)?.to_vec1::<f32>()?;
//! let rounded: Vec<String> = row.iter().map(|weight| format!("{weight:.3}")).collect();
//! assert_eq!(rounded, ["0.609", "0.391", "0.000", "0.000"]);
//!
//! // A step's value follows from the values that it reads.
//! let again = trace.replay(weights)?.flatten_all()?.to_vec1::<f32>()?;
//! assert_eq!(again, weights.value.flatten_all()?.to_vec1::<f32>()?);
//!
//! // A cell is explained by the terms that add up to it.
//! let cell = trace.explain(&"weights[0,0,1,3]".parse().expect("a cell"))?;
//! assert_eq!(cell.value, 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules stand on each other in this order:
//!
//! | module | what it has |
//! |---|---|
//! | [`lang`] | what is said, in the reader's language |
//! | [`error`] | what is wrong, and how to mend it |
//! | [`program`] | steps, axes, operations, edits, and the one interpreter |
//! | [`config`] | what is to be computed, decided and checked; every setting in one table |
//! | [`attention()`] | the program of a config |
//! | [`torch`] | PyTorch's generator, to the bit |
//! | [`mod@file`] | reading and writing without loss |
//! | [`foreign`] | other people's names, layouts, checkpoints and model configs |
//! | [`Run`] | a config and the numbers it is given: from files, fresh or drawn |
//! | [`mod@check`] | comparing a recorded run, and explaining what differs |
//! | [`view`] | pages of tables, as text or JSON |
//!
//! Without the default feature `cli` the crate is this library alone.

#[cfg(feature = "cli")]
#[macro_use]
extern crate base;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

pub use ::{check, config, file, foreign, program, torch, view};
pub use attention::{Outside, attention};
pub use base::{Error, Result, error, lang};
pub use candle_core;
pub use config::{Config, Settings};
pub use program::Trace;
pub use run::{Run, Sources, key_mask_rows, positions_of, to_record};
