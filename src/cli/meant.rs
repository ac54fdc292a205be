//! What does a word stand for that is refused, by what flags, commands and steps are called and say in their help?

use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory};

use super::args::Cli;
use super::elsewhere::{self, did_you_mean};
use super::help::whole;
use super::listed::{example, listed};
use super::values::{is_value, typed};
use base::error::{Result, near_miss, quoted, quoted_path, refuse};
use base::lang::{self, Language};
use config::Setting;
use file::split_path;
use program::{Name, Program};
use view::Asked;

/// Names of which one is meant.
pub fn either(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(tr!(" or "))
}

/// A flag as it is typed: with that value, or one of its own where it takes any.
pub fn flagged(near: &str, value: Option<&str>) -> String {
    let command = Cli::command();
    let name = near.strip_prefix("--").or_else(|| near.strip_prefix('-')).unwrap_or_default();
    let arg = named_flag(&command, name).filter(|arg| arg.get_action().takes_values());
    match (arg, value) {
        (None, _) => near.to_owned(),
        (Some(_), Some(value)) => format!("{near} {}", typed(value)),
        (Some(arg), None) => {
            let values = arg.get_possible_values();
            let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
            match example(arg) {
                _ if values.len() > 1 => {
                    format!("{near} {}", either(values.into_iter().map(str::to_owned)))
                }
                Some(example) => example.to_owned(),
                None => near.to_owned(),
            }
        }
    }
}

/// The flag of that name.
pub fn named_flag<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
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
pub fn command_called(word: &str) -> bool {
    Cli::command().find_subcommand(word).is_some()
}

/// What a flag, or a place behind a command, is for, with an example.
pub fn about_flag(flag: &str) -> Option<String> {
    let mut command = listed(whole());
    command.build();
    let of_commands = command.get_subcommands().flat_map(Command::get_arguments);
    let is_it = |arg: &&Arg| {
        let long = flag.strip_prefix("--");
        arg.to_string() == flag || long.is_some() && arg.get_long() == long
    };
    let arg = command.get_arguments().chain(of_commands).find(is_it)?;
    let about = lang::text(arg.get_help()?.to_string().lines().next()?).to_owned();
    Some(format!("{arg}: {about}"))
}

/// Where help says the word, in the language in force or in another.
fn said_at(about: &str, word: &str) -> Option<usize> {
    let word = word.replace(['-', '_'], " ").to_lowercase();
    let is_short = word.chars().count() < if word.is_ascii() { 5 } else { 2 };
    let is_part = |c: Option<char>| word.is_ascii() && c.is_some_and(char::is_alphanumeric);
    let at = |text: &str| {
        let mut found = text.match_indices(&word);
        let is_whole = |(at, _): &(usize, &str)| {
            let (before, behind) = (&text[..*at], &text[at + word.len()..]);
            !is_part(before.chars().next_back()) && !is_part(behind.chars().next())
        };
        found.find(is_whole).map(|(at, _)| at)
    };
    let mut all = Language::ALL.iter().filter(|_| !is_short);
    all.find_map(|own| at(&own.within(|| lang::text(about).to_lowercase())))
}

/// The flag whose help says a word first, and that takes the value.
pub fn of_help(word: &str, value: Option<&str>) -> Option<String> {
    let command = Cli::command();
    let said = |arg: &&Arg| {
        let setting = Setting::named(arg.get_id().as_str());
        let about = setting.map(|own| own.about.to_owned());
        let about = about.or_else(|| Some(arg.get_help()?.to_string()))?;
        let takes = |value| setting.is_none_or(|_| is_value(arg.get_long().unwrap_or(""), value));
        Some((said_at(&about, word)?, about.len())).filter(|_| value.is_none_or(takes))
    };
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let first = flags.filter_map(|arg| Some((said(&arg)?, arg.get_long()?))).min()?;
    Some(format!("--{}", first.1))
}

/// The flag whose name ends another: `--max-seq-len` is `--seq-len`.
pub fn ended_by(name: &str) -> Option<String> {
    let command = Cli::command();
    let is_end = |long: &&str| name.strip_suffix(long).is_some_and(|start| start.ends_with('-'));
    let longs = command.get_arguments().filter_map(Arg::get_long);
    let longest = longs.filter(is_end).max_by_key(|long| long.len())?;
    (!name.starts_with("no-") && !name.starts_with("without-")).then(|| format!("--{longest}"))
}

/// What words mean that name flags without hyphens, with values behind: `heads 4`, `d_model=16 heads=4`.
fn flags_of(words: &[&str]) -> Option<String> {
    let command = Cli::command();
    let mut words = words.iter();
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once(['=', ':']).unwrap_or((word, ""));
        let name = name.replace('_', "-");
        let arg = named_flag(&command, &name).filter(|arg| name.len() > 1 && !arg.is_hide_set())?;
        let mut value = Some(value).filter(|value| !value.is_empty());
        if value.is_none() && arg.get_action().takes_values() {
            value = words.next().copied();
        }
        flags.push(match value {
            Some(value) => format!("--{name} {}", typed(value)),
            None => flagged(&format!("--{name}"), None),
        });
    }
    Some(flags.join(" "))
}

/// The commands that there are, or those whose help says a word, with what it says.
pub fn commands(word: Option<&str>) -> Option<String> {
    let all = Cli::command();
    let about = |command: &Command| command.get_about().map(ToString::to_string);
    let Some(word) = word else {
        let names: Vec<&str> = all.get_subcommands().map(Command::get_name).collect();
        return Some(tr!(
            "the commands are {names}; without a command, mha-trace shows a run",
            names = lang::list(&names)
        ));
    };
    let is_named = |about: &String| {
        let first = about.split(' ').next().unwrap_or_default().to_lowercase();
        first == word.to_lowercase() || said_at(about, word).is_some()
    };
    let told = |command: &Command| {
        let about = about(command).filter(is_named)?;
        Some(format!("{} ({})", command.get_name(), lang::text(&about)))
    };
    let found: Vec<String> = all.get_subcommands().filter_map(told).collect();
    (!found.is_empty() && found.len() < 4).then(|| did_you_mean(either(found.into_iter())))
}

/// What to do with a number alone.
pub fn sizes(number: &str) -> String {
    let number = number.trim_start_matches('-');
    tr!(
        "a flag says what it counts: -t {number} (tokens), -H {number} (heads), -d {number} (features)",
        number
    )
}

/// The letters that flags have.
pub fn letters() -> String {
    let all = Cli::command();
    let of = |arg: &Arg| Some(format!("-{} (--{})", arg.get_short()?, arg.get_long()?));
    let letters: Vec<String> = all.get_arguments().filter_map(of).collect();
    tr!("the letters are {letters}", letters = lang::list(&letters))
}

/// The steps that the words name, with commas between, if all do.
pub fn all_steps(words: &[&str]) -> Option<String> {
    let are_steps = !words.is_empty() && words.iter().all(|word| Name::in_files(word).is_some());
    are_steps.then(|| words.join(","))
}

/// The cell of a step that numbers behind it mean: `weights 0 0 2 1`.
pub fn cell_of(step: &str, numbers: &[&str]) -> Option<String> {
    let numbers = numbers.join(",");
    let is_index = |text: &str| {
        let text = text.split_once('=').map_or(text, |(_, at)| at);
        !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
    };
    let is_name = !step.is_empty() && step.chars().all(|c| c.is_alphanumeric() || c == '_');
    let are_numbers = numbers.split([',', ' ']).all(is_index);
    (is_name && are_numbers).then(|| typed(&format!("{step}[{numbers}]")))
}

/// Refuses the numbers of a cell where a file is meant: `explain weights 0,0,2,1`.
pub fn refuse_numbers<V>(step: Option<&str>, file: &Path, program: &Program<V>) -> Result<()> {
    let numbers = file.to_str().filter(|_| !file.exists());
    let cell = step.zip(numbers).and_then(|(step, own)| cell_of(step, &[own]));
    let Some(cell) = cell else { return Ok(()) };
    let asked: Option<Asked> = cell.trim_matches('\'').parse().ok();
    let whole = asked.and_then(|asked| asked.whole(program));
    let near = whole.map_or(cell, |whole| typed(&whole));
    let what = tr!("there is no file {file}", file = quoted_path(file));
    let near = format!("{} explain {near}", env!("CARGO_PKG_NAME"));
    refuse(what, tr!("did you mean {near}?", near))
}

/// Refuses a step, or a number of one, where a file is meant that there is not.
pub fn refuse_step(path: &Path) -> Result<()> {
    let file = split_path(path).0;
    if file.exists() {
        return Ok(());
    }
    let word = path.to_string_lossy();
    let step = word.split('[').next().unwrap_or_default();
    if file.extension().is_none() && !foreign::asked(step).is_empty() {
        let what = tr!("{word} is a step, and no file", word = quoted(&word));
        let near = format!("{} explain {}", env!("CARGO_PKG_NAME"), typed(&word));
        return refuse(what, tr!("did you mean {near}?", near = quoted(&near)));
    }
    Ok(())
}

/// Whether a word is a file's, by its name or because there is one.
pub fn is_file(word: &str) -> bool {
    let path = Path::new(word);
    let is_read = |own: &std::ffi::OsStr| {
        ["json", "safetensors", "npz", "npy", "pt", "pth"].iter().any(|read| own == *read)
    };
    path.exists() || path.extension().is_some_and(is_read)
}

/// What words stand for of which the first is no command: flags without their hyphens, a value of one, a file, a step by
/// another name, or labels of tokens. Where a command is near, no more than flags of that very name.
pub fn meant_by(words: &[&str], is_near: bool) -> Option<String> {
    let word = *words.first()?;
    if let Some(flags) = flags_of(words).or_else(|| flags_of(&[word])) {
        return Some(flags);
    }
    if is_near {
        return None;
    }
    if is_file(word) {
        return Some(format!("{} check {}", env!("CARGO_PKG_NAME"), typed(word)));
    }
    if let Some(preset) = elsewhere::preset(word) {
        return Some(format!("--preset {preset}"));
    }
    let choice = word.to_lowercase().replace('_', "-");
    let of_choice = |setting: &&Setting| setting.choices.contains(&choice.as_str());
    if let Some(setting) = Setting::ALL.iter().find(of_choice) {
        return Some(super::values::flag(setting.key, Some(&choice)));
    }
    let steps: Vec<&str> = Name::ALL.iter().map(|step| step.as_str()).collect();
    let near = near_miss(word, &steps).filter(|_| words.len() == 1);
    let step = near.map(str::to_owned).or_else(|| titled(word).map(|step| step.to_string()));
    let labels = || labels(&words.join(" ")).map(|labels| format!("--tokens {}", typed(&labels)));
    step.map(|step| format!("--steps {step}")).or_else(labels)
}

/// The step in whose title, in a script that help is not written in, the word stands.
fn titled(word: &str) -> Option<Name> {
    let is_told =
        |step: &&Name| Language::ALL.iter().any(|own| own.within(|| step.title()).contains(word));
    let all = Name::ALL.iter().filter(|step| Name::in_files(step.as_str()).is_some());
    let told = all.filter(|_| !word.is_ascii() && word.chars().count() > 1).filter(is_told);
    told.min_by_key(|step| step.title().len()).copied()
}

/// Labels of tokens: the words of a text, or the characters of a script that has no spaces.
fn labels(text: &str) -> Option<String> {
    let is_han = |c: char| matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}');
    if text.chars().any(is_han) && text.chars().all(char::is_alphabetic) {
        return Some(text.chars().map(String::from).collect::<Vec<_>>().join(","));
    }
    let labels = text.split_whitespace().collect::<Vec<_>>().join(",");
    let is_foreign = labels.chars().any(|letter| letter.is_alphabetic() && !letter.is_ascii());
    (labels != text && !text.contains('-') || is_foreign).then_some(labels)
}
