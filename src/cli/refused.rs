//! What is wrong with refused flags, and what is to be done?

use std::error::Error;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use super::args::Cli;
use super::run::{as_near, typed};
use super::written::say;
use base::error::{near_miss, shown};
use base::lang;
use program::Name;

/// Says why flags are refused, or shows the help that they ask for, and ends the process.
pub fn exit(error: &clap::Error) -> ! {
    let Some((what, fix)) = told(error) else { error.exit() };
    let what = tr!("error: {what}", what = shown(&what));
    say(&format!("{what}{}", tr!("\nhelp: {fix}", fix = shown(&fix))));
    std::process::exit(error.exit_code())
}

/// What is wrong, and what to do.
fn told(error: &clap::Error) -> Option<(String, String)> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(lang::list(texts)),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg);
    let near =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let near = near.into_iter().find_map(text);
    let command = text(ContextKind::InvalidSubcommand);
    let meant = command.as_deref().and_then(|word| meant_by(word, near.is_some()));
    let near = meant.or(near).map(|near| tr!("did you mean {near}?", near));
    let valid = text(ContextKind::ValidValue).filter(|valid| !valid.is_empty());
    let fix = near.or_else(|| valid.map(|values| tr!("the values are {values}", values)));
    let is_of_words = match error.kind() {
        ErrorKind::MissingRequiredArgument => true,
        ErrorKind::UnknownArgument => flag.as_ref().is_some_and(|word| !word.starts_with('-')),
        _ => false,
    };
    let usage = usage(error).filter(|_| is_of_words);
    let fix = fix.or_else(|| usage.map(|usage| tr!("the command is {usage}", usage)));
    let about = flag.as_deref().filter(|_| error.kind() == ErrorKind::ValueValidation);
    let fix = fix.or_else(|| command.is_some().then(commands).or_else(|| about_flag(about?)));
    let fix = fix.unwrap_or_else(|| {
        tr!("--help lists the flags, --help models those of today's models.").to_owned()
    });
    let value = text(ContextKind::InvalidValue);
    let what = match (error.kind(), flag, value) {
        (ErrorKind::UnknownArgument, Some(flag), _) if flag.starts_with('-') => {
            tr!("there is no flag {flag} here", flag)
        }
        (ErrorKind::UnknownArgument, Some(word), _) => {
            tr!("{word} is one argument too many", word)
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            tr!("there is no command {name}", name = command?)
        }
        (ErrorKind::InvalidValue, Some(flag), Some(value)) if value.is_empty() => {
            tr!("{flag} needs a value", flag)
        }
        (ErrorKind::InvalidValue, Some(flag), Some(value)) => {
            tr!("{flag} cannot be {value}", flag, value)
        }
        (ErrorKind::ValueValidation, Some(flag), Some(value)) => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            tr!("{flag} cannot be {value}: {why}", flag, value, why)
        }
        (ErrorKind::MissingRequiredArgument, Some(flags), _) => tr!("{flags} is missing", flags),
        (ErrorKind::ArgumentConflict, Some(flag), _) => match text(ContextKind::PriorArg) {
            Some(other) if other == flag => tr!("{flag} is given twice", flag),
            Some(other) => tr!("{flag} and {other} cannot be used together", flag, other),
            None => return None,
        },
        _ => return None,
    };
    Some((what, fix))
}

/// How the command is used.
fn usage(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    Some(usage.strip_prefix("Usage: ")?.replace("[OPTIONS]", tr!("[OPTIONS]")))
}

/// What a word stands for that is no command: a step, a flag without its hyphens, or a file. Where a command is near, no more
/// than a step or flag of that very name.
fn meant_by(word: &str, is_near: bool) -> Option<String> {
    if Name::in_files(word).is_some() {
        return Some(format!("--steps {word}"));
    }
    let name = word.replace('_', "-");
    let has_name = |flag: &Arg| {
        flag.get_long() == Some(&*name)
            || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&&*name))
    };
    if Cli::command().get_arguments().any(has_name) {
        return Some(format!("--{name}"));
    }
    if is_near {
        return None;
    }
    if Path::new(word).exists() {
        return Some(format!("{} check {}", env!("CARGO_PKG_NAME"), typed(word)));
    }
    let steps: Vec<&str> = Name::ALL.iter().map(|step| step.as_str()).collect();
    near_miss(word, &steps).map(|step| format!("--steps {step}"))
}

/// The commands that there are.
fn commands() -> String {
    let all = Cli::command();
    let names: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
    tr!(
        "the commands are {names}; without a command, mha-trace shows a run",
        names = lang::list(&names)
    )
}

/// What a flag is for.
fn about_flag(flag: &str) -> Option<String> {
    let mut command = Cli::command();
    command.build();
    let of_commands = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let arg = command.get_arguments().chain(of_commands).find(|arg| arg.to_string() == flag)?;
    Some(format!("{flag}: {}", lang::text(arg.get_help()?.to_string().lines().next()?)))
}

/// An error of flags, without the flag that clap thinks is meant where that is farther off than a slip of the keyboard:
/// `--head-dims` is no `--head-outputs`. Its usage would show that flag too.
pub fn near_only(mut error: clap::Error) -> clap::Error {
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
        let near = as_near(&given, &meant).join(tr!(" or "));
        error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
    }
    error
}

/// Letters from which on a flag bears two slips.
const LONG: usize = 8;
