//! Flags mapped to library types, and commands to library calls.

mod args;
mod commands;
mod comparisons;
mod completions;
mod elsewhere;
mod fuzz;
mod help;
mod interruption;
mod language;
mod listed;
mod meant;
mod outcome;
mod outputs;
mod progress;
mod refused;
mod run;
#[cfg(test)]
mod tests;
mod typed;
mod values;
mod workers;
mod written;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use base::lang::Language;
use outcome::Outcome;

/// Whether what stands on the command line shows help.
fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Parses the flags, carries out the command, and tells how it ended: 0 done and the same, 1 compared and
/// different, 2 could not.
pub fn main() -> ExitCode {
    let (args, stated) = language::taken(typed::plain(std::env::args_os()).into_iter());
    stated.unwrap_or_else(language::of_process).speak();
    if let [.., help, of] = &args[..]
        && help == "--help"
        && of == "models"
    {
        help::show_models();
    }
    let command = Cli::command().bin_name(env!("CARGO_PKG_NAME"));
    let matches = command.try_get_matches_from(&args);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if is_help(error.kind()) => {
            help::show(&help::translated().try_get_matches_from(&args).err().unwrap_or(error))
        }
        Err(error) => refused::exit(&refused::near_only(error), &args),
    };
    if matches!(
        cli.command,
        None | Some(
            Command::Check(_)
                | Command::Diff(_)
                | Command::Explain(_)
                | Command::Step(_)
                | Command::Fuzz(_)
        )
    ) {
        workers::start();
    }
    if cli.is_json() {
        Language::En.speak();
    }
    let outcome = match cli.command {
        None => commands::trace(&cli.run, &cli.view, &cli.output),
        Some(Command::Check(args)) => comparisons::check(&args),
        Some(Command::Diff(args)) => comparisons::diff(&args),
        Some(Command::Explain(args)) => commands::explain(&args),
        Some(Command::Step(args)) => commands::step(&args),
        Some(Command::Tour(args)) => commands::tour(&args),
        Some(Command::Fuzz(args)) => fuzz::fuzz(&args),
        Some(Command::Bugs(args)) => commands::bugs(&args),
        Some(Command::Models) => commands::models(),
        Some(Command::Shapes(args)) => commands::shapes(&args),
        Some(Command::Completions(args)) => completions::completions(args.shell),
        Some(Command::Man) => completions::man(stated.unwrap_or_default()),
    };
    match outcome {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            written::report(&error);
            Outcome::Failed.into()
        }
    }
}
