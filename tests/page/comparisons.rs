//! Reports of `check` and `diff` as pages.

use serde_json::json;

use super::browser::{browse, written};

#[test]
fn a_checked_file_shows_both_sides_and_the_mistake() {
    let html = written(&["check", "tests/cli/inputs/scale-missing.json", "-q"], 1);
    let probe = "
        await wait();
        const seen = {
            opened: [location.hash, texts('#how h3')[0], query('a.first').hash],
            title: texts('h1')[0], badges: Object.fromEntries([...document.querySelectorAll('nav li')].map((item) =>
                [item.querySelector('.name').textContent, item.querySelector('.badge')?.textContent])),
            code: texts('.mistake dd code'), id: texts('.mistake h3'), lines: texts('.found .line'),
        };
        await click(query('a.first'));
        seen.first = [location.hash, texts('#how h3')[0], texts('#how .bad-sum').length];
        await press('s'); seen.recomputed = [texts('#how h3')[0], query('#side').value];
        await press('s'); seen.difference = [texts('#how h3')[0], query('#side').value];
        await press('s'); seen.recorded = [texts('#how h3')[0], query('#side').value];
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert!(told["title"].as_str().expect("text").contains("differs, "), "{told}");
    assert_eq!(told["badges"]["scores_raw"], "✓ same");
    assert_eq!(told["badges"]["scores"], "✗ own error");
    assert_eq!(told["badges"]["output"], "↓ inherited");
    assert_eq!(told["badges"]["x"], json!(null));
    assert_eq!(told["id"], json!(["scale-missing at scores"]));
    assert_eq!(told["code"].as_array().expect("a list").len(), 2);
    assert!(told["lines"].to_string().contains("first divergence: scores"), "{told}");
    let number = |side: &str| -> f64 {
        let title = told[side][0].as_str().expect("text");
        let text = title.split(" = ").nth(1).expect("a number").split(' ').next();
        text.expect("a number").parse().expect("a number")
    };
    let first = told["first"][1].as_str().expect("text");
    let recorded: f64 = first.split(" = ").nth(1).expect("a number").parse().expect("a number");
    assert!(told["first"][0].as_str().expect("text").starts_with("#scores/0/"), "{told}");
    // What is not divided by √4 is twice what it should be.
    assert!((recorded - 2.0 * number("recomputed")).abs() < 1e-5, "{told}");
    assert!((number("difference") - (recorded - number("recomputed"))).abs() < 1e-6, "{told}");
    assert_eq!(told["first"][2], 1);
    // It opens there, with the cell pinned.
    assert_eq!(told["opened"], json!([told["first"][0], first, told["first"][0]]));
    assert_eq!(told["recorded"][1], "0");
    assert_eq!(told["difference"][1], "2");
}

#[test]
fn an_address_that_names_a_place_is_kept() {
    let html = written(&["check", "tests/cli/inputs/scale-missing.json", "-q"], 1);
    let probe = "
        await wait();
        return [location.hash, texts('.about:not([hidden]) h2 code')[0], query('#view table') != null];
    ";
    for (address, step) in [("#q/0", "q"), ("#output", "output"), ("#main", "x")] {
        let Some(told) = browse(&html, address, probe) else { return };
        assert_eq!(told, json!([address, step, true]));
    }
}

#[test]
fn noise_has_a_badge_of_its_own() {
    let html = written(&["check", "tests/cli/inputs/noise.json", "-q"], 0);
    assert!(html.contains("<span class=\"badge noise\">≈ noise</span>"));
}

#[test]
fn compared_files_stand_beside_each_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = |name: &str, seed: &str| {
        let file = folder.path().join(name).to_str().expect("text").to_owned();
        let args = ["-q", "--seed", seed, "-o", &file];
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_mha-trace")).args(args).status();
        assert!(run.expect("it runs").success());
        file
    };
    let (left, right) = (record("left.json", "42"), record("right.npz", "43"));
    let html = written(&["diff", &left, &right, "-q"], 1);
    let probe = "
        await open('#q/0/0/5');
        const seen = [texts('#how h3')[0], texts('#how .terms tbody tr:last-child')[0]];
        await press('s'); seen.push(texts('#how h3')[0]);
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert!(told[0].as_str().expect("text").starts_with("q[0,0,5] = 2.72"), "{told}");
    assert_eq!(told[1], "sum2.724");
    assert!(told[2].as_str().expect("text").starts_with("q[0,0,5] = -0.9"), "{told}");
}

/// Of files that say nothing of a run there is no more to tell than their numbers.
#[test]
fn files_that_name_no_run_are_shown_as_they_are() {
    let html = written(
        &[
            "diff",
            "fixtures/core/sdpa-math.safetensors",
            "fixtures/core/sdpa-flash.safetensors",
            "-q",
        ],
        0,
    );
    let probe = "
        const names = STEPS.map((step) => step.name);
        await open(address(STEPS[0], STEPS[0].axes.map(() => 0)));
        return [names, texts('#how h3')[0], document.querySelectorAll('#view td').length];
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert!(told[0].as_array().expect("names").len() > 1, "{told}");
    assert!(told[1].as_str().expect("text").contains(" = "), "{told}");
}

/// What a file holds where a mask blocks is not what the mask puts there.
#[test]
fn blocked_cells_show_what_is_recorded() {
    let html = written(&["check", "fixtures/faulty/mask-after-softmax.safetensors", "-q"], 1);
    let probe = "
        await open('#masked_scores/0/0/3/4');
        const seen = [[cell(0, 0, 3, 4).textContent, texts('#how h3')[0]]];
        seen[0].push(...texts('#how .sum-line'), ...texts('#how .bad-sum'));
        await press('s'); seen.push([cell(0, 0, 3, 4).textContent, texts('#how h3')[0]]);
        await press('s'); await press('s');
        await open('#weights/0/0/3/4');
        seen.push(texts('#how .terms tr'), texts('#how .bad-sum'));
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert_eq!(
        told[0],
        json!([
            "1.517",
            "masked_scores[0,0,3,4] = 1.5171608",
            "blocked by the causal mask: later keys, which a query may not see",
            "the score was 1.517 (scores[0,0,3,4]); the mask puts -1e9 in its place",
            "= -1e9 (mask_fill, as mask[0,0,3,4] blocks)",
            "the recorded number, 1.517, does not follow from the numbers that it is computed from: they give -1e9"
        ])
    );
    assert_eq!(told[1], json!(["-1e9", "masked_scores[0,0,3,4] = -1e9"]));
    // The share is the row's own, and the recorded number stands beside it.
    let rows = told[2].as_array().expect("rows");
    assert_eq!(rows[0], "keyscorescore − max 3.144expexp / 1.587recordedblocked by");
    assert_eq!(rows[1], "key 02.100-1.0440.3520.2220.222");
    assert_eq!(rows[5], "key 41.517-1.6270.1970.124≠ 0.000causal mask");
    assert_eq!(rows[6], "sum1.5871.0000.876");
    assert_eq!(
        told[3],
        json!([
            "≠: the recorded number is not that share",
            "the recorded number, 0.000, does not follow from the numbers that it is computed from: they give 0.124"
        ])
    );
}
