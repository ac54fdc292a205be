//! The flags.
#![allow(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use mha_trace::config::{
    AttnMaskTrue, CausalAlign, DType, EmptyRows, Fill, Init, Input, Mask, Preset, QkNorm, Queries,
    Rope, Seed,
};
use mha_trace::source::NameMap;
use mha_trace::verdict::PerStep;

const EXAMPLES: &str = "\
Examples:
  mha-trace                                       the causal walkthrough, every step
  mha-trace --preset simple --steps weights       one step of another notebook
  mha-trace -b 2 -t 5 --lengths 5,3 -o run.json   padding, and every tensor in a file
  mha-trace check run.json                        recompute a recorded run
  mha-trace shapes -b 32 -t 20 -d 512 -H 8        shapes, parameters, FLOPs and bytes

Exit: 0 done and the same, 1 compared and different, 2 could not.";

/// Trace multi-head attention step by step, with PyTorch's numbers.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    /// Also write every tensor to FILE, losslessly: .json, .safetensors or .npz (repeatable)
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Recompute recorded files (or all in a folder) from their own numbers, and compare
    Check(CheckArgs),
    /// Compare two recorded files step by step, nothing recomputed
    Diff(DiffArgs),
    /// List the mistakes that check names, or explain one
    Bugs(BugsArgs),
    /// Show a run's shapes, formulas, parameters, FLOPs and bytes, without running it
    Shapes(ShapesArgs),
}

#[derive(Args)]
pub struct CheckArgs {
    /// Recorded files (FILE:TENSOR for one tensor), or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Leave out the table of the steps
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    /// Let differences count that rounding explains: they are noise, and the exit code is 1
    #[arg(long, help_heading = "Tolerance: |left − right| ≤ atol + rtol · |right|")]
    pub fail_on_noise: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct DiffArgs {
    /// A recorded file
    #[arg(value_name = "A")]
    pub left: PathBuf,
    /// The recorded file to compare it with
    #[arg(value_name = "B")]
    pub right: PathBuf,
    #[command(flatten)]
    pub names: NameArgs,
    /// Leave out the table of the steps
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

#[derive(Args)]
pub struct NameArgs {
    /// Steps under other names in the files: attn_probs=weights,ctx=concat (repeatable)
    #[arg(long, value_name = "THEIRS=OURS,…")]
    pub map: Vec<NameMap>,
}

#[derive(Args)]
pub struct BugsArgs {
    /// The mistake's name
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Args)]
pub struct ShapesArgs {
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Tolerance: |left − right| ≤ atol + rtol · |right|")]
pub struct ToleranceArgs {
    /// Relative tolerance, for all steps or also per step: 1e-6,scores=1e-4 [default: by dtype]
    #[arg(long, value_name = "R")]
    pub rtol: Option<PerStep>,
    /// Absolute tolerance, likewise [default: by dtype, as torch.testing has it]
    #[arg(long, value_name = "A")]
    pub atol: Option<PerStep>,
}

#[derive(Args)]
#[command(next_help_heading = "Report")]
pub struct ReportArgs {
    /// How the report is written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Columns of text a line, 30 or more [default: the terminal's, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(30..))]
    pub width: Option<u16>,
}

/// What is computed.
#[derive(Args, Default)]
#[command(next_help_heading = "Run")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct RunArgs {
    /// A JSON file with any of these settings, or a recorded trace to run again
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A notebook's whole setting [default: causal-walkthrough]
    #[arg(long, value_name = "NAME", value_parser = choice(Preset::ALL, Preset::name))]
    pub preset: Option<Preset>,
    /// Items in the batch [default: 1]
    #[arg(short, long, value_name = "N")]
    pub batch: Option<usize>,
    /// Tokens in a sequence [default: 4]
    #[arg(short = 't', long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Features of the model; the heads divide them [default: 8]
    #[arg(short, long, value_name = "N")]
    pub d_model: Option<usize>,
    /// Attention heads [default: 2]
    #[arg(short = 'H', long, value_name = "N")]
    pub heads: Option<usize>,
    /// Seed of PyTorch's generator; −1 means 2^64 − 1 [default: 42]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<Seed>,
    /// Features of the input X [default: d_model]
    #[arg(long, value_name = "N")]
    pub d_in: Option<usize>,
    /// Distribution of X: torch.randn or torch.rand [default: randn]
    #[arg(long, value_name = "NAME", value_parser = choice(Input::ALL, Input::name))]
    pub input: Option<Input>,
    /// Initialisation of the weights: Xavier, or nn.Linear's own [default: xavier-uniform]
    #[arg(long, value_name = "NAME", value_parser = choice(Init::ALL, Init::name))]
    pub init: Option<Init>,
    /// Give all four projections a bias
    #[arg(long, overrides_with = "no_bias")]
    pub bias: bool,
    /// Give none of the projections a bias (the default)
    #[arg(long, overrides_with = "bias")]
    pub no_bias: bool,
    /// Mask between positions [default: causal]
    #[arg(short, long, value_name = "NAME", value_parser = choice(Mask::ALL, Mask::name))]
    pub mask: Option<Mask>,
    /// Keys to attend to, a string a batch item: 11,01,10 (or a file of 0 and 1; or none)
    #[arg(long, value_name = "ROWS|FILE")]
    pub key_mask: Option<String>,
    /// The same as valid lengths: 3,2
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub lengths: Option<Vec<usize>>,
    /// A mask broadcast to (batch, head, query, key): 0 and 1, booleans, or floats to add to the scores
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub attn_mask: Option<String>,
    /// What 1 or true means in --attn-mask [default: attend]
    #[arg(long, value_name = "NAME", value_parser = choice(AttnMaskTrue::ALL, AttnMaskTrue::name))]
    pub attn_mask_true: Option<AttnMaskTrue>,
    /// What a masked score becomes: a number or -inf [default: -1e9]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub mask_fill: Option<Fill>,
    /// Where the causal mask starts if queries and keys differ in number [default: by positions; top-left across]
    #[arg(long, value_name = "CORNER", value_parser = choice(CausalAlign::ALL, CausalAlign::name))]
    pub causal_align: Option<CausalAlign>,
    /// Keys that a query sees under the causal mask: the last N, itself included [default: all]
    #[arg(long, value_name = "N")]
    pub window: Option<usize>,
    /// Add linear position biases to the scores: −slope · distance, a slope a head
    #[arg(long)]
    pub alibi: bool,
    /// Cap the scores softly: C · tanh(scores / C)
    #[arg(long, value_name = "C")]
    pub softcap: Option<f64>,
    /// What the dot products are multiplied by [default: 1/√d_k]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub scale: Option<f64>,
    /// Heads of the keys and values, each shared by heads / N query heads [default: heads]
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<usize>,
    /// Features of a head [default: d_model / heads]
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Normalise every head's queries and keys to a root mean square of 1, times a weight
    #[arg(long, value_name = "NAME", value_parser = choice(QkNorm::ALL, QkNorm::name))]
    pub qk_norm: Option<QkNorm>,
    /// What that norm adds to the mean square [default: 1e-6]
    #[arg(long, value_name = "X")]
    pub qk_norm_eps: Option<f64>,
    /// Rotary positions: pairs of features (i, i + r/2), or (2i, 2i + 1)
    #[arg(long, value_name = "PAIRS", value_parser = choice(Rope::ALL, Rope::name))]
    pub rope: Option<Rope>,
    /// What their frequencies are powers of [default: 10000]
    #[arg(long, value_name = "X")]
    pub rope_base: Option<f64>,
    /// Turn only the first N features of every head [default: all]
    #[arg(long, value_name = "N")]
    pub rope_dims: Option<usize>,
    /// Position of the first token [default: the length of the cache]
    #[arg(long, value_name = "N")]
    pub rope_offset: Option<usize>,
    /// How a checkpoint's config scales the frequencies: {"rope_type": "linear", "factor": 4} (or a JSON file)
    #[arg(long, value_name = "JSON|FILE")]
    pub rope_scaling: Option<String>,
    /// The frequencies themselves, one a pair, from a file
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub rope_freqs: Option<String>,
    /// What cosine and sine are multiplied by, beside --rope-freqs [default: 1]
    #[arg(long, value_name = "X")]
    pub rope_attention_factor: Option<f64>,
    /// Cross attention: keys and values from a second input of N tokens
    #[arg(long, value_name = "N")]
    pub kv_len: Option<usize>,
    /// Features of the second input [default: d_in]
    #[arg(long, value_name = "N")]
    pub d_memory: Option<usize>,
    /// The second input (batch, kv_len, d_memory) from a file
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub memory: Option<String>,
    /// A cache: k_past and v_past (batch, kv_heads, key, head_dim) of a file stand before the run's own keys
    #[arg(long, value_name = "FILE")]
    pub past: Option<String>,
    /// Compute these query rows only: 2..4, or T-1..T for the last
    #[arg(long, value_name = "A..B")]
    pub queries: Option<Queries>,
    /// What softmax makes of a row of −inf: nan, as PyTorch, or zero [default: nan]
    #[arg(long, value_name = "NAME", value_parser = choice(EmptyRows::ALL, EmptyRows::name))]
    pub empty_rows: Option<EmptyRows>,
    /// Probability of dropping a weight, as in training [default: 0]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub dropout: Option<f64>,
    /// Type to compute in: f32, or f64 from the same drawn numbers [default: f32]
    #[arg(long, value_name = "NAME", value_parser = choice(DType::ALL, DType::name))]
    pub dtype: Option<DType>,
    /// X (batch, seq_len, d_in) from a file in place of the drawn one
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub x: Option<String>,
    /// Weights and biases from a file, such as a checkpoint, in place of the drawn ones
    #[arg(long, value_name = "FILE")]
    pub weights: Option<String>,
    /// The layer whose weights are taken, by the prefix of their names: layers.0.attn
    #[arg(long, value_name = "P")]
    pub prefix: Option<String>,
    /// The settings of a Hugging Face model, from its config.json
    #[arg(long, value_name = "FILE")]
    pub model_config: Option<String>,
    /// The layer of that model, from 0; of --weights it picks the prefix too
    #[arg(long, value_name = "N")]
    pub layer: Option<usize>,
    /// Labels of the tokens: the,cat,sat (or a JSON file of them)
    #[arg(long, value_name = "A,B,…|FILE")]
    pub tokens: Option<String>,
    /// Labels of the second input's tokens
    #[arg(long, value_name = "A,B,…|FILE")]
    pub memory_tokens: Option<String>,
    /// Say which tensor of a file was taken as what
    #[arg(short, long)]
    pub verbose: bool,
}

/// What is shown.
#[derive(Args)]
#[command(next_help_heading = "View")]
pub struct ViewArgs {
    /// Only these steps: q,scores,weights [default: all but the parameters]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub steps: Option<Vec<String>>,
    /// Only this batch item
    #[arg(long, value_name = "N")]
    pub batch_item: Option<usize>,
    /// Only this head
    #[arg(long, value_name = "N")]
    pub head: Option<usize>,
    /// Decimals of every number
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(..=17))]
    pub decimals: u8,
    /// Items shown at each end of an axis of a tensor with more than 1000 elements
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub edge: u32,
    /// Show every element, however many
    #[arg(long)]
    pub full: bool,
    /// When to use colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Write no results and warnings, for runs that only write files
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub report: ReportArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    Table,
    /// JSON, lossless
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// A parser of one of the library's choices by its name.
fn choice<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|choice| name(*choice));
    PossibleValuesParser::new(names).try_map(move |text| {
        all.iter().copied().find(|choice| name(*choice) == text).ok_or("not one of the choices")
    })
}
