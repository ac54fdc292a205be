//! A reader's way through a page: steps, heads, cells, keys and addresses.

use mha_trace::{Run, Settings, Sources};
use serde_json::{Value, json};

use super::browser::{browse, browse_at_once, browse_in, written};
use super::common::Named as _;

/// The causal walkthrough, the default.
fn walkthrough() -> String {
    written(&["-q"], 0)
}

/// The numbers of a step of the walkthrough, which differ in their last digit between processors.
fn exact(step: &str) -> Vec<f32> {
    let run = Run::new(&Settings::default(), Sources::default()).expect("it can be run");
    let trace = run.trace().expect("it runs");
    let value = &trace.named(step).expect("a step").value;
    value.flatten_all().and_then(|flat| flat.to_vec1()).expect("numbers of f32")
}

#[test]
fn the_page_is_one_small_file_that_needs_nothing_else() {
    let html = walkthrough();
    assert!(html.len() <= 150_000, "{}", html.len());
    let script = html.rsplit_once("<script>").and_then(|(_, rest)| rest.split_once("</script>"));
    let script = script.expect("it has a script").0;
    assert!(script.len() <= 33_000, "{}", script.len());
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let large = written(&["-q", "-b", "2", "-t", "64", "-d", "128", "-H", "8"], 0);
    assert!(large.len() < 5_000_000, "{}", large.len());
    assert!(!large.contains("too large for a page"));
    let probe =
        "return [STEPS.length, document.querySelectorAll('#view td').length, performance.now()];";
    let Some(told) = browse_at_once(&large, "#weights/1/7", probe) else { return };
    assert_eq!((&told[0], &told[1]), (&json!(20), &json!(64 * 64 + 1)));
    // Within a second where nothing else runs, and tests run beside each other.
    assert!(told[2].as_f64().expect("milliseconds") < 5000.0, "{told}");
}

#[test]
fn steps_are_gone_through_by_buttons_keys_and_numbers() {
    let probe = "
        const at = () => [texts('.about:not([hidden]) h2 code')[0], decodeURIComponent(location.hash), texts('[aria-current] .name')[0]];
        const seen = [at()];
        await press('Escape'); await press('1'); await wait(1000); seen.push(at());
        await press('ArrowRight'); seen.push(at());
        await click(query('#next')); seen.push(at());
        await click(query('#previous')); seen.push(at());
        await press('ArrowLeft'); await press('ArrowLeft'); seen.push(at());
        seen.push([query('#previous').disabled, query('#next').disabled]);
        await press('1'); await press('2'); seen.push(at());
        await wait(1000);
        await press('3'); seen.push(at());
        await click(query('nav a[href=\"#scores\"]')); seen.push(at());
        await click(query('nav a[href=\"#output\"]')); seen.push(at());
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    let at = |name: &str, address: &str| json!([name, address, name]);
    assert_eq!(
        told,
        json!([
            at("weights", "#weights/0/0/3/0"),
            at("x", "#x/0"),
            at("q", "#q/0"),
            at("k", "#k/0"),
            at("q", "#q/0"),
            at("x", "#x/0"),
            [true, false],
            at("weights", "#weights/0/0"),
            at("k", "#k/0"),
            at("scores", "#scores/0/0"),
            at("output", "#output/0"),
        ])
    );
}

#[test]
fn a_cell_that_is_pointed_at_shows_its_factors_and_its_arithmetic() {
    let probe = "
        await open('#scores_raw/0/1');
        await point(cell(0, 1, 2, 0));
        const seen = {
            title: texts('#how h3')[0],
            place: texts('#how p')[0],
            sum: texts('#how .terms tbody tr:last-child')[0],
            factors: texts('#how .terms .term a'),
            lit: texts('#view th.lit'),
            parts: texts('#parts caption'),
            litParts: texts('#parts td.lit'),
            litHeads: texts('#parts th.lit'),
        };
        await point(cell(0, 1, 0, 0));
        seen.next = texts('#how h3')[0];
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    assert_eq!(told["title"], format!("scores_raw[0,1,2,0] = {}", exact("scores_raw")[24]));
    assert_eq!(told["place"], "batch 0, head 1, query 2, key 0");
    assert_eq!(told["sum"], "sum-0.189");
    assert_eq!(told["factors"][0], "q_heads[0,1,2,0]");
    assert_eq!(told["factors"].as_array().expect("a list").len(), 8);
    assert_eq!(told["lit"], json!(["0", "2"]));
    assert_eq!(told["parts"], json!(["q_heads, batch 0, head 1", "k_heads, batch 0, head 1"]));
    let lit = ["-0.372", "-0.909", "-0.024", "0.083", "0.071", "0.029", "1.209", "-1.294"];
    assert_eq!(told["litParts"], json!(lit));
    assert!(told["litHeads"].as_array().expect("a list").contains(&json!("query 2")));
    assert!(told["next"].as_str().expect("text").starts_with("scores_raw[0,1,0,0] = "));
}

#[test]
fn a_pinned_cell_stays_is_in_the_address_and_leads_back_to_the_input() {
    let probe = "
        await open('#weights/0/1');
        await click(cell(0, 1, 2, 1));
        const seen = { address: location.hash, trail: texts('.trail li'), row: texts('#how .terms tr.lit')[0] };
        await point(cell(0, 1, 0, 0));
        seen.stays = texts('#how h3')[0];
        await click(document.querySelectorAll('.trail a')[4]);
        seen.followed = [location.hash, texts('#how h3')[0], texts('#view .pinned')[0]];
        await press('Escape');
        seen.gone = [location.hash, texts('#view .pinned').length];
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    assert_eq!(told["address"], "#weights/0/1/2/1");
    assert_eq!(
        told["trail"],
        json!([
            "weights[0,1,2,1] = 0.209",
            "masked_scores[0,1,2,1] = 0.099",
            "scores[0,1,2,1] = 0.099",
            "scores_raw[0,1,2,1] = 0.199",
            "q_heads[0,1,2,1] = -0.909",
            "q[0,2,5] = -0.909",
            "x[0,2,7] = 1.681, is given"
        ])
    );
    assert_eq!(told["row"], "key 10.099-1.0860.3380.209");
    assert_eq!(told["stays"], format!("weights[0,1,2,1] = {}", exact("weights")[25]));
    assert_eq!(told["followed"][0], "#q_heads/0/1/2/1");
    assert_eq!(told["followed"][2], "-0.909");
    assert_eq!(told["gone"], json!(["#q_heads/0/1", 0]));
}

#[test]
fn an_address_opens_its_cell_and_a_wrong_one_does_no_harm() {
    let html = walkthrough();
    let probe = "return [texts('#how h3')[0], query('#head').value, texts('.about:not([hidden]) h2 code')[0]];";
    let Some(told) = browse(&html, "#weights/0/1/2/1", probe) else { return };
    let opened = format!("weights[0,1,2,1] = {}", exact("weights")[25]);
    assert_eq!(told, json!([opened, "1", "weights"]));
    for wrong in
        ["#weights/0/9/2/1", "#weights/a", "#nothing", "#%", "#weights/0/1/2/1/5", "#weights/-1"]
    {
        let told = browse(&html, wrong, probe).expect("there is a browser");
        assert!(told[0].as_str().expect("text").starts_with("Point at a cell"), "{wrong}: {told}");
    }
}

#[test]
fn keys_move_through_a_table_pin_and_change_the_view() {
    let probe = "
        await open('#masked_scores/0/0');
        const focused = () => document.activeElement.dataset?.cell;
        query('#view [data-cell][tabindex=\"0\"]').focus();
        const seen = [focused()];
        await press('ArrowDown'); await press('ArrowRight'); seen.push(focused());
        await press('ArrowUp'); seen.push(focused(), texts('#how .sum-line'));
        await press('Enter'); seen.push(location.hash, focused());
        await press('Escape'); seen.push(location.hash);
        document.activeElement.blur();
        seen.push(document.querySelectorAll('#view table.heat').length);
        await press('h'); seen.push(document.querySelectorAll('#view table.heat').length);
        await press('h'); seen.push(cell(0, 0, 0, 1).className.trim());
        await press('a'); seen.push(texts('#view caption'));
        await press('a'); await press(']'); seen.push(location.hash);
        await press('['); seen.push(location.hash);
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    assert_eq!(
        told,
        json!([
            "0/0/0/0",
            "0/0/1/1",
            "0/0/0/1",
            [
                "blocked by the causal mask: later keys, which a query may not see",
                "the score was 1.013 (scores[0,0,0,1]); the mask puts -1e9 in its place",
                "= -1e9 (mask_fill, as mask[0,1] blocks)"
            ],
            "#masked_scores/0/0/0/1",
            "0/0/0/1",
            "#masked_scores/0/0",
            1,
            0,
            "blocked",
            ["head 0", "head 1"],
            "#masked_scores/0/1",
            "#masked_scores/0/0"
        ])
    );
}

#[test]
fn colours_are_those_of_the_values_and_text_stands_out_from_them() {
    let probe = "
        await open('#scores/0/0');
        const luminance = (colour) => {
            const [r, g, b] = colour.match(/\\d+/g).map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const cells = [...document.querySelectorAll('#view td[data-cell]')].map((cell) => {
            const style = getComputedStyle(cell);
            const [a, b] = [luminance(style.backgroundColor), luminance(style.color)].sort((x, y) => y - x);
            return [Number(cell.textContent), style.backgroundColor, (a + 0.05) / (b + 0.05)];
        });
        await open('#weights/0/0');
        const weights = [0, 2].map((row) => getComputedStyle(cell(0, 0, row, 0)).backgroundColor);
        return { cells, weights };
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    for cell in told["cells"].as_array().expect("a list") {
        let parts: Vec<f64> = cell[1]
            .as_str()
            .expect("a colour")
            .split(|sign: char| !sign.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect();
        let value = cell[0].as_f64().expect("a number");
        // Positive ones are redder than they are blue, negative ones the other way round.
        assert!((parts[0] - parts[2]) * value >= 0.0, "{cell}");
        // WCAG's least contrast of text.
        assert!(cell[2].as_f64().expect("a number") >= 4.5, "{cell}");
    }
    assert_eq!(told["weights"][0], "rgb(0, 90, 110)");
    assert_ne!(told["weights"][1], told["weights"][0]);
}

#[test]
fn heads_stand_side_by_side_and_lead_to_their_own() {
    let html = written(&["-q", "-t", "7", "-d", "12", "-H", "3"], 0);
    let probe = "
        await open('#weights/0/0');
        await press('a');
        const pictures = [...document.querySelectorAll('#view canvas')];
        const { width } = pictures[1];
        const { data } = pictures[1].getContext('2d').getImageData(0, 0, width, 2);
        const colour = (x, y) => [...data].slice(4 * (y * width + x)).slice(0, 3);
        const size = width / 7;
        const seen = {
            names: texts('#view button'),
            tops: new Set(pictures.map((picture) => picture.getBoundingClientRect().top)).size,
            first: colour(1, 1),
            blocked: new Set(Array.from({ length: size }, (_, x) => String(colour(6 * size + x, 1)))).size,
        };
        await click(query('#view button:nth-of-type(3)'));
        seen.address = location.hash;
        seen.table = texts('#view caption');
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert_eq!(told["names"], json!(["head 0", "head 1", "head 2"]));
    assert_eq!(told["tops"], 1);
    // The first query sees itself alone, with all the weight; its other keys are hatched in two colours.
    assert_eq!(told["first"], json!([0, 90, 110]));
    assert_eq!(told["blocked"], 2);
    assert_eq!(told["address"], "#weights/0/2");
    assert_eq!(told["table"], json!(["weights, batch 0, head 2 · query ↓ key →"]));
}

#[test]
fn tensors_are_copied_without_loss() {
    let probe = "
        await open('#weights/0/0');
        await click(query('#numpy'));
        const seen = [clipboard, texts('#said')[0]];
        await click(query('#csv')); seen.push(clipboard);
        await open('#mask');
        await click(query('#numpy')); seen.push(clipboard);
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    let text = |at: usize| told[at].as_str().expect("text");
    let weights: Vec<String> = exact("weights").iter().map(f32::to_string).collect();
    let code = format!(
        "import numpy as np\n\nweights = np.array([{}], dtype=np.float32).reshape((1, 2, 4, 4))\n",
        weights.join(", ")
    );
    assert_eq!(text(0), code);
    assert_eq!(text(1), "Copied 32 numbers.");
    assert!(
        text(2).starts_with("batch,head,query,key,value\n0,0,0,0,1\n0,0,0,1,0\n"),
        "{}",
        text(2)
    );
    assert_eq!(text(2).lines().count(), 33);
    assert!(
        text(3).starts_with("import numpy as np\n\nmask = np.array([False, True, True, True, "),
        "{}",
        text(3)
    );
    assert!(text(3).ends_with("dtype=np.bool_).reshape((4, 4))\n"));
}

#[test]
fn a_large_trace_is_thinned_and_says_so() {
    let html = written(&["-q", "-b", "1", "-t", "600", "-d", "256", "-H", "8"], 0);
    assert!(html.len() < 7_000_000, "{}", html.len());
    assert!(
        html.contains("The trace is too large for one page, so this page holds only the first ")
    );
    let probe = "
        await open('#output/0/1/2');
        const seen = { sum: texts('#how .terms tbody tr:last-child'), rest: texts('#how .terms tr.sum')[0] };
        await open('#weights/0/0/3/2');
        seen.weights = texts('#how p, #how pre');
        seen.sliders = texts('.pager').length;
        await press('a'); seen.heads = texts('#view button').length;
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    let rest = told["rest"].as_str().expect("text");
    assert!(rest.contains("more terms that are not on this page, together"), "{told}");
    assert!(told["weights"].to_string().contains("mha-trace explain 'weights[0,0,3,2]'"), "{told}");
}

/// The way back leads along what is so: of the masks that a mask is made of, to one that blocks.
#[test]
fn the_way_back_follows_a_mask_that_blocks() {
    let html = written(&["-q", "--window", "2"], 0);
    let probe = "await open('#mask/3/1'); return texts('.trail li');";
    let Some(told) = browse(&html, "", probe) else { return };
    assert_eq!(told[1], "mask_window[3,1] = true");
}

#[test]
fn cells_that_are_nan_are_no_blocked_ones_and_say_where_it_comes_from() {
    let html = written(&["-q", "--preset", "formal-padding", "--tokens", "a,b"], 0);
    let probe = "
        await open('#weights/1/0/1/0');
        const seen = { lines: texts('#how .sum-line'), rows: texts('#how .terms tr') };
        await open('#head_outputs/1/0/1/0'); seen.later = texts('#how .sum-line').at(-1);
        await open('#weights/1/0');
        seen.heat = [cell(1, 0, 0, 0).className.trim(), texts('.legend')[0]];
        await press('a'); seen.heads = texts('.legend');
        await open('#weights/0/0'); seen.others = texts('.legend');
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    let why = "every key is blocked for query 1 of item 1 in head 0, and softmax of a row of −∞ is NaN; --mask-fill -1e9 or \
               --empty-rows zero gives numbers";
    assert_eq!(
        told["lines"].as_array().expect("lines").last(),
        Some(&json!(format!("NaN: {why}")))
    );
    assert_eq!(told["later"], format!("NaN: it comes from weights[1,0,1,0]: {why}"));
    assert_eq!(told["rows"][1], "key 0 a-infnannannankey mask of item 1");
    assert_eq!(told["heat"], json!(["nan", "0.0001.000nan: not a number"]));
    assert_eq!(told["heads"], json!(["0.0001.000nan: not a number"]));
    assert_eq!(told["others"], json!(["0.0001.000blocked"]));
}

/// Weights as lines from queries to keys, and the numbers of a cell as they meet.
#[test]
fn weights_are_lines_too_and_numbers_meet_in_a_picture() {
    let probe = "
        await open('#weights/0/1/2/1');
        await press('l');
        const path = (index) => query(`#view path[data-cell=\"${index}\"]`);
        const wide = (index) => Number(path(index).getAttribute('stroke-width'));
        const seen = {
            texts: texts('#view .lines text'),
            lines: document.querySelectorAll('#view .lines path').length,
            wider: wide('0/1/2/2') > wide('0/1/2/1'),
            pinned: document.querySelectorAll('#view path.pinned').length,
            shares: texts('.bars small'),
        };
        await click(path('0/1/1/0'));
        seen.address = location.hash;
        await open('#scores_raw/0/1/2/0');
        seen.disabled = query('[data-view=lines]').disabled;
        seen.boxes = texts('.stage > *');
        seen.moves = query('#how').classList.contains('moves');
        await open('#scores_raw/0/1/2/1');
        seen.rests = !query('#how').classList.contains('moves');
        return seen;
    ";
    let html = written(&["-q", "--tokens", "the,cat,sat,on"], 0);
    let Some(told) = browse(&html, "", probe) else { return };
    let tokens = ["the", "cat", "sat", "on"];
    let said = [&["query →", "→ key"][..], &tokens, &tokens].concat();
    assert_eq!(told["texts"], json!(said));
    // A causal mask leaves ten of sixteen.
    assert_eq!((&told["lines"], &told["pinned"]), (&json!(10), &json!(1)));
    assert_eq!(told["wider"], true);
    // Of a share and its key each.
    let shares = told["shares"].as_array().expect("a list");
    assert_eq!((shares.len(), &shares[1], &shares[2]), (8, &json!("the"), &json!("0.21")));
    assert_eq!(told["address"], "#weights/0/1/1/0");
    assert_eq!(told["disabled"], true);
    let boxes: Vec<&str> =
        told["boxes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(boxes[..6], ["q_heads", "-0.37", "-0.91", "-0.02", "0.08", "k_heads"]);
    assert_eq!(boxes[15..], ["Σ", "scores_raw -0.189"]);
    assert_eq!((&told["moves"], &told["rests"]), (&json!(true), &json!(true)));
}

/// A run with gradients opens on one, and nothing covers a step of its flow.
#[test]
fn a_run_with_gradients_opens_on_one() {
    let html = written(&["-q", "--backward"], 0);
    let probe = "
        await wait(500);
        const own = query('nav details').getBoundingClientRect();
        const flow = query('.flow').getBoundingClientRect();
        return [location.hash.split('/')[0], texts('h3 code')[0].split('[')[0], own.top >= flow.bottom];
    ";
    let Some(told) = browse_in(&html, (1024, 768), probe) else { return };
    assert_eq!(told, json!(["#d_masked_scores", "d_masked_scores", true]));
}

/// What pictures show: NaN is hatched both ways, where blocked cells are one way.
#[test]
fn pictures_tell_nan_from_blocked() {
    let args = ["-q", "--lengths", "7,0", "--mask-fill=-inf", "-d", "12", "-H", "3"];
    let html = written(&args, 0);
    let probe = "
        await open('#weights/1/0');
        await press('a');
        const { width } = query('#view canvas');
        const dots = () => {
            const { data } = query('#view canvas').getContext('2d').getImageData(width - 8, 0, 8, 8);
            const all = Array.from({ length: 64 }, (_, at) => String([...data.slice(4 * at, 4 * at + 3)]));
            return all.filter((colour) => colour === '154,154,154').length;
        };
        const seen = [dots()];
        await open('#weights/0/0'); seen.push(dots());
        return seen;
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert_eq!(told, json!([24, 16]));
}

#[test]
fn features_and_weights_say_what_became_of_them() {
    let html = written(&["-q", "--dropout", "0.5"], 0);
    let probe = "
        const said = async (address) => { await open(address); return texts('#how .sum-line')[0]; };
        return [
            await said('#q_heads/0/1/2/1'), await said('#concat/0/2/5'), await said('#masked_scores/0/0/1/0'),
            await said('#weights_dropped/0/0/0/0'), await said('#weights_dropped/0/0/1/0'),
        ];
    ";
    let Some(told) = browse(&html, "", probe) else { return };
    assert_eq!(told[0], "feature 1 of head 1 is feature 5 before the split: 5 = 1 · 4 + 1");
    assert_eq!(told[1], "feature 5 of the result is feature 1 of head 1: 5 = 1 · 4 + 1");
    assert_eq!(told[2], "no mask blocks the key: the score stays");
    let said: Vec<&str> = [3, 4].map(|at| told[at].as_str().expect("text")).into();
    assert!(said.iter().all(|line| line.starts_with("dropout ")), "{told}");
}

#[test]
fn a_cell_that_the_page_does_not_hold_is_told_with_the_command() {
    let html = written(&["-q", "-b", "1", "-t", "600", "-d", "256", "-H", "8"], 0);
    let probe = "return [texts('#how h3')[0], texts('#how .sum-line')[0], texts('#how pre')[0]];";
    let Some(told) = browse(&html, "#weights/0/0/599/1", probe) else { return };
    assert_eq!(told[0], "weights[0,0,599,1] = …");
    assert!(told[1].as_str().expect("text").starts_with("This number is not on this page."));
    assert_eq!(told[2], "mha-trace explain 'weights[0,0,599,1]'");
}

/// A page in Chinese has no English in what its numbers are made of.
#[test]
fn factors_have_names_in_the_language_of_the_page() {
    let html = written(&["-q", "--lang", "zh"], 0);
    let probe = "await open('#masked_scores/0/0/1/3'); return texts('#how .sum-line');";
    let Some(told) = browse(&html, "", probe) else { return };
    assert!(told.to_string().contains("mask_fill，因为 mask[1,3] 屏蔽"), "{told}");
    assert!(!told.to_string().contains("blocks"), "{told}");
}

/// The tour tells of the step that is looked at, leads to the others, and stays open on the way.
#[test]
fn a_tour_leads_through_the_page() {
    let probe = "
        await open('#weights/0/0/3/0');
        const seen = [query('#step-11 .tour summary').textContent, texts('.tour').length];
        const tour = () => [...document.querySelectorAll('.tour')].find(box => box.checkVisibility());
        const told = () => [
            location.hash, tour().open, [...tour().querySelectorAll('[aria-current]')].map(at => at.textContent).join(),
            tour().querySelector('h3')?.textContent,
        ];
        await click(tour().querySelector('summary'));
        await wait();
        seen.push(told());
        await click(tour().querySelectorAll('a')[0]);
        seen.push(told());
        await click(tour().querySelectorAll('a')[9]);
        seen.push(told());
        await click(query('#previous'));
        seen.push(told());
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    let steps = told[1].clone();
    let expected = json!([
        "A tour in 10 stops",
        steps,
        ["#weights/0/0/3/0", true, "7,8", "7. Scores become weights"],
        ["#x/0/3/0", true, "1", "1. What X is"],
        ["#output/0/3/0", true, "10", "10. What the output is for"],
        ["#concat/0/3/0", true, "", null],
    ]);
    assert_eq!(told, expected);
}

/// The page goes through the steps by itself, stops where it is asked to and at the last step, and begins anew there.
#[test]
fn a_page_plays() {
    let probe = "
        await open('#head_outputs/0');
        const seen = [];
        const step = () => seen.push([location.hash.split('/')[0], query('#play').ariaPressed]);
        await click(query('#play')); step();
        await wait(2100); step();
        await click(query('#play')); await wait(5000); step();
        await click(query('#play')); await wait(6500); step();
        await click(query('#play')); step();
        return seen;
    ";
    let Some(told) = browse(&walkthrough(), "", probe) else { return };
    let expected = json!([
        ["#head_outputs", "true"],
        ["#concat", "true"],
        ["#concat", "false"],
        ["#output", "false"],
        ["#x", "true"]
    ]);
    assert_eq!(told, expected);
}

/// Shapes in the flow leave a batch of one item out.
#[test]
fn shapes_say_what_there_is_of_them() {
    let sizes = |args: &[&str]| -> Vec<String> {
        let page = written(args, 0);
        let sizes = page.split("<span class=\"size\">").skip(1);
        sizes.map(|rest| rest.split('<').next().unwrap_or_default().to_owned()).take(5).collect()
    };
    assert_eq!(sizes(&["-q"]), ["4 × 8", "4 × 8", "4 × 8", "4 × 8", "2 × 4 × 4"]);
    assert_eq!(sizes(&["-q", "-b", "2"])[0], "2 × 4 × 8");
}
