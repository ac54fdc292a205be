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
//! The modules show what users of the library call, and what that gives and takes. They stand on each other in this
//! order:
//!
//! | module | what it has |
//! |---|---|
//! | [`error`] | what is wrong, and how to mend it |
//! | [`program`] | steps, axes, operations, and how numbers come about |
//! | [`config`] | what is to be computed, decided and checked; every setting in one table |
//! | [`attention()`] | the program of a config |
//! | [`torch`] | PyTorch's generator, to the bit |
//! | [`mod@file`] | reading and writing without loss |
//! | [`foreign`] | other people's names, checkpoints and model configs |
//! | [`Run`] | a config and the numbers it is given: from files, fresh or drawn |
//! | [`mod@check`] | comparing a recorded run, and explaining what differs |
//! | [`view`] | pages of tables, as text, JSON, HTML, Markdown or LaTeX |
//!
//! Without the default feature `cli` the crate is this library alone.

#[cfg(feature = "cli")]
#[macro_use]
extern crate base;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

#[doc(inline)]
pub use ::config::{Config, Settings};
#[doc(inline)]
pub use ::program::Trace;
#[doc(inline)]
pub use ::run::{Run, Sources, key_mask_rows, positions_of, to_record};
pub use attention::{Outside, attention};
pub use base::{Error, Result};
pub use candle_core;

/// What is wrong, where, and how to mend it, as data; and the language that it is said in.
pub mod error {
    #[doc(inline)]
    pub use base::error::{Error, Message, Part, Result};
    #[doc(inline)]
    pub use base::lang::Language;
    #[doc(inline)]
    pub use base::memory::{Left, Limit};
}

/// What computing is: steps with named axes, operations, the one interpreter, and how a number came about.
pub mod program {
    #[doc(inline)]
    pub use ::program::{
        Added, Axes, Axis, Biasing, Branch, Cell, Change, Dim, Edit, Explanation, Exponential,
        Exponentials, Factor, Followed, Frequencies, Given, Heads, Kind, Linear, Llama3, Longrope,
        Masking, Move, Name, NanCause, NanSource, Normed, Op, Operation, Pattern, Program,
        Proportional, Reach, Reason, Role, Rotary, RowCell, Scaling, Size, Step, Term, Trace, Tree,
        Turned, Value, Weighting, Working, Yarn, dropout_scale,
    };
}

/// What is to be computed: settings as people give them, and the config that they resolve to.
pub mod config {
    #[doc(inline)]
    pub use ::config::{
        AlibiForm, AttnMaskTrue, CausalAlign, Config, DType, DrawInputs, EmptyRow, End, Feature,
        Fill, Gate, Init, Input, Labels, Latent, Mask, Masks, Norm, NormOver, OtherNorm, Packed,
        Packing, Pairing, Place, Plain, PositionTerm, Positions, Preset, QkNorm, QkvFormat,
        Queries, QueryRows, RelativeBias, RelativePositions, RopeScaling, Rotary, Scores,
        SectionOrder, Seed, Segments, Setting, Settings, Shift, Sizes, Start, Tokens, TorchCpu,
    };
}

/// PyTorch's numbers: its generator, and the order in which a run draws them.
pub mod torch {
    #[doc(inline)]
    pub use ::torch::{Generator, draw};
}

/// Reading and writing without loss, each format in a file of its own.
pub mod file {
    #[doc(inline)]
    pub use ::file::{Bundle, Entry, Info, Output, Page, Record, read_config, write_json};
}

/// Other people's files: what their tensors are called, and what the configs of their models say.
pub mod foreign {
    #[doc(inline)]
    pub use ::foreign::{Known, Match, ModelPart, NameMap, known, with_model};
}

/// Comparing a recorded run with what its inputs make, and explaining what differs.
pub mod check {
    #[doc(inline)]
    pub use ::check::{
        ByLayer, Cause, Checked, Clue, Compared, Comparison, Contradiction, Diagnosis, Finding,
        How, LeftOver, Line, Named, NonFinite, Number, OneSided, Open, PaddedRows, Pairs, PerStep,
        Place, Report, Split, Status, StepReport, Tolerance, Tolerances, Unshard, Verdict,
        by_layer, check, checked, compared, diff, reports_json,
    };

    /// The known mistakes, by their names.
    pub mod catalogue {
        #[doc(inline)]
        pub use ::check::catalogue::{Mistake, Way, catalogue, find};
    }
}

/// Runs, reports and explanations for eyes: pages of blocks, and what they are written as.
pub mod view {
    #[doc(inline)]
    pub use ::view::{
        Asked, Block, Grid, Head, Palette, Sides, Style, Table, Tables, Text, Tone, View, bug_list,
        bug_page, by_layer_html, by_layer_page, checked_html, compared_html, explanation,
        explanation_json, latex, markdown, model_list, report_page, shapes_json, shapes_page,
        step_json, step_page, trace_html, trace_page, write_text,
    };
}
