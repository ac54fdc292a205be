//! What does help say to those who have never run the command, and in which language?

use std::io::{self, Write};

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, ArgAction, Command, CommandFactory};

use super::args::{Cli, Color};
use super::language::is_english;
use super::listed::{listed, of_models};
use super::run::with_helps;
use super::written::width;
use base::lang::{self, text};
use view::wrapped;

/// The top of both helps: what to type first.
const EXAMPLES: &str = "\
Examples:
  mha-trace                                      every step of a causal run
  mha-trace tour                                 the story of it in ten stops
  mha-trace -o run.html                          the same as a page to click
  mha-trace --preset simple --steps weights      one step of another notebook
  mha-trace -b 2 -t 5 --lengths 5,3 -o run.json  padding; every tensor in a file
  mha-trace check run.json                       recompute a recorded run
  mha-trace explain 'scores[0,1,2,0]'            how one number came about";

const PRESETS: &str = "\
Presets, each a notebook:
  causal-walkthrough      causal mask, 4 tokens, 2 heads, seed 42 (the default)
  simple                  no mask, 6 tokens, 3 to 4 features, biases, seed 123
  formal-padding          padding under -inf, an item all padding: NaN rows
  formal-padding-weights  as above, with at least one visible key in every item";

const STEPS: &str = "\
Steps, in order: x w_q w_k w_v w_o q k v q_heads k_heads v_heads scores_raw
  scores mask masked_scores weights head_outputs concat output; flags add more";

/// The flags that first runs need; `--help` has them all.
const FLAGS: &str = "\
Sizes: -b batch, -t tokens, -d d_model, -H heads, -s seed; gradients: --backward
Masks: --mask causal|none, --lengths 3,2, --key-mask 110,100, --attn-mask FILE
Own numbers: --x FILE, --weights FILE, --model-config FILE --layer N
Shown: --steps q,weights, --head N, --batch-item N, --heatmap, --why, --full
Written: -o FILE as .json, .safetensors, .npz, .html, .md or .tex (repeatable)";

/// What the page for newcomers ends with.
const MORE: &str = "--help lists the flags, --help models those of today's models.";

const EXIT: &str = "Exit code: 0 success, or all the same; 1 something differs; 2 an error";

/// The command line: its short help is a page for newcomers, the long one lists the flags.
pub fn command() -> Command {
    dressed(listed(whole()).mut_args(|flag| flag.hide_short_help(true)))
}

/// The command line with the help of all flags.
pub fn whole() -> Command {
    with_helps(Cli::command())
}

/// A command whose help lists the flags of today's models.
pub fn models(columns: usize) -> Command {
    let command = whole();
    of_models(&if is_english() { command } else { told(command, columns) })
}

/// The same with the help of every flag in the language in force.
pub fn translated() -> Command {
    translated_to(width(None).min(100))
}

/// The same in lines of at most so many columns.
pub fn translated_to(columns: usize) -> Command {
    let command = whole().mut_args(|flag| flag.hide_short_help(true));
    dressed(listed(if is_english() { command } else { told(command, columns) }))
}

/// Shows help and ends the process: what clap itself says in it, in the language in force.
pub fn show(error: &clap::Error) -> ! {
    if is_english() {
        error.exit();
    }
    say(&error.render());
    std::process::exit(error.exit_code())
}

/// Shows the flags of today's models and ends the process.
pub fn show_models() -> ! {
    let columns = width(None).min(100);
    say(&models(columns).term_width(columns).render_long_help());
    std::process::exit(0)
}

/// Prints help, with what clap says in it in the language in force.
fn say(help: &StyledStr) {
    let plain = help.to_string();
    let help = if Color::Auto.wanted().is_some() { help.ansi().to_string() } else { plain.clone() };
    let told: String = help
        .lines()
        .zip(plain.lines())
        .map(|(line, plain)| own_words(line, plain) + "\n")
        .collect();
    // Whoever reads it may stop early.
    let _ = io::stdout().write_all(told.as_bytes());
}

/// A line of help, which is `plain` without colours, with clap's own words in the language in force. Headings begin a line and end in a colon.
fn own_words(line: &str, plain: &str) -> String {
    let words = [
        ("[OPTIONS]", tr!("[OPTIONS]")),
        ("[COMMAND]", tr!("[COMMAND]")),
        ("<COMMAND>", tr!("<COMMAND>")),
        ("[alias: ", tr!("[alias: ")),
        ("[aliases: ", tr!("[aliases: ")),
        (HELP, text(HELP)),
    ];
    let line =
        words.iter().fold(line.trim_end().to_owned(), |line, (clap, own)| line.replace(clap, own));
    match line.rfind(':') {
        Some(at) if !plain.starts_with(' ') && plain.ends_with(':') => {
            format!("{}{}{}", &line[..at], tr!(":"), &line[at + 1..])
        }
        _ => line,
    }
}

/// What clap says of its subcommand `help`.
pub const HELP: &str = "Print this message or the help of the given subcommand(s)";

/// What stands before and behind the flags.
fn dressed(command: Command) -> Command {
    let usage = if is_english() { "{usage-heading} " } else { tr!("Usage: ") };
    command
        .bin_name(env!("CARGO_PKG_NAME"))
        .help_template(format!(
            "{{about-with-newline}}\n{{before-help}}{usage}{{usage}}\n\n{{all-args}}{{after-help}}"
        ))
        .before_help(text(EXAMPLES))
        .before_long_help([EXAMPLES, PRESETS, STEPS].map(text).join("\n\n"))
        .after_help([PRESETS, STEPS, FLAGS, MORE].map(text).join("\n"))
        .after_long_help(text(EXIT))
}

/// Columns before the help of a flag that stands below it.
const INDENT: usize = 10;

/// The help in the language in force. Lines are broken here, as clap breaks them between words alone.
fn told(command: Command, columns: usize) -> Command {
    let room = |indent| columns.saturating_sub(indent);
    let said = |said: &StyledStr, indent| {
        let said = said.to_string();
        let lines = text(&said).lines().flat_map(|line| wrapped(line, room(indent)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let about = command.get_about().map(|about| said(about, 0)).unwrap_or_default();
    let of_flag = |arg: Arg| {
        let heading = arg.get_help_heading().map(text);
        let heading =
            heading.unwrap_or(if arg.is_positional() { tr!("Arguments") } else { tr!("Options") });
        let heading = heading.to_owned();
        let mut told = vec![arg.get_help().map(|help| said(help, INDENT)).unwrap_or_default()];
        let values = arg.get_possible_values();
        if arg.get_action().takes_values() && !values.is_empty() {
            let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
            told.extend(wrapped(
                &tr!("[one of: {values}]", values = lang::list(&values)),
                room(INDENT),
            ));
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            told.push(
                tr!(" [default: {default}]", default = lang::list(&defaults)).trim().to_owned(),
            );
        }
        let arg = arg.help_heading(heading).help(told.join("\n"));
        arg.hide_possible_values(true).hide_default_value(true)
    };
    let added = |name: &'static str, letter, action, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .long(name)
            .action(action)
            .help(help)
            .help_heading(tr!("Options"))
    };
    let help = added("help", 'h', ArgAction::Help, tr!("Print help (-h: a summary)"));
    let version = added("version", 'V', ArgAction::Version, tr!("Print version"));
    let versions = command.get_version().map(|_| version);
    command
        .about(about)
        .help_template(format!(
            "{{about-with-newline}}\n{}{{usage}}\n\n{{all-args}}",
            tr!("Usage: ")
        ))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(std::iter::once(help).chain(versions))
        .mut_args(of_flag)
        .mut_subcommands(|command| told(command, columns).next_line_help(true))
        .subcommand_help_heading(tr!("Commands"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use super::*;
    use crate::cli::listed::SHOWN;
    use crate::cli::typed;

    /// Two screens of 24 lines and 80 columns.
    #[test]
    fn short_help_fits_two_screens() {
        let mut whole = command();
        whole.build();
        let commands: Vec<String> =
            whole.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let mut helps = vec![command().term_width(80).render_help().to_string()];
        for name in commands.iter().filter(|name| *name != "help") {
            let own = whole.find_subcommand_mut(name).expect("it is there").clone();
            helps.push(own.term_width(80).render_help().to_string());
        }
        assert!(helps.len() > 7);
        for help in helps {
            assert!(help.lines().count() <= 48, "{} lines:\n{help}", help.lines().count());
            let widest = help.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(80), "{help}");
        }
    }

    /// What the page for newcomers names is there.
    #[test]
    fn short_help_names_what_there_is() {
        let command = command();
        let words = [EXAMPLES, FLAGS].join(" ");
        let words = words.split(|c: char| c.is_whitespace() || c == ',');
        for flag in words.filter_map(|word| word.strip_prefix('-')) {
            let is_known = match flag.strip_prefix('-') {
                Some(long) => command.get_arguments().any(|own| own.get_long() == Some(long)),
                None => command.get_arguments().any(|own| own.get_short() == flag.chars().next()),
            };
            assert!(is_known, "-{flag}");
        }
        for preset in config::Preset::ALL {
            assert!(PRESETS.contains(&format!("\n  {preset} ")), "{preset}");
        }
        let (_, steps) = STEPS.split_once(": ").expect("a list");
        let steps = steps.split(';').next().expect("a list").split_whitespace();
        let run = crate::Run::new(&crate::Settings::default(), crate::Sources::default());
        let run = run.expect("the default");
        assert!(steps.eq(run.program().as_told().outer().map(|step| step.name.as_str())));
    }

    fn ids(command: &Command) -> BTreeSet<String> {
        let shown =
            |arg: &&Arg| !arg.is_hide_long_help_set() && !arg.is_hide_set() && !arg.is_positional();
        let ids = command.get_arguments().filter(shown).map(|arg| arg.get_id().to_string());
        ids.filter(|id| id != "help" && id != "version").collect()
    }

    /// Sixty at most, and those of models have a page of their own.
    #[test]
    fn help_lists_sixty_flags_at_most() {
        let command = command();
        let run = ids(&command);
        assert!(run.len() <= 60, "{}: {run:?}", run.len());
        for own in command.get_subcommands() {
            assert!(ids(own).len() <= 60, "{}", own.get_name());
        }
        let of_models = ids(&models(100));
        assert!(of_models.len() <= 40 && of_models.is_disjoint(&run));
    }

    /// What takes longer to make than a run is made for those alone who ask for it.
    #[test]
    fn a_run_makes_no_help_of_settings() {
        let own = |command: &Command| {
            let of_setting = |arg: &&Arg| config::Setting::named(arg.get_id().as_str()).is_some();
            let flags = command.get_arguments().filter(of_setting);
            flags.filter(|flag| flag.get_help().is_some()).count()
        };
        assert_eq!(own(&Cli::command()), 0);
        assert!(own(&whole()) > 50);
    }

    /// What is listed has an example, no other has one, and what the examples say is understood.
    #[test]
    fn what_is_listed_has_an_example() {
        let command = command();
        let models = models(100);
        let subcommands = command.get_subcommands();
        let all = [&command, &models].into_iter().chain(subcommands).flat_map(ids);
        let all: BTreeSet<String> = all.collect();
        let with: BTreeSet<String> = SHOWN.iter().map(|(id, _)| (*id).to_owned()).collect();
        assert_eq!(with.len(), SHOWN.len());
        assert_eq!(all, with);
        for (id, example) in SHOWN {
            let words = std::iter::once("mha-trace").chain(example.split_whitespace());
            let words: Vec<_> = typed::plain(words.map(Into::into));
            let own =
                [&["mha-trace", "check", "a.json"][..], &["mha-trace", "diff", "a.json", "b.json"]];
            let fuzz = [&["mha-trace", "fuzz"][..], &["mha-trace", "fuzz", "kernel"]];
            let own = own.into_iter().chain([&["mha-trace", "explain", "scores"][..]]).chain(fuzz);
            let own = own.map(|first| {
                first.iter().map(Into::into).chain(words[1..].iter().cloned()).collect()
            });
            let ways = std::iter::once(words.clone()).chain(own);
            let taken = ways.filter_map(|words: Vec<OsString>| {
                super::command().try_get_matches_from(words).ok()
            });
            assert!(taken.count() > 0, "{id}: {example}");
        }
    }
}
