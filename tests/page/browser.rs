//! Pages in headless Chromium, with a script of the test's own inside, which does what a reader does and writes down what
//! it sees. Nothing is fetched: the browser's network is switched off.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What the scripts of tests share.
const TOOLS: &str = include_str!("tools.js");

/// The browser: of `MHA_TRACE_CHROMIUM`, or one of the usual names.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MHA_TRACE_CHROMIUM") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// What the script `probe` returns that runs on a page opened at `address`; `None`, and a notice, where there is no
/// browser. What the page's own scripts throw or write to the console fails the test.
pub fn browse(html: &str, address: &str, probe: &str) -> Option<Value> {
    // Time runs as fast as there is something to do, so that waiting takes none.
    opened(html, address, probe, &["--virtual-time-budget=60000"])
}

/// The same for a script that waits for nothing, in real time.
pub fn browse_at_once(html: &str, address: &str, probe: &str) -> Option<Value> {
    opened(html, address, probe, &[])
}

/// The same in a window of that width and height, which can be narrower than a browser's own: a frame.
pub fn browse_in(html: &str, (width, height): (u16, u16), probe: &str) -> Option<Value> {
    let size = format!("--window-size={},{}", width.max(500), height + 100);
    let frame = format!("style=\"border:0;width:{width}px;height:{height}px\"");
    looked_at(html, "", probe, &["--virtual-time-budget=60000", &size], Some(&frame))
}

fn opened(html: &str, address: &str, probe: &str, flags: &[&str]) -> Option<Value> {
    looked_at(html, address, probe, flags, None)
}

fn looked_at(
    html: &str,
    address: &str,
    probe: &str,
    flags: &[&str],
    frame: Option<&str>,
) -> Option<Value> {
    let Some(chromium) = chromium() else {
        eprintln!("skipped: there is no chromium; set MHA_TRACE_CHROMIUM to one");
        return None;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("page.html");
    let (before, after) = html.split_once("<body>").expect("a page has a body");
    let (body, end) = after.rsplit_once("</body>").expect("a page has a body");
    let mut whole = String::with_capacity(html.len() + TOOLS.len() + probe.len());
    write!(whole, "{before}<body><script>{TOOLS}</script>{body}<script>probe(async () => {{{probe}}})</script></body>{end}")
        .expect("a text grows");
    fs::write(&page, whole).expect("writable");
    let around = folder.path().join("around.html");
    if let Some(frame) = frame {
        let script = "onmessage = ({ data }) => {
            const element = document.createElement('script');
            element.id = 'result';
            element.type = 'application/json';
            element.textContent = data;
            document.body.append(element);
        };";
        let body = format!(
            "<body><script>{script}</script><iframe src=\"page.html\" {frame}></iframe></body>"
        );
        fs::write(&around, body).expect("writable");
    }
    let page = if frame.is_some() { around } else { page };
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1280,1000",
        ])
        // No name is known to the browser, and nothing of it is kept.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run", "--disable-extensions"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .args(["--dump-dom", "--enable-logging=stderr"])
        .args(flags)
        .arg(format!("file://{}{address}", page.display()))
        .output()
        .expect("the browser runs");
    let log = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "{said:?}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let result = dom.rsplit_once("<script id=\"result\" type=\"application/json\">");
    let result = result.and_then(|(_, rest)| rest.split_once("</script>")).map(|(text, _)| text);
    let result: Value = serde_json::from_str(result.unwrap_or_else(|| panic!("no result: {log}")))
        .expect("the tools write JSON");
    assert_eq!(result["errors"], serde_json::json!([]), "{result}");
    Some(result["result"].clone())
}

/// The page that a command writes; its exit code is `code`.
pub fn written(args: &[&str], code: i32) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("page.html");
    run(args, &page, code);
    fs::read_to_string(&page).expect("it is written")
}

fn run(args: &[&str], page: &Path, code: i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_mha-trace"))
        .args(args)
        .arg("-o")
        .arg(page)
        .env("LC_ALL", "C")
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
}
