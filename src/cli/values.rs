//! How are the values of flags read, and what is said of those that are none?

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

use super::elsewhere::{self, did_you_mean};
use super::listed::SHOWN;
use ::run::{key_mask_rows, positions_of};
use base::error::{Error, Result, quoted, refuse};
use config::{Setting, Settings};
use file::{read_json, split_place};

/// A whole number from `low` to `high`.
pub fn whole<T: FromStr + PartialOrd + Display + Copy>(
    text: &str,
    low: T,
    high: Option<T>,
) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= low);
    number.filter(|number| high.as_ref().is_none_or(|high| number <= high)).ok_or_else(
        || match high {
            Some(high) => tr!("give a whole number from {low} to {high}", low, high),
            None => tr!("give a whole number from {low} up", low),
        },
    )
}

pub fn decimals(text: &str) -> Result<u8, String> {
    whole(text, 0, Some(17))
}

pub fn columns(text: &str) -> Result<u16, String> {
    whole(text, 30, Some(u16::MAX))
}

pub fn items(text: &str) -> Result<u32, String> {
    whole(text, 1, None)
}

pub fn step(text: &str) -> Result<String, String> {
    match text {
        "" => Err(String::new()),
        all if elsewhere::is_everything(all) || elsewhere::value("--steps", all).is_some() => {
            Err(tr!("it is no step").to_owned())
        }
        step => Ok(step.to_owned()),
    }
}

pub fn place(text: &str) -> Result<usize, String> {
    whole(text, 0, None)
}

pub fn cases(text: &str) -> Result<usize, String> {
    whole(text, 1, Some(1000))
}

pub fn tile(text: &str) -> Result<usize, String> {
    whole(text, 2, Some(1024))
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 86400.0);
    number.ok_or_else(|| tr!("give a number of seconds above 0, up to 86400").to_owned())
}

/// Reads a value, and what stands behind it.
#[derive(Clone)]
pub struct Value(pub &'static Setting);

impl TypedValueParser for Value {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        for (setting, part) in self.0.parts(&text) {
            match setting.choices {
                [] => StringValueParser::new().try_map(|text| checked(setting, text)).parse_ref(
                    command,
                    arg,
                    part.as_ref(),
                )?,
                choices => {
                    PossibleValuesParser::new(choices).parse_ref(command, arg, part.as_ref())?
                }
            };
        }
        Ok(text)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let choices = self.0.choices;
        (!choices.is_empty()).then(|| Box::new(choices.iter().map(PossibleValue::new)) as Box<_>)
    }
}

/// A text that is a value of the setting, or may be a file that holds one.
fn checked(setting: &Setting, text: String) -> Result<String, String> {
    if takes_file(setting) {
        return Ok(text);
    }
    let set = setting.set(&mut Settings::default(), &text);
    match set {
        // Of a size, what is the least.
        Err(_) if setting.value == "N" && !setting.is_signed => {
            whole(&text, setting.least, None).map(|_| text)
        }
        set => set.map(|()| text),
    }
}

/// Whether a flag of a setting takes a value.
pub fn is_value(flag: &str, text: &str) -> bool {
    let named = |setting: &&Setting| flag.trim_start_matches('-').replace('-', "_") == setting.key;
    let setting = Setting::ALL.iter().find(named);
    let is_whole = || text.parse::<u16>().is_ok();
    setting.map_or_else(is_whole, |setting| setting.set(&mut Settings::default(), text).is_ok())
}

/// Whether the flag also takes a file that holds the setting's value.
fn takes_file(setting: &Setting) -> bool {
    setting.value.ends_with("|FILE")
}

/// Refuses what is the name of a model where a file is meant.
fn refuse_name(setting: &Setting, text: &str) -> Result<()> {
    let path = split_place(text).0;
    let is_bare = !text.starts_with('[') && path.extension().is_none() && !path.exists();
    if !setting.value.starts_with("FILE") || !is_bare || setting.key == "attn_mask" {
        return Ok(());
    }
    let example = SHOWN.iter().find(|(key, _)| *key == setting.key).map_or("", |(_, own)| own);
    let is_drawn = matches!(setting.key, "x" | "weights" | "memory" | "memory_v");
    let fix = match setting.key {
        key if is_drawn && elsewhere::is_drawing(text) => {
            tr!("leave {flag} out: it is drawn where no file is given", flag = flag(key, None))
        }
        "weights" | "model_config" => {
            tr!("nothing is downloaded: give a file on this computer, such as {example}", example)
        }
        _ => tr!("give a file, such as {example}", example),
    };
    Err(Error::file(&path, tr!("there is no such file"), fix))
}

/// Sets what a flag says: a value, or a file that holds one.
pub fn set(setting: &Setting, settings: &mut Settings, text: &str) -> Result<()> {
    refuse_name(setting, text)?;
    match setting.key {
        "attn_mask" if Setting::named("mask").is_some_and(|mask| mask.choices.contains(&text)) => {
            let what = tr!("attn_mask: {text} is not a file", text = quoted(text));
            return refuse(what, tr!("did you mean {near}?", near = flag("mask", Some(text))));
        }
        "key_mask" if text == "none" => settings.key_mask = Some(Vec::new()),
        "key_mask" if !text.chars().all(|c| matches!(c, '0' | '1' | ',')) => {
            let path = split_place(text).0;
            if path.extension().is_none() && !path.exists() {
                let what = tr!(
                    "key_mask: {text} is neither rows of 0 and 1 nor a file",
                    text = quoted(text)
                );
                let fix = || tr!("give one row per batch item, such as 1101,1000, or a file with such rows").to_owned();
                let meant = elsewhere::value("--key-mask", text).map(did_you_mean);
                return refuse(what, meant.unwrap_or_else(fix));
            }
            settings.key_mask = Some(key_mask_rows(text)?);
        }
        "positions"
            if !text.chars().all(|c| c.is_ascii_digit() || ",/; ".contains(c))
                && (Path::new(text).extension().is_some() || Path::new(text).exists()) =>
        {
            settings.positions = Some(positions_of(text)?);
        }
        "tokens" if is_json_file(text) => settings.tokens = Some(read_json(Path::new(text))?),
        "memory_tokens" if is_json_file(text) => {
            settings.memory_tokens = Some(read_json(Path::new(text))?);
        }
        "scores" if is_json_file(text) => settings.scores = Some(read_json(Path::new(text))?),
        "scores" => setting.set(settings, text).map_err(|what| {
            let fix = tr!("give one row, such as 112,96, nested lists, such as [[1,2],[3,4]], or a JSON file with them");
            Error::config(tr!("scores: {what}", what = quoted(&what)), fix)
        })?,
        "rope_scaling" if !text.trim_start().starts_with('{') => {
            settings.rope_scaling = Some(read_json(Path::new(text))?);
        }
        key => {
            setting.set(settings, text).map_err(|what| {
                let meant = elsewhere::value(&flag(key, None), text).map(did_you_mean);
                let fix = match setting.value {
                    "N,N,…|FILE" => tr!("give one position per token, such as 0,1,2,3, or a file of them"),
                    "JSON|FILE" => tr!("write it as in a checkpoint's config.json"),
                    _ => tr!("give A,B,…, or a JSON file of labels"),
                };
                Error::config(format!("{key}: {what}"), meant.unwrap_or_else(|| fix.to_owned()))
            })?;
        }
    }
    Ok(())
}

fn is_json_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|extension| extension == "json")
}

/// A setting as a flag: `--heads 3`, `--alibi`, `--no-bias`.
pub fn flag(key: &str, value: Option<&str>) -> String {
    let name = key.replace('_', "-");
    let is_switch = Setting::named(key).is_some_and(Setting::is_switch);
    match value {
        Some("false") if is_switch => format!("--no-{name}"),
        Some(value) if !is_switch => format!("--{name} {value}"),
        _ => format!("--{name}"),
    }
}

/// A word as a shell reads it.
pub fn typed(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
