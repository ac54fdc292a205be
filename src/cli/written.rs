//! How results are written: their width, their colours, and where they go.

use std::io::{self, BufWriter, IsTerminal, Write};

use unicode_width::UnicodeWidthStr;

use base::error::{Error, Message, line, shown, shown_json};
use file::{io_reason, is_unread};
use view::{Block, Palette, Style, wrapped, write_text};

use super::args::{Color, ReportArgs};
use super::values::flag;

/// Columns of text a line, where no terminal says it.
const WIDTH: usize = 100;

/// Fewer columns than this no table fits.
const NARROWEST: u16 = 30;

/// Columns of text a line: as asked for, as the environment has it, or the terminal's.
pub fn width(asked: Option<u16>) -> usize {
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width >= NARROWEST);
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    asked.or_else(stated).or_else(terminal).map_or(WIDTH, usize::from)
}

/// Says something on stderr: in lines that fit the terminal or what the environment has; where neither says how many
/// columns there are, as it is.
pub fn say(text: &str) {
    let is_shown = io::stderr().is_terminal() || std::env::var_os("COLUMNS").is_some();
    let room = if is_shown { width(None) } else { usize::MAX };
    let mut err = io::stderr().lock();
    for line in text.lines() {
        for (at, part) in wrapped(line, if line.width() > room { room - BELOW.len() } else { room })
            .iter()
            .enumerate()
        {
            // What cannot be written keeps nothing from its place; where stderr is closed there is nobody left to tell.
            let _ = writeln!(err, "{}{part}", if at == 0 { "" } else { BELOW });
        }
    }
}

/// What stands before the lines of a message but its first.
const BELOW: &str = "  ";

/// Says on stderr what is wrong and what to do.
pub fn report(error: &Error) {
    let spelled = |message: Message| message.spelled(flag);
    refuse(&spelled(error.what()), &spelled(error.fix()));
}

/// Says on stderr what is wrong and, on a second line, what to do.
pub fn refuse(what: &str, fix: &str) {
    let what = tr!("error: {what}", what = line(&shown(what)));
    let help = tr!("\nhelp: {fix}", fix = line(&shown(fix)));
    say(&format!("{what}{help}"));
}

/// Writes results. Whoever reads them may stop early, as `head` does; that changes nothing else.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = write(&mut out).and_then(|()| out.flush());
    // What is still in the buffer has no reader, or no room.
    drop(out.into_parts());
    match result {
        Err(error) if !is_unread(&error) => Err(unwritten(error)),
        _ => Ok(()),
    }
}

/// Writes JSON as a terminal can show it.
pub fn print_json(value: &serde_json::Value) -> Result<(), Error> {
    print(|out| writeln!(out, "{}", shown_json(&format!("{value:#}"))))
}

/// Why results were not written: what came about while they were made, or where they go.
pub fn unwritten(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| {
        let what = tr!("the results cannot be written: {error}", error = io_reason(&error));
        Error::config(what, "free some space, or send them elsewhere")
    })
}

/// Writes a page of text, without colour.
pub fn print_plain(blocks: Vec<Block>) -> Result<(), Error> {
    let style = Style { width: width(None), colors: None, spell: flag };
    print(|out| write_text(blocks, style, out))
}

impl ReportArgs {
    /// How pages are written.
    pub fn style(&self) -> Style {
        Style { width: width(self.width), colors: self.color.wanted(), spell: flag }
    }

    /// Writes a page of text.
    pub fn print(&self, blocks: Vec<Block>) -> Result<(), Error> {
        print(|out| write_text(blocks, self.style(), out))
    }
}

impl Color {
    /// The colours of the terminal, if any are wanted.
    pub fn wanted(self) -> Option<Palette> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_wanted = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                io::stdout().is_terminal()
                    && set("NO_COLOR").is_none()
                    && set("TERM").is_none_or(|terminal| terminal != "dumb")
            }
        };
        let is_true =
            set("COLORTERM").is_some_and(|colors| colors == "truecolor" || colors == "24bit");
        // Text and background by their numbers, `0;15`, where 7 and 9 to 15 are light.
        let ground = set("COLORFGBG").and_then(|both| both.into_string().ok());
        let ground: Option<u8> = ground.and_then(|both| both.rsplit(';').next()?.parse().ok());
        let is_light = ground.is_some_and(|color| matches!(color, 7 | 9..=15));
        is_wanted.then_some(Palette { is_true, is_light })
    }
}
