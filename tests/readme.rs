//! The README and the pages of `docs` are true: their commands print what they show, their links lead somewhere, and what
//! there is to look up is there.

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mha_trace::config::Setting;
use mha_trace::program::Name;

use common::transcript::{has_the_last_digits, here};

/// The pages that show commands; each begins with what its reader can do.
const FOR_READERS: [&str; 9] = [
    "README.md",
    "README.zh-CN.md",
    "docs/backward.md",
    "docs/checking.md",
    "docs/formats.md",
    "docs/learning.md",
    "docs/models.md",
    "docs/numbers.md",
    "docs/pages.md",
];

/// What begins a block of commands and what they print.
const COMMANDS: &str = "```console";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The README, in both languages, and every page of `docs`, from the root.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("the pages are there");
    let names =
        entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text"));
    let pages = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
    let mut pages: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    pages.extend(["README.md", "README.zh-CN.md"].map(str::to_owned));
    pages.sort();
    pages
}

/// The commands of a page run in a folder of their own, as some write files. With `TRYCMD=overwrite` what they print is
/// put into the page.
#[test]
fn every_command_prints_what_is_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = trycmd::TestCases::new();
    let mut shown = pages();
    shown.retain(|page| read(page).contains(COMMANDS));
    assert_eq!(shown, FOR_READERS, "the pages with commands are those that are for readers");
    for page in &shown {
        let copy = folder.path().join(Path::new(page).file_name().expect("a name"));
        let inputs = copy.with_extension("in");
        fs::create_dir(&inputs).expect("writable");
        for named in fixtures(&read(page)) {
            copy_files(&root().join(&named), &inputs.join(&named));
        }
        fs::write(&copy, &*here(&read(page))).expect("writable");
        cases.case(&copy);
    }
    cases.env("COLUMNS", "100").env("LC_ALL", "C").run();
    if std::env::var_os("TRYCMD").is_some_and(|mode| mode == "overwrite") && has_the_last_digits() {
        for page in &shown {
            let copy = folder.path().join(Path::new(page).file_name().expect("a name"));
            fs::copy(copy, root().join(page)).expect("writable");
        }
    }
}

/// The folders of the fixtures that a page's commands name.
fn fixtures(text: &str) -> HashSet<PathBuf> {
    let commands = text.lines().filter(|line| line.starts_with("$ "));
    let named =
        commands.flat_map(str::split_whitespace).filter(|word| word.starts_with("fixtures/"));
    named.filter_map(|file| Path::new(file).parent()).map(Path::to_path_buf).collect()
}

/// Copies the files of a folder.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.expect("readable").path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("readable");
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let more = ["CHANGELOG.md", "fixtures/README.md"].map(str::to_owned);
    let (mut count, mut broken) = (0, Vec::new());
    for page in pages().into_iter().chain(more) {
        let text = prose(&read(&page));
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&page).parent().expect("a folder");
            let target = if file.is_empty() { PathBuf::from(&page) } else { folder.join(file) };
            let has_anchor = || {
                let text = fs::read_to_string(root().join(&target)).unwrap_or_default();
                prose(&text).lines().any(|line| line.starts_with('#') && slug(line) == anchor)
            };
            if !root().join(&target).exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    assert!(count >= 50, "only {count} links");
}

/// The README says the same in both languages: its sections, and the pages that they lead to.
#[test]
fn the_chinese_readme_has_the_same_content() {
    let [english, chinese] = ["README.md", "README.zh-CN.md"].map(|page| prose(&read(page)));
    let headings = |text: &str| -> Vec<usize> {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| line.bytes().take_while(|sign| *sign == b'#').count()).collect()
    };
    assert_eq!(headings(&english), headings(&chinese));
    let links = |text: &str| -> HashSet<String> {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.map(|(link, _)| link.to_owned()).filter(|link| !link.starts_with("README")).collect()
    };
    assert_eq!(links(&english), links(&chinese));
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<&str>>().join("\n")
}

/// The anchor that GitHub gives to a heading.
fn slug(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let text = heading.trim_start_matches('#').trim();
    text.chars().filter(kept).collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_setting_and_step_can_be_looked_up() {
    let formats = read("docs/formats.md");
    let flags = read("docs/learning.md") + &read("docs/models.md");
    // A flag may be the beginning of another one.
    let has_flag = |flag: &str| {
        let ends =
            |rest: &str| !rest.starts_with(|next: char| next == '-' || next.is_alphanumeric());
        flags.split(flag).skip(1).any(ends)
    };
    let mut missing = Vec::new();
    for Setting { key, .. } in Setting::ALL {
        let flag = format!("--{}", key.replace('_', "-"));
        if !formats.contains(&format!("`{key}`")) {
            missing.push(format!("the key {key}"));
        }
        if !has_flag(&flag) {
            missing.push(format!("the flag {flag}"));
        }
    }
    let steps = Name::ALL.iter().map(|step| step.as_str());
    for step in steps.filter(|step| Name::in_files(step).is_some()) {
        // Gradients are called by what they are of.
        let step = step.strip_prefix("d_").filter(|own| Name::named(own).is_some()).unwrap_or(step);
        if !formats.contains(&format!("`{step}`")) {
            missing.push(format!("the step {step}"));
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}
