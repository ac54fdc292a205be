//! In which language is said what is printed?
//!
//! English stands in the code and is the key of every other language, as with gettext: `tr!("head {head}", head)`. A
//! language is one file of such texts with their translations, here [`zh.po`](https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html),
//! which is read when its first text is wanted. Names in braces stand for what differs from case to case; a translation
//! has the same names, in whatever order its language wants. Names of steps, axes and flags, formulas, and all that
//! files hold are the same in every language.

mod po;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// What there is to know of a language.
struct Row {
    /// What pages state as their language.
    tag: &'static str,
    /// What the names of its locales begin with.
    locales: &'static [&'static str],
    /// What stands between the items of a list.
    comma: &'static str,
    /// The class of documents in LaTeX that can set it.
    latex: &'static str,
    /// Its texts, each beside the English one; of English none.
    texts: &'static str,
}

macro_rules! languages {
    ($($(#[$about:meta])+ $name:ident = $row:expr;)+) => {
        /// A language of what is printed.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
        pub enum Language { $($(#[$about])+ $name),+ }

        impl Language {
            /// Every language.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            fn row(self) -> &'static Row {
                match self { $(Self::$name => const { &$row }),+ }
            }
        }
    };
}

languages! {
    /// English
    #[default]
    En = Row { tag: "en", locales: &["en", "c", "posix"], comma: ", ", latex: "article", texts: "" };
    /// Chinese, in simplified characters
    Zh = Row {
        tag: "zh-Hans", locales: &["zh"], comma: "、", latex: "ctexart", texts: include_str!("zh.po"),
    };
}

/// The language of the process, by its place in [`Language::ALL`].
static SPOKEN: AtomicU8 = AtomicU8::new(0);

thread_local! {
    /// The language of a thread, where it is not that of the process.
    static OWN: Cell<Option<Language>> = const { Cell::new(None) };
}

/// The texts of a language by the English ones.
type Texts = HashMap<Cow<'static, str>, Cow<'static, str>>;

/// Those of every language, read when its first text is wanted.
static TEXTS: [OnceLock<Texts>; Language::ALL.len()] =
    [const { OnceLock::new() }; Language::ALL.len()];

impl Language {
    /// What pages state as their language.
    pub fn tag(self) -> &'static str {
        self.row().tag
    }

    /// The class of documents in LaTeX that can set it.
    pub fn latex_class(self) -> &'static str {
        self.row().latex
    }

    /// The texts of this language, each beside the English one that it stands for.
    pub fn texts(self) -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
        po::texts(self.row().texts)
    }

    /// The language that a locale's name begins with, such as `zh_CN.UTF-8`, if there are texts in it.
    pub fn of_locale(locale: &str) -> Option<Self> {
        let language = locale.split(['_', '-', '.', '@']).next()?.to_ascii_lowercase();
        Self::ALL.iter().copied().find(|own| own.row().locales.contains(&language.as_str()))
    }

    /// The language in force.
    pub fn spoken() -> Self {
        OWN.get().unwrap_or_else(|| {
            let at = usize::from(SPOKEN.load(Ordering::Relaxed));
            Self::ALL.get(at).copied().unwrap_or_default()
        })
    }

    /// Makes this the language of all that the process says from now on.
    pub fn speak(self) {
        SPOKEN.store(self as u8, Ordering::Relaxed);
    }

    /// What `told` says if this is the language, whatever that of the process is. What other threads say is not changed.
    pub fn within<T>(self, told: impl FnOnce() -> T) -> T {
        struct Before(Option<Language>);
        impl Drop for Before {
            fn drop(&mut self) {
                OWN.set(self.0);
            }
        }
        let _before = Before(OWN.replace(Some(self)));
        told()
    }
}

/// A text in the language in force; itself where that has none, as for what users write.
pub fn text(english: &str) -> &str {
    let spoken = Language::spoken();
    let texts = TEXTS.get(spoken as usize).filter(|_| spoken != Language::En);
    let texts = texts.map(|texts| texts.get_or_init(|| spoken.texts().collect()));
    texts.and_then(|texts| texts.get(english)).map_or(english, AsRef::as_ref)
}

/// Names beside each other: with commas between, or with what the language in force has between the items of a list.
pub fn list<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(Language::spoken().row().comma)
}

/// A template in the language in force, with what stands for its names.
pub fn filled(template: &str, values: &[(&str, &dyn Display)]) -> String {
    use std::fmt::Write;
    let mut filled = String::new();
    for part in parts(text(template)) {
        let value = |name| values.iter().find(|(own, _)| *own == name).map(|(_, value)| value);
        // Writing to a string does not fail.
        let _ = match part {
            Part::Words(words) => filled.write_str(words),
            Part::Name(name) => value(name).map_or(Ok(()), |value| write!(filled, "{value}")),
        };
    }
    filled
}

/// The names for which something stands in a template.
pub fn names(template: &str) -> impl Iterator<Item = &str> {
    parts(template).filter_map(|part| match part {
        Part::Name(name) => Some(name),
        Part::Words(_) => None,
    })
}

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Words(&'a str),
    /// A name in braces. A brace itself is doubled.
    Name(&'a str),
}

fn parts(template: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        let (part, after) = match rest.find(['{', '}']) {
            _ if rest.is_empty() => return None,
            None => (Part::Words(rest), ""),
            Some(0) if rest.starts_with("{{") || rest.starts_with("}}") => {
                (Part::Words(rest.get(..1)?), rest.get(2..)?)
            }
            Some(0) => {
                let end = rest.find('}')?;
                (Part::Name(rest.get(1..end)?), rest.get(end + 1..)?)
            }
            Some(at) => (Part::Words(rest.get(..at)?), rest.get(at..)?),
        };
        rest = after;
        Some(part)
    })
}

/// A text in the language in force: `tr!("no mask")`, or a template with what stands for its names, which may be
/// variables: `tr!("head {head} of {all}", head, all = sizes.heads)`. The compiler checks the names of the English one,
/// a test those of the others.
#[macro_export]
macro_rules! tr {
    ($english:literal) => {
        $crate::lang::text($english)
    };
    ($english:literal, $($name:ident $(= $value:expr)?),+ $(,)?) => {
        $crate::lang::filled(
            // The names are checked, and nothing is written.
            const { let _: fn() = || _ = format_args!($english, $($name = ""),+); $english },
            &[$((stringify!($name), &$crate::tr!(@ $name $($value)?))),+],
        )
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $value:expr) => { $value };
}
