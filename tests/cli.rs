//! The real binary: its exact output, its exit codes, and what it leaves behind.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use unicode_width::UnicodeWidthStr;

use common::transcript::{has_the_last_digits, here};

/// What is printed for every command of these files, word for word.
#[test]
fn transcripts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = trycmd::TestCases::new();
    // Whatever the terminal of the test is.
    cases.env("COLUMNS", "100").env("LC_ALL", "C");
    if has_the_last_digits() {
        cases.case("tests/cli/*.trycmd");
        return;
    }
    for entry in fs::read_dir("tests/cli").expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "trycmd") {
            let copy = folder.path().join(path.file_name().expect("a name"));
            fs::write(copy, &*here(&fs::read_to_string(path).expect("text"))).expect("written");
        }
    }
    cases.case(folder.path().join("*.trycmd"));
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mha-trace"));
    // Whatever the language of the test's environment is.
    command.env("LC_ALL", "C");
    command
}

fn run(args: &[&str]) -> Output {
    command().args(args).output().expect("the binary runs")
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a temporary path is text").to_owned()
}

/// The columns that a line takes on a terminal; colours take none.
fn columns(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').expect("a colour").1);
    std::iter::once(first).chain(rest).map(UnicodeWidthStr::width).sum()
}

#[test]
fn every_line_keeps_to_the_width() {
    let scale = "tests/cli/inputs/scale-missing.json";
    let golden = "fixtures/golden/causal-walkthrough.json";
    let pages: &[&[&str]] = &[
        &["--why"],
        &["--heatmap"],
        &["--preset", "simple"],
        &["--preset", "formal-padding"],
        &["--preset", "formal-padding-weights", "--edge", "2", "--heatmap"],
        &[
            "-t",
            "9",
            "--queries",
            "6..9",
            "--rope",
            "half",
            "--qk-norm",
            "rms",
            "--sinks",
            "--bias",
        ],
        &["explain", "weights"],
        &["explain", "weights[0,0,2,1]", "--tokens", "the,cat,sat,down"],
        &["explain", "output[0,1,2]", "--bias"],
        &["explain", "head_outputs[0,0,1,2]", "--depth", "all"],
        &["check", scale, golden],
        &["diff", scale, golden],
        &["shapes"],
        &["shapes", "-b", "32", "-t", "20", "-d", "512", "-H", "8", "--rope", "half", "--sinks"],
        &["bugs"],
        &["bugs", "mask-batch-head-mixed"],
        &["models"],
        &["tour", "--tokens", "the,cat,sat,down"],
        &["--help"],
        &["check", "--help"],
        &["explain", "--help"],
    ];
    let is_plain =
        |args: &[&str]| matches!(args[0], "bugs" | "models" | "tour") || args.contains(&"--help");
    for width in ["80", "100", "120"] {
        for args in pages {
            let colors: &[&str] = if is_plain(args) { &[] } else { &["--color", "always"] };
            for more in [&[][..], colors, &["--lang", "zh"]] {
                let args = [args, more].concat();
                let output = command().env("COLUMNS", width).args(&args).output();
                let text =
                    String::from_utf8(output.expect("the binary runs").stdout).expect("text");
                assert!(!text.is_empty(), "{args:?}");
                let widest = text.lines().max_by_key(|line| columns(line)).expect("a line");
                assert!(columns(widest) <= width.parse().expect("a number"), "{args:?}: {widest}");
            }
        }
    }
}

#[test]
fn a_default_run_does_not_flood() {
    let lines = |args: &[&str]| run(args).stdout.split(|byte| *byte == b'\n').count();
    let padding = lines(&["--preset", "formal-padding"]);
    assert!(padding < 800, "{padding}");
    assert!(lines(&["--preset", "formal-padding", "--full"]) > 3000);
    let edge = String::from_utf8(run(&["--edge", "1", "--steps", "x"]).stdout).expect("text");
    assert!(
        edge.contains("left out: 2 of 4 on the query axis, 6 of 8 on the input axis"),
        "{edge}"
    );
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let args = ["-b", "8", "-t", "32", "--full", "--format", "json"];
    let mut child = command()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut first = String::new();
    let stdout = child.stdout.take().expect("its output is piped");
    BufReader::with_capacity(16, stdout).read_line(&mut first).expect("it prints a line");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(first, "{\n");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Runs with a stdout that nobody reads.
fn unread(args: &[&str]) -> Output {
    let mut child = command()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_closed_pipe_does_not_change_the_verdict() {
    let (same, other) =
        ("fixtures/golden/causal-walkthrough.json", "tests/cli/inputs/scale-missing.json");
    assert_eq!(unread(&["check", same]).status.code(), Some(0));
    assert_eq!(unread(&["check", other]).status.code(), Some(1));
    assert_eq!(unread(&["diff", same, other]).status.code(), Some(1));
    let missing = unread(&["check", other, "missing.json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(missing.stderr.starts_with(b"error: missing.json: no such file or directory"));
}

#[test]
fn a_closed_stderr_loses_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = path(folder.path(), "run.json");
    let mut child = command()
        .args(["--preset", "formal-padding", "-o", &file])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(run(&["check", &file]).status.code(), Some(0));
}

#[test]
fn results_go_to_stdout_and_warnings_to_stderr() {
    let output = run(&["--preset", "formal-padding", "--steps", "mask"]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.starts_with("warning: batch 1: every key is masked"), "{stderr}");
    assert!(output.stdout.starts_with("Multi-head attention".as_bytes()));
    let quiet = run(&["--preset", "formal-padding", "-q"]);
    assert_eq!((quiet.stdout.len(), quiet.stderr.len(), quiet.status.code()), (0, 0, Some(0)));
}

#[test]
fn a_written_run_reads_back_and_redoes_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["run.json", "run.safetensors"] {
        let file = path(folder.path(), name);
        let args = [
            "-b",
            "2",
            "-t",
            "5",
            "-d",
            "12",
            "-H",
            "3",
            "--d-in",
            "7",
            "--bias",
            "--lengths",
            "5,3",
        ];
        assert!(
            run(&[&args[..], &["--mask-fill", "-inf", "-q", "-o", &file]].concat())
                .status
                .success()
        );
        assert_eq!(run(&["check", &file]).status.code(), Some(0));
        let again = path(folder.path(), &format!("again-{name}"));
        assert!(run(&["--config", &file, "-q", "-o", &again]).status.success());
        assert_eq!(fs::read(&file).expect("written"), fs::read(&again).expect("written"), "{name}");
    }
    let [json, safetensors] = ["run.json", "run.safetensors"].map(|name| path(folder.path(), name));
    assert_eq!(
        run(&["diff", &json, &safetensors, "--rtol", "0", "--atol", "0"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_run_from_files_redoes_itself_from_its_record_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [first, second] = ["first.json", "second.json"].map(|name| path(folder.path(), name));
    let given = [
        "--x",
        "fixtures/inputs/x.json",
        "--weights",
        "fixtures/inputs/weights.safetensors",
        "-H",
        "3",
    ];
    let mask = ["--attn-mask", "fixtures/masks/query-key.json"];
    assert!(run(&[&given[..], &mask, &["-q", "-o", &first]].concat()).status.success());
    let moved = command()
        .current_dir(folder.path())
        .args(["--config", &first, "-q", "-o", &second])
        .output();
    assert!(moved.expect("the binary runs").status.success());
    assert_eq!(
        run(&["diff", &first, &second, "--rtol", "0", "--atol", "0"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_refused_run_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [file, page] = ["run.json", "run.html"].map(|name| path(folder.path(), name));
    for file in [&file, &page] {
        fs::write(file, "kept").expect("writable");
    }
    let refused = [
        vec!["-b", "100000", "-t", "100000", "-o", &file],
        vec!["-b", "100000", "-t", "100000", "-o", &page],
        vec!["check", "missing.json", "-o", &page],
        vec!["check", "fixtures/golden", "-o", &page],
        vec!["check", "fixtures/golden/causal-walkthrough.json", "-o", &file],
        vec!["diff", "missing.json", "missing.json", "-o", &page],
        vec!["--heads", "3", "-o", &file],
        vec!["-o", &file, "-o", "missing/run.json"],
        vec!["--steps", "nothing", "-o", &file],
    ];
    for args in refused {
        assert_eq!(run(&args).status.code(), Some(2), "{args:?}");
        for file in [&file, &page] {
            assert_eq!(fs::read_to_string(file).expect("readable"), "kept", "{args:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 2, "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mode = |file: &str| fs::metadata(file).expect("there").permissions().mode();
    let plain = path(folder.path(), "plain");
    fs::write(&plain, "").expect("writable");
    for name in ["run.json", "run.safetensors"] {
        let file = path(folder.path(), name);
        assert!(run(&["-q", "-o", &file]).status.success());
        assert_eq!(mode(&file), mode(&plain), "{name}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
        assert!(run(&["-q", "-o", &file]).status.success());
        assert_eq!(mode(&file) & 0o777, 0o600, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_and_stays() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let link = path(folder.path(), "device.json");
    std::os::unix::fs::symlink("/dev/null", &link).expect("linked");
    for args in [vec!["-q", "-o", &link], vec!["check", &link]] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("is not a regular file"),
            "{args:?}"
        );
    }
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = path(folder.path(), "config.json");
    fs::write(&file, "{}").expect("writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("ours");
    // Root may read anything.
    if fs::read(&file).is_err() {
        let output = run(&["--config", &file]);
        assert_eq!(output.status.code(), Some(2));
        let said = format!("error: {file}: permission denied\nhelp: make it readable\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    }
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [file, link] = ["run.json", "link.json"].map(|name| path(folder.path(), name));
    fs::write(&file, "old").expect("writable");
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    assert!(run(&["-q", "-o", &link]).status.success());
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(
        fs::read_to_string(&file).expect("readable").starts_with("{\n\"format\": \"mha-trace\"")
    );
}

#[test]
fn what_is_read_is_not_written_over() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copied = |from: &str, name: &str| {
        let to = path(folder.path(), name);
        fs::copy(from, &to).expect("copied");
        to
    };
    let x = copied("fixtures/inputs/x.json", "x.json");
    let weights = copied("fixtures/inputs/weights.safetensors", "weights.safetensors");
    let tokens = copied("tests/cli/inputs/tokens.json", "tokens.json");
    let index = path(folder.path(), "model.safetensors.index.json");
    let names = ["q_proj", "k_proj", "v_proj", "out_proj"];
    let map: Vec<String> =
        names.iter().map(|name| format!("\"{name}.weight\": \"weights.safetensors\"")).collect();
    fs::write(&index, format!("{{\"weight_map\": {{{}}}}}", map.join(", "))).expect("written");
    let config = path(folder.path(), "config.json");
    let settings = r#"{"x": "x.json", "weights": "weights.safetensors", "heads": 3}"#;
    fs::write(&config, settings).expect("written");
    let around = path(folder.path(), "../").replace("../", "./x.json");
    let given = ["--x", &x, "--weights", &weights, "-H", "3"];
    let runs: [(&[&str], &[&String]); 4] = [
        (&given, &[&x, &weights, &around]),
        (&["--x", &x, "--weights", &index, "-H", "3"], &[&index, &weights]),
        (&["--config", &config], &[&config, &x, &weights]),
        (&["--tokens", &tokens], &[&tokens]),
    ];
    for (args, inputs) in runs {
        for input in inputs {
            let before = fs::read(input).expect("readable");
            let output = run(&[args, &["-q", "-o", input]].concat());
            let stderr = String::from_utf8(output.stderr).expect("text");
            let said = format!("error: -o {input} is a file that the run reads\n");
            assert!(stderr.starts_with(&said), "{args:?}: {stderr}");
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(fs::read(input).expect("readable"), before);
        }
    }
    let other = path(folder.path(), "other.json");
    assert!(run(&[&given[..], &["-q", "-o", &other]].concat()).status.success());
}

#[test]
fn a_folder_in_a_folder_is_not_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("older.json")).expect("made");
    let file = path(folder.path(), "run.json");
    assert!(run(&["-q", "-o", &file]).status.success());
    let output = run(&["check", &path(folder.path(), "")]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// What a path holds is neither obeyed by the terminal nor taken for a setting.
#[cfg(unix)]
#[test]
fn paths_are_shown_as_they_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = path(folder.path(), "\u{1b}[31m`heads=9`.json");
    let x = path(folder.path(), "`seed=3`\u{7}.json");
    fs::copy("fixtures/inputs/x.json", &x).expect("copied");
    let made = run(&["--x", &x, "-d", "12", "-H", "3", "--steps", "x", "-o", &file]);
    let stdout = String::from_utf8(made.stdout).expect("text");
    assert!(stdout.contains("`seed=3`\\u{7}.json"), "{stdout}");
    let mut told = vec![stdout];
    for args in [vec!["check", &file], vec!["diff", &file, "missing.json"], vec!["--config", &x]] {
        let output = run(&args);
        told.extend(
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")),
        );
    }
    assert!(told[1].contains("\\u{1b}[31m`heads=9`.json: same"), "{}", told[1]);
    let all = told.concat();
    assert!(!all.contains(['\u{1b}', '\u{7}']) && !all.contains("--"), "{all}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_as_other_errors_are() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    for args in [vec![], vec!["--format", "json"], vec!["shapes"], vec!["bugs"]] {
        let output = command().args(&args).stdout(full()).output().expect("the binary runs");
        let said = "error: the results cannot be written: no space left on device\n\
                    help: free some space, or send them elsewhere\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), said, "{args:?}");
        assert_eq!(output.status.code(), Some(2));
    }
}

/// Notes and slides have what the terminal shows, and labels mean nothing but themselves.
#[test]
fn notes_and_slides_have_what_is_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (notes, slides) = (path(folder.path(), "steps.md"), path(folder.path(), "steps.tex"));
    let shown = ["--steps", "weights", "--head", "1", "--tokens", "a|b,_c_", "--decimals", "2"];
    let written = run(&[&shown[..], &["-q", "-o", &notes, "-o", &slides]].concat());
    assert!(written.status.success() && written.stdout.is_empty());
    let notes = fs::read_to_string(&notes).expect("text");
    let lines = [
        r"# Multi-head attention, step by step",
        "",
        r"- batch 1 · sequence length 2 · d\_model 8 · heads 2 · head\_dim 4",
        r"- mask causal · fill -1e9",
        r"- x randn · weights xavier-uniform, no bias · seed 42 · f32",
        "",
        r"## weights · attention weights",
        "",
        r"`weights = softmax(masked_scores) over keys`",
        "",
        r"shape (batch 1, head 2, query 2, key 2)",
        "",
        r"**batch 0 · head 1**",
        "",
        r"| query \\ key | 0 a\|b | 1 \_c\_ | sum |",
        r"| --- | --: | --: | --: |",
        r"| 0 a\|b | 1.00 | 0.00 | 1.00 |",
    ];
    assert_eq!(notes.lines().take(lines.len()).collect::<Vec<_>>(), lines);
    let slides = fs::read_to_string(&slides).expect("text");
    assert!(slides.starts_with(r"\documentclass") && slides.ends_with("\\end{document}\n"));
    assert!(slides.contains(r"0 a\(|\)b & {1.00} & \textcolor{gray}{0.00} & {1.00} \\"));
    for environment in ["document", "tabular", "fitted"] {
        let count = |end: &str| slides.matches(&format!("\\{end}{{{environment}}}")).count();
        assert_eq!((count("begin"), count("end")), (1, 1), "{environment}");
    }
}

/// Of a large tensor the edges are written, and how much was left out.
#[test]
fn large_notes_are_cut_and_say_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["steps.md", "steps.tex"] {
        let file = path(folder.path(), name);
        let large = ["-t", "300", "-d", "64", "-H", "8"];
        assert!(run(&[&large[..], &["-q", "-o", &file]].concat()).status.success());
        let text = fs::read_to_string(&file).expect("text");
        assert!(text.len() < 400_000, "{name}: {} bytes", text.len());
        assert!(text.contains("left out: 294 of 300 on the query axis"), "{name}");
    }
}

/// Scripts name commands, flags, steps, presets and mistakes; the one for bash is a script of bash.
#[test]
fn shells_complete_steps_presets_and_mistakes() {
    for shell in ["bash", "fish", "zsh"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).expect("text");
        let words = ["explain", "kv-heads", "masked_scores", "formal-padding", "kv-swapped"];
        for word in words {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let file = path(folder.path(), "mha-trace.bash");
            fs::write(&file, &script).expect("written");
            let Ok(read) = Command::new("bash").args(["-n", &file]).output() else { return };
            assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        }
    }
    assert_eq!(run(&["completions", "csh"]).status.code(), Some(2));
}

/// A flag states the language, or else the environment; what programs read is the same in all.
#[test]
fn the_language_is_that_of_the_flag_or_the_environment() {
    let title = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = command();
        command.env_remove("LC_ALL").env_remove("LC_MESSAGES").env_remove("LANG");
        let output = command.envs(variables.iter().copied()).args(args).output();
        let text = String::from_utf8(output.expect("the binary runs").stdout).expect("text");
        text.lines().next().expect("a line").to_owned()
    };
    let (english, chinese) = ("Multi-head attention, step by step", "多头注意力分步演示");
    assert_eq!(title(&[], &[]), english);
    assert_eq!(title(&[], &[("LANG", "zh_CN.UTF-8")]), chinese);
    assert_eq!(title(&[], &[("LANG", "zh_CN.UTF-8"), ("LC_ALL", "en_GB.UTF-8")]), english);
    assert_eq!(title(&["--lang", "en"], &[("LANG", "zh_CN.UTF-8")]), english);
    assert_eq!(title(&["--lang=zh"], &[("LC_ALL", "C")]), chinese);
    assert_eq!(title(&["--lang", "zh", "explain", "x"], &[]), "x · 输入");
    assert_eq!(run(&["--lang", "fr"]).status.code(), Some(2));
}

#[test]
fn what_programs_read_is_the_same_in_every_language() {
    let faulty = "fixtures/faulty/scale-d-k.safetensors";
    for args in [
        &["--format", "json"][..],
        &["explain", "weights[0,0,1,2]", "--format", "json"],
        &["explain", "scores", "--format", "json"],
        &["shapes", "--format", "json"],
        &["check", faulty, "--format", "json"],
        &["diff", faulty, "fixtures/golden/simple.safetensors", "--format", "json"],
    ] {
        let [english, chinese] =
            ["en", "zh"].map(|language| run(&[args, &["--lang", language]].concat()).stdout);
        assert!(!english.is_empty() && english == chinese, "{args:?}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["run.json", "run.safetensors", "run.npz"] {
        let [english, chinese] = ["en", "zh"].map(|language| {
            let file = path(folder.path(), name);
            let written = run(&["-q", "--rope", "half", "-o", &file, "--lang", language]);
            assert!(written.status.success());
            fs::read(file).expect("written")
        });
        assert!(english == chinese, "{name}");
    }
}

/// A page, notes and slides in Chinese.
#[test]
fn files_to_look_at_are_in_the_language() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = [
        ("run.html", &["<html lang=\"zh-Hans\">", "← 上一步", "注意力权重", "形状 (batch 1"][..]),
        ("run.md", &["# 多头注意力分步演示", "| 查询 \\\\ 键 |"]),
        ("run.tex", &["\\documentclass{ctexart}", "\\section*{多头注意力分步演示}"]),
    ];
    for (name, said) in said {
        let file = path(folder.path(), name);
        assert!(run(&["-q", "-o", &file, "--lang", "zh"]).status.success());
        let text = fs::read_to_string(&file).expect("text");
        for said in said {
            assert!(text.contains(said), "{name}: {said}");
        }
    }
    let file = path(folder.path(), "check.html");
    run(&["check", "fixtures/faulty/kv-swapped.safetensors", "-q", "-o", &file, "--lang", "zh"]);
    let text = fs::read_to_string(&file).expect("text");
    for said in [
        "differs（不同）",
        "键投影和值投影互换了",
        "✗ 自身有误",
        "<h2 id=\"found-title\" class=\"unseen\">检查结果",
    ] {
        assert!(text.contains(said), "{said}");
    }
}

#[test]
fn the_manual_page_has_every_flag() {
    let output = run(&["man"]);
    assert!(output.status.success());
    let page = String::from_utf8(output.stdout).expect("text");
    assert!(page.contains(".TH mha-trace 1"));
    for flag in ["seq\\-len", "kv\\-heads", "heatmap", "output"] {
        assert!(page.contains(flag), "{flag}");
    }
    assert!(page.contains("Attention heads"), "flags have their help");
}

/// Messages keep to the columns that the environment has; without them, to no width where nobody looks.
#[test]
fn messages_keep_to_the_width() {
    let said = |columns: Option<&str>, args: &[&str]| {
        let mut command = command();
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        let output = command.args(args).output().expect("the binary runs");
        String::from_utf8(output.stderr).expect("text")
    };
    let all: [&[&str]; 4] = [
        &["--steps", "foo"],
        &["-H", "3"],
        &["--preset", "formal-padding"],
        &["--preset", "formal-padding", "--lang", "zh"],
    ];
    for args in all {
        let narrow = said(Some("60"), args);
        assert!(narrow.lines().all(|line| columns(line) <= 60), "{narrow}");
        assert!(said(None, args).lines().count() <= 2);
    }
    let narrow = said(Some("60"), &["--steps", "foo"]);
    assert!(narrow.contains("\nhelp: this run has x, w_q,"), "{narrow}");
    assert!(narrow.contains("\n  "), "{narrow}");
}

/// What clap itself says in help is in the language of the rest, and what is typed is in none.
#[test]
fn help_in_chinese_leaves_nothing_in_english() {
    let help = |args: &[&str]| {
        let output = run(&[args, &["--lang", "zh"]].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    let whole = help(&["--help"]) + &help(&["--help", "models"]);
    for english in
        ["[OPTIONS]", "COMMAND", "[alias", "Print this", "[默认：头]", "[默认：头内特征]", "或零"]
    {
        assert!(!whole.contains(english), "{english}: {whole}");
    }
    for typed in ["[默认：heads]", "[默认：head_dim]", "[别名："] {
        assert!(whole.contains(typed), "{typed}: {whole}");
    }
    let own = help(&["check", "--help"]);
    for text in [&whole, &own] {
        let mut headings = text.lines().filter(|line| !line.starts_with(' '));
        assert!(headings.all(|line| !line.ends_with(':')), "{text}");
    }
    assert!(own.contains("[选项]"), "{own}");
}

/// What stands behind a value says what the flag of its own says, which help no longer lists.
#[test]
fn what_is_merged_into_a_value_is_what_its_flag_says() {
    let same: [(&[&str], &[&str]); 9] = [
        (&["--mask", "none"], &["--no-mask"]),
        (&["--mask", "causal"], &["--causal"]),
        (&["--mask", "causal"], &["--is-causal"]),
        (&[], &["--bias", "--no-bias"]),
        (
            &["--qk-norm", "rms,eps=1e-2,over=per-head,after-rope", "--rope", "half"],
            &[
                "--qk-norm",
                "rms",
                "--qk-norm-eps",
                "1e-2",
                "--qk-norm-over",
                "per-head",
                "--qk-norm-after-rope",
                "--rope",
                "half",
            ],
        ),
        (
            &["--rope", "half,base=500,dims=2,offset=3"],
            &["--rope", "half", "--rope-base", "500", "--rope-dims", "2", "--rope-offset", "3"],
        ),
        (
            &["--q-temperature", "0.1,floor=2,offset=1"],
            &[
                "--q-temperature",
                "0.1",
                "--q-temperature-floor",
                "2",
                "--q-temperature-offset",
                "1",
            ],
        ),
        (&["--kv-len", "3,d-memory=5"], &["--kv-len", "3", "--d-memory", "5"]),
        (
            &["--lambda-init", "0.8,head-norm-eps=1e-2", "-H", "4"],
            &["--lambda-init", "0.8", "--head-norm-eps", "1e-2", "-H", "4"],
        ),
    ];
    for (new, old) in same {
        let [new, old] = [new, old].map(|args| {
            let output = run(&[args, &["--format", "json"]].concat());
            assert_eq!(output.status.code(), Some(0), "{args:?}");
            output.stdout
        });
        assert!(!new.is_empty() && new == old, "{old:?}");
    }
    let twice = run(&["--qk-norm", "rms,eps=1e-2", "--qk-norm-eps", "1e-3"]);
    let said = String::from_utf8(twice.stderr).expect("text");
    assert!(said.starts_with("error: --qk-norm-eps is given twice\n"), "{said}");
    let wrong = run(&["--qk-norm", "rms,eps=much"]);
    let said = String::from_utf8(wrong.stderr).expect("text");
    assert!(said.contains("`much` is not a number"), "{said}");
}

/// The flags of today's models have a page of their own, in both languages and beside every command.
#[test]
fn help_has_a_page_of_models() {
    let help = |args: &[&str]| String::from_utf8(run(args).stdout).expect("text");
    let page = help(&["--help", "models"]);
    assert!(page.starts_with("The flags of attention as today's models have it\n"), "{page}");
    assert!(page.contains("--window <N>") && page.contains("[e.g. --window 2]"), "{page}");
    assert!(
        page.contains("          ,eps=X: Epsilon of --qk-norm [default: 1e-6; 1e-5 for layer]\n"),
        "{page}"
    );
    assert!(!page.contains("--qk-norm-eps") && !page.contains("--steps"), "{page}");
    let chinese = help(&["--help", "models", "--lang", "zh"]);
    assert!(chinese.starts_with("当今模型中注意力的选项\n"), "{chinese}");
    assert!(chinese.contains("[例：--window 2]"), "{chinese}");
    let whole = help(&["--help"]);
    assert!(whole.contains("[e.g. -b 2]") && !whole.contains("--window"), "{whole}");
}
