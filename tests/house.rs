//! The order of the house: which folder may use which stands in `docs/ARCHITECTURE.md`, and within a folder no files use
//! each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module, as the names of the modules from the crate's root to it.
type Module = Vec<String>;

/// Which files a file uses.
type Uses = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            all.extend(files(&path, ending));
        } else if path.extension().is_some_and(|own| own == ending) {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a crate by their modules.
struct Crate {
    files: BTreeMap<Module, PathBuf>,
    /// What a module hands on under a name: the path that its `pub use` names.
    handed_on: BTreeMap<(Module, String), Vec<String>>,
    /// The paths that a module uses.
    used: BTreeMap<Module, Vec<Vec<String>>>,
}

impl Crate {
    fn read(folder: &Path, main: &str) -> Self {
        let mut this =
            Self { files: BTreeMap::new(), handed_on: BTreeMap::new(), used: BTreeMap::new() };
        for path in files(folder, "rs") {
            let inner = path.strip_prefix(folder).expect("within").with_extension("");
            let words = inner.iter().map(|word| word.to_string_lossy().into_owned());
            let mut module: Module = words.collect();
            if module.last().is_some_and(|last| last == "mod" || last == main) {
                module.pop();
            }
            if !["build", "main", "tests"].iter().any(|other| module == [*other]) {
                this.files.insert(module, path);
            }
        }
        for (module, path) in this.files.clone() {
            let source: TokenStream = read(&path).parse().expect("Rust");
            let mut used = Vec::new();
            this.walk(&module, source, &mut used);
            this.used.insert(module, used);
        }
        this
    }

    /// Notes the paths of a stream of tokens, but for those of tests.
    fn walk(&mut self, module: &Module, stream: TokenStream, used: &mut Vec<Vec<String>>) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let (mut at, mut is_of_test) = (0, false);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) if is_of_test => {
                    is_of_test = group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Group(group) => {
                    let text = group.stream().to_string().replace(' ', "");
                    is_of_test = text.starts_with("cfg(test");
                    self.walk(module, group.stream(), used);
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = tokens[at..].iter().position(|token| is(token, ';')).unwrap_or(0);
                    let mut paths = Vec::new();
                    tree(&tokens[at..at + end], &[], &mut paths);
                    let is_public =
                        tokens[..at - 1].iter().rev().take(2).any(
                            |before| matches!(before, TokenTree::Ident(word) if word == "pub"),
                        );
                    for path in paths.into_iter().filter(|_| !is_of_test) {
                        if is_public {
                            let name = path.last().expect("a name").clone();
                            self.handed_on.insert((module.clone(), name), path);
                        } else {
                            used.push(path);
                        }
                    }
                    (at, is_of_test) = (at + end, false);
                }
                TokenTree::Ident(word)
                    if ["crate", "super", "self"].contains(&&*word.to_string()) =>
                {
                    let mut path = vec![word.to_string()];
                    while let [colon, other, TokenTree::Ident(next), ..] = &tokens[at..]
                        && is(colon, ':')
                        && is(other, ':')
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    if path.len() > 1 && !is_of_test {
                        used.push(path);
                    }
                }
                token if is(token, ';') => is_of_test = false,
                _ => {}
            }
        }
    }

    /// The file that has what a path names; nothing where it is of another crate.
    fn file(&self, from: &Module, path: &[String], depth: usize) -> Option<&PathBuf> {
        let mut names = path.iter().peekable();
        let mut module = from.clone();
        match names.peek().map(|name| name.as_str())? {
            "crate" => {
                module.clear();
                names.next();
            }
            "self" => drop(names.next()),
            "super" => {
                while names.next_if(|name| *name == "super").is_some() {
                    module.pop();
                }
            }
            first if self.files.contains_key(&[from.as_slice(), &[first.to_owned()]].concat()) => {}
            _ => return None,
        }
        for name in names {
            let inner = [module.as_slice(), std::slice::from_ref(name)].concat();
            if self.files.contains_key(&inner) {
                module = inner;
                continue;
            }
            let of_all = self.handed_on.get(&(module.clone(), "*".to_owned()));
            let handed = self.handed_on.get(&(module.clone(), name.clone()));
            return match (handed, of_all) {
                (Some(path), _) if depth < 9 => self.file(&module, path, depth + 1),
                (None, Some(path)) if depth < 9 => {
                    let path = [&path[..path.len() - 1], std::slice::from_ref(name)].concat();
                    self.file(&module, &path, depth + 1)
                }
                _ => self.files.get(&module),
            };
        }
        self.files.get(&module)
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, paths) in &self.used {
            let own = &self.files[module];
            let all = uses.entry(own.clone()).or_default();
            all.extend(paths.iter().filter_map(|path| self.file(module, path, 0).cloned()));
            all.remove(own);
        }
        uses
    }
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(own) if own.as_char() == sign)
}

/// The paths of a `use`.
fn tree(tokens: &[TokenTree], before: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "as" => break,
            TokenTree::Ident(word) => path.push(word.to_string()),
            token if is(token, '*') => path.push("*".to_owned()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                inner.split(|token| is(token, ',')).for_each(|part| tree(part, &path, paths));
                return;
            }
            // A path of another crate.
            token if at == 0 && is(token, ':') => return,
            _ => {}
        }
    }
    if path.len() > before.len() {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        paths.push(path);
    }
}

/// The files that use each other in a circle.
fn circles(uses: &Uses) -> Vec<Vec<PathBuf>> {
    let reached = |from: &PathBuf| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in uses.get(file).into_iter().flatten() {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        uses.keys().map(|file| (file, reached(file))).collect();
    let mut circles: Vec<Vec<PathBuf>> = Vec::new();
    for (file, all) in &reached {
        let is_known = circles.iter().any(|circle| circle.contains(file));
        if all.contains(file) && !is_known {
            let back =
                |other: &&&PathBuf| reached.get(**other).is_some_and(|own| own.contains(file));
            circles.push(all.iter().filter(back).map(|other| (*other).clone()).collect());
        }
    }
    circles
}

fn assert_no_circle(uses: &Uses) {
    let shown = |path: &PathBuf| path.strip_prefix(root()).expect("within").display().to_string();
    let told = circles(uses).into_iter().map(|circle| {
        let arrows = circle.iter().flat_map(|file| {
            let own = uses[file].iter().filter(|other| circle.contains(other));
            own.map(move |other| format!("  {} uses {}", shown(file), shown(other)))
        });
        format!("{} files use each other:\n{}", circle.len(), arrows.collect::<Vec<_>>().join("\n"))
    });
    let told: Vec<String> = told.collect();
    assert!(told.is_empty(), "{} circles\n{}", told.len(), told.join("\n"));
}

/// The folders of `src` in the order of the map in `docs/ARCHITECTURE.md`.
fn layers() -> Vec<String> {
    let text = read(&root().join("docs/ARCHITECTURE.md"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `src/")?.split_once("/`"));
    rows.map(|(folder, _)| folder.to_owned()).collect()
}

#[test]
fn folders_use_those_above_them_alone() {
    let layers = layers();
    for (at, folder) in layers.iter().enumerate().filter(|(_, folder)| *folder != "cli") {
        let manifest = read(&root().join("src").join(folder).join("Cargo.toml"));
        let used = manifest.lines().filter_map(|line| line.strip_suffix(".workspace = true"));
        for used in used.filter(|used| layers.contains(&(*used).to_owned())) {
            let is_above = layers[..at].contains(&used.to_owned());
            assert!(is_above, "src/{folder} uses src/{used}, which stands below it");
        }
    }
    let entries = fs::read_dir(root().join("src")).expect("a folder");
    let folders = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir());
    for folder in folders {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(layers.contains(&name), "docs/ARCHITECTURE.md does not have src/{name}");
    }
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    let mut uses = Uses::new();
    for folder in layers() {
        uses.extend(Crate::read(&root().join("src").join(folder), "lib").uses());
    }
    uses.extend(Crate::read(&root().join("fuzz/src"), "lib").uses());
    assert!(uses.len() > 200 && uses.values().map(BTreeSet::len).sum::<usize>() > 500);
    assert_no_circle(&uses);
}

/// `from ._layer import layer`, `from pytorch import flag`, `from . import _steps`.
#[test]
fn no_files_of_python_use_each_other_in_a_circle() {
    let mut uses = Uses::new();
    for folder in ["python/mha_trace", "benches", "fixtures"] {
        let folder = root().join(folder);
        let entries = fs::read_dir(&folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        for path in paths.filter(|path| path.extension().is_some_and(|own| own == "py")) {
            let source = read(&path);
            let imported = source.lines().filter_map(|line| {
                let line = line.trim_start();
                let from = line.strip_prefix("from ");
                let (module, names) = match from {
                    Some(from) => from.split_once(" import ")?,
                    None => (line.strip_prefix("import ")?, ""),
                };
                let names = if module == "." { names } else { module };
                Some(names.split(',').map(|name| name.trim().trim_start_matches('.').to_owned()))
            });
            let imported = imported.flatten().map(|name| folder.join(name).with_extension("py"));
            let imported = imported.filter(|other| other.exists() && *other != path);
            uses.insert(path.clone(), imported.collect());
        }
    }
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > 50);
    assert_no_circle(&uses);
}

/// Lines of a file that are neither blank nor comments, before its tests.
fn lines_of_code(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// As `docs/CONTRIBUTING.md` has it. The table of names has one row for each step.
#[test]
fn no_file_is_longer_than_what_a_reader_takes_in() {
    let src = root().join("src");
    let table = src.join("program/name.rs");
    let all = files(&src, "rs");
    assert!(all.len() > 200);
    for path in all.iter().filter(|path| **path != table && !path.ends_with("tests.rs")) {
        let lines = lines_of_code(&read(path));
        assert!(lines <= 400, "{} has {lines} lines of code: split it", path.display());
    }
}
