//! The walk in the terminal, through a pseudo-terminal: what stands on the screen, what the keys do, and that the terminal
//! is left as it was.
#![cfg(unix)]

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use vt100::Parser;

/// A slow machine may take so long for one screen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A walk that runs.
struct Walk {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: Parser,
    /// The terminal's settings before.
    settings: String,
}

/// How a terminal treats keys and lines.
fn settings(master: &dyn MasterPty) -> String {
    let settings = master.get_termios().expect("a terminal");
    format!("{:?} {:?} {:?}", settings.local_flags, settings.input_flags, settings.output_flags)
}

/// The screen of a terminal of that size.
fn screen(rows: u16, cols: u16) -> Parser {
    let least = |size: u16| NonZero::new(size).expect("not empty");
    Parser::new(least(rows), least(cols), 0)
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, ..PtySize::default() }
}

impl Walk {
    fn start(arguments: &[&str]) -> Self {
        Self::start_under(arguments, &[])
    }

    /// One in an environment that has these variables too.
    fn start_under(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(size(24, 80)).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_mha-trace"));
        command.args(arguments);
        command.cwd(env!("CARGO_MANIFEST_DIR"));
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C");
        command.env_remove("NO_COLOR");
        for (name, value) in variables {
            command.env(name, value);
        }
        let settings = settings(&*pair.master);
        let child = pair.slave.spawn_command(command).expect("starts");
        let mut reader = pair.master.try_clone_reader().expect("readable");
        let (send, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pair.master.take_writer().expect("writable");
        let screen = screen(24, 80);
        let mut walk = Self { child, master: pair.master, keys, output, screen, settings };
        walk.until("  Enter ");
        walk
    }

    /// What stands on the screen as soon as it has that text.
    fn until(&mut self, wanted: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let contents = self.screen.screen().contents();
            if contents.contains(wanted) {
                return contents;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("`{wanted}` did not come up:\n{contents}");
            };
            self.screen.process(&bytes);
        }
    }

    /// The cell where a text begins.
    fn cell(&self, text: &str) -> &vt100::Cell {
        let screen = self.screen.screen();
        let rows: Vec<String> = screen.rows(0, 80).collect();
        let at = rows.iter().position(|row| row.contains(text)).expect("there");
        let before = &rows[at][..rows[at].find(text).expect("there")];
        let column = u16::try_from(before.chars().count()).expect("narrow");
        screen.cell(u16::try_from(at).expect("few"), column).expect("a cell")
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("written");
        self.keys.flush().expect("sent");
    }

    /// How it ended, and whether the terminal is as it was.
    fn end(mut self) -> u32 {
        let status = self.child.wait().expect("ends");
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(500)) {
            self.screen.process(&bytes);
        }
        assert!(!self.screen.screen().alternate_screen(), "the screen of before is back");
        assert!(!self.screen.screen().hide_cursor(), "the cursor is back");
        assert_eq!(settings(&*self.master), self.settings, "keys are read and shown as before");
        status.exit_code()
    }
}

/// A file with the step's numbers of a right run, or the walkthrough's own flags.
const WALKTHROUGH: [&str; 4] = ["step", "--tokens", "the,cat,sat,on", "--mask=causal"];

#[test]
fn a_number_is_explained_where_the_cursor_stands() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.press("/weights\r");
    walk.until("12 of 15");
    walk.press("\x1b[B\x1b[B\x1b[C");
    let screen = walk.until("query 2 (sat), key 1 (cat)");
    let expected = "\
weights · attention weights · 12 of 15
  = softmax(masked_scores) over keys
  (batch 1, head 2, query 4, key 4)
  struck out: blocked
 weights · head 0 · key → ────────────────── masked_scores · head 0 · key → ────
query 0 the 1 cat 2 sat  3 on               query  0 the  1 cat  2 sat   3 on
0 the 1.000 0.000 0.000 0.000               0 the -2.733   -1e9   -1e9   -1e9
1 cat 0.609 0.391 0.000 0.000               1 cat  0.963  0.521   -1e9   -1e9
2 sat 0.117 0.102 0.782 0.000               2 sat -0.278 -0.415  1.625   -1e9
3 on  0.720 0.154 0.074 0.052               3 on   1.803  0.260 -0.467 -0.824
────────────────────────────────────────────────────────────────────────────────
weights at batch 0, head 0, query 2 (sat), key 1 (cat) = 0.1016409
  attention weights: softmax(masked_scores) over keys
  key     │ score  │ score − 1.625 │ exp   │ exp / 1.279 │ blocked by
 ─────────┼────────┼───────────────┼───────┼─────────────┼─────────────
  0 the   │ -0.278 │        -1.904 │ 0.149 │       0.117 │
  1 cat ← │ -0.415 │        -2.040 │ 0.130 │       0.102 │
  2 sat   │  1.625 │         0.000 │ 1.000 │       0.782 │
  3 on    │   -1e9 │      -1.000e9 │ 0.000 │       0.000 │ causal mask
  sum     │        │               │ 1.279 │       1.000 │
  causal mask: query 2 sees no key after it
  = 0.130 (exp(masked_scores[0,0,2,1] − max)) · 0.782 (1 / Σ exp(s − max) over
  keys)
? keys  q quit  Esc back  n/p step  ←↑→↓ number  h head  b item  Enter follow";
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    assert_eq!(lines.join("\n").trim_end(), expected);
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

#[test]
fn the_walk_speaks_chinese() {
    let mut walk = Walk::start(&["step", "--lang", "zh"]);
    walk.press("/weights\r");
    walk.until("第 12 / 15 步");
    walk.press("\x1b[B\x1b[B\x1b[C");
    let screen = walk.until("查询 2，键 1");
    let expected = "\
weights · 注意力权重 · 第 12 / 15 步
  = softmax(masked_scores)，沿键
  (batch 1, head 2, query 4, key 4)
  划掉：屏蔽
 weights · 头 0 · 键 → ───────────────────── masked_scores · 头 0 · 键 → ───────
查询     0     1     2     3                查询      0      1      2      3
0    1.000 0.000 0.000 0.000                0    -2.733   -1e9   -1e9   -1e9
1    0.609 0.391 0.000 0.000                1     0.963  0.521   -1e9   -1e9
2    0.117 0.102 0.782 0.000                2    -0.278 -0.415  1.625   -1e9
3    0.720 0.154 0.074 0.052                3     1.803  0.260 -0.467 -0.824
────────────────────────────────────────────────────────────────────────────────
weights（样本 0，头 0，查询 2，键 1）= 0.1016409
  注意力权重：softmax(masked_scores)，沿键
  键  │ 分数   │ 分数 − 1.625 │ exp   │ exp / 1.279 │ 屏蔽原因
 ─────┼────────┼──────────────┼───────┼─────────────┼──────────
  0   │ -0.278 │       -1.904 │ 0.149 │       0.117 │
  1 ← │ -0.415 │       -2.040 │ 0.130 │       0.102 │
  2   │  1.625 │        0.000 │ 1.000 │       0.782 │
  3   │   -1e9 │     -1.000e9 │ 0.000 │       0.000 │ 因果掩码
  和  │        │              │ 1.279 │       1.000 │
  因果掩码：查询 2 看不到它之后的键
  = 0.130 (exp(masked_scores[0,0,2,1] − max)) · 0.782 (1 / Σ exp(s − max)，对键
  求和)
? 按键  q 退出  Esc 返回  n/p 步骤  ←↑→↓ 数值  h 头  b 样本  Enter 追溯";
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    assert_eq!(lines.join("\n").trim_end(), expected);
    walk.press("?");
    walk.until("上一步");
    walk.press("qq");
    assert_eq!(walk.end(), 0);
}

#[test]
fn a_number_is_followed_back_to_x_and_forth() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.press("/output\r");
    walk.until("15 of 15");
    for step in [14, 13, 12] {
        walk.press("\r");
        walk.until(&format!("{step} of 15"));
    }
    walk.press("\x7f");
    walk.until("13 of 15");
    walk.press("\x7f\x7f\x7f");
    walk.until("no number was followed");
    walk.press("n");
    walk.until("this is the last step");
    walk.press("p");
    walk.until("14 of 15");
    walk.press("/nothing\r");
    walk.until("no step is called nothing");
    walk.press("b");
    walk.until("the batch axis of concat has one place");
    // The head of the number that was followed is kept.
    walk.press("/q_heads\r");
    walk.until("q_heads · head 1");
    walk.press("h");
    walk.until("q_heads · head 0");
    walk.press("w");
    walk.until("why: ");
    // A step's stop of the tour stands there too.
    walk.press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
    walk.until("Why several heads: ");
    walk.press("?");
    walk.until("follow the number");
    walk.press("?q");
    assert_eq!(walk.end(), 0);
}

/// The lit cells are those of the number, and a heat map colours scores.
#[test]
fn the_row_and_the_column_of_the_factors_are_lit() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.press("/scores_raw\r\x1b[B\x1b[B");
    walk.until("query 2 (sat), key 0 (the)");
    walk.press("m");
    walk.until("heat map");
    let is_lit = |text: &str| walk.cell(text).underline();
    // q_heads of the third token, k_heads of the first.
    assert!(is_lit("-1.157") && is_lit("2.200") && !is_lit("2.018") && !is_lit("0.138"));
    // The highest and the lowest score.
    let colors = ["3.607", "-5.466"].map(|text| walk.cell(text).bgcolor());
    assert_eq!(colors, [vt100::Color::Idx(17), vt100::Color::Idx(195)]);
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// The rules are those of every page: an empty `NO_COLOR` says nothing.
#[test]
fn colours_are_used_where_they_are_wanted() {
    let highest = |variable| {
        let mut walk = Walk::start_under(&WALKTHROUGH, &[variable]);
        walk.press("/scores_raw\rm");
        walk.until("heat map");
        let color = walk.cell("3.607").bgcolor();
        walk.press("q");
        assert_eq!(walk.end(), 0);
        color
    };
    assert_eq!(highest(("NO_COLOR", "")), vt100::Color::Idx(17));
    assert_eq!(highest(("NO_COLOR", "1")), vt100::Color::Default);
    assert_eq!(highest(("TERM", "dumb")), vt100::Color::Default);
}

/// Booleans have the signs of the other tables.
#[test]
fn keys_that_are_blocked_have_their_sign() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.press("/mask\r");
    walk.until("1 cat     ·     ·     ■     ■");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

#[test]
fn it_follows_the_windows_size() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.master.resize(size(12, 40)).expect("resized");
    walk.screen = screen(12, 40);
    let small = walk.until("2 more queries ↓");
    assert!(small.lines().all(|line| line.chars().count() <= 40), "{small}");
    // No key is told in part.
    assert!(small.trim_end().ends_with("\n? keys  q quit  Esc back  n/p step"), "{small}");
    walk.master.resize(size(10, 30)).expect("resized");
    walk.screen = screen(10, 30);
    let none = walk.until("\nquits");
    let told = "step needs a window of 40 × 12; this one has 30 × 10. q quits";
    assert_eq!(none.split_whitespace().collect::<Vec<_>>().join(" "), told);
    walk.master.resize(size(40, 120)).expect("resized");
    walk.screen = screen(40, 120);
    walk.until("Enter follow");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// What is chosen is in view, in its table, in that beside it and in what is told of it, and so is where that is.
#[test]
fn a_long_table_tells_where_it_is() {
    let mut walk = Walk::start(&["step", "-t", "64", "--mask=causal"]);
    walk.press("/weights\r");
    walk.until("12 of 15");
    for _ in 0..40 {
        walk.press("\x1b[B\x1b[C");
        thread::sleep(Duration::from_millis(5));
    }
    walk.until("query 40, key 40");
    let screen = walk.until("… 20 more");
    let expected =
        " weights · head 0 · keys 38–42 of 64 →  masked_scores · keys 38–42 of 64 → ─────
query    38    39    40    41    42    query     38     39     40     41     42
36    0.000 0.000 0.000 0.000 0.000    36      -1e9   -1e9   -1e9   -1e9   -1e9
37    0.000 0.000 0.000 0.000 0.000    37      -1e9   -1e9   -1e9   -1e9   -1e9
38    0.011 0.000 0.000 0.000 0.000    38    -0.789   -1e9   -1e9   -1e9   -1e9
39    0.021 0.017 0.000 0.000 0.000    39     0.070 -0.153   -1e9   -1e9   -1e9
40    0.021 0.024 0.038 0.000 0.000    40    -0.010  0.085  0.566   -1e9   -1e9
41    0.020 0.022 0.011 0.050 0.000    41     0.139  0.231 -0.422  1.062   -1e9
42    0.005 0.011 0.008 0.022 0.014    42    -1.333 -0.499 -0.782  0.193 -0.281
43    0.004 0.009 0.003 0.016 0.004    43    -1.084 -0.201 -1.339  0.350 -1.046
↑ 36 and 20 more queries ↓             ↑ 36 and 20 more queries ↓
──────────────────────────────────────────────────────────────────── PgDn: more
weights at batch 0, head 0, query 40, key 40 = 0.038210247
  attention weights: softmax(masked_scores) over keys
  key       │ score  │ score − 1.462 │ exp    │ exp / 10.676 │ blocked by
 ───────────┼────────┼───────────────┼────────┼──────────────┼─────────────
  … 37 more │        │               │  8.460 │        0.792 │
  40 ←      │  0.566 │        -0.897 │  0.408 │        0.038 │
  … 20 more │        │               │  0.000 │        0.000 │
";
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    assert_eq!(lines[4..23].join("\n") + "\n", expected);
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// Esc closes what is open, then goes back; it leaves never.
#[test]
fn esc_goes_back() {
    let mut walk = Walk::start(&WALKTHROUGH);
    // By itself: what follows at once is another key.
    let esc = |walk: &mut Walk, wanted: &str| {
        walk.press("\x1b");
        thread::sleep(Duration::from_millis(300));
        walk.until(wanted);
    };
    walk.press("/weights");
    walk.until("/weights█");
    esc(&mut walk, "? keys");
    walk.press("?");
    walk.until("close what is open");
    esc(&mut walk, "n/p step");
    walk.press("/output\r\rw");
    walk.until("why: ");
    esc(&mut walk, "14 of 15");
    esc(&mut walk, "15 of 15");
    esc(&mut walk, "nothing is open; q quits");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// In a small window the keys are gone through line by line, and another key closes their box.
#[test]
fn all_keys_are_shown_in_a_small_window() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.master.resize(size(12, 50)).expect("resized");
    walk.screen = screen(12, 50);
    walk.press("?");
    let first = walk.until("↓: more");
    assert!(first.contains("row's ends") && !first.contains("leave;"), "{first}");
    // Each by itself: a sequence that is read in two parts is another key.
    for _ in 0..13 {
        walk.press("\x1b[B");
        thread::sleep(Duration::from_millis(5));
    }
    let last = walk.until("leave; ? shows");
    assert!(!last.contains("↓: more"), "{last}");
    walk.press("\x1b[A");
    walk.until("↓: more");
    walk.press("x");
    walk.until("n/p step");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// A file begins at the first step that differs, beside what it should hold.
#[test]
fn a_file_begins_where_it_differs() {
    let file = "fixtures/faulty/scale-missing.safetensors";
    let mut walk = Walk::start(&["step", file]);
    let screen = walk.until("recomputed");
    assert!(screen.starts_with("scores · ") && screen.contains("· differs"), "{screen}");
    assert!(screen.contains("scale-missing"), "{screen}");
    assert!(screen.contains(" recomputed · keys 1–4 of 5 → "), "{screen}");
    // Where there is no room for the step's name again, the axis is told still.
    assert!(screen.contains("\n head 1 · recorded · keys 1–4 of 5 → "), "{screen}");
    walk.press("\t");
    walk.until(" difference · keys 1–4 of 5 → ");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}

/// A window that is closed leaves no process behind, whatever that does at this moment.
#[test]
fn it_ends_with_its_terminal() {
    for wait in [0, 1, 2, 5, 10, 20, 50, 300] {
        close_after(Duration::from_millis(wait));
    }
}

fn close_after(wait: Duration) {
    let pair = native_pty_system().openpty(size(24, 80)).expect("a pseudo-terminal");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_mha-trace"));
    command.args(WALKTHROUGH);
    command.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(command).expect("starts");
    drop(pair.slave);
    let (mut reader, mut screen) =
        (pair.master.try_clone_reader().expect("readable"), screen(24, 80));
    while !screen.screen().contents().contains("Enter") {
        let mut bytes = [0; 4096];
        let count = reader.read(&mut bytes).expect("shows something");
        screen.process(&bytes[..count]);
    }
    thread::sleep(wait);
    drop((reader, pair.master));
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("waits").is_none() {
        if Instant::now() > end {
            child.kill().expect("killed");
            panic!("it is still there");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ctrl_c_and_signals_end_it() {
    let mut walk = Walk::start(&WALKTHROUGH);
    walk.press("\x03");
    assert_eq!(walk.end(), 0);
    for signal in ["-HUP", "-TERM"] {
        let walk = Walk::start(&WALKTHROUGH);
        let id = walk.child.process_id().expect("runs").to_string();
        std::process::Command::new("kill").args([signal, &id]).status().expect("sent");
        assert_ne!(walk.end(), 0, "{signal}");
    }
}

/// Settings are told as flags, and a mask of every head is no head's.
#[test]
fn a_walk_tells_flags_and_masks_of_every_head() {
    let mut walk = Walk::start(&["step", "--preset", "formal-padding"]);
    walk.press("/weights\r");
    walk.until("weights · attention weights");
    walk.press("b");
    walk.until("--mask-fill -1e9");
    walk.press("/mask\r");
    walk.until("mask · batch 1 · every head");
    walk.press("q");
    assert_eq!(walk.end(), 0);
}
