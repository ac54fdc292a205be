//! The README and the pages of `docs` are true: their commands print what they show, their links lead somewhere, and what
//! there is to look up is there.

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mha_trace::config::Setting;
use mha_trace::program::Name;

use common::transcript::{has_the_last_digits, here};

/// The pages that show commands; each begins with what its reader can do.
const FOR_READERS: [&str; 14] = [
    "README.md",
    "README.zh-CN.md",
    "docs/backward.md",
    "docs/checking.md",
    "docs/ci.md",
    "docs/delta.md",
    "docs/flash.md",
    "docs/formats.md",
    "docs/kernels.md",
    "docs/learning.md",
    "docs/learning.zh.md",
    "docs/models.md",
    "docs/numbers.md",
    "docs/pages.md",
];

/// The pages that are there in both languages.
const TWINS: [[&str; 2]; 2] =
    [["README.md", "README.zh-CN.md"], ["docs/learning.md", "docs/learning.zh.md"]];

/// What is not written in Chinese texts, and the word of the house for the same.
const OTHER_WORDS: [[&str; 2]; 14] = [
    ["批大小", "批量大小"],
    ["批处理大小", "批量大小"],
    ["计算核", "算子"],
    ["隐式注意力", "潜在注意力"],
    ["隐向量", "潜向量"],
    ["得分", "分数"],
    ["屏蔽者", "屏蔽原因"],
    ["遮罩", "掩码"],
    ["令牌", "词元"],
    ["个 token", "个词元"],
    ["填充符", "填充"],
    ["学到的", "可学习的"],
    ["软上限", "软截断"],
    ["标准结果", "基准结果"],
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

/// Commands that are shown without what they print have flags that there are.
#[test]
fn every_other_command_is_understood() {
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        for line in blocks.flat_map(str::lines).filter(|line| line.starts_with("mha-trace")) {
            let command = line.split(['#', '>']).next().expect("a part");
            let args = command.split_whitespace().skip(1).chain(["-h"]);
            let run = Command::new(env!("CARGO_BIN_EXE_mha-trace")).args(args).output();
            let run = run.expect("the binary runs");
            assert!(
                run.status.success(),
                "{page}: {line}\n{}",
                String::from_utf8_lossy(&run.stderr)
            );
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} commands");
}

/// The folders of the fixtures that a page's commands name, or in which the named files are.
fn fixtures(text: &str) -> HashSet<PathBuf> {
    let commands = text.lines().filter(|line| line.starts_with("$ "));
    let named =
        commands.flat_map(str::split_whitespace).filter(|word| word.starts_with("fixtures/"));
    let folder = |path: &Path| {
        let is_folder = root().join(path).is_dir();
        if is_folder { Some(path.to_owned()) } else { path.parent().map(Path::to_path_buf) }
    };
    named.filter_map(|path| folder(Path::new(path))).collect()
}

/// Copies the files of a folder.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.expect("readable").path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("readable");
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rank")) {
            copy_files(&path, &to.join(path.file_name().expect("a name")));
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

/// A page says the same in both languages: its sections, its commands, the flags that it names, and the pages that it
/// leads to.
#[test]
fn chinese_pages_have_the_same_content() {
    for pages in TWINS {
        let [english, chinese] = pages.map(read);
        assert_eq!(headings(&english), headings(&chinese), "the headings of {pages:?}");
        assert_eq!(links(&english), links(&chinese), "the links of {pages:?}");
        assert_eq!(flags(&english), flags(&chinese), "the flags of {pages:?}");
        assert_eq!(commands(&english), commands(&chinese), "the commands of {pages:?}");
    }
}

/// How deep the headings of a page are.
fn headings(text: &str) -> Vec<usize> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.bytes().take_while(|sign| *sign == b'#').count()).collect()
}

/// Where the links of a page lead, but for its own sections. A page that has a twin stands for both, without the section,
/// which each language calls by its own words.
fn links(text: &str) -> HashSet<String> {
    let text = prose(text);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let links = links.map(|(link, _)| link).filter(|link| !link.starts_with('#'));
    let file = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let led_to = |link: &str| match link.split('#').next() {
        Some(page) if TWINS.iter().flatten().any(|twin| file(twin) == file(page)) => {
            page.replace(".zh-CN", "").replace(".zh", "")
        }
        _ => link.to_owned(),
    };
    links.map(led_to).collect()
}

/// The flags that the tables of a page name.
fn flags(text: &str) -> HashSet<String> {
    let text = prose(text);
    let words = text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`'));
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// The commands of a page, without what a language brings: the language and labels of tokens.
fn commands(text: &str) -> Vec<Vec<String>> {
    let commands = text.lines().filter(|line| line.starts_with("$ "));
    let own = |line: &str| {
        let words = line.replace(" --lang zh", "");
        let words = words.split_whitespace().map(|word| if word.is_ascii() { word } else { "…" });
        words.map(|word| if is_labelled(word) { "…" } else { word }.to_owned()).collect()
    };
    commands.map(own).collect()
}

/// Whether a word of a command has labels of tokens in it.
fn is_labelled(word: &str) -> bool {
    word.starts_with("the,") || word.contains("=sat")
}

/// One word stands for one thing in all Chinese texts.
#[test]
fn chinese_terms_are_the_same_everywhere() {
    let texts = TWINS.map(|[_, chinese]| chinese).into_iter().chain(["src/base/lang/zh.po"]);
    let mut wrong = Vec::new();
    for page in texts {
        for (at, line) in read(page).lines().enumerate() {
            let other = OTHER_WORDS.iter().filter(|[other, _]| line.contains(other));
            wrong
                .extend(other.map(|[other, own]| format!("{page}:{}: {other}, not {own}", at + 1)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
