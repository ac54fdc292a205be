//! Which language is asked for, by flag or by the environment?

use std::ffi::OsString;

use clap::ValueEnum;

use base::lang::Language;

const FLAG: &str = "--lang";

/// The arguments without those that state the language, and that language. Errors of the other arguments are told in it,
/// so it is found before these are read. What is no language stays, and is refused then.
pub fn taken(args: impl Iterator<Item = OsString>) -> (Vec<OsString>, Option<Language>) {
    let mut stated = None;
    let mut rest = Vec::new();
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        if text == "--" {
            rest.push(arg);
            rest.extend(args);
            break;
        }
        let named = |name: &OsString| Language::from_str(name.to_str()?, true).ok();
        let beside = text.strip_prefix(FLAG).and_then(|value| value.strip_prefix('='));
        let own = beside.and_then(|value| named(&value.into()));
        let next = if text == FLAG { args.peek().and_then(named) } else { None };
        if next.is_some() {
            args.next();
        }
        match own.or(next) {
            Some(language) => stated = Some(language),
            None => rest.push(arg),
        }
    }
    (rest, stated)
}

/// Whether the language in force is the one that clap itself speaks.
pub fn is_english() -> bool {
    Language::spoken() == Language::En
}

/// The language of messages where none is stated.
pub fn of_process() -> Language {
    of_environment(|name| std::env::var(name).ok())
}

/// The language of messages, of the first variable that says one.
fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Language {
    let stated = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().filter_map(variable);
    let first = stated.into_iter().find(|locale| !locale.is_empty());
    first.and_then(|locale| Language::of_locale(&locale)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_stands_anywhere_and_wins() {
        let taken = |args: &str| {
            let (rest, language) = taken(args.split(' ').map(OsString::from));
            let rest: Vec<_> = rest.iter().map(|arg| arg.to_str().expect("text")).collect();
            (rest.join(" "), language)
        };
        assert_eq!(taken("m --lang zh check a"), ("m check a".to_owned(), Some(Language::Zh)));
        assert_eq!(taken("m check a --lang=zh"), ("m check a".to_owned(), Some(Language::Zh)));
        assert_eq!(taken("m --lang zh --lang en"), ("m".to_owned(), Some(Language::En)));
        assert_eq!(taken("m check a").1, None);
        assert_eq!(taken("m --lang fr").0, "m --lang fr");
        assert_eq!(taken("m -- --lang zh").0, "m -- --lang zh");
    }

    #[test]
    fn the_first_variable_that_says_one_wins() {
        let language = |all: &str, messages: &str, lang: &str| {
            of_environment(|name| {
                let value = match name {
                    "LC_ALL" => all,
                    "LC_MESSAGES" => messages,
                    _ => lang,
                };
                Some(value.to_owned())
            })
        };
        assert_eq!(language("", "", "zh_CN.UTF-8"), Language::Zh);
        assert_eq!(language("C", "", "zh_CN.UTF-8"), Language::En);
        assert_eq!(language("", "zh_TW", "de_DE.UTF-8"), Language::Zh);
        assert_eq!(language("", "", "de_DE.UTF-8"), Language::En);
        assert_eq!(of_environment(|_| None), Language::En);
    }
}
