//! What is said of a wrong step is what happened to it: each wrong computation is written out here on plain numbers.

mod common;

use std::path::Path;

use candle_core::{Device, Tensor};
use mha_trace::check::{Tolerances, check};
use mha_trace::file::{Output, Record};
use mha_trace::foreign::NameMap;
use mha_trace::program::Name;
use mha_trace::{Run, Settings, Sources, to_record};
use rayon::prelude::*;
use serde_json::{Value, json};

use common::{unravel, values};

/// A recorded run, with what is given and these steps alone.
fn recorded(settings: Value, steps: &[&str]) -> Record {
    let settings: Settings = serde_json::from_value(settings).expect("valid settings");
    let run = Run::new(&settings, Sources::default()).expect("valid");
    let mut record = to_record(&run.trace().expect("runs"), run.config());
    let is_given = |name: &str| Name::named(name).is_some_and(Name::is_given);
    record.entries.retain(|entry| is_given(&entry.name) || steps.contains(&entry.name.as_str()));
    record
}

/// What is told of a record in which this step holds other numbers, made of its place in the shape.
fn told(record: &Record, step: &str, wrong: &dyn Fn(&[usize]) -> f64, path: &Path) -> Vec<String> {
    let mut record = record.clone();
    let entry = record.entries.iter_mut().find(|entry| entry.name == step).expect("recorded");
    let shape = entry.tensor.dims().to_vec();
    #[allow(clippy::cast_possible_truncation, reason = "the numbers of an f32 run")]
    let cells = (0..entry.tensor.elem_count()).map(|at| wrong(&unravel(at, &shape)) as f32);
    entry.tensor = Tensor::from_vec(cells.collect(), shape, &Device::Cpu).expect("as many");
    Output::create(path).and_then(|output| output.write(&record)).expect("written");
    let report = check(path, &Settings::default(), &NameMap::default(), &Tolerances::default());
    let found = report.expect("checks").diagnosis.map(|diagnosis| diagnosis.findings);
    found.into_iter().flatten().map(|found| found.summary).collect()
}

/// Asserts that each wrong computation is told in its sentence, and in no other.
fn assert_told(record: &Record, step: &str, cases: &[(String, Cell)]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: Vec<_> = cases.iter().enumerate().collect();
    let wrong = cases.par_iter().filter_map(|(at, (sentence, wrong))| {
        let path = folder.path().join(format!("{at}.safetensors"));
        let told = told(record, step, wrong, &path);
        (told != [sentence.as_str()]).then(|| format!("{sentence}\n    {told:?}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

type Cell<'c> = Box<dyn Fn(&[usize]) -> f64 + Sync + 'c>;

/// Whether a key is blocked, by item, query and key.
type Blocks<'b> = &'b (dyn Fn(usize, usize, usize) -> bool + Sync);

const TOKENS: usize = 6;
const ITEMS: usize = 3;
const LAST: usize = TOKENS - 1;
/// The keys of each item that are visible.
const VISIBLE: [&str; ITEMS] = ["101111", "110110", "111010"];

fn is_padded(item: usize, key: usize) -> bool {
    VISIBLE[item].as_bytes()[key] == b'0'
}

/// Checks masked scores with other cells blocked; each sentence stands behind what is said first.
fn assert_masks_told(mask: &str, first: &str, cases: &[(&str, Blocks)]) {
    let run =
        json!({"batch": ITEMS, "seq_len": TOKENS, "heads": 2, "mask": mask, "key_mask": VISIBLE});
    let record = recorded(run, &["scores", "masked_scores"]);
    let scores = values(record.tensor("scores").expect("recorded"));
    let fill = f64::from(-1e9_f32);
    let cases = cases.iter().map(|(sentence, blocks)| {
        let cell = |place: &[usize]| {
            let &[item, head, query, key] = place else { return 0.0 };
            let at = ((item * 2 + head) * TOKENS + query) * TOKENS + key;
            if blocks(item, query, key) { fill } else { scores[at] }
        };
        (format!("{first}{sentence}"), Box::new(cell) as Cell)
    });
    assert_told(&record, "masked_scores", &cases.collect::<Vec<_>>());
}

fn is_blocked(item: usize, query: usize, key: usize) -> bool {
    key > query || is_padded(item, key)
}

#[test]
fn a_wrong_mask_is_told_by_what_it_blocks() {
    let own = is_blocked;
    assert_masks_told(
        "causal",
        "masked_scores: ",
        &[
            ("the mask is transposed", &|b, q, k| own(b, k, q)),
            ("every key is blocked", &|_, _, _| true),
            ("the mask is reversed along the keys", &|b, q, k| own(b, q, LAST - k)),
            ("the mask is reversed along the queries", &|b, q, k| own(b, LAST - q, k)),
            ("every query has the mask of the first", &|b, _, k| own(b, 0, k)),
            ("the mask is one key too far right", &|b, q, k| own(b, q, (k + LAST) % TOKENS)),
            ("the mask is one key too far left", &|b, q, k| own(b, q, (k + 1) % TOKENS)),
            ("no token is kept from itself", &|b, q, k| own(b, q, k) && q != k),
            ("the first key is blocked as well", &|b, q, k| own(b, q, k) || k == 0),
            ("the first query is not masked", &|b, q, k| own(b, q, k) && q > 0),
            ("the last query is not masked", &|b, q, k| own(b, q, k) && q < LAST),
            ("the first 2 keys are visible to every query", &|b, q, k| own(b, q, k) && k >= 2),
            ("the first 3 keys are visible to every query", &|b, q, k| own(b, q, k) && k >= 3),
            ("keys before the query are blocked as well", &|b, q, k| own(b, q, k) || k < q),
            ("every item has the mask of the first", &|_, q, k| own(0, q, k)),
            ("only the first item is masked", &|b, q, k| b == 0 && own(b, q, k)),
            ("what any item's mask blocks is blocked in all", &|_, q, k| {
                (0..ITEMS).any(|b| own(b, q, k))
            }),
            ("only cells that every part of the mask blocks are blocked", &|b, q, k| {
                k > q && is_padded(b, k)
            }),
            ("the rows of padded queries are blocked as well", &|b, q, k| {
                own(b, q, k) || is_padded(b, q)
            }),
        ],
    );
    assert_masks_told(
        "none",
        "masked_scores: ",
        &[
            ("the last key is blocked as well", &|b, _, k| is_padded(b, k) || k == LAST),
            ("keys after the query are blocked as well", &|b, q, k| is_padded(b, k) || k > q),
            ("keys after the query's position +1 are blocked as well", &|b, q, k| {
                is_padded(b, k) || k > q + 1
            }),
            ("keys after the query's position +3 are blocked as well", &|b, q, k| {
                is_padded(b, k) || k > q + 3
            }),
            ("keys after the query's position -1 are blocked as well", &|b, q, k| {
                is_padded(b, k) || k + 1 > q
            }),
            ("keys before the query are blocked as well", &|b, q, k| is_padded(b, k) || k < q),
        ],
    );
}

/// Where one part of the mask is wrong, that is told, and a mistake that has a name by its name.
#[test]
fn a_wrong_part_of_a_mask_is_told() {
    let own = is_blocked;
    assert_masks_told(
        "causal",
        "",
        &[
            ("the mask blocks what it should let through", &|b, q, k| !own(b, q, k)),
            ("mask: mask_causal is left out of it", &|b, _, k| is_padded(b, k)),
            ("the diagonal is blocked as well: no token sees itself", &|b, q, k| {
                own(b, q, k) || q == k
            }),
            ("mask_causal: mask offset is -2 where 0 was meant", &|b, q, k| {
                own(b, q, k) || k + 2 > q
            }),
            ("mask_keys: items have each other's padding", &|b, q, k| own((b + 1) % ITEMS, q, k)),
            ("the padding mask is not applied: padded keys are attended to", &|_, q, k| k > q),
        ],
    );
}

/// What stands at an item, head, token and feature.
type Places<'p> = &'p (dyn Fn(usize, usize, usize, usize) -> f64 + Sync);

/// Values of two items, three heads, four tokens and six features that stand in other places.
#[test]
fn numbers_in_other_places_are_told_by_where_they_stand() {
    let run = json!({"batch": 2, "seq_len": 4, "heads": 3, "d_model": 18});
    let record = recorded(run, &["v", "v_heads"]);
    let own = values(record.tensor("v_heads").expect("recorded"));
    let at = |b: usize, h: usize, t: usize, f: usize| own[((b * 3 + h) * 4 + t) * 6 + f];
    let cases: &[(&str, Places)] = &[
        ("it is reversed along the feature axis", &|b, h, t, f| at(b, h, t, 5 - f)),
        ("it is reversed along the token axis", &|b, h, t, f| at(b, h, 3 - t, f)),
        ("it is reversed along the head axis", &|b, h, t, f| at(b, 2 - h, t, f)),
        ("it is shifted by one place along the token axis, around its end", &|b, h, t, f| {
            at(b, h, (t + 3) % 4, f)
        }),
        ("it is shifted back by one place along the token axis, around its end", &|b, h, t, f| {
            at(b, h, (t + 1) % 4, f)
        }),
        ("it is one place late along the token axis, the first twice", &|b, h, t, f| {
            at(b, h, t.saturating_sub(1), f)
        }),
        ("it is one place early along the token axis, the last twice", &|b, h, t, f| {
            at(b, h, (t + 1).min(3), f)
        }),
        ("it is the first of the head axis everywhere", &|b, _, t, f| at(b, 0, t, f)),
        ("it is the last of the head axis everywhere", &|b, _, t, f| at(b, 2, t, f)),
        ("it is the last of the batch axis everywhere", &|_, h, t, f| at(1, h, t, f)),
        ("it is one place late along the token axis, with 0 first", &|b, h, t, f| {
            if t == 0 { 0.0 } else { at(b, h, t - 1, f) }
        }),
        ("it is without the last place of the token axis, which is 0", &|b, h, t, f| {
            if t == 3 { 0.0 } else { at(b, h, t, f) }
        }),
        ("it is without the first place of the token axis, which is 0", &|b, h, t, f| {
            if t == 0 { 0.0 } else { at(b, h, t, f) }
        }),
        ("it is summed over the token axis", &|b, h, _, f| (0..4).map(|t| at(b, h, t, f)).sum()),
        ("it is averaged over the token axis", &|b, h, _, f| {
            (0..4).map(|t| at(b, h, t, f)).sum::<f64>() / 4.0
        }),
        ("it is added up along the token axis, each place to those before", &|b, h, t, f| {
            (0..=t).map(|t| at(b, h, t, f)).sum()
        }),
        ("it is with the halves of the feature axis exchanged", &|b, h, t, f| {
            at(b, h, t, (f + 3) % 6)
        }),
        ("it is the first half of the feature axis twice", &|b, h, t, f| at(b, h, t, f % 3)),
        ("it is the second half of the feature axis twice", &|b, h, t, f| at(b, h, t, 3 + f % 3)),
        ("it is with neighbours of the feature axis exchanged", &|b, h, t, f| at(b, h, t, f ^ 1)),
        ("it is with the feature axis read as 2 interleaved groups", &|b, h, t, f| {
            at(b, h, t, f % 2 * 3 + f / 2)
        }),
        ("it is with the feature axis read as 3 interleaved groups", &|b, h, t, f| {
            at(b, h, t, f % 3 * 2 + f / 3)
        }),
    ];
    let cases = cases.iter().map(|(sentence, wrong)| {
        let cell = |place: &[usize]| {
            let &[b, h, t, f] = place else { return 0.0 };
            wrong(b, h, t, f)
        };
        (format!("v_heads: {sentence}"), Box::new(cell) as Cell)
    });
    assert_told(&record, "v_heads", &cases.collect::<Vec<_>>());
}

/// Whether a key is blocked, by query and key.
type Between<'b> = &'b (dyn Fn(usize, usize) -> bool + Sync);

/// Causal scores of eight tokens under a window of three keys, with other cells blocked.
#[test]
fn a_wrong_window_is_told_by_its_shape() {
    let run = json!({"seq_len": 8, "heads": 2, "mask": "causal", "window": 3});
    let record = recorded(run, &["scores", "masked_scores"]);
    let scores = values(record.tensor("scores").expect("recorded"));
    let fill = f64::from(-1e9_f32);
    let cases: &[(&str, Between)] = &[
        ("the window of 3 reaches both ways, into later keys too", &|q, k| q.abs_diff(k) >= 3),
        ("half of the window of 3 lies on either side of the query", &|q, k| q.abs_diff(k) > 1),
        ("the window of 3 reaches no key but the query's own", &|q, k| q != k),
        ("the keys within the window are blocked, and later ones", &|q, k| k > q || q - k < 3),
        ("chunks of 3 tokens in place of a sliding window", &|q, k| k > q || q / 3 != k / 3),
        ("chunks of 3 tokens, not causal, in place of a sliding window", &|q, k| q / 3 != k / 3),
        ("only the first 3 keys are visible", &|q, k| k > q || k >= 3),
        ("only the last 3 keys are visible, for every query", &|q, k| k > q || k < 5),
    ];
    let cases = cases.iter().map(|(sentence, blocks)| {
        let cell = |place: &[usize]| {
            let &[_, head, query, key] = place else { return 0.0 };
            if blocks(query, key) { fill } else { scores[(head * 8 + query) * 8 + key] }
        };
        (format!("masked_scores: {sentence}"), Box::new(cell) as Cell)
    });
    assert_told(&record, "masked_scores", &cases.collect::<Vec<_>>());
}

/// Head outputs of two items, three heads, four tokens and two features that are put side by side in another order.
#[test]
fn heads_that_are_merged_in_another_order_are_told() {
    let run = json!({"batch": 2, "seq_len": 4, "heads": 3, "d_model": 6});
    let record = recorded(run, &["head_outputs", "concat"]);
    let own = values(record.tensor("head_outputs").expect("recorded"));
    let sizes = [2, 3, 4, 2];
    let names = ["batch", "head", "query", "feature"];
    let own = &own;
    let orders =
        [[0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2], [0, 3, 2, 1], [1, 0, 2, 3], [2, 0, 1, 3]];
    let mut cases: Vec<(String, Cell)> = orders
        .iter()
        .map(|order| {
            let told = order.map(|axis| names[axis]).join(", ");
            let moved = order.map(|axis| sizes[axis]);
            let cell = move |place: &[usize]| {
                let mut from = [0; 4];
                let at = unravel((place[0] * 4 + place[1]) * 6 + place[2], &moved);
                for (axis, at) in order.iter().zip(at) {
                    from[*axis] = at;
                }
                own[((from[0] * 3 + from[1]) * 4 + from[2]) * 2 + from[3]]
            };
            (format!("concat: the heads are merged as ({told})"), Box::new(cell) as Cell)
        })
        .collect();
    let mean = |place: &[usize]| {
        (0..3)
            .map(|head| own[((place[0] * 3 + head) * 4 + place[1]) * 2 + place[2] % 2])
            .sum::<f64>()
            / 3.0
    };
    cases.push((
        "concat: the mean of the heads stands in every head's place".to_owned(),
        Box::new(mean),
    ));
    assert_told(&record, "concat", &cases);
}

/// Another step so many times in what a step should be.
#[test]
fn what_is_added_is_read_off() {
    let run = json!({"batch": 2, "seq_len": 4, "heads": 2, "d_model": 8});
    let record = recorded(run, &["v", "concat", "output"]);
    let [own, x, v] =
        ["output", "x", "v"].map(|name| values(record.tensor(name).expect("recorded")));
    let at = |place: &[usize]| (place[0] * 4 + place[1]) * 8 + place[2];
    let added = |other, times: f64| -> Cell<'_> {
        let (own, other): (_, &Vec<f64>) = (&own, other);
        Box::new(move |place| own[at(place)] + times * other[at(place)])
    };
    let cases = [
        ("output: 0.37 times x is added to it".to_owned(), added(&x, 0.37)),
        ("output: -0.6 times x is added to it".to_owned(), added(&x, -0.6)),
        ("output: 2 times v is added to it".to_owned(), added(&v, 2.0)),
    ];
    assert_told(&record, "output", &cases);
}
