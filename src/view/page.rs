//! What is shown, before it is text: a page is a list of blocks.

use base::error::Message;

/// How a setting is told: its key, and what it is to be set to, if one thing.
pub type Spell = fn(&str, Option<&str>) -> String;

/// A text with its settings as the reader would state them.
pub fn spelled(text: &str, spell: Spell) -> String {
    Message::from(text).spelled(spell)
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// What the page is about.
    Title(String),
    /// A fact about all of it.
    Fact(String),
    /// A step, and what there is to say of it before its numbers.
    Step(Head),
    /// What stands above the next grid: a place on each of the outer axes.
    Caption(Vec<String>),
    /// Numbers with a label for every row and column.
    Grid(Grid),
    /// A table of texts.
    Table(Table),
    /// A sentence, indented by so many steps.
    Text(usize, String),
    /// What a comparison came to: the file, the word for it, and what follows.
    Verdict(String, Text, String),
    /// Sentences, indented by so many steps, that are broken into lines between words.
    Prose(usize, String),
    /// A line of a tree.
    Branch {
        /// What stands before it.
        first: String,
        /// What stands before its further lines, where it is broken.
        below: String,
        /// What it says.
        text: String,
    },
    /// Nothing: what follows is another thing.
    Gap,
}

impl Block {
    /// A sentence.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(0, text.into())
    }
}

/// The text of a [`Block::Verdict`].
pub(super) fn verdict(file: &str, word: &str, rest: &str) -> String {
    format!("{file}: {word}{rest}")
}

/// What there is to say of a step before its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The step's name.
    pub name: String,
    /// What it is.
    pub title: String,
    /// How it is computed, and a number in that; nothing for what is given.
    pub formula: Option<(String, Option<String>)>,
    /// The moves that it is made of, if it is made of moves.
    pub moves: Vec<String>,
    /// Its axes and their lengths.
    pub shape: String,
    /// Why it is there, if that is asked for.
    pub why: Option<String>,
    /// What the signs in its tables mean.
    pub legend: Option<String>,
}

impl Head {
    /// What stands below the formula, with its settings as the reader would state them.
    pub(super) fn lines(&self, spell: Spell) -> impl Iterator<Item = String> {
        let shape = tr!("shape {shape}", shape = self.shape);
        let rest = self.why.iter().chain(&self.legend).cloned();
        let lines = self.moves.iter().cloned().chain([shape]).chain(rest);
        lines.map(move |line| spelled(&line, spell))
    }
}

/// The text of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// What it says.
    pub text: String,
    /// Whether it is a number, which stands to the right.
    pub is_number: bool,
    /// How it stands out, or back.
    pub tone: Tone,
    /// How high it is, in thousandths from the lowest to the highest, where that is to be seen.
    pub heat: Option<u16>,
    /// Whether it may be left out where it has no room on one line.
    pub is_spare: bool,
}

/// How a text stands out, or back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// It stands back, as a blocked cell does.
    Faint,
    /// It says that something is as it should be.
    Good,
    /// It says that something is wrong.
    Bad,
    /// It says that something is wrong because of something else.
    Inherited,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Text {
    /// A number.
    pub fn number(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_number: true, ..Self::default() }
    }

    /// A text that stands out.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone, ..Self::default() }
    }
}

/// A grid of numbers with a label for every row and column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grid {
    /// The lowest and the highest number, where cells show how high they are.
    pub scale: Option<(String, String)>,
    /// What its signs mean.
    pub legend: Vec<String>,
    /// The axis of the rows, or nothing.
    pub down: String,
    /// The axis of the columns, or nothing.
    pub across: String,
    /// The labels of the columns: bare places on their axis.
    pub columns: Vec<String>,
    /// The rows: label and cells.
    pub rows: Vec<(String, Vec<Text>)>,
}

impl Grid {
    /// Both axes in one cell: `query \ key`.
    pub fn corner(&self) -> String {
        let axes = [&self.down, &self.across].into_iter().filter(|axis| !axis.is_empty());
        axes.map(String::as_str).collect::<Vec<_>>().join(" \\ ")
    }
}

/// A table of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Text>>,
    /// The column whose texts may be broken into lines to fit.
    pub wraps: usize,
    /// Whether it stands in by a column, under a line that says what it is of.
    pub is_inner: bool,
}

impl Table {
    /// Whether a column holds numbers, which stand to the right.
    pub(super) fn is_number(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(|text| text.is_number)
    }
}
