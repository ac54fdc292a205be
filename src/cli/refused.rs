//! What is wrong with refused flags, and what is to be done?

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory};

use super::args::Cli;
use super::elsewhere;
use super::run::{as_near, typed};
use super::written::say;
use base::error::{near_miss, shown};
use base::lang;
use config::Setting;
use program::Name;

/// Says why flags are refused, or shows the help that they ask for, and ends the process.
pub fn exit(error: &clap::Error, args: &[OsString]) -> ! {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let refused = Refused::of(error, &args);
    let Some(what) = refused.what() else { error.exit() };
    let command = || args.iter().skip(1).find(|word| command_called(word));
    let of_command = || command().map(|name| tr!("mha-trace {name} -h shows its flags", name));
    let fix = refused.fix().or_else(of_command);
    let fix = fix.unwrap_or_else(|| {
        tr!("--help lists the flags, --help models those of today's models.").to_owned()
    });
    let what = tr!("error: {what}", what = shown(&what));
    say(&format!("{what}{}", tr!("\nhelp: {fix}", fix = shown(&fix))));
    std::process::exit(error.exit_code())
}

/// What clap says of arguments that it refuses.
struct Refused<'e> {
    error: &'e clap::Error,
    args: &'e [&'e str],
    flag: Option<String>,
    value: Option<String>,
    /// A word that is taken as a command.
    word: Option<String>,
}

impl<'e> Refused<'e> {
    fn of(error: &'e clap::Error, args: &'e [&'e str]) -> Self {
        let of = |kind| told(error, kind);
        let (flag, value) = (of(ContextKind::InvalidArg), of(ContextKind::InvalidValue));
        Self { error, args, flag, value, word: of(ContextKind::InvalidSubcommand) }
    }

    /// What is wrong.
    fn what(&self) -> Option<String> {
        let flag = self.flag.as_deref();
        Some(match (self.error.kind(), flag, self.value.as_deref()) {
            (ErrorKind::UnknownArgument, Some(flag), _) if flag.starts_with('-') => {
                tr!("there is no flag {flag} here", flag)
            }
            (ErrorKind::UnknownArgument, Some(word), _)
            | (ErrorKind::TooManyValues, _, Some(word)) => {
                tr!("{word} is one argument too many", word)
            }
            (ErrorKind::InvalidSubcommand, ..) => {
                tr!("there is no command {name}", name = self.word.as_deref()?)
            }
            (ErrorKind::InvalidValue | ErrorKind::ValueValidation, Some(flag), Some("")) => {
                tr!("{flag} needs a value", flag)
            }
            (ErrorKind::InvalidValue, Some(flag), Some(value)) => {
                tr!("{flag} cannot be {value}", flag, value)
            }
            (ErrorKind::ValueValidation, Some(flag), Some(value)) => {
                let why = self.error.source().map(ToString::to_string).unwrap_or_default();
                tr!("{flag} cannot be {value}: {why}", flag, value, why)
            }
            (ErrorKind::MissingRequiredArgument, Some(flags), _) => {
                tr!("{flags} is missing", flags)
            }
            (ErrorKind::ArgumentConflict, None, _) => {
                tr!("{word} is one argument too many", word = self.word.as_deref()?)
            }
            (ErrorKind::ArgumentConflict, Some(flag), _) => match self.other_flag()? {
                other if other == flag => tr!("{flag} is given twice", flag),
                other => tr!("{flag} and {other} cannot be used together", flag, other),
            },
            _ => return None,
        })
    }

    /// What to do.
    fn fix(&self) -> Option<String> {
        let flag = self.flag.as_deref();
        let fix = match (self.error.kind(), flag, self.value.as_deref()) {
            (ErrorKind::UnknownArgument, Some(flag), _) if flag.starts_with('-') => {
                self.in_place_of_flag(flag)
            }
            (ErrorKind::InvalidSubcommand, ..) => {
                return self.word.as_deref().map(|word| self.in_place_of_command(word));
            }
            (ErrorKind::ArgumentConflict, None, _) => {
                self.word.as_deref().and_then(|word| self.behind_flag(word))
            }
            (ErrorKind::TooManyValues, Some(flag), Some(word)) => Some(without_value(flag, word)),
            (ErrorKind::ArgumentConflict, Some(flag), _) => Some(match self.other_flag() {
                Some(other) if other == flag => tr!("give it once").to_owned(),
                _ => tr!("leave one of the two out").to_owned(),
            }),
            (ErrorKind::InvalidValue, Some(flag), Some(value)) => {
                elsewhere::value(flag.split(' ').next().unwrap_or(flag), value).map(did_you_mean)
            }
            _ => None,
        };
        let near = [ContextKind::SuggestedArg, ContextKind::SuggestedValue];
        let near = || near.into_iter().find_map(|kind| told(self.error, kind)).map(did_you_mean);
        let valid = || {
            let valid = told(self.error, ContextKind::ValidValue).filter(|all| !all.is_empty());
            valid.map(|values| tr!("the values are {values}", values))
        };
        let takes_words = match self.error.kind() {
            ErrorKind::MissingRequiredArgument => true,
            ErrorKind::UnknownArgument => flag.is_some_and(|word| !word.starts_with('-')),
            _ => false,
        };
        let usage = || usage(self.error).filter(|_| takes_words);
        let usage = || usage().map(|usage| tr!("the command is {usage}", usage));
        fix.or_else(near).or_else(valid).or_else(usage).or_else(|| about_flag(flag?))
    }

    /// The flag that another one conflicts with.
    fn other_flag(&self) -> Option<String> {
        told(self.error, ContextKind::PriorArg)
    }

    /// What to do without a flag that there is not.
    fn in_place_of_flag(&self, flag: &str) -> Option<String> {
        let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
        if let Some(why) = elsewhere::useless_flag(name) {
            return Some(why.to_owned());
        }
        if name.parse::<f64>().is_ok() {
            return Some(tr!("give a whole number from {low} up", low = 0));
        }
        let command = Cli::command();
        let is_of_run = named_flag(&command, name).is_some();
        let stated = self.args.iter().skip(1).find(|arg| !arg.starts_with('-'));
        if let Some(command) = stated.filter(|word| is_of_run && command_called(word)) {
            return Some(tr!("{flag} belongs to a run: {command} does not take it", flag, command));
        }
        if let Some(near) = elsewhere::flag(name) {
            return Some(did_you_mean(near));
        }
        if told(self.error, ContextKind::SuggestedArg).is_some() || name.len() < 3 {
            return None;
        }
        let begun = command.get_arguments().filter_map(Arg::get_long);
        let begun = begun.filter(|long| long.split('-').any(|part| part == name));
        let begun: Vec<String> = begun.take(MOST).map(|long| format!("--{long}")).collect();
        (!begun.is_empty()).then(|| did_you_mean(begun.join(tr!(" or "))))
    }

    /// What to do without a command that there is not.
    fn in_place_of_command(&self, word: &str) -> String {
        if elsewhere::is_a_run(word) {
            return tr!("leave {word} out: mha-trace alone shows a run", word);
        }
        let near = told(self.error, ContextKind::SuggestedSubcommand);
        let own = elsewhere::command(word).map(str::to_owned);
        let meant = own.or_else(|| meant_by(word, near.is_some())).or(near);
        let words = self.args.get(1..).unwrap_or_default();
        let is_word = |word: &&str| word.chars().all(char::is_alphabetic);
        let tokens = || format!("--tokens {}", words.join(","));
        let meant = meant.or_else(|| (words.len() > 1 && words.iter().all(is_word)).then(tokens));
        meant.map_or_else(commands, did_you_mean)
    }

    /// What to do with a word that stands behind a flag and is no value of it.
    fn behind_flag(&self, word: &str) -> Option<String> {
        if command_called(word) {
            return Some(tr!("begin with the command: mha-trace {word} …", word));
        }
        let at = self.args.iter().position(|arg| *arg == word)?;
        let (before, rest) = self.args.split_at(at);
        let from = before.iter().rposition(|arg| arg.starts_with('-'))?;
        let flag = before.get(from)?;
        let name = flag.trim_start_matches('-');
        let command = Cli::command();
        let arg = named_flag(&command, name)?;
        if !arg.get_action().takes_values() {
            return Some(without_value(flag, word));
        }
        let is_list = arg.get_value_names().is_some_and(|names| names[0].contains('…'));
        if !is_list {
            return Some(tr!("{flag} takes one value: leave {word} out", flag, word));
        }
        let rest = rest.iter().take_while(|arg| !arg.starts_with('-'));
        let values = before.get(from + 1..)?.iter().chain(rest).copied().collect::<Vec<_>>();
        Some(did_you_mean(format!("{flag} {}", typed(&values.join(",")))))
    }
}

/// Flags that are named at most where several may be meant.
const MOST: usize = 3;

fn did_you_mean(near: impl AsRef<str>) -> String {
    let near = near.as_ref();
    tr!("did you mean {near}?", near)
}

/// What an error says of a kind.
fn told(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) => Some(lang::list(texts)),
        _ => None,
    }
}

/// What to do where a flag without a value is given one.
fn without_value(flag: &str, word: &str) -> String {
    let name = flag.trim_start_matches('-');
    if !["false", "no", "off", "0"].contains(&word.to_lowercase().as_str()) {
        return tr!("{flag} takes no value: leave {word} out", flag, word);
    }
    let off = format!("no-{name}");
    let off = named_flag(&Cli::command(), &off).map(|_| format!("--{off}"));
    let off = off.or_else(|| elsewhere::flag(&format!("no-{name}")).map(str::to_owned));
    match off {
        Some(off) => did_you_mean(off),
        None => tr!("{flag} takes no value: leave it out", flag),
    }
}

/// The flag of that name.
fn named_flag<'c>(command: &'c clap::Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|flag| {
        flag.get_long() == Some(name)
            || flag.get_short().is_some_and(|short| name.chars().eq([short]))
            || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

/// Whether there is a flag of that name.
pub fn is_flag(name: &str) -> bool {
    named_flag(&Cli::command(), name).is_some()
}

/// Whether there is a command of that name.
fn command_called(word: &str) -> bool {
    Cli::command().find_subcommand(word).is_some()
}

/// How the command is used.
fn usage(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    Some(usage.strip_prefix("Usage: ")?.replace("[OPTIONS]", tr!("[OPTIONS]")))
}

/// What a word stands for that is no command: a step, a flag without its hyphens, a value of one, a file, or labels of
/// tokens. Where a command is near, no more than a step or flag of that very name.
fn meant_by(word: &str, is_near: bool) -> Option<String> {
    if Name::in_files(word).is_some() {
        return Some(format!("--steps {word}"));
    }
    let (name, value) = word.split_once(['=', ':']).unwrap_or((word, ""));
    let name = name.replace('_', "-");
    if name.len() > 1 && is_flag(&name) {
        return Some(format!("--{name} {value}").trim_end().to_owned());
    }
    if is_near {
        return None;
    }
    let choice = word.to_lowercase().replace('_', "-");
    let of_choice = |setting: &&Setting| setting.choices.contains(&choice.as_str());
    if let Some(setting) = Setting::ALL.iter().find(of_choice) {
        return Some(super::run::flag(setting.key, Some(&choice)));
    }
    let is_read = Path::new(word).extension().is_some_and(|own| {
        ["json", "safetensors", "npz", "npy", "pt", "pth"].iter().any(|read| own == *read)
    });
    if is_read || Path::new(word).exists() {
        return Some(format!("{} check {}", env!("CARGO_PKG_NAME"), typed(word)));
    }
    let steps: Vec<&str> = Name::ALL.iter().map(|step| step.as_str()).collect();
    let step = near_miss(word, &steps).map(|step| format!("--steps {step}"));
    let labels = || {
        let labels = word.split_whitespace().collect::<Vec<_>>().join(",");
        let is_labels = labels != word && !word.contains('-') || labels.chars().any(is_of_script);
        is_labels.then(|| format!("--tokens {}", typed(&labels)))
    };
    step.or_else(labels)
}

/// Whether a letter is of a script that no name here is written in.
fn is_of_script(letter: char) -> bool {
    letter.is_alphabetic() && !letter.is_ascii()
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
    let slips = |given: &str| if given.chars().count() < LONG { 1 } else { 2 };
    if let Some(ContextValue::Strings(near)) = error.get(ContextKind::SuggestedSubcommand) {
        let given = told(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
        let off = |near: &String| strsim::damerau_levenshtein(&given, near);
        let near = near.iter().filter(|near| off(near) <= slips(&given)).cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.trim_start_matches('-').to_owned()),
        _ => None,
    };
    let far = text(ContextKind::InvalidArg)
        .zip(text(ContextKind::SuggestedArg))
        .filter(|(given, meant)| strsim::damerau_levenshtein(given, meant) > slips(given));
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
