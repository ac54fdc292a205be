//! The first screen of a page: the attention, the row of a weight, and the flow of steps, at three widths.

use serde_json::{Value, json};

use super::browser::{browse, browse_in, written};

/// A desktop, a tablet, a phone.
const WINDOWS: [(u16, u16); 3] = [(1440, 800), (1024, 768), (390, 844)];

const BOXES: &str = "
    await wait(1000);
    const box = (selector) => {
        const { left, top, right, bottom } = query(selector).getBoundingClientRect();
        return [left, top, right, bottom].map(Math.round);
    };
    return {
        boxes: {
            flow: box('.flow'), current: box('.flow [aria-current]'), thumbs: box('.flow [aria-current] canvas'),
            map: box('#view table.heat'), pinned: box('#view .pinned'), row: box('#how tr.lit'),
        },
        heads: texts('.strip button'),
        size: [innerWidth, innerHeight, document.documentElement.scrollWidth],
    };
";

fn place(told: &Value, name: &str) -> [i64; 4] {
    let edges = told["boxes"][name].as_array().expect("a box");
    [0, 1, 2, 3].map(|at| edges[at].as_i64().expect("a number"))
}

#[test]
fn the_attention_its_row_and_the_flow_are_seen_at_once() {
    let pages = [
        (written(&["-q", "--tokens", "the,cat,sat,on"], 0), 2),
        (written(&["-q", "-t", "64", "-d", "64", "-H", "8"], 0), 8),
    ];
    for (page, heads) in &pages {
        for (width, height) in WINDOWS {
            let Some(told) = browse_in(page, (width, height), BOXES) else { return };
            // Nothing scrolls sideways but what is made to.
            assert_eq!(told["size"], json!([width, height, width]), "{told}");
            assert_eq!(told["heads"].as_array().map(Vec::len), Some(*heads), "{told}");
            for name in ["flow", "current", "thumbs", "map", "pinned", "row"] {
                let [left, top, right, bottom] = place(&told, name);
                assert!(left < right && top < bottom, "{name} at {width}: {told}");
                assert!(left >= 0 && top >= 0, "{name} at {width}: {told}");
                let is_in = right <= i64::from(width) && bottom <= i64::from(height);
                assert!(is_in, "{name} at {width}: {told}");
            }
            // Beside each other where there is room.
            let (map, row) = (place(&told, "map"), place(&told, "row"));
            assert_eq!(row[0] >= map[2], width > 768, "{told}");
            assert!(place(&told, "flow")[3] <= map[1], "{told}");
        }
    }
}

/// A wall of numbers is no picture: wide tables are colours, and of their numbers twelve columns are shown at a time.
#[test]
fn wide_tables_are_heat_maps_and_sliders_show_the_rest() {
    let page = written(&["-q", "-t", "64", "-d", "64", "-H", "8"], 0);
    let probe = "
        await open('#output/0');
        const seen = [query('#view table').className];
        await press('h');
        const counts = () => [query('#view thead tr').cells.length, query('#view tbody').rows.length];
        seen.push(counts(), texts('.pager'));
        const slider = document.querySelectorAll('.pager input')[1];
        slider.value = 52;
        slider.dispatchEvent(new Event('input'));
        seen.push(texts('.pager'), texts('#view thead th').at(-1), slider.isConnected);
        await open('#output/0/40/20');
        seen.push(texts('#view .pinned').length);
        return seen;
    ";
    let Some(told) = browse(&page, "", probe) else { return };
    let expected = json!([
        "grid heat dense",
        [13, 24],
        ["query 0–23 of 64", "model 0–11 of 64"],
        ["query 0–23 of 64", "model 52–63 of 64"],
        "model 63",
        true,
        1
    ]);
    assert_eq!(told, expected);
}

/// What is pinned stays so from step to step, on the axes that the next one has.
#[test]
fn a_pinned_cell_is_kept_from_step_to_step() {
    let page = written(&["-q", "--tokens", "the,cat,sat,on"], 0);
    let probe = "
        await wait();
        const seen = [location.hash];
        await click(query('#next')); seen.push(location.hash);
        await click(query('nav [data-step=\"0\"]')); seen.push(location.hash, texts('#how h3').length);
        await press('Escape'); seen.push(location.hash);
        await click(query('#next')); seen.push(location.hash);
        return seen;
    ";
    let Some(told) = browse(&page, "", probe) else { return };
    let seen = told.as_array().expect("a list");
    assert_eq!(seen[0], "#weights/0/0/3/0");
    assert_eq!(seen[1], "#head_outputs/0/0/3/0");
    assert_eq!(seen[2], "#x/0/3/0");
    assert_eq!(seen[4], "#x/0");
    assert_eq!(seen[5], "#q/0");
}

/// Where only the output was recorded, its badge names the step that makes it wrong.
#[test]
fn a_mistake_before_what_was_recorded_is_named_by_the_badge() {
    let page = written(&["check", "fixtures/faulty/kv-swapped.output.safetensors", "-q"], 1);
    let wrong = "<span class=\"badge own\">✗ wrong because of k (not recorded)</span>";
    assert!(page.contains(wrong) && !page.contains("✗ own error"));
    assert!(page.contains("Why no error is raised: All three projections have one shape."));
    let code = page.find("k, v = v_proj(x), k_proj(x)").expect("the line of code");
    assert!(code < page.find("first divergence: output").expect("the numbers"));
}
