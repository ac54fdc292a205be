//! Refused flags: what is wrong, and on a second line what to do, as of all errors.

use std::error::Error;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::run::as_near;
use super::written::say;
use base::error::shown;
use base::lang;

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
    let near = near.into_iter().find_map(text).map(|near| tr!("did you mean {near}?", near));
    let valid = text(ContextKind::ValidValue).filter(|valid| !valid.is_empty());
    let fix = near.or_else(|| valid.map(|values| tr!("the values are {values}", values)));
    let is_of_words = match error.kind() {
        ErrorKind::MissingRequiredArgument => true,
        ErrorKind::UnknownArgument => flag.as_ref().is_some_and(|word| !word.starts_with('-')),
        _ => false,
    };
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) if is_of_words => Some(usage.to_string()),
        _ => None,
    };
    let usage = usage.as_deref().and_then(|usage| usage.strip_prefix("Usage: "));
    let usage = usage.map(|usage| usage.replace("[OPTIONS]", tr!("[OPTIONS]")));
    let fix = fix.or_else(|| usage.map(|usage| tr!("the command is {usage}", usage)));
    let fix = fix.unwrap_or_else(|| tr!("--help lists every flag.").to_owned());
    let value = text(ContextKind::InvalidValue);
    let what = match (error.kind(), flag, value) {
        (ErrorKind::UnknownArgument, Some(flag), _) if flag.starts_with('-') => {
            tr!("there is no flag {flag} here", flag)
        }
        (ErrorKind::UnknownArgument, Some(word), _) => {
            tr!("there is no place for {word} here", word)
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            let name = text(ContextKind::InvalidSubcommand)?;
            tr!("there is no command {name}", name)
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
            Some(other) => tr!("{flag} and {other} exclude each other", flag, other),
            None => return None,
        },
        _ => return None,
    };
    Some((what, fix))
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
