//! Flags mapped to library types, and commands to library calls.

mod args;
mod commands;
mod completions;
mod help;
mod interruption;
mod language;
mod outputs;
mod progress;
mod refused;
mod run;
#[cfg(test)]
mod texts;
mod workers;
mod written;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::{Cli, Command};
use base::error::Error;
use base::error::{Message, shown, shown_json};
use base::lang::Language;
use file::{io_reason, is_unread};

/// How a command that could be carried out ended.
pub enum Outcome {
    /// Done, and where something was compared, the same.
    Same,
    /// Compared, and different.
    Different,
    /// Not all could be done, and why has been said.
    Failed,
}

/// Parses the flags, carries out the command, and tells how it ended: 0 done and the same, 1 compared and
/// different, 2 could not.
#[must_use]
pub fn main() -> ExitCode {
    let (args, stated) = language::taken(std::env::args_os());
    stated.unwrap_or_else(language::of_process).speak();
    let matches = help::command().try_get_matches_from(&args);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            help::show(&help::translated().try_get_matches_from(&args).err().unwrap_or(error))
        }
        Err(error) => refused::exit(&near_only(error)),
    };
    if matches!(
        cli.command,
        None | Some(Command::Check(_) | Command::Diff(_) | Command::Explain(_) | Command::Step(_))
    ) {
        workers::start();
    }
    if cli.is_json() {
        Language::En.speak();
    }
    let outcome = match cli.command {
        None => commands::trace(&cli.run, &cli.view, &cli.output),
        Some(Command::Check(args)) => commands::check(&args),
        Some(Command::Diff(args)) => commands::diff(&args),
        Some(Command::Explain(args)) => commands::explain(&args),
        Some(Command::Step(args)) => commands::step(&args),
        Some(Command::Bugs(args)) => commands::bugs(&args),
        Some(Command::Models) => commands::models(),
        Some(Command::Shapes(args)) => commands::shapes(&args),
        Some(Command::Completions(args)) => completions::completions(args.shell),
        Some(Command::Man) => completions::man(stated.unwrap_or_default()),
    };
    match outcome {
        Ok(Outcome::Same) => ExitCode::SUCCESS,
        Ok(Outcome::Different) => ExitCode::from(1),
        Ok(Outcome::Failed) => ExitCode::from(2),
        Err(error) => {
            report(&error);
            ExitCode::from(2)
        }
    }
}

/// An error of flags, without the flag that clap thinks is meant where that is farther off than a slip of the keyboard:
/// `--head-dims` is no `--head-outputs`. Its usage would show that flag too.
fn near_only(mut error: clap::Error) -> clap::Error {
    let texts: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            // What clap writes has colours; what it quotes has none.
            ContextValue::String(text) => Some((kind, ContextValue::String(shown(text).into()))),
            _ => None,
        })
        .collect();
    for (kind, text) in texts {
        error.insert(kind, text);
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.trim_start_matches('-').to_owned()),
        _ => None,
    };
    let far = text(ContextKind::InvalidArg).zip(text(ContextKind::SuggestedArg)).filter(
        |(given, meant)| {
            let slips = if given.len() < LONG { 1 } else { 2 };
            strsim::damerau_levenshtein(given, meant) > slips
        },
    );
    if far.is_some() {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    } else if let Some((given, meant)) =
        text(ContextKind::InvalidArg).zip(text(ContextKind::SuggestedArg))
    {
        let near = run::as_near(&given, &meant).join(tr!(" or "));
        error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
    }
    error
}

/// Letters from which on a flag bears two slips.
const LONG: usize = 8;

/// Says on stderr what is wrong and, on a second line, what to do.
fn report(error: &anyhow::Error) {
    let spelled = |message: Message| message.spelled(run::flag);
    let (what, help) = match error.downcast_ref::<Error>() {
        Some(error) => {
            let help = tr!("\nhelp: {fix}", fix = shown(&spelled(error.fix())));
            (spelled(error.what()), help)
        }
        None => (error.to_string(), String::new()),
    };
    let what = tr!("error: {what}", what = shown(&what));
    written::say(&format!("{what}{help}"));
}

/// Writes results. Whoever reads them may stop early, as `head` does; that changes nothing else.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = write(&mut out).and_then(|()| out.flush());
    // What is still in the buffer has no reader, or no room.
    drop(out.into_parts());
    match result {
        Err(error) if !is_unread(&error) => Err(unwritten(error)),
        _ => Ok(()),
    }
}

/// Writes JSON as a terminal can show it.
fn print_json(value: &serde_json::Value) -> Result<(), Error> {
    print(|out| writeln!(out, "{}", shown_json(&format!("{value:#}"))))
}

/// Why results were not written: what came about while they were made, or where they go.
fn unwritten(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::Config {
        what: tr!("the results cannot be written: {error}", error = io_reason(&error)).into(),
        fix: "free some space, or send them elsewhere".into(),
    })
}
