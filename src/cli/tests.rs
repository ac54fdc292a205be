//! What holds for all that is said: every text is translated, and every translation says all of its text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use base::lang::{Language, filled, names};
use check::catalogue::catalogue;
use config::Setting;
use program::Name;

/// The texts of the sources: what `tr!` is given, and whatever else reads as prose, as do the tables whose texts are
/// looked up where they are printed.
fn texts_of_sources() -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    texts
}

fn read_folder(folder: &Path, texts: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_dir() {
            read_folder(&path, texts);
        } else if is_rust && !path.ends_with("cli/tests.rs") && !path.ends_with("build.rs") {
            let source = fs::read_to_string(&path).expect("text");
            read(source.parse().expect("Rust"), false, texts);
        }
    }
}

/// What these are given is said to nobody, or in texts that are put together of it, which a table has.
const SILENT: [&str; 7] =
    ["expect", "assert", "unreachable", "concat", "decay_of", "everywhere", "by_key"];

fn read(stream: TokenStream, is_formula: bool, texts: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let word = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map(ToString::to_string);
    // Whether what follows, up to its end, is of a test, or makes a formula: of these some are the same in every language.
    let (mut is_silent, mut makes_formula) = (false, is_formula);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if is_attribute(&tokens, at) => {
                let attribute = group.stream().to_string().replace(' ', "");
                is_silent |= attribute == "test" || attribute.starts_with("cfg(test");
            }
            TokenTree::Group(group) if is_silent => {
                is_silent = group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Group(group) if makes_formula && !is_formula => {
                read(group.stream(), true, texts);
                makes_formula = group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Group(group) => {
                let is_macro = word(at.checked_sub(1)).as_deref() == Some("!");
                let name = word(at.checked_sub(if is_macro { 2 } else { 1 })).unwrap_or_default();
                if name == "tr" && is_macro {
                    let mut inside = group.stream().into_iter();
                    texts.extend(inside.next().as_ref().and_then(literal));
                    read(inside.collect(), is_formula, texts);
                } else if !SILENT.contains(&name.as_str()) {
                    read(group.stream(), is_formula, texts);
                }
            }
            TokenTree::Ident(keyword) if keyword == "fn" => {
                let name = word(Some(at + 1)).unwrap_or_default();
                makes_formula |= name == "formula";
            }
            TokenTree::Punct(sign) if sign.as_char() == ';' => {
                (is_silent, makes_formula) = (false, is_formula);
            }
            _ if is_silent || is_formula => {}
            token => texts.extend(literal(token).filter(|text| is_prose(text))),
        }
    }
}

/// Whether brackets are an attribute's, as of documentation.
fn is_attribute(tokens: &[TokenTree], at: usize) -> bool {
    let before = tokens.get(..at).unwrap_or_default();
    let signs = before.iter().rev().take(2).map(ToString::to_string).collect::<Vec<_>>();
    matches!(signs.iter().map(String::as_str).collect::<Vec<_>>()[..], ["#", ..] | ["!", "#"])
        && matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket)
}

/// What a string literal says.
fn literal(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().map(|text| text.value())
}

/// Whether two words follow each other in a text. Code and its comments, names of files and templates of other
/// programs are not prose.
fn is_prose(text: &str) -> bool {
    let is_word = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':']);
        !word.is_empty()
            && word.chars().all(|letter| letter.is_ascii_alphabetic() || letter == '\'')
    };
    let words: Vec<&str> = text.split(' ').collect();
    let is_code = text.contains(" = ") || text.contains("nn.") || text.contains("def ");
    !is_code
        && !SAME.contains(&text)
        && words.windows(2).any(|pair| pair.iter().all(|word| is_word(word)))
}

/// What reads as prose and is none that is printed, or is a quotation.
const SAME: &[&str] = &[
    // What serde says, and what is told in its place.
    "expected usize",
    "expected a map",
    // What another library says.
    " at line ",
    // The header of a file.
    "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}",
    // Attributes of pages.
    "light dark",
    // What Linux calls limits.
    "Max address space",
    "Max data size",
    // Keys of JSON reports.
    "too long",
];

/// The texts of the command line and of settings, which its help has.
fn texts_of_help() -> BTreeSet<String> {
    fn read(command: &clap::Command, texts: &mut BTreeSet<String>) {
        texts.extend(command.get_about().map(ToString::to_string));
        for arg in command.get_arguments() {
            texts.extend(arg.get_help_heading().map(str::to_owned));
            let is_setting = Setting::ALL.iter().any(|setting| {
                arg.get_id() == setting.key || *arg.get_id() == format!("no_{}", setting.key)
            });
            texts.extend(arg.get_help().filter(|_| !is_setting).map(ToString::to_string));
        }
        command.get_subcommands().for_each(|command| read(command, texts));
    }
    let mut texts = BTreeSet::new();
    read(&<super::args::Cli as clap::CommandFactory>::command(), &mut texts);
    for setting in Setting::ALL {
        texts.insert(setting.about.to_owned());
        let others = [setting.default, setting.off].into_iter();
        texts.extend(others.filter(|text| is_prose(text)).map(str::to_owned));
    }
    texts
}

/// The words of tables, which need not read as prose.
fn texts_of_tables() -> BTreeSet<String> {
    // The title of a gradient is made of its step's.
    let titled = |name: &&Name| !name.is_gradient();
    let of_steps = || {
        let all = Name::ALL.iter().filter(titled).map(|name| name.title().into_owned());
        all.chain(Name::ALL.iter().map(|name| name.why().to_owned())).collect()
    };
    let of_steps: Vec<String> = Language::En.within(of_steps);
    let mistakes = catalogue().into_iter().flat_map(|mistake| {
        let lines = mistake.ways.iter().flat_map(|way| [way.wrong, way.right]);
        let remarks = lines.filter(|line| line.contains("  # "));
        mistake.ways.iter().map(|way| way.summary).chain(remarks).chain([mistake.silent])
    });
    let words = of_steps.iter().map(String::as_str).chain(mistakes).chain(view::page_texts());
    let words = words.chain(file::REASONS.map(|(_, reason)| reason)).chain([
        "queries",
        "heads",
        "batch items",
    ]);
    words.map(str::to_owned).collect()
}

/// The languages that English is translated to.
fn others() -> impl Iterator<Item = Language> {
    Language::ALL.iter().copied().filter(|language| *language != Language::En)
}

#[test]
fn every_text_is_translated_and_no_other_is() {
    let said = [texts_of_sources(), texts_of_help(), texts_of_tables()];
    let said: BTreeSet<String> = said.into_iter().flatten().collect();
    for language in others() {
        let (texts, tag) = (language.texts(), language.tag());
        let known: BTreeSet<String> = texts.map(|(english, _)| english.into_owned()).collect();
        let lacking: Vec<_> = said.difference(&known).collect();
        let unused: Vec<_> = known.difference(&said).collect();
        assert!(lacking.is_empty(), "{tag} lacks {}:\n{lacking:#?}", lacking.len());
        assert!(unused.is_empty(), "nothing says these of {tag}:\n{unused:#?}");
    }
}

/// A template's names stand in its translation too, and all settings that it tells.
#[test]
fn translations_say_all_that_their_texts_do() {
    let settings = |text: &str| -> BTreeMap<String, usize> {
        let mut settings = BTreeMap::new();
        for setting in text.split('`').skip(1).step_by(2) {
            *settings.entry(setting.to_owned()).or_default() += 1;
        }
        settings
    };
    let mut known = HashMap::new();
    for (language, (english, other)) in
        others().flat_map(|own| own.texts().map(move |of| (own, of)))
    {
        let all = |text| names(text).map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(all(&english), all(&other), "{english}");
        assert_eq!(settings(&english), settings(&other), "{english}");
        let ends = |text: &str| (text.starts_with('\n'), text.ends_with('\n'));
        assert_eq!(ends(&english), ends(&other), "{english}");
        assert!(!other.is_empty(), "{english}");
        assert!(known.insert((language.tag(), english), other).is_none(), "a text stands twice");
    }
}

#[test]
fn templates_are_filled_in_their_own_order() {
    let (at, all) = (1, "two");
    assert_eq!(filled("{{{at}}} of {all}", &[("at", &at), ("all", &all)]), "{1} of two");
    assert_eq!(filled("{all}: {at}, {at}", &[("at", &at), ("all", &all)]), "two: 1, 1");
}

#[test]
fn every_language_has_a_locale_and_texts_of_its_own() {
    for language in Language::ALL {
        let (spoken, head) = language.within(|| (Language::spoken(), tr!("head")));
        assert_eq!((spoken, head == "head"), (*language, *language == Language::En));
        assert_eq!(Language::of_locale(language.tag()), Some(*language));
    }
}

#[test]
fn a_thread_can_speak_its_own_language() {
    let told = || tr!("head").to_owned();
    assert_eq!(
        (told(), Language::Zh.within(told), told()),
        ("head".into(), "头".into(), "head".into())
    );
}
