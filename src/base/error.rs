//! What can go wrong, and what to do about it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::lang;
use crate::memory::{Left, Limit, short_of};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a trace could not be set up, computed, read or written.
///
/// `Display` says what is wrong; [`Error::fix`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that makes no sense, alone or beside another.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: Message,
        /// What to do.
        fix: Message,
    },
    /// A tensor whose shape or content does not fit.
    #[error("{tensor}: {what}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong, with both shapes where there are two.
        what: Message,
        /// What to do.
        fix: Message,
    },
    /// A file that cannot be read or written.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: Message,
        /// What to do.
        fix: Message,
    },
    /// A run that needs more memory than this process can take.
    #[error("{}", too_large(*needed, *left))]
    TooLarge {
        /// Bytes that the run needs.
        needed: u128,
        /// What this process can still take.
        left: Left,
    },
    /// A computation that candle refused.
    #[error("the computation failed: {0}")]
    Compute(String),
}

impl Error {
    /// What is wrong.
    pub fn what(&self) -> Message {
        match self {
            Self::Config { what, .. } => what.clone(),
            Self::Tensor { tensor, what, .. } => Message(format!("{}: {}", quoted(tensor), what.0)),
            Self::File { path, what, .. } => Message(format!("{}: {}", quoted_path(path), what.0)),
            Self::TooLarge { .. } | Self::Compute(_) => self.to_string().into(),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> Message {
        match self {
            Self::Config { fix, .. } | Self::Tensor { fix, .. } | Self::File { fix, .. } => {
                fix.clone()
            }
            Self::TooLarge { left, .. } => match left.limit {
                Limit::Process => "allow this process more memory, for example by ulimit -v unlimited, or make batch, seq_len, d_model, heads, head_dim or kv_len smaller",
                Limit::Machine | Limit::Group => {
                    "make batch, seq_len, d_model, heads, head_dim or kv_len smaller"
                }
            }
            .into(),
            Self::Compute(_) => {
                "please report this: the sizes were checked and it should not happen".into()
            }
        }
    }

    /// The error, with the file that it comes from.
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Config { .. } | Self::Tensor { .. } | Self::Compute(_) => {
                Self::file(path, self.what(), self.fix())
            }
            known => known,
        }
    }

    /// Settings that cannot be, and how to mend them.
    pub fn config(what: impl Into<Message>, fix: impl Into<Message>) -> Self {
        Self::Config { what: what.into(), fix: fix.into() }
    }

    /// A tensor that does not fit, and how to mend it.
    pub fn tensor(
        tensor: impl Into<String>,
        what: impl Into<Message>,
        fix: impl Into<Message>,
    ) -> Self {
        Self::Tensor { tensor: tensor.into(), what: what.into(), fix: fix.into() }
    }

    /// A file that cannot be used, and how to mend it.
    pub fn file(path: &Path, what: impl Into<Message>, fix: impl Into<Message>) -> Self {
        Self::File { path: path.to_owned(), what: what.into(), fix: fix.into() }
    }
}

/// Refuses a run that needs more bytes than this process can take.
pub fn refuse_too_large(needed: u128) -> Result<()> {
    short_of(needed).map_or(Ok(()), |left| Err(Error::TooLarge { needed, left }))
}

/// Refuses settings: what is wrong, and what to do.
pub fn refuse<T>(what: impl Into<Message>, fix: impl Into<Message>) -> Result<T> {
    Err(Error::config(what, fix))
}

impl From<candle_core::Error> for Error {
    /// Keeps candle's message and drops the backtrace it appends to it.
    fn from(error: candle_core::Error) -> Self {
        Self::Compute(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}

/// What is wrong or what to do, in a line. Settings in it are data: `` pass `heads=3` `` names the setting `heads` and a
/// value, which whoever shows it spells as its users do. What comes from users stands in it as `quoted` has it, so that
/// nothing of it is taken for a setting: a backtick is doubled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(String);

/// A part of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Words.
    Words(&'a str),
    /// A setting by its key, and what it is to be set to, if one thing.
    Setting(&'a str, Option<&'a str>),
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Message {
    /// A text that is written in the code stands in the language in force.
    fn from(text: &str) -> Self {
        Self(lang::text(text).to_owned())
    }
}

impl Message {
    /// The words and settings, in order.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let (mut words, mut rest) = (0, 0);
        let text = self.0.as_str();
        while let Some(open) = text[rest..].find('`').map(|at| rest + at) {
            if text[open + 1..].starts_with('`') {
                parts.push(Part::Words(&text[words..=open]));
                rest = open + 2;
                words = rest;
                continue;
            }
            let inside = closing(&text[open + 1..]).map(|at| &text[open + 1..open + 1 + at]);
            let Some(setting) = inside.and_then(setting) else {
                rest = open + 1;
                continue;
            };
            parts.push(Part::Words(&text[words..open]));
            parts.push(setting);
            rest = open + 2 + inside.map_or(0, str::len);
            words = rest;
        }
        parts.push(Part::Words(&text[words..]));
        parts
    }

    /// The message with every setting as `spell` has it.
    pub fn spelled(&self, spell: impl Fn(&str, Option<&str>) -> String) -> String {
        let text = |part: &Part| match part {
            Part::Words(words) => (*words).to_owned(),
            Part::Setting(key, value) => {
                let value = value.map(|value| value.replace("``", "`"));
                spell(key, value.as_deref())
            }
        };
        self.parts().iter().map(text).collect()
    }
}

/// Where the first backtick is that is not doubled.
fn closing(text: &str) -> Option<usize> {
    let mut rest = 0;
    loop {
        let at = rest + text[rest..].find('`')?;
        if !text[at + 1..].starts_with('`') {
            return Some(at);
        }
        rest = at + 2;
    }
}

/// `key` or `key=value`.
fn setting(text: &str) -> Option<Part<'_>> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_key.then_some(Part::Setting(key, value))
}

impl std::fmt::Display for Message {
    /// Settings as `key` or `key=value`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spelled(|key, value| match value {
            Some(value) => format!("{key}={value}"),
            None => key.to_owned(),
        }))
    }
}

/// What a run needs beside what this process can take.
fn too_large(needed: u128, left: Left) -> String {
    tr!("this run needs {needed}, and {left}", needed = bytes(needed), left)
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let available = bytes(self.bytes.into());
        f.write_str(&match self.limit {
            Limit::Machine => tr!("this machine has {available} free", available),
            Limit::Group => tr!("the limit of its control group leaves {available}", available),
            Limit::Process => tr!("the limits of this process leave {available}", available),
        })
    }
}

/// A number of bytes as people read it, in binary units: `1.5 GiB`.
pub fn bytes(count: u128) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1024.0
        && let Some(next) = units.next()
    {
        value /= 1024.0;
        unit = Some(next);
    }
    let unit = unit.unwrap_or(&"EiB");
    if value < 1024.0 {
        format!("{value:.1} {unit}")
    } else {
        tr!("{value} {unit} or more", value = format!("{value:.0e}"), unit)
    }
}

/// Whether a character does something where it is shown: a terminal obeys it, or it turns the direction of what follows
/// or breaks its line.
fn acts(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    ) || c.is_control()
}

/// The text with those of its characters that act written as `escape` has them.
fn inert(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return text.into();
    }
    let escaped = |c: char| if acts(c) { escape(c) } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

/// A text of a file, such as a tensor's name, as it can be shown: characters that act are escaped as in Rust.
pub fn shown(text: &str) -> Cow<'_, str> {
    inert(text, |c| c.escape_default().collect())
}

/// JSON as it can be shown: the same JSON, in which characters that act are escaped. Lines stay lines.
pub fn shown_json(json: &str) -> Cow<'_, str> {
    // All of them are below U+10000, where an escape has four digits.
    inert(json, |c| if c == '\n' { c.into() } else { format!("\\u{:04x}", u32::from(c)) })
}

/// A text of a user or a file as it can stand in a [`Message`]: [`shown`], with every backtick doubled, and its middle
/// left out where it is very long.
pub fn quoted(text: &str) -> String {
    doubled(&brief(text))
}

/// A path as it can stand in a [`Message`], whole.
pub fn quoted_path(path: &Path) -> String {
    doubled(&path.to_string_lossy())
}

fn doubled(text: &str) -> String {
    shown(text).replace('`', "``")
}

/// The characters that are shown of a text that is longer than both: so many at its start, and so many at its end.
const BRIEF: [usize; 2] = [400, 100];

/// The start and the end of a text that is too long for a message.
fn brief(text: &str) -> Cow<'_, str> {
    let [head, tail] = BRIEF;
    let place = |count: usize| text.char_indices().nth(count).map(|(at, _)| at);
    if text.len() <= head + tail || place(head + tail).is_none() {
        return text.into();
    }
    let start = &text[..place(head).unwrap_or(text.len())];
    let end = text.char_indices().rev().nth(tail - 1).map_or(text.len(), |(at, _)| at);
    format!("{start} … {}", &text[end..]).into()
}

/// The most bytes of a word in a line that is shown, and of the line.
const WORD: usize = 300;
const LINE: usize = 900;

/// A line as it is shown of what is wrong, or what to do: where it repeats what is very long, the middles of its words are
/// left out, and that of the whole if it is long all the same.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.len() <= WORD {
        return text.into();
    }
    let words: Vec<_> = text.split(' ').map(|word| cut(word, WORD)).collect();
    cut(&words.join(" "), LINE).into_owned().into()
}

/// A text of at most so many bytes: of a longer one two thirds of them from its start, and the rest from its end.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    const MIDDLE: &str = "…";
    if text.len() <= most {
        return text.into();
    }
    let room = most.saturating_sub(MIDDLE.len());
    let (head, tail) = (room - room / 3, text.len() - room / 3);
    let places = || text.char_indices().map(|(at, _)| at);
    let start = places().take_while(|at| *at <= head).last().unwrap_or_default();
    let end = places().find(|at| *at >= tail).unwrap_or(text.len());
    format!("{}{MIDDLE}{}", &text[..start], &text[end..]).into()
}

/// The names as they can stand in a [`Message`], with commas between; `nothing` where there are none.
pub fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let quoted = |name: &T| match name.as_ref() {
        "" => tr!("a tensor without a name").to_owned(),
        name => quoted(name),
    };
    let (some, more) = names.split_at(names.len().min(LISTED));
    let mut all: Vec<String> = some.iter().map(quoted).collect();
    all.extend((!more.is_empty()).then(|| tr!("and {count} more", count = more.len())));
    if all.is_empty() { "nothing".to_owned() } else { lang::list(&all) }
}

/// So many names are listed at most.
const LISTED: usize = 100;

/// The candidate that `name` begins, or is close enough to for a slip of the keyboard.
pub fn near_miss<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let longest = candidates.iter().map(|candidate| candidate.len()).max().unwrap_or(0);
    // How far off a very long name is, is not worth the time that it takes.
    if name.is_empty() || name.len() > 4 * longest {
        return None;
    }
    let name = &name.to_lowercase();
    let begins = |candidate: &&&str| name.len() > 2 && candidate.starts_with(name);
    candidates.iter().find(begins).copied().or_else(|| {
        candidates
            .iter()
            .map(|candidate| (strsim::damerau_levenshtein(name, candidate), *candidate))
            .min()
            .filter(|(distance, candidate)| {
                *distance <= candidate.len().div_ceil(3) && *distance < name.chars().count()
            })
            .map(|(_, candidate)| candidate)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_in_messages_are_spelled_as_one_likes() {
        let message =
            Message::from("pass `heads=3`, or leave `d_in` out; `A` and ` are ` not settings");
        let flags = message.spelled(|key, value| format!("--{key} {}", value.unwrap_or("X")));
        assert_eq!(flags, "pass --heads 3, or leave --d_in X out; `A` and ` are ` not settings");
        assert_eq!(
            message.to_string(),
            "pass heads=3, or leave d_in out; `A` and ` are ` not settings"
        );
    }

    #[test]
    fn what_users_write_is_no_setting() {
        let spell = |key: &str, value: Option<&str>| format!("--{key} {}", value.unwrap_or("X"));
        let path = "`seed=3`.json";
        let error = Error::file(Path::new(path), "is empty", "pass `heads=3`");
        assert_eq!(error.what().spelled(spell), "`seed=3`.json: is empty");
        let map = format!("`map={}=weights`: {}", quoted("a`b``c"), quoted("``"));
        assert_eq!(Message::from(map).spelled(spell), "--map a`b``c=weights: ``");
    }

    #[test]
    fn characters_that_act_are_escaped() {
        let text = "a\u{1b}[2J\u{9b}1m\u{202e}\u{2067}\u{61c}\u{7f}\u{2028}é…";
        let escaped = "a\\u{1b}[2J\\u{9b}1m\\u{202e}\\u{2067}\\u{61c}\\u{7f}\\u{2028}é…";
        assert_eq!(shown(text), escaped);
        let value = serde_json::json!({ text: [text, "\n"] });
        for json in [value.to_string(), format!("{value:#}")] {
            let told = shown_json(&json);
            assert!(!told.chars().any(|c| c != '\n' && acts(c)), "{told}");
            assert_eq!(told.lines().count(), json.split('\n').count());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&told).expect("JSON"), value);
        }
    }

    #[test]
    fn long_texts_are_cut_and_paths_are_not() {
        let long = "é".repeat(100_000);
        let told = quoted(&long);
        assert_eq!(told.chars().count(), 503);
        assert!(told.starts_with("éé") && told.ends_with("éé") && told.contains(" … "));
        assert_eq!(quoted(&long[..1000]), long[..1000]);
        assert_eq!(quoted_path(Path::new(&long)), long);
        let names: Vec<String> = (0..300).map(|at| format!("t{at}")).collect();
        assert!(listed(&names).ends_with(", t99, and 200 more"));
        assert_eq!(near_miss(&long, &["causal"]), None);
    }

    #[test]
    fn lines_are_cut_word_by_word() {
        let [long, wide] = ["a", "字"].map(|letter| letter.repeat(1000));
        let told = line(&format!("{long} is not {wide}")).into_owned();
        let words: Vec<&str> = told.split(' ').collect();
        assert_eq!(words[1..3], ["is", "not"]);
        for word in [words[0], words[3]] {
            assert!(word.len() <= WORD && word.len() > WORD - 8 && word.contains('…'), "{word}");
        }
        let short = "few words, and none of them is long ".repeat(10);
        assert_eq!(line(&short), short);
        let many = line(&"many words ".repeat(1000)).into_owned();
        assert!(many.len() <= LINE && many.starts_with("many words") && many.contains('…'));
    }

    #[test]
    fn bytes_choose_their_unit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(bytes(u128::MAX), "3e20 EiB or more");
    }

    #[test]
    fn a_near_miss_is_near() {
        assert_eq!(near_miss("casual", &["simple", "causal"]), Some("causal"));
        assert_eq!(near_miss("formal", &["simple", "formal-padding"]), Some("formal-padding"));
        assert_eq!(near_miss("Q", &["k", "q"]), Some("q"));
        assert_eq!(near_miss("", &["k", "q"]), None);
        assert_eq!(near_miss("zebra", &["simple", "causal"]), None);
    }

    #[test]
    fn a_limit_is_told_as_what_it_is() {
        let told = |limit| Left { bytes: 3 << 20, limit }.to_string();
        assert_eq!(told(Limit::Machine), "this machine has 3.0 MiB free");
        assert_eq!(told(Limit::Group), "the limit of its control group leaves 3.0 MiB");
        assert_eq!(told(Limit::Process), "the limits of this process leave 3.0 MiB");
    }
}
