//! What is wrong with refused flags, and what is to be done?

use std::error::Error;
use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::args::Cli;
use super::elsewhere::{self, did_you_mean};
use super::listed::{PLACES, example};
use super::meant::{
    about_flag, all_steps, cell_of, command_called, commands, either, ended_by, flagged, is_file,
    is_flag, letters, meant_by, named_flag, of_help, sizes,
};
use super::run::as_near;
use super::values::{is_value, typed};
use super::written::refuse;
use base::error::shown;
use base::lang;
use config::Setting;

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
    refuse(&what, &fix);
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
                tr!("missing: {flags}", flags)
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
            (ErrorKind::UnknownArgument, Some(word), _) => self.in_place_of_word(word),
            (ErrorKind::InvalidSubcommand, ..) => {
                return self.word.as_deref().map(|word| self.in_place_of_command(word));
            }
            (ErrorKind::MissingRequiredArgument, ..) => Some(self.with_what_lacks()),
            (ErrorKind::ArgumentConflict, None, _) => {
                self.word.as_deref().and_then(|word| self.behind_flag(word))
            }
            (ErrorKind::TooManyValues, Some(flag), Some(word)) => Some(without_value(flag, word)),
            (ErrorKind::ArgumentConflict, Some(flag), _) => Some(match self.other_flag() {
                Some(other) if other == flag => tr!("give it once").to_owned(),
                _ => tr!("leave one of the two out").to_owned(),
            }),
            (ErrorKind::InvalidValue | ErrorKind::ValueValidation, Some(flag), Some(value)) => {
                self.in_place_of_value(flag, value)
            }
            _ => None,
        };
        let near = [ContextKind::SuggestedArg, ContextKind::SuggestedValue];
        let near = || near.into_iter().find_map(|kind| told(self.error, kind));
        let near = || near().map(|near| self.did_you_mean(&near));
        let valid = || {
            let valid = told(self.error, ContextKind::ValidValue).filter(|all| !all.is_empty());
            valid.map(|values| tr!("the values are {values}", values))
        };
        fix.or_else(near).or_else(valid).or_else(|| about_flag(flag?))
    }

    /// The flag that another one conflicts with.
    fn other_flag(&self) -> Option<String> {
        told(self.error, ContextKind::PriorArg)
    }

    /// What flags may be meant, with the value that the wrong one was given.
    fn did_you_mean(&self, flags: &str) -> String {
        let flag = self.flag.as_deref().unwrap_or_default();
        let is_flag = self.error.kind() == ErrorKind::UnknownArgument;
        let given = self.given(flag).filter(|_| is_flag);
        did_you_mean(either(flags.split('|').map(|near| flagged(near, given))))
    }

    /// The value that a flag was given.
    fn given(&self, flag: &str) -> Option<&'e str> {
        let at = self.args.iter().position(|arg| arg.split('=').next() == Some(flag))?;
        let behind = self.args.get(at + 1).filter(|arg| !arg.starts_with('-'));
        self.args.get(at)?.split_once('=').map(|(_, value)| value).or(behind.copied())
    }

    /// The command and what stands behind it.
    fn command(&self) -> Option<(&'e str, &'e [&'e str])> {
        let at = self.args.iter().skip(1).position(|word| command_called(word))? + 1;
        Some((self.args.get(at)?, self.args.get(at + 1..)?))
    }

    /// The command as it was typed, with an example of everything that it lacks.
    fn with_what_lacks(&self) -> String {
        let lacking = self.flag.as_deref().unwrap_or_default();
        let examples = PLACES.iter().filter(|(place, _)| lacking.contains(place));
        let typed = self.args.iter().skip(1).map(|word| typed(word));
        let words: Vec<String> = std::iter::once(env!("CARGO_PKG_NAME").to_owned())
            .chain(typed)
            .chain(examples.map(|(_, example)| (*example).to_owned()))
            .collect();
        tr!("for example: {command}", command = words.join(" "))
    }

    /// What to do with a value that a flag does not take.
    fn in_place_of_value(&self, flag: &str, value: &str) -> Option<String> {
        let flag = flag.split(' ').next().unwrap_or(flag);
        if flag == "<STEP|CELL>" && value.parse::<f64>().is_ok() {
            let program = env!("CARGO_PKG_NAME");
            return Some(tr!(
                "give the place of a number, not its value: {program} explain 'weights[0,0,2,1]'",
                program
            ));
        }
        if elsewhere::is_everything(value) && matches!(flag, "--steps" | "--head" | "--batch-item")
        {
            return Some(match flag {
                "--steps" => {
                    tr!("leave --steps out: then every step but the parameters is shown").to_owned()
                }
                _ => tr!("leave {flag} out: then all are shown", flag),
            });
        }
        if let Some(meant) = elsewhere::value(flag, value) {
            let name = meant.split(' ').next().unwrap_or_default();
            if name.starts_with('-') && self.args.contains(&name) {
                return Some(tr!("leave {flag} {value} out: {name} says it", flag, value, name));
            }
            return Some(did_you_mean(flagged(&meant, None)));
        }
        let spellings = elsewhere::number(value).into_iter();
        spellings.filter(|other| other != value && is_value(flag, other)).map(did_you_mean).next()
    }

    /// What to do with a word that the command has no place for.
    fn in_place_of_word(&self, word: &str) -> Option<String> {
        let (command, behind) = self.command()?;
        let program = env!("CARGO_PKG_NAME");
        if command == "explain"
            && let [step, numbers @ ..] = behind
            && let Some(cell) = cell_of(step, numbers)
        {
            return Some(did_you_mean(format!("{program} explain {cell}")));
        }
        let own = Cli::command();
        let own = own.find_subcommand(command)?;
        if is_file(word) && own.get_arguments().any(|arg| arg.get_id() == "config") {
            return Some(did_you_mean(format!("{program} {command} --config {}", typed(word))));
        }
        if let Some(step) = all_steps(&[word]) {
            return Some(did_you_mean(format!("{program} explain {step}")));
        }
        if own.get_positionals().next().is_none() {
            return Some(tr!(
                "leave {word} out: {program} {command} takes no such word",
                word,
                program,
                command
            ));
        }
        let Some(ContextValue::StyledStr(usage)) = self.error.get(ContextKind::Usage) else {
            return None;
        };
        let usage = usage.to_string();
        let usage = usage.strip_prefix("Usage: ")?.replace("[OPTIONS]", tr!("[OPTIONS]"));
        Some(tr!("the command is {usage}", usage))
    }

    /// What to do without a flag that there is not.
    fn in_place_of_flag(&self, flag: &str) -> Option<String> {
        let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
        if let Some(why) = elsewhere::useless_flag(name) {
            return Some(why.to_owned());
        }
        if name.parse::<f64>().is_ok() {
            return Some(sizes(name));
        }
        let all = Cli::command();
        let stated = self.command().map(|(command, _)| command);
        if let Some(command) = stated.filter(|_| named_flag(&all, name).is_some()) {
            return Some(tr!("{flag} belongs to a run: {command} does not take it", flag, command));
        }
        let about = stated.and_then(|command| all.find_subcommand(command)?.get_about());
        let about = about.map(|about| about.to_string().to_lowercase());
        if let Some(command) = stated.filter(|_| about.is_some_and(|about| about.starts_with(name)))
        {
            return Some(tr!("leave {flag} out: {command} does it without a flag", flag, command));
        }
        if let Some(near) = elsewhere::flag(name) {
            return Some(self.did_you_mean(near));
        }
        if told(self.error, ContextKind::SuggestedArg).is_some() {
            return None;
        }
        if let Some((first, _)) = name.split_once(' ')
            && named_flag(&all, first).is_some()
        {
            return Some(without_quotes(flag));
        }
        if let Some(off) = name.strip_prefix("no-")
            && let Some(setting) = Setting::named(&off.replace('-', "_"))
            && ["", "0", "none"].contains(&setting.default)
        {
            let flag = format!("--{off}");
            return Some(tr!("leave it out: without {flag} there is none", flag));
        }
        if name.len() == 1 {
            return Some(self.in_place_of_letter(flag, name));
        }
        let begun = all.get_arguments().filter_map(clap::Arg::get_long);
        let begun = begun.filter(|long| name.len() > 2 && long.split('-').any(|part| part == name));
        let begun: Vec<String> = begun.take(MOST).map(|long| format!("--{long}")).collect();
        let begun = Some(begun.join("|")).filter(|begun| !begun.is_empty());
        let near = begun.or_else(|| ended_by(name)).or_else(|| of_help(name, self.given(flag)));
        near.map(|near| self.did_you_mean(&near))
    }

    /// What to do without a letter that there is not: take the flag of that name, the letter in the other case, or a size.
    fn in_place_of_letter(&self, flag: &str, letter: &str) -> String {
        let upper = letter.to_uppercase();
        let other = if upper == letter { letter.to_lowercase() } else { upper };
        let is_number = |value: &&str| value.parse::<f64>().is_ok();
        if is_flag(letter) {
            self.did_you_mean(&format!("--{letter}"))
        } else if is_flag(&other) {
            self.did_you_mean(&format!("-{other}"))
        } else {
            self.given(flag).filter(is_number).map_or_else(letters, sizes)
        }
    }

    /// What to do without a command that there is not.
    fn in_place_of_command(&self, word: &str) -> String {
        let (program, words) = (env!("CARGO_PKG_NAME"), self.args.get(1..).unwrap_or_default());
        if elsewhere::is_a_run(word) {
            return tr!("leave {word} out: mha-trace alone shows a run", word);
        }
        if word == program || word.starts_with(&format!("{program} ")) || word.contains(" -") {
            let rest = word.strip_prefix(program).unwrap_or(word).trim();
            if rest.is_empty() {
                let words = words.get(1..).unwrap_or_default().join(" ");
                return tr!("leave out the second mha-trace: {program} {words}", program, words);
            }
            return without_quotes(rest);
        }
        if word.parse::<f64>().is_ok() {
            return sizes(word);
        }
        let about = || about_flag(word).filter(|_| word.starts_with("--"));
        if let Some(about) = about() {
            return about;
        }
        let near = told(self.error, ContextKind::SuggestedSubcommand);
        let is_of_help = words.first() == Some(&"help");
        if let Some(step) = all_steps(&[word]).filter(|_| is_of_help) {
            return did_you_mean(format!("{program} explain {step}"));
        }
        let words = if is_of_help { words.get(1..).unwrap_or_default() } else { words };
        let steps = all_steps(words).or_else(|| all_steps(&[word]));
        let own = elsewhere::command(word).map(str::to_owned);
        let meant = steps.map(|steps| format!("--steps {steps}")).or(own);
        let meant = meant.or_else(|| meant_by(words, near.is_some())).or(near);
        let is_word = |word: &&str| word.chars().all(char::is_alphabetic);
        let tokens = || format!("--tokens {}", words.join(","));
        let meant = meant.or_else(|| (words.len() > 1 && words.iter().all(is_word)).then(tokens));
        let flagged = |near: String| did_you_mean(flagged(&near, None));
        let told = || commands(Some(word)).or_else(|| of_help(word, None).map(flagged));
        let fix = meant.map(flagged).or_else(told).or_else(|| commands(None));
        fix.unwrap_or_default()
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
        // What must stand beside it, as its example has it.
        let beside = example(arg).and_then(|own| own.split_once(" --")).map(|(_, beside)| beside);
        let beside = beside.filter(|_| name == "scores").map(|beside| format!(" --{beside}"));
        let values = typed(&values.join(","));
        Some(did_you_mean(format!("{flag} {values}{}", beside.unwrap_or_default())))
    }
}

/// Flags that are named at most where several may be meant.
const MOST: usize = 3;

/// What an error says of a kind.
fn told(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) => Some(lang::list(texts)),
        _ => None,
    }
}

/// What to do with several words in quotes.
fn without_quotes(words: &str) -> String {
    let program = env!("CARGO_PKG_NAME");
    tr!("leave out the quotes: {program} {words}", program, words)
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
        let near = as_near(&given, &meant).join("|");
        error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
    }
    error
}

/// Letters from which on a flag bears two slips.
const LONG: usize = 8;
