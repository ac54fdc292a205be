//! Names and labels of files are text on a page, whatever they hold.

use std::fs;

use serde_json::{Value, json};

use super::browser::{browse, written};

/// What ends elements, starts comments, breaks out of attributes and of scripts, and what is no sign that can be seen.
const HOSTILE: [&str; 7] = [
    "</script><script>window.taken = 1</script>",
    "<!--<script>",
    "\"><img src=x onerror=\"window.taken = 2\">",
    "'-alert(1)-'",
    "]]>\u{2028}\u{2029}",
    "javascript:window.taken=3//",
    "${window.taken = 4}`\\",
];

const SAFE: &str = "
    for (const step of STEPS) {
        await open(address(step, step.axes.map(() => 0)));
        await press('h'); await press('a'); await press('h');
    }
    return [window.taken ?? null, document.querySelectorAll('img, #view script').length, texts('nav .name'), texts('#view th')];
";

/// Of the texts above, none is markup, and nothing in the data ends its element or a line of script.
fn holds_no_markup(html: &str) {
    assert!(!html.contains("<img") && !html.contains("<!--<"));
    let data = html
        .split_once("type=\"application/json\">")
        .and_then(|(_, rest)| rest.split_once("</script>"));
    let data = data.expect("it has data").0;
    assert!(!data.contains(['<', '>', '\u{2028}', '\u{2029}']));
    serde_json::from_str::<Value>(data).expect("the data is whole");
}

fn is_untouched(told: &Value) {
    assert_eq!((&told[0], &told[1]), (&json!(null), &json!(0)), "{told}");
}

#[test]
fn labels_of_tokens_are_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokens = folder.path().join("tokens.json");
    fs::write(&tokens, json!(HOSTILE).to_string()).expect("writable");
    let html = written(&["-q", "-t", "7", "--tokens", tokens.to_str().expect("text")], 0);
    holds_no_markup(&html);
    let Some(told) = browse(&html, "", SAFE) else { return };
    is_untouched(&told);
    assert!(told[3].to_string().contains("query 2 \\\"><img␣src=x␣onerror="), "{told}");
}

#[test]
fn names_of_tensors_and_files_are_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = |value: f64| {
        let steps: Vec<Value> = HOSTILE
            .iter()
            .map(|name| json!({"name": name, "formula": name, "data": [[value, 2.0]]}))
            .collect();
        json!({"format": "mha-trace", "version": 1, "steps": steps}).to_string()
    };
    // A slash cannot stand in the name of a file, and on Windows no angle bracket either.
    let name =
        if cfg!(windows) { "&lt;b&gt;.json" } else { "<img src=x onerror=window.taken=5>.json" };
    let [left, right] = [name, "b.json"].map(|name| folder.path().join(name));
    fs::write(&left, record(1.0)).expect("writable");
    fs::write(&right, record(1.5)).expect("writable");
    let [left, right] = [left, right].map(|path| path.to_str().expect("text").to_owned());
    let html = written(&["diff", &left, &right, "-q"], 1);
    holds_no_markup(&html);
    let Some(told) = browse(&html, "", SAFE) else { return };
    is_untouched(&told);
    let names = told[2].as_array().expect("names");
    assert_eq!(names.len(), HOSTILE.len());
    assert_eq!(names[0], HOSTILE[0]);
}
