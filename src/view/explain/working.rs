//! What an operation worked out on the way to a number, in words and tables.

use std::collections::BTreeSet;

use super::reason::words;
use crate::config::Labels;
use crate::program::{
    Axis, Explanation, Exponential, Exponentials, NanCause, NanSource, Normed, RowCell, Turned,
    Working,
};
use crate::view::View;
use crate::view::label::token;
use crate::view::number::brief;
use crate::view::page::{Block, Table, Text};

/// What was worked out on the way to a number.
pub fn working(
    explanation: &Explanation,
    labels: Option<&Labels>,
    at: &[usize],
    view: &View,
) -> Vec<Block> {
    let say = |text: String| vec![Block::Prose(1, text)];
    let n = |value: f64| brief(value, view.decimals);
    match &explanation.working {
        Working::Plain => Vec::new(),
        Working::Softmax(row) => exponentials(explanation, row, labels, at, view),
        Working::Masked { score, is_blocked: true } => say(tr!(
            "the score was {value} ({score}); the mask puts {value_2} in its place",
            value = n(score.value),
            score = score.name,
            value_2 = n(explanation.value)
        )),
        Working::Masked { is_blocked: false, .. } => {
            say(tr!("no mask blocks the key: the score stays").to_owned())
        }
        Working::Dropped { is_kept: true, p } => say(tr!(
            "dropout keeps it (each weight is dropped with probability {p}) and multiplies it by 1 / (1 − {p})",
            p
        )),
        Working::Dropped { is_kept: false, p } => say(tr!(
            "dropout drops it, as it does each weight with probability {p}; the weights that \
             it keeps are multiplied by 1 / (1 − {p})",
            p
        )),
        Working::Turned(Turned {
            pair,
            features: [first, second],
            position,
            frequency,
            angle,
            factor,
        }) => {
            let by = factor.map(|by| tr!(", each times {by}", by = n(by))).unwrap_or_default();
            say(tr!(
                "pair {pair} is features {first} and {second}; at position {position} it is turned by \
                 {position} · {value} ({frequency}) = {angle} radians: cosine {cos}, sine {sin}{by}",
                pair,
                first,
                second,
                position,
                value = n(frequency.value),
                frequency = frequency.name,
                angle = n(*angle),
                cos = n(angle.cos()),
                sin = n(angle.sin()),
                by
            ))
        }
        Working::Moved { head, head_dim, own, is_split } => {
            let feature = head * head_dim + own;
            let sum = format!("{feature} = {head} · {head_dim} + {own}");
            say(if *is_split {
                tr!(
                    "feature {own} of head {head} was feature {feature} of all: {sum}",
                    own,
                    head,
                    feature,
                    sum
                )
            } else {
                tr!(
                    "feature {feature} of all was feature {own} of head {head}: {sum}",
                    feature,
                    own,
                    head,
                    sum
                )
            })
        }
        Working::Normed(normed) => say(normed_row(normed, view)),
    }
}

fn normed_row(normed: &Normed, view: &View) -> String {
    let n = |value: f64| brief(value, view.decimals);
    let Normed { row, mean, squares, eps, root, over_heads } = normed;
    let whose = if *over_heads { tr!("of all heads") } else { tr!("of the row") };
    let count = row.len();
    let root = format!("√({} + {eps:e}) = {}", n(*squares), n(*root));
    match mean {
        Some(mean) => tr!(
            "the {count} numbers {whose} have mean {mean} and variance {squares}; less the mean they are divided by {root}",
            count,
            whose,
            mean = n(*mean),
            squares = n(*squares),
            root
        ),
        None => tr!(
            "the squares of the {count} numbers {whose} have mean {squares}; they are divided by {root}",
            count,
            whose,
            squares = n(*squares),
            root
        ),
    }
}

/// Key by key the score, less the largest, its exponential, and its share of their sum.
fn exponentials(
    explanation: &Explanation,
    row: &Exponentials,
    labels: Option<&Labels>,
    at: &[usize],
    view: &View,
) -> Vec<Block> {
    let n = |value: f64| brief(value, view.decimals);
    let step = explanation.step;
    let item = step.axes.item(at);
    let count = row.keys.len();
    let has_weights = explanation.row.iter().any(|key| key.value.is_some());
    let is_blocked = explanation.row.iter().any(|key| !key.reasons.is_empty());
    let asked = at.last().copied().filter(|_| has_weights);
    let label = |key: usize| {
        let token = token(labels, Some(step.name), (Axis::Key, count), item, key);
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        let mark = if asked == Some(key) { " ←" } else { "" };
        format!("{key}{token}{mark}")
    };
    let line = |name: String, numbers: [Option<f64>; 4], masks: String| {
        let numbers = numbers.into_iter().take(if has_weights { 4 } else { 3 });
        let numbers = numbers.map(|value| Text::number(value.map(n).unwrap_or_default()));
        let masks = is_blocked.then(|| Text::from(masks));
        std::iter::once(Text::from(name)).chain(numbers).chain(masks).collect::<Vec<_>>()
    };
    let numbers =
        |key: &Exponential, weight| [Some(key.score.value), Some(key.less), Some(key.exp), weight];
    let shown = shown(count, asked, view);
    let mut rows = Vec::new();
    let mut next = 0;
    for key in shown.iter().copied().chain([count]) {
        let gap = next..key;
        if !gap.is_empty() {
            let of = |value: fn((&Exponential, &RowCell)) -> f64| -> f64 {
                let both = row.keys.iter().zip(&explanation.row);
                both.skip(gap.start).take(gap.len()).map(value).sum()
            };
            let weight = of(|(_, own)| own.value.unwrap_or_default());
            let sums = [None, None, Some(of(|(key, _)| key.exp)), Some(weight)];
            rows.push(line(tr!("… {gap} more", gap = gap.len()), sums, String::new()));
        }
        if let Some((worked, own)) = row.keys.get(key).zip(explanation.row.get(key)) {
            let masks: Vec<String> = own.reasons.iter().map(|reason| words(reason).mask).collect();
            rows.push(line(label(key), numbers(worked, own.value), masks.join(", ")));
        }
        next = key + 1;
    }
    if let Some(sink) = &row.sink {
        rows.push(line(
            tr!("sink").to_owned(),
            numbers(sink, Some(sink.exp / row.sum)),
            String::new(),
        ));
    }
    let weights = explanation.row.iter().filter_map(|key| key.value).sum::<f64>();
    let all = weights + row.sink.as_ref().map_or(0.0, |sink| sink.exp / row.sum);
    rows.push(line(tr!("sum").to_owned(), [None, None, Some(row.sum), Some(all)], String::new()));
    let less = match row.largest {
        largest if largest < 0.0 => tr!("score − ({largest})", largest = n(largest)),
        largest => tr!("score − {largest}", largest = n(largest)),
    };
    let share = format!("exp / {}", n(row.sum));
    let mut header = vec![tr!("key").to_owned(), tr!("score").to_owned(), less, "exp".to_owned()];
    header.extend(has_weights.then_some(share));
    header.extend(is_blocked.then(|| tr!("blocked by").to_owned()));
    let wraps = header.len() - usize::from(is_blocked);
    let mut blocks = vec![Block::Table(Table { header, rows, wraps, is_inner: true })];
    blocks.extend(rules(&explanation.row).into_iter().map(|rule| Block::Prose(1, rule)));
    blocks.extend(
        notes(explanation, row, weights, view).into_iter().map(|note| Block::Prose(1, note)),
    );
    blocks
}

/// The keys that are shown: all, or those at the edges and the one that is asked for.
fn shown(count: usize, asked: Option<usize>, view: &View) -> BTreeSet<usize> {
    let is_whole = view.full || count <= super::MOST;
    let is_shown = |key: &usize| {
        is_whole || *key < View::EDGE || *key + View::EDGE >= count || asked == Some(*key)
    };
    (0..count).filter(is_shown).collect()
}

/// What the masks that block keys of a row do, each once.
fn rules(row: &[RowCell]) -> Vec<String> {
    let mut rules = Vec::new();
    for reason in row.iter().flat_map(|key| &key.reasons) {
        let told = words(reason);
        let rule = tr!("{mask}: {rule}", mask = told.mask, rule = told.rule);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// What is out of the ordinary in a row.
fn notes(explanation: &Explanation, row: &Exponentials, weights: f64, view: &View) -> Vec<String> {
    let n = |value: f64| brief(value, view.decimals);
    let mut notes = Vec::new();
    let is_all =
        !explanation.row.is_empty() && explanation.row.iter().all(|key| !key.reasons.is_empty());
    if is_all && row.largest.is_finite() && row.sink.is_none() {
        notes.push(tr!(
            "every key is blocked; as all have the same score {largest}, they share the weight",
            largest = n(row.largest)
        ));
    }
    if let Some(sink) = &row.sink {
        notes.push(tr!("the sink {score} is a learned score that is no key's: it takes its share, and no value \
             goes with it, so that the weights of the keys sum to {weights}", score = sink.score.name, weights = n(weights)));
    }
    notes
}

/// Where a NaN comes from.
pub fn nan_source(source: &NanSource, is_here: bool) -> String {
    let NanSource { cell, cause } = source;
    let place = if is_here { tr!("it").to_owned() } else { cell.to_string() };
    let from = if is_here { String::new() } else { tr!("it comes from {cell}: ", cell) };
    match (cause, cell.index.as_slice()) {
        (NanCause::Given, _) => tr!("NaN: {from}{place} is given as NaN", from, place),
        (NanCause::EmptyRow, [item, head, query, ..]) => tr!(
            "NaN: {from}every key is blocked for query {query} of item {item} in head {head}, and softmax of −∞ alone \
             is NaN; `mask_fill=-1e9` or `empty_rows=zero` gives numbers",
            from,
            query,
            item,
            head
        ),
        (NanCause::EmptyRow, _) => tr!("NaN: {from}every score of the row is −∞", from),
        (NanCause::Infinite, _) => {
            tr!("NaN: {from}∞ − ∞ or 0 · ∞, of numbers that are none themselves", from)
        }
    }
}
