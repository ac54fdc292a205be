//! The flags that say what is computed: one for every setting of the library, made from its table.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::values::{Value, flag, set, typed};
use ::run::{Run, Sources};
use base::error::{Error, Message, Result};
use base::lang::text;
use config::{Mask, Setting, Settings};
use file::{read_config, split_place};
use foreign::with_model;

/// What is computed.
#[derive(Default)]
pub struct RunArgs {
    /// The file with settings, or the recorded trace to run again.
    pub config: Option<PathBuf>,
    /// Whether to say which tensor of a file was taken as what.
    pub is_verbose: bool,
    /// The settings that flags state, as they were given.
    stated: Vec<(&'static Setting, String)>,
}

const NO_MASK: &str = "no_mask";
const CAUSAL: &str = "causal";
const RUN: &str = "Run";
const NEWER: &str = "Run: attention as today's models have it";

impl Args for RunArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help(tr!("A JSON file with any of these settings, or a recorded trace to run again"))
            .hide_short_help(true)
            .value_parser(clap::value_parser!(PathBuf));
        let verbose = Arg::new("verbose")
            .short('v')
            .long("verbose")
            .help(tr!("Report which tensor of a file was taken as which input"))
            .action(ArgAction::SetTrue);
        let (run, newer): (Vec<&Setting>, Vec<&Setting>) =
            Setting::ALL.iter().partition(|setting| !setting.is_newer);
        let run = run.into_iter().flat_map(flags);
        let newer = newer.into_iter().flat_map(flags);
        // What people try, and what `--mask` says.
        let no_mask = Arg::new(NO_MASK)
            .long("no-mask")
            .hide(true)
            .action(ArgAction::SetTrue)
            .conflicts_with("mask");
        let causal = Arg::new(CAUSAL)
            .long("causal")
            .alias("is-causal")
            .hide(true)
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["mask", NO_MASK]);
        command
            .next_help_heading(RUN)
            .arg(config)
            .args(run.map(|flag| flag.hide_short_help(true)))
            .args([causal, no_mask].map(|flag| flag.hide_short_help(true)))
            .arg(verbose.hide_short_help(true))
            .next_help_heading(NEWER)
            .args(newer.map(|flag| flag.hide_short_help(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of a setting, without its help; of a switch that is turned off by a flag of its own, both.
fn flags(setting: &'static Setting) -> Vec<Arg> {
    let name = setting.key.replace('_', "-");
    if setting.is_switch() {
        let on = Arg::new(setting.key).long(name.clone()).action(ArgAction::SetTrue);
        if setting.off.is_empty() {
            return vec![on];
        }
        let off = Arg::new(off_name(setting))
            .long(format!("no-{name}"))
            .help(text(setting.off))
            .action(ArgAction::SetTrue)
            .hide(true)
            .overrides_with(setting.key);
        return vec![on.overrides_with(off_name(setting)), off];
    }
    let mut flag = Arg::new(setting.key)
        .long(name)
        .value_name(setting.value)
        .visible_aliases(setting.aliases)
        .allow_hyphen_values(setting.is_signed)
        .allow_negative_numbers(!setting.is_signed);
    if setting.value.contains("FILE") {
        flag = flag.value_hint(ValueHint::FilePath);
    }
    if let Some(letter) = setting.short {
        flag = flag.short(letter);
    }
    if setting.is_list && !setting.choices.is_empty() {
        flag = flag.value_delimiter(',');
    }
    vec![flag.value_parser(Value(setting))]
}

/// The name of the flag that turns a switch off.
fn off_name(setting: &Setting) -> String {
    format!("no_{}", setting.key)
}

/// The command with the help of the settings' flags, which takes longer to make than a run.
pub fn with_helps(command: Command) -> Command {
    let of_flag = |flag: Arg| match Setting::named(flag.get_id().as_str()) {
        Some(setting) => flag.help(help(setting)),
        None => flag,
    };
    command.mut_args(of_flag).mut_subcommands(with_helps)
}

/// What a setting is about, and what holds without it.
fn help(setting: &'static Setting) -> String {
    // What could be typed, and the name of another setting, is no word of a language.
    let is_typed = |word: &str| setting.choices.contains(&word) || Setting::named(word).is_some();
    let default = match setting.default {
        "" => String::new(),
        default if is_typed(default) => tr!(" [default: {default}]", default),
        default => tr!(" [default: {default}]", default = text(default)),
    };
    let more = setting.more().map(|(more, name)| {
        let value = if more.is_switch() { String::new() } else { format!("={}", more.value) };
        format!("\n,{name}{value}: {}", help(more))
    });
    Message::from(setting.about).spelled(flag) + &default + &more.collect::<String>()
}

/// The flag that may be meant, and those of settings that are as near to what was given: `--headz` is `--head` or
/// `--heads`.
pub fn as_near(given: &str, meant: &str) -> Vec<String> {
    let name = |setting: &Setting| setting.key.replace('_', "-");
    let slips = |flag: &str| strsim::damerau_levenshtein(given, flag);
    let near = |setting: &&Setting| slips(&name(setting)) <= slips(meant);
    let others: Vec<&Setting> = Setting::ALL.iter().filter(near).collect();
    // Of one flag with two names its own is told.
    let is_among = |setting: &&Setting| name(setting) == meant || setting.aliases.contains(&meant);
    let meant = Some(meant.to_owned()).filter(|_| !others.iter().any(is_among));
    meant.into_iter().chain(others.into_iter().map(name)).map(|name| format!("--{name}")).collect()
}

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self {
            config: matches.get_one("config").cloned(),
            is_verbose: matches.get_flag("verbose"),
            stated: Vec::new(),
        };
        for setting in Setting::ALL {
            if !setting.is_switch() {
                let texts = matches.get_many::<String>(setting.key);
                let text = texts.map(|texts| texts.cloned().collect::<Vec<_>>().join(","));
                args.stated.extend(text.into_iter().flat_map(|text| setting.parts(&text)));
            } else if matches.get_flag(setting.key) {
                args.stated.push((setting, "true".to_owned()));
            } else if !setting.off.is_empty() && matches.get_flag(&off_name(setting)) {
                args.stated.push((setting, "false".to_owned()));
            }
        }
        let mask = [(NO_MASK, "none"), (CAUSAL, "causal")]
            .into_iter()
            .find(|(flag, _)| matches.get_flag(flag));
        let twice = args.stated.iter().enumerate().find(|(at, (setting, _))| {
            args.stated[..*at].iter().any(|(before, _)| before.key == setting.key)
        });
        if let Some((_, (setting, _))) = twice {
            let mut error = clap::Error::new(ErrorKind::ArgumentConflict);
            let name = ContextValue::String(flag(setting.key, None));
            error.insert(ContextKind::InvalidArg, name.clone());
            error.insert(ContextKind::PriorArg, name);
            return Err(error);
        }
        let mask = Setting::named("mask").zip(mask);
        args.stated.extend(mask.map(|(setting, (_, mask))| (setting, mask.to_owned())));
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RunArgs {
    /// What the flags, and the config below them, state of a recorded file, completed by the model's settings. How a config
    /// draws says nothing of it.
    pub fn settings(&self) -> Result<Settings> {
        let flags = with_model(self.flags()?)?;
        let Some(path) = &self.config else { return Ok(flags) };
        let config = read_config(path)?.config.unwrap_or_default();
        Ok(flags.over(Settings { seed: None, ..with_model(config)? }))
    }

    fn flags(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        for (setting, text) in &self.stated {
            set(setting, &mut settings, text)?;
        }
        Ok(settings)
    }

    /// The run that the flags, the config below them and the preset below that describe, and the files that it reads.
    pub fn run(&self) -> Result<(Run, Vec<PathBuf>)> {
        let mut files = self.files();
        let mut flags = self.flags()?;
        let is_of_model = flags.model_config.is_some();
        let own_prefix = flags.prefix.clone();
        let is_of_file = flags.mask == Some(Mask::Recorded);
        let (settings, sources) = if let Some(path) = &self.config {
            let mut record = read_config(path)?;
            let mut config = record.config.take().unwrap_or_default();
            // Another layer of the config's model.
            if flags.model_config.is_none()
                && let Some(path) = &config.model_config
            {
                files.push(path.0.clone().into());
                config.layer = flags.layer.take().or(config.layer);
            }
            record.config = Some(with_model(config)?);
            Sources::again(&record, &with_model(flags)?)?
        } else {
            let flags = with_model(flags)?;
            let sources = Sources::load(&flags)?;
            (flags, sources)
        };
        // Without a file of weights, a model's layer picks none, and biases are drawn where it has them.
        let settings = if settings.weights.is_some() || !is_of_model {
            settings
        } else {
            let bias = settings.bias.or(Some(false));
            Settings { prefix: own_prefix, bias, ..settings }
        };
        if is_of_file && !sources.has_mask() {
            let what = tr!("mask is recorded, but no file holds a mask");
            return Err(Error::config(
                what,
                "give `attn_mask=FILE`, or set mask to causal or none",
            ));
        }
        let run = Run::new(&settings, sources)?;
        files.extend_from_slice(run.files());
        Ok((run, files))
    }

    /// The flags as one would type them again, each with a space before it; nothing where a path is no text.
    pub fn typed(&self) -> Option<String> {
        let config =
            self.config.iter().map(|path| Some(format!(" --config {}", typed(path.to_str()?))));
        let stated = self
            .stated
            .iter()
            .map(|(setting, text)| Some(format!(" {}", flag(setting.key, Some(&typed(text))))));
        config.chain(stated).collect()
    }

    /// The files that flags name, and what else stands where a file may.
    pub fn files(&self) -> Vec<PathBuf> {
        let stated = self.stated.iter().filter(|(setting, _)| setting.value.contains("FILE"));
        let files = stated.map(|(_, text)| split_place(text).0);
        self.config.iter().cloned().chain(files).collect()
    }
}
