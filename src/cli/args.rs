//! Which commands and flags are there, and what does their help say?
#![allow(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]

use std::path::PathBuf;
use std::str::FromStr;

use base::lang::Language;
use check::PerStep;
use clap::{Args, Parser, Subcommand, ValueEnum};
use foreign::NameMap;
use view::Asked;

use super::fuzz::{Kind, Takes};
use super::run::RunArgs;
use super::values::{cases, columns, decimals, items, place, seconds, step, tile};

/// Trace multi-head attention step by step, with PyTorch's numbers.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    /// Also write FILE: every tensor, losslessly, as .json, .safetensors or .npz, or a page to look at as .html,
    /// or notes and slides as .md or .tex (repeatable)
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// The language of the output, except JSON [default: that of LC_ALL, LC_MESSAGES or LANG]
    #[arg(long, value_enum, value_name = "LANG", global = true)]
    pub lang: Option<Language>,
}

impl Cli {
    /// Whether JSON is asked for, which is in English.
    pub fn is_json(&self) -> bool {
        let report = match &self.command {
            None => Some(&self.view.report),
            Some(Command::Check(args)) => Some(&args.report),
            Some(Command::Diff(args)) => Some(&args.report),
            Some(Command::Explain(args)) => Some(&args.report),
            Some(Command::Shapes(args)) => Some(&args.report),
            Some(Command::Fuzz(args)) => Some(&args.report),
            _ => None,
        };
        report.is_some_and(|report| report.format == Format::Json)
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Recompute recorded files from their inputs, and find what is wrong
    Check(CheckArgs),
    /// Compare two recorded files step by step, without recomputing anything
    Diff(DiffArgs),
    /// Test a kernel at the shapes and numbers at which kernels break
    Fuzz(FuzzArgs),
    /// Explain a step, or how one number is computed
    Explain(ExplainArgs),
    /// Walk through the steps in the terminal; ? shows the keys
    Step(StepArgs),
    /// Tell the story of a run in ten stops, from X to the output
    Tour(TourArgs),
    /// List the known mistakes, or explain one
    Bugs(BugsArgs),
    /// List the families of models that --model-config knows
    Models,
    /// Show a run's shapes, parameters, FLOPs and bytes, without running it
    Shapes(ShapesArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct CheckArgs {
    /// Recorded files (FILE:TENSOR for one tensor), or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Also write a page to FILE.html: both sides of every step, and what was found
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave out the table of the steps
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    /// Also count differences that rounding explains (noise): the exit code is then 1
    #[arg(long, help_heading = "Tolerance: |left − right| ≤ atol + rtol · |right|")]
    pub fail_on_noise: bool,
    /// Ignore the rows of padded queries
    #[arg(long)]
    pub ignore_padding: bool,
    /// Allow gradients that were not checked: without this flag, a file that holds them is never reported as same
    #[arg(long)]
    pub ignore_gradients: bool,
    /// Also test bf16 and f16 outputs by FlashAttention's tolerance: an error against f64 of at most twice PyTorch's
    #[arg(long, help_heading = "Tolerance: |left − right| ≤ atol + rtol · |right|")]
    pub flash_tolerance: bool,
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
    /// Compare two recordings of a whole model, A the reference, B the port: which layer goes wrong first, and why
    #[arg(long, conflicts_with_all = ["map", "ignore_missing"])]
    pub by_layer: bool,
    /// The recordings of ranks, joined: they split heads (or features), tokens or pipeline stages over so many
    #[arg(long, value_name = "heads=N", requires = "by_layer")]
    pub unshard: Option<check::Unshard>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Ignore steps that only one file has (they are still listed)
    #[arg(long)]
    pub ignore_missing: bool,
    /// Also write a page to FILE.html: both sides of every step, and what was found
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave out the table of the steps
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub tolerances: ToleranceArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

#[derive(Args)]
pub struct FuzzArgs {
    /// The command that runs the kernel: 'python kernel.py {in} {out}' once for each case, or with {dir} once for all
    #[arg(value_name = "COMMAND", required_unless_present_any = ["list", "write", "read"])]
    pub command: Option<String>,
    /// List the cases, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Only these cases, by their names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Leave out these cases
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// The number of cases: beyond those of the list, with drawn sizes
    #[arg(long, value_name = "N", value_parser = cases)]
    pub cases: Option<usize>,
    /// The types of the inputs: each case is run in each of them
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', default_value = "f32,bf16,f16")]
    pub dtypes: Vec<Kind>,
    /// The tokens in a tile of the kernel: lengths are around its multiples
    #[arg(long, value_name = "N", default_value = "64", value_parser = tile)]
    pub tile_size: usize,
    /// What the kernel takes beside q, k and v: lengths, attn-mask
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub takes: Vec<Takes>,
    /// Seconds after which a run of the command is ended
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: f64,
    /// Keep the files of failing cases in this folder, for mha-trace check
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Only write the inputs of the cases to DIR/in
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "list"])]
    pub write: Option<PathBuf>,
    /// Only check the outputs in DIR/out
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "list", "write"])]
    pub read: Option<PathBuf>,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct NameArgs {
    /// Names in the files, and the steps they stand for: attn_probs=weights,ctx=concat (repeatable)
    #[arg(long, value_name = "THEIRS=OURS,…")]
    pub map: Vec<NameMap>,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// A step, such as weights, or one number of it: weights[0,1,2,3], weights[head=1,query=2,key=3], or with labels
    /// of --tokens weights[head=1,query=sat,key=cat]
    #[arg(value_name = "STEP|CELL")]
    pub asked: Asked,
    /// Explain the numbers of this recorded file instead of those of a new run
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Decimals of every number but the cell's own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = decimals, allow_negative_numbers = true)]
    pub decimals: u8,
    /// Follow the largest terms back through N steps, or all the way to the inputs (all)
    #[arg(long, value_name = "N|all", default_value = "1", allow_negative_numbers = true)]
    pub depth: Depth,
    /// Also say why the step is there
    #[arg(long)]
    pub why: bool,
    /// Show every term, however many
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct StepArgs {
    /// A recorded file: what was recorded and what it should be, side by side, from the first step that differs
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub names: NameArgs,
    /// Decimals of every number but the explained one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = decimals, allow_negative_numbers = true)]
    pub decimals: u8,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct TourArgs {
    #[command(flatten)]
    pub run: RunArgs,
}

/// Through how many steps a number is followed.
#[derive(Clone, Copy)]
pub struct Depth(pub usize);

impl FromStr for Depth {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "all" => Ok(Self(usize::MAX)),
            Ok(depth) if depth > 0 => Ok(Self(depth)),
            _ => Err(tr!("give a whole number of steps from 1, or all")),
        }
    }
}

#[derive(Args)]
pub struct BugsArgs {
    /// The mistake's name
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Fish,
    Zsh,
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
    /// Absolute tolerance, in the same form [default: by dtype, as torch.testing has it]
    #[arg(long, value_name = "A")]
    pub atol: Option<PerStep>,
}

#[derive(Args)]
#[command(next_help_heading = "Report")]
pub struct ReportArgs {
    /// The format of the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Width of the output in columns, 30 or more [default: COLUMNS, the terminal's, or 100]
    #[arg(long, value_name = "N", value_parser = columns, allow_negative_numbers = true)]
    pub width: Option<u16>,
    /// When to use colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// What is shown.
#[derive(Args)]
#[command(next_help_heading = "View")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ViewArgs {
    /// Only these steps: q,scores,weights; names from other code work too, such as attn_weights [default: all but the
    /// parameters]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = step)]
    pub steps: Option<Vec<String>>,
    /// Only this batch item
    #[arg(long, value_name = "N", value_parser = place, allow_negative_numbers = true)]
    pub batch_item: Option<usize>,
    /// Only this head
    #[arg(long, value_name = "N", value_parser = place, allow_negative_numbers = true)]
    pub head: Option<usize>,
    /// Decimals of every number
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = decimals, allow_negative_numbers = true)]
    pub decimals: u8,
    /// Show N items at each end of longer axes [default: 3, for axes that are too long to show]
    #[arg(long, value_name = "N", value_parser = items, allow_negative_numbers = true)]
    pub edge: Option<u32>,
    /// Show every element, however many
    #[arg(long)]
    pub full: bool,
    /// Show scores and weights as a heat map: colours, or shades where there is no colour
    #[arg(long)]
    pub heatmap: bool,
    /// Say why each step is there
    #[arg(long)]
    pub why: bool,
    /// Print no results and no warnings, for runs that only write files
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
