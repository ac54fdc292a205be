//! What packagers install beside the binary: completions of shells, and the manual page.

use std::io::{self, Write};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_complete::{Generator, generate};
use clap_mangen::Man;

use super::args::Shell;
use super::{Outcome, help, print};
use crate::check::catalogue::catalogue;
use crate::lang::Language;
use crate::program::Name;

const NAME: &str = "mha-trace";

/// Prints the script that completes the command line in a shell.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    match shell {
        Shell::Bash => write(Bash),
        Shell::Fish => {
            write(Fish)?;
            print(|out| fish_words(&completed(), out))?;
            Ok(Outcome::Same)
        }
        Shell::Zsh => write(Zsh),
    }
}

fn write(shell: impl Generator) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    generate(shell, &mut completed(), NAME, &mut script);
    print(|out| out.write_all(&script))?;
    Ok(Outcome::Same)
}

/// What `clap_complete` leaves out for fish: the words that arguments without a flag can be.
fn fish_words(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    for own in command.get_subcommands() {
        let arguments = own.get_positionals().flat_map(Arg::get_possible_values);
        let words: Vec<String> = arguments.map(|word| word.get_name().to_owned()).collect();
        if !words.is_empty() {
            let (name, words) = (own.get_name(), words.join(" "));
            let is_there = format!("__fish_seen_subcommand_from {name}");
            writeln!(out, "complete -c {NAME} -n \"{is_there}\" -f -a \"{words}\"")?;
        }
    }
    Ok(())
}

/// The command line in English: what is installed is for everyone who uses the machine.
fn english() -> Command {
    Language::En.within(help::command)
}

/// The command line with the words that steps and mistakes can be.
fn completed() -> Command {
    let steps = Name::ALL.iter().filter(|name| !name.row().is_inner).map(|name| name.as_str());
    let steps = PossibleValuesParser::new(steps);
    let of_steps = steps.clone();
    let mistakes = PossibleValuesParser::new(catalogue().iter().map(|mistake| mistake.id));
    english()
        .mut_arg("steps", |flag| flag.value_parser(steps))
        .mut_subcommand("bugs", |bugs| bugs.mut_arg("id", |id| id.value_parser(mistakes)))
        .mut_subcommand("explain", |explain| {
            explain.mut_arg("asked", |asked| asked.value_parser(of_steps))
        })
}

/// Prints the manual page, as roff.
pub fn man() -> anyhow::Result<Outcome> {
    let mut page = Vec::new();
    // The page leaves out the help of flags that the short help has not.
    let command = english().name(NAME).mut_args(|flag| flag.hide_short_help(false));
    Man::new(command).render(&mut page)?;
    print(|out| out.write_all(&page))?;
    Ok(Outcome::Same)
}
