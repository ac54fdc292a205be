//! Flags mapped to library types, and commands to library calls.

mod args;
mod commands;
mod run;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// How a command that could be carried out ended.
pub enum Outcome {
    /// Done, and where something was compared, the same.
    Same,
    /// Compared, and different.
    Different,
}

/// Parses the flags, carries out the command, and tells how it ended: 0 done and the same, 1 compared and
/// different, 2 could not.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => commands::trace(&cli.run, &cli.view, &cli.output),
        Some(Command::Check(args)) => commands::check(&args),
        Some(Command::Diff(args)) => commands::diff(&args),
        Some(Command::Shapes(args)) => commands::shapes(&args),
    };
    match outcome {
        Ok(Outcome::Same) => ExitCode::SUCCESS,
        Ok(Outcome::Different) => ExitCode::from(1),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(2)
        }
    }
}

/// Says on stderr what is wrong and, on a second line, what to do.
fn report(error: &anyhow::Error) {
    let fix = error.downcast_ref::<mha_trace::Error>().map(mha_trace::Error::fix);
    let help = fix.map(|fix| format!("\nhelp: {fix}")).unwrap_or_default();
    // Where stderr is closed too there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {error}{help}");
}

/// Whether whoever read our output has gone, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
