"""How many mutants of src the tests catch: a random sample of what `cargo mutants` would try, built once.

    cargo install cargo-mutants --locked
    pip install tree-sitter tree-sitter-rust
    python benches/mutants.py FOLDER [--sample 400] [--seed 1] [--minutes M]

A mutant of its own takes minutes to build and to test. So all of the sample are woven into one copy of the sources,
each behind a switch that an environment variable turns on, and that copy is built once. Every test is run once without
a mutant, and writes down which mutants it reaches; a mutant is then tried by those tests alone, the quickest first,
until one fails. What does not compile where it stands is left out, as in constants, and another one drawn; so are
other values of functions that return `impl Trait`.

FOLDER keeps all that was found: run again, it goes on where it stopped (or after --minutes). It ends with the
survivors.
Tests that read the sources fail on the woven copy, and documentation's are not run, so that a few more may be caught.
"""

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import tree_sitter_rust
from tree_sitter import Language, Parser

ROOT = Path(__file__).resolve().parents[1]
RUST = Parser(Language(tree_sitter_rust.language()))
# What a node must be for a mutant of a genre to stand in it.
NODES = {
    "FnValue": ("block",),
    "BinaryOperator": ("binary_expression", "compound_assignment_expr"),
    "UnaryOperator": ("unary_expression",),
    "MatchArm": ("match_arm",),
    "MatchArmGuard": ("match_pattern",),
}
SWITCH = """
/// Whether a mutant is switched on. Where `MUTANT_REACHED` names a file, it is told that the mutant was reached.
#[doc(hidden)]
pub fn mutant(number: usize) -> bool {
    use std::io::Write as _;
    use std::sync::{Mutex, OnceLock, atomic::{AtomicBool, Ordering}};
    static ON: OnceLock<Option<usize>> = OnceLock::new();
    static FILE: OnceLock<Option<Mutex<std::fs::File>>> = OnceLock::new();
    static REACHED: [AtomicBool; 65536] = [const { AtomicBool::new(false) }; 65536];
    if !REACHED[number].load(Ordering::Relaxed) && !REACHED[number].swap(true, Ordering::Relaxed) {
        let file = FILE.get_or_init(|| {
            let path = std::env::var_os("MUTANT_REACHED")?;
            std::fs::OpenOptions::new().append(true).create(true).open(path).ok().map(Mutex::new)
        });
        if let Some(mut file) = file.as_ref().and_then(|file| file.lock().ok()) {
            let _ = file.write_all(format!("{number}\\n").as_bytes());
        }
    }
    *ON.get_or_init(|| std::env::var("MUTANT").ok()?.parse().ok()) == Some(number)
}
"""
# Longer than this many times what the tests take without a mutant is a loop without an end.
SLOW = 5


def command(*words, where=None, **settings):
    return subprocess.run(words, cwd=where, check=True, text=True, capture_output=True, **settings).stdout


def mutants_of(tree):
    """What `cargo mutants` would try, as it lists it, in an order of its own."""
    listed = json.loads(command("cargo", "mutants", "--list", "--json", "--workspace", where=tree))
    mutants = [mutant for mutant in listed if mutant["genre"] in NODES and not mutant["file"].endswith("build.rs")]
    # What is returned as `impl Trait` has one type, which a second `return` would have to have as well.
    mutants = [mutant for mutant in mutants if mutant["genre"] != "FnValue" or "impl " not in returned(mutant)]
    return sorted(mutants, key=lambda mutant: (mutant["file"], json.dumps(mutant["span"]), mutant["name"]))


def returned(mutant):
    return (mutant.get("function") or {}).get("return_type", "")


def place_of(mutant, source, parsed):
    """The node that a mutant changes."""
    lines = source.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(at):
        line = lines[at["line"] - 1].decode()
        return starts[at["line"] - 1] + len(line[: at["column"] - 1].encode())

    start, end = offset(mutant["span"]["start"]), offset(mutant["span"]["end"])
    node = parsed.root_node.descendant_for_byte_range(start, max(start, end - 1))
    while node and (node.type not in NODES[mutant["genre"]] or node.end_byte < end):
        node = node.parent
    if node and mutant["genre"] == "FnValue":
        # The body of a function, not a block within it.
        while node.parent and not (node.type == "block" and node.parent.type == "function_item"):
            node = node.parent
        node = node if node.type == "block" else None
    return node


def woven(source, root, placed, switch):
    """The text of a file, with each of its mutants behind a switch. `placed` has numbers, mutants and nodes."""
    at = defaultdict(list)
    for number, mutant, node in placed:
        at[node.id].append((number, mutant))

    def text(node, start=None, end=None):
        """What stands from `start` to `end` of a node, its children woven."""
        start, end = node.start_byte if start is None else start, node.end_byte if end is None else end
        out, position = [], start
        for child in node.children:
            if child.start_byte >= start and child.end_byte <= end:
                out += [source[position : child.start_byte].decode(), whole(child)]
                position = child.end_byte
        return "".join([*out, source[position:end].decode()])

    def whole(node):
        plain = text(node)
        for number, mutant in at[node.id]:
            plain = changed(node, plain, number, mutant)
        return plain

    def changed(node, plain, number, mutant):
        on = f"{switch}({number})"
        marked = lambda inner: f"/*<{number}*/{inner}/*{number}>*/"  # noqa: E731
        genre, new = mutant["genre"], mutant["replacement"]
        if genre == "FnValue":
            return "{" + marked(f"if {on} {{ return {new}; }}") + plain[1:]
        if genre == "BinaryOperator":
            left, operator, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
            inner = (
                text(node, left.start_byte, operator.start_byte) + new + text(node, operator.end_byte, right.end_byte)
            )
        elif genre == "UnaryOperator":
            inner = text(node, node.children[0].end_byte)
        elif genre == "MatchArm":
            pattern = node.child_by_field_name("pattern")
            guard = pattern.child_by_field_name("condition")
            before = text(pattern, end=pattern.children[0].end_byte)
            kept = f"if !{on}" + (f" && ({whole(guard)})" if guard else "")
            return f"{before} {marked(kept)} " + text(node, pattern.end_byte)
        else:
            guard = node.child_by_field_name("condition")
            before = text(node, end=guard.start_byte)
            return before + marked(f"if {on} {{ {new} }} else {{ {whole(guard)} }}")
        return marked(f"(if {on} {{ {inner} }} else {{ {plain} }})")

    return whole(root)


def weave(tree, sample):
    """Writes the sources of a tree anew, with the mutants of a sample in them."""
    command("git", "checkout", "--quiet", "--", "src", where=tree)
    files = defaultdict(list)
    for number, mutant in sample.items():
        files[mutant["file"]].append((number, mutant))
    for file, inside in files.items():
        path = tree / file
        source = path.read_bytes()
        parsed = RUST.parse(source)
        placed = [(number, mutant, place_of(mutant, source, parsed)) for number, mutant in inside]
        for number, _, node in placed:
            if node is None:
                del sample[number]
        placed = [one for one in placed if one[2] is not None]
        if placed:
            switch = "crate::mutant" if file.startswith("src/base/") else "::base::mutant"
            path.write_text(woven(source, parsed.root_node, placed, switch))
    with (tree / "src/base/lib.rs").open("a") as lib:
        lib.write(SWITCH)


def refused(tree):
    """The mutants at which compiling fails."""
    checked = subprocess.run(
        ["cargo", "check", "--release", "--locked", "--message-format", "json"],
        cwd=tree,
        text=True,
        capture_output=True,
    )
    if checked.returncode == 0:
        return set()
    numbers, unknown = set(), []
    for line in checked.stdout.splitlines():
        message = json.loads(line).get("message")
        if not message or message["level"] != "error":
            continue
        spans = [span for span in message["spans"] if span["is_primary"]]
        found = {number for span in spans for number in around(tree / span["file_name"], span["byte_start"])}
        numbers |= found
        if not found and spans:
            unknown.append(message["rendered"])
    if not numbers:
        sys.exit("\n".join(unknown) or checked.stderr)
    return numbers


def around(path, position):
    """The innermost mutants of a woven file around a position: those that it stands in, or of what is nearest to it."""
    text = path.read_bytes()
    nearest = None
    for mark in re.finditer(rb"/\*<(\d+)\*/", text[: position + 1]):
        end = text.find(b"/*" + mark[1] + b">*/", mark.start())
        if end >= position:
            nearest = int(mark[1])
    if nearest is not None:
        return [nearest]
    node = RUST.parse(text).root_node.descendant_for_byte_range(position, position)
    while node and node.parent:
        inside = re.findall(rb"/\*<(\d+)\*/", text[node.start_byte : node.end_byte])
        if inside:
            return [int(number) for number in inside]
        node = node.parent
    return []


def tests_of(tree):
    """Every test, as its binary, name and folder."""
    built = command("cargo", "test", "--release", "--locked", "--no-run", "--message-format", "json", where=tree)
    for line in built.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            listed = command(message["executable"], "--list", where=folder)
            for name in re.findall(r"^(.*): test$", listed, re.M):
                yield message["executable"], name, folder


def ran(binary, names, folder, seconds, **environment):
    """Whether tests pass; None if they take too long."""
    settings = {**os.environ, "CARGO_MANIFEST_DIR": str(folder), **environment}
    try:
        done = subprocess.run(
            [binary, "--exact", *names],
            cwd=folder,
            env=settings,
            capture_output=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode == 0


def baseline(tree, folder):
    """Of every test that passes without a mutant, what it reaches and how long it takes."""
    reached = folder / "reached"
    found = []
    for binary, name, where in tests_of(tree):
        reached.unlink(missing_ok=True)
        start = time.monotonic()
        passed = ran(binary, [name], where, 600, MUTANT_REACHED=str(reached))
        seconds = time.monotonic() - start
        numbers = {int(line) for line in reached.read_text().split()} if reached.exists() else set()
        if passed and numbers:
            found.append([binary, name, str(where), seconds, sorted(numbers)])
        elif not passed:
            print(f"fails without a mutant: {name}", flush=True)
    return found


def tried(number, tests):
    """What becomes of a mutant, by the tests that reach it: the quickest first, those of a binary together."""
    reaching = sorted((test for test in tests if number in test[4]), key=lambda test: test[3])
    if not reaching:
        return "missed: no test reaches it"
    limit = 0.5
    while reaching:
        batch, used = [], 0.0
        while reaching and (not batch or used + reaching[0][3] <= limit):
            used += reaching[0][3]
            batch.append(reaching.pop(0))
        binaries = defaultdict(list)
        for binary, name, where, seconds, _ in batch:
            binaries[binary, where].append((name, seconds))
        for (binary, where), names in binaries.items():
            patience = 20 + SLOW * sum(seconds for _, seconds in names)
            passed = ran(binary, [name for name, _ in names], where, patience, MUTANT=str(number))
            if not passed:
                kind = "never ends in" if passed is None else "fails"
                return f"caught: {kind} {Path(binary).name.rsplit('-', 1)[0]} {names[0][0]}"
        limit *= 4
    return "missed"


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--sample", type=int, default=400)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--minutes", type=float, default=float("inf"))
    asked = asked.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    asked.folder.mkdir(parents=True, exist_ok=True)
    tree, state, results = (asked.folder / name for name in ("tree", "state.json", "results.json"))
    if not state.exists():
        if not tree.exists():
            command("git", "clone", "--quiet", str(ROOT), str(tree))
        mutants = mutants_of(tree)
        order = random.Random(asked.seed).sample(range(len(mutants)), len(mutants))
        sample, drawn = {}, enumerate(order)
        while len(sample) < asked.sample:
            sample |= {number: mutants[one] for number, one in itertools.islice(drawn, asked.sample - len(sample))}
            weave(tree, sample)
            bad = refused(tree)
            while bad:
                sample = {number: mutant for number, mutant in sample.items() if number not in bad}
                weave(tree, sample)
                bad = refused(tree)
            print(f"{len(sample)} of {len(mutants)} mutants woven in", flush=True)
        tests = baseline(tree, asked.folder)
        commit = command("git", "rev-parse", "HEAD", where=tree).strip()
        state.write_text(json.dumps({"commit": commit, "all": len(mutants), "sample": sample, "tests": tests}))
    known = json.loads(state.read_text())
    tests = [[*test[:4], set(test[4])] for test in known["tests"]]
    done = json.loads(results.read_text()) if results.exists() else {}
    for number, mutant in known["sample"].items():
        if number not in done and time.monotonic() < until:
            done[number] = tried(int(number), tests)
            results.write_text(json.dumps(done, indent=1))
            print(f"{mutant['name']}: {done[number]}", flush=True)
    caught = sum(outcome.startswith("caught") for outcome in done.values())
    print(
        f"\ncommit {known['commit']}, seed {asked.seed}: {caught} of {len(done)} caught, {caught / max(len(done), 1):.1%}"
    )
    for number, outcome in done.items():
        if not outcome.startswith("caught"):
            print(f"  {known['sample'][number]['name']}: {outcome}")


if __name__ == "__main__":
    main()
