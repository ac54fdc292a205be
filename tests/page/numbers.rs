//! Every number of a page, and what it is made of, is what the library says.

use std::sync::LazyLock;

use mha_trace::program::{Cell, Factor, Term};
use mha_trace::view::{Block, View, trace_html, trace_page};
use mha_trace::{Config, Run, Settings, Sources, Trace};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::browser::browse;
use super::common::unravel;

fn spelled(key: &str, _: Option<&str>) -> String {
    key.to_owned()
}

/// Inputs, weights and a cache.
const CACHED: &str = "fixtures/edits/cache-0.safetensors";

/// Runs that have every operation in them, with sizes that all differ.
fn runs() -> Vec<(Config, Trace)> {
    let sizes =
        json!({"batch": 2, "seq_len": 5, "heads": 6, "d_model": 24, "d_in": 7, "bias": true});
    let tokens = json!(["a", "<b>", "c d", "\"e\"", "&f;"]);
    let settings = [
        json!({}),
        json!({"lengths": [5, 3], "mask_fill": "-inf", "tokens": tokens, "dtype": "f64"}),
        json!({"rope": "half", "rope_dims": 2, "kv_heads": 2, "qk_norm": "rms", "softcap": 5.0, "sinks": true,
               "window": 3, "lse": true, "mean_weights": true, "dropout": 0.2}),
        json!({"rope": "interleaved", "qk_norm": "layer", "alibi": true, "gate": "sigmoid", "concat_norm": "rms",
               "clip_qkv": 0.5, "queries": "1..4"}),
        json!({"kv_lora_rank": 6, "q_lora_rank": 5, "qk_rope_head_dim": 2, "rope": "half"}),
        json!({"kv_lora_rank": 6, "qk_rope_head_dim": 2, "rope": "half", "absorb": true, "bias": false}),
        json!({"relative_bias": "bidirectional", "mask": "none", "qk_norm": "rms-plus-one", "qk_norm_over": "all",
               "value_scale": 2.0, "q_temperature": 0.1, "rope": "half", "v_norm": "rms"}),
        json!({"empty_rows": "zero", "mask_fill": "-inf", "key_mask": ["00111", "00000"], "rope": "half",
               "qk_norm": "rms", "qk_norm_after_rope": true, "rope_backwards": true}),
        json!({"past": CACHED, "x": format!("{CACHED}:x"), "weights": CACHED, "rope": "half", "heads": 4, "kv_heads": 2,
               "batch": null, "seq_len": null, "d_model": null, "d_in": null, "bias": null}),
        json!({"segments": [[2, 3], [4, 1]], "scale": 0.3, "chunk": 2}),
        json!({"add_bias_kv": true, "add_zero_attn": true, "d_model": 18, "gate": "softplus", "alibi": true, "rope": "half",
               "rope_dims": 2, "rope_scaling": {"type": "linear", "factor": 2.0}, "q_temperature": 0.2,
               "q_temperature_floor": 2, "positions": [[0, 1, 5, 6, 7], [2, 3, 4, 8, 9]]}),
        json!({"lambda_init": 0.4, "qk_norm": "rms"}),
        json!({"disentangled": ["c2p", "p2c"], "position_buckets": 4, "max_relative_positions": 5, "rel_norm_eps": 1e-7}),
        json!({"disentangled": ["p2c"], "max_relative_positions": 3, "share_att_key": true, "queries": "1..4"}),
        json!({"recurrence": "gated-delta", "qk_norm": "l2", "heads": 2, "v_heads": 4, "d_model": 8, "states": true,
               "lengths": [5, 3], "d_in": null, "bias": null}),
        json!({"recurrence": "kda", "state_chunk": 2, "d_in": null, "bias": null}),
    ];
    let run = |(own, backward): (Value, bool)| {
        let mut all = sizes.clone();
        let entries = own.as_object().expect("settings").clone();
        all.as_object_mut().expect("settings").extend(entries);
        all["backward"] = json!(backward);
        let settings: Settings = serde_json::from_value(all.clone()).expect("settings");
        let run = Run::new(&settings, Sources::load(&settings).expect("files that are there"))
            .unwrap_or_else(|error| panic!("{all}: {error}"));
        (run.config().clone(), run.trace().expect("it runs"))
    };
    let both = |own: Value| {
        let has_gradients = own.get("recurrence").is_none();
        [Some((own.clone(), false)), has_gradients.then_some((own, true))]
    };
    settings.into_iter().flat_map(both).flatten().map(run).collect()
}

/// Of every cell of every step: its number, and the terms that add up to it.
const EXPLAINED: &str = "
    const told = {};
    for (const step of STEPS) {
        const count = step.axes.reduce((count, { size }) => count * size, 1);
        told[step.name] = Array.from({ length: count }, (_, flat) => {
            const index = [];
            for (const { size } of [...step.axes].reverse()) { index.unshift(flat % size); flat = Math.floor(flat / size); }
            const { value, terms, isUnknown } = explain(step, index, 0);
            const factor = ({ name, value, step, index }) => [name, String(value), step ? cellName(step, index) : null];
            return isUnknown ? 'unknown' : [String(value), terms.map((term) => term.map(factor))];
        });
    }
    return told;
";

/// A page in a browser: its numbers explained, and its tables. Both tests read them, and pages are opened once.
struct Opened {
    config: Config,
    trace: Trace,
    explained: Value,
    tables: Value,
}

/// The pages of all runs, opened on as many threads as the tests have; none where there is no browser.
fn opened() -> &'static [Opened] {
    static OPENED: LazyLock<Vec<Opened>> = LazyLock::new(|| {
        let probe = format!("return [(() => {{{EXPLAINED}}})(), (() => {{{TABLES}}})()];");
        let open = |(config, trace): (Config, Trace)| {
            let html = trace_html(&trace, &config, spelled).expect("it is written");
            let mut told = browse(&html, "", &probe)?;
            Some(Opened { explained: told[0].take(), tables: told[1].take(), config, trace })
        };
        runs().into_par_iter().filter_map(open).collect()
    });
    &OPENED
}

fn number(text: &Value) -> f64 {
    let number = text.as_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{text} is no number"))
}

/// The sines of a browser and those of Rust may differ in their last digits.
fn is_near(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits()
        || (left.is_nan() && right.is_nan())
        || (left - right).abs() <= 1e-12 * right.abs().max(1e-6)
}

#[test]
fn every_number_is_explained_as_by_the_library() {
    for Opened { trace, explained: told, .. } in opened() {
        for step in trace.steps() {
            let cells = told[step.name.as_str()].as_array().expect("a step");
            assert_eq!(cells.len() as u128, step.axes.count(), "{}", step.name);
            for (at, found) in cells.iter().enumerate() {
                let index = unravel(at, step.value.dims());
                let cell = Cell { step: step.name.to_string(), index };
                let wanted = trace.explain(&cell).expect("it is there");
                assert!(found.is_array(), "{cell}: {found}");
                assert!(is_near(number(&found[0]), wanted.value), "{cell}: {found}");
                let found: Vec<Vec<&Value>> = found[1]
                    .as_array()
                    .expect("terms")
                    .iter()
                    .map(|term| term.as_array().expect("factors").iter().collect())
                    .collect();
                assert_eq!(
                    found.len(),
                    wanted.terms.len(),
                    "{cell}: {found:?}, {:?}",
                    wanted.terms
                );
                for (found, Term(wanted)) in found.iter().zip(&wanted.terms) {
                    assert_eq!(found.len(), wanted.len(), "{cell}: {found:?}, {wanted:?}");
                    for (found, Factor { name, value, cell: from, .. }) in found.iter().zip(wanted)
                    {
                        let from = from.as_ref().map(ToString::to_string);
                        assert_eq!(found[0].as_str(), Some(name.as_str()), "{cell}");
                        assert!(is_near(number(&found[1]), *value), "{cell}: {found:?}, {value}");
                        assert_eq!(found[2].as_str(), from.as_deref(), "{cell}");
                    }
                }
            }
        }
    }
}

/// The tables of every step: its captions, and of each the texts of its rows, headers first.
const TABLES: &str = "
    const told = {};
    for (const step of STEPS) {
        told[step.name] = [];
        const leads = step.axes.slice(0, -2).reduce(
            (some, { size }) => some.flatMap((lead) => Array.from({ length: size }, (_, at) => [...lead, at])), [[]]);
        for (const lead of leads) {
            const rows = [...grid(step, lead, 0, {}).rows].map((row) => [...row.cells].map((cell) =>
                cell.querySelector('[aria-hidden]')?.textContent ?? cell.textContent));
            told[step.name].push(rows);
        }
    }
    return told;
";

/// A place with its axis, which tables of the tool have in their corner.
fn named(axis: &str, place: &str) -> String {
    match place {
        "every" => format!("every {axis}"),
        place if place.starts_with(|c: char| c.is_ascii_digit()) => format!("{axis} {place}"),
        place => place.to_owned(),
    }
}

#[test]
fn tables_are_those_of_the_tool() {
    for Opened { config, trace, tables: told, .. } in opened() {
        let names: Vec<String> = trace.steps().iter().map(|step| step.name.to_string()).collect();
        let view = View { steps: Some(names), full: true, ..View::default() };
        let (mut step, mut at) = (String::new(), 0);
        for block in trace_page(trace, config, &view) {
            match block.expect("it can be read") {
                Block::Step(head) => (step, at) = (head.name, 0),
                Block::Grid(grid) => {
                    let rows = told[&step][at].as_array().expect("a table");
                    let texts = |row: &Value| -> Vec<String> {
                        let cells = row.as_array().expect("a row").iter();
                        cells.map(|cell| cell.as_str().expect("a text").to_owned()).collect()
                    };
                    let mut header = texts(&rows[0]);
                    let is_table = header.len() > grid.columns.len();
                    if is_table {
                        header.remove(0);
                    }
                    let columns = grid.columns.iter().map(|place| named(&grid.across, place));
                    assert_eq!(header, columns.collect::<Vec<_>>(), "{step}");
                    for (found, (label, wanted)) in rows[1..].iter().zip(&grid.rows) {
                        let mut found = texts(found);
                        if is_table {
                            assert_eq!(found.remove(0), named(&grid.down, label), "{step}");
                        }
                        let wanted: Vec<&str> =
                            wanted.iter().map(|cell| cell.text.as_str()).collect();
                        assert_eq!(found, wanted, "{step}");
                    }
                    assert_eq!(rows.len() - 1, grid.rows.len(), "{step}");
                    at += 1;
                }
                _ => {}
            }
        }
    }
}

/// Numbers that a browser rounds in another way by itself, or writes in another way.
#[test]
fn numbers_are_rounded_as_in_the_tools_tables() {
    let values = [
        0.0625,
        0.1875,
        -0.0625,
        0.0005,
        2.5,
        1e6,
        -1e9,
        -1_234_567.0,
        1e300,
        0.0,
        -0.0,
        -0.0001,
        12_345.678_5,
        f64::from(0.0005_f32),
        999_999.999_9,
        5e-324,
    ];
    let html = trace_html(&runs()[0].1, &runs()[0].0, spelled).expect("it is written");
    let list: Vec<String> = values.iter().map(ToString::to_string).collect();
    let probe = format!(
        "return [{}, NaN, Infinity, -Infinity].map((value) => [number(value), brief(value)]);",
        list.join(", ")
    );
    let Some(told) = browse(&html, "", &probe) else { return };
    let wanted = [
        "0.062",
        "0.188",
        "-0.062",
        "0.001",
        "2.500",
        "1.000e6",
        "-1.000e9",
        "-1.235e6",
        "1.000e300",
        "0.000",
        "-0.000",
        "-0.000",
        "12345.678",
        "0.001",
        "1000000.000",
        "0.000",
        "nan",
        "inf",
        "-inf",
    ];
    for (told, wanted) in told.as_array().expect("a list").iter().zip(wanted) {
        assert_eq!(told[0], wanted);
    }
    assert_eq!((&told[5][1], &told[6][1]), (&json!("1e6"), &json!("-1e9")));
}
