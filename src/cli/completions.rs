//! What packagers install beside the binary: completions of shells, and the manual page.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_complete::{Generator, generate};
use clap_mangen::Man;

use super::args::Shell;
use super::{Outcome, help, print};
use crate::check::catalogue::catalogue;
use crate::program::Name;

const NAME: &str = "mha-trace";

/// Prints the script that completes the command line in a shell.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    match shell {
        Shell::Bash => write(Bash),
        Shell::Fish => write(Fish),
        Shell::Zsh => write(Zsh),
    }
}

fn write(shell: impl Generator) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    generate(shell, &mut completed(), NAME, &mut script);
    print(|out| out.write_all(&script))?;
    Ok(Outcome::Same)
}

/// The command line with the words that steps and mistakes can be.
fn completed() -> Command {
    let steps = Name::ALL.iter().filter(|name| !name.row().is_inner).map(|name| name.as_str());
    let steps = PossibleValuesParser::new(steps);
    let of_steps = steps.clone();
    let mistakes = PossibleValuesParser::new(catalogue().iter().map(|mistake| mistake.id));
    help::command()
        .mut_arg("steps", |flag| flag.value_parser(steps))
        .mut_subcommand("bugs", |bugs| bugs.mut_arg("id", |id| id.value_parser(mistakes)))
        .mut_subcommand("explain", |explain| {
            explain.mut_arg("asked", |asked| asked.value_parser(of_steps))
        })
}

/// Prints the manual page, as roff.
pub fn man() -> anyhow::Result<Outcome> {
    let mut page = Vec::new();
    Man::new(help::command().name(NAME)).render(&mut page)?;
    print(|out| out.write_all(&page))?;
    Ok(Outcome::Same)
}
