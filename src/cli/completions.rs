//! What packagers install beside the binary: completions of shells, and the manual page.

use std::io::{self, Write};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_complete::{Generator, generate};
use clap_mangen::Man;

use super::args::Shell;
use super::help;
use super::outcome::Outcome;
use super::written::{print, unwritten};
use base::error::Result;
use base::lang::{Language, text};
use check::catalogue::catalogue;
use program::Name;

const NAME: &str = "mha-trace";

/// Prints the script that completes the command line in a shell.
pub fn completions(shell: Shell) -> Result<Outcome> {
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

fn write(shell: impl Generator) -> Result<Outcome> {
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

/// Prints the manual page, as roff, in a language that is stated: what is installed is for everyone who uses the
/// machine, whatever the environment says of one.
pub fn man(language: Language) -> Result<Outcome> {
    let page = language.within(manual)?;
    print(|out| out.write_all(page.as_bytes()))?;
    Ok(Outcome::Same)
}

fn manual() -> Result<String> {
    let mut page = Vec::new();
    // Where lines end is up to whoever shows the page, which leaves out the help of flags that the short help has not.
    let command = help::translated_to(usize::MAX).name(NAME);
    let command = command.mut_args(|flag| flag.hide_short_help(false));
    Man::new(command).render(&mut page).map_err(unwritten)?;
    let lines: Vec<String> = String::from_utf8_lossy(&page).lines().map(own_words).collect();
    Ok(lines.join("\n") + "\n")
}

/// A line of the page, with headings and words that are not of this command line in the language in force.
fn own_words(line: &str) -> String {
    let own = match line.strip_prefix(".SH ") {
        Some("NAME") => tr!("NAME"),
        Some("SYNOPSIS") => tr!("SYNOPSIS"),
        Some("DESCRIPTION") => tr!("DESCRIPTION"),
        Some("OPTIONS") => tr!("OPTIONS"),
        Some("SUBCOMMANDS") => tr!("SUBCOMMANDS"),
        Some("EXTRA") => tr!("EXTRA"),
        Some("VERSION") => tr!("VERSION"),
        None if line == help::HELP => return text(help::HELP).to_owned(),
        Some(_) | None => return line.to_owned(),
    };
    format!(".SH {own}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_speaks_the_language_that_is_stated() {
        let english = Language::En.within(manual).expect("written");
        assert!(english.contains(".SH NAME\n") && english.contains("Attention heads"), "{english}");
        let chinese = Language::Zh.within(manual).expect("written");
        for line in chinese.lines().filter(|line| !line.starts_with(['.', '\\'])) {
            let is_translated = !line.is_ascii();
            assert!(is_translated || line.starts_with(['v', 'm', '[']), "{line}");
        }
        for heading in chinese.lines().filter_map(|line| line.strip_prefix(".SH ")) {
            assert!(!heading.is_ascii(), "{heading}");
        }
    }
}
