//! What an operation worked out on the way to a number, in words and tables.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;

use super::reason::words;
use super::terms::{MOST, is_apart};
use crate::View;
use crate::label::token;
use crate::number::brief;
use crate::page::{Block, Table, Text};
use config::Labels;
use program::{
    Axis, Explanation, Exponential, Exponentials, NanCause, NanSource, Normed, RowCell, Term,
    Turned, Working,
};

/// What stands behind the key that is asked for.
pub const MARK: &str = " ←";

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
        Working::Masked { score, is_blocked } => {
            // What the mask puts there, which a file need not hold.
            let fill = explanation.terms.iter().map(Term::value).sum();
            say(masked(&n(score.value), &score.name, is_blocked.then(|| n(fill)).as_deref()))
        }
        Working::Dropped { is_kept, p } => say(dropped(*is_kept, *p)),
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
                "pair {pair} is features {first} and {second}; at position {position} it is rotated by \
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
            let places = [feature, *head, *own].map(|place| place.to_string());
            say(moved(places.each_ref().map(String::as_str), *head_dim, *is_split))
        }
        Working::Normed(normed) => say(normed_row(normed, view)),
    }
}

/// What a mask makes of a score, which stands in a cell of that name; what it puts there, if it blocks the key.
pub fn masked(score: &str, name: &str, fill: Option<&str>) -> String {
    match fill {
        Some(fill) => {
            tr!(
                "the score was {score} ({name}); the mask puts {fill} in its place",
                score,
                name,
                fill
            )
        }
        None => tr!("no mask blocks the key: the score stays").to_owned(),
    }
}

/// What dropout makes of a weight.
pub fn dropped(is_kept: bool, p: f64) -> String {
    if is_kept {
        tr!(
            "dropout keeps it (each weight is dropped with probability {p}) and multiplies it by 1 / (1 − {p})",
            p
        )
    } else {
        tr!(
            "dropout drops it, as it does each weight with probability {p}; the weights that it keeps are multiplied \
             by 1 / (1 − {p})",
            p
        )
    }
}

/// Where a feature comes from: its place among all, its head, its place there.
pub fn moved([feature, head, own]: [&str; 3], head_dim: impl Display, is_split: bool) -> String {
    let sum = format!("{feature} = {head} · {head_dim} + {own}");
    if is_split {
        tr!(
            "feature {own} of head {head} is feature {feature} before the split: {sum}",
            own,
            head,
            feature,
            sum
        )
    } else {
        tr!(
            "feature {feature} of the result is feature {own} of head {head}: {sum}",
            feature,
            own,
            head,
            sum
        )
    }
}

fn normed_row(normed: &Normed, view: &View) -> String {
    let n = |value: f64| brief(value, view.decimals);
    let Normed { row, mean, squares, eps, root, over_heads, is_sum } = normed;
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
        None if *is_sum => tr!(
            "the squares of the {count} numbers {whose} have sum {squares}; they are divided by {root}",
            count,
            whose,
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

/// Key by key the score, less the largest, its exponential, its share of their sum, and beside that the recorded weights
/// where one of them does not follow.
fn exponentials(
    explanation: &Explanation,
    row: &Exponentials,
    labels: Option<&Labels>,
    at: &[usize],
    view: &View,
) -> Vec<Block> {
    let lines = Lines::of(explanation, row, view);
    let step = explanation.step;
    let item = step.axes.item(at);
    let count = row.keys.len();
    let asked = at.last().copied().filter(|_| lines.has_weights);
    let label = |key: usize| {
        let token = token(labels, Some(step.name), (Axis::Key, count), item, key);
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        let mark = if asked == Some(key) { MARK } else { "" };
        format!("{key}{token}{mark}")
    };
    let mut rows = Vec::new();
    let mut next = 0;
    for key in shown(count, asked, view).into_iter().chain([count]) {
        rows.extend(lines.gap(next..key));
        if let Some((worked, cell)) = row.keys.get(key).zip(explanation.row.get(key)) {
            let masks: Vec<String> = cell.reasons.iter().map(|reason| words(reason).mask).collect();
            let weight = cell.value.and_then(|value| lines.own(value, lines.follows(worked, cell)));
            rows.push(lines.line(label(key), lines.numbers(worked), weight, masks.join(tr!(", "))));
        }
        next = key + 1;
    }
    if let Some(sink) = &row.sink {
        rows.push(lines.line(tr!("sink").to_owned(), lines.numbers(sink), None, String::new()));
    }
    let weights = row.keys.iter().map(|key| lines.share(key)).sum::<f64>();
    let all = weights + row.sink.as_ref().map_or(0.0, |sink| lines.share(sink));
    let recorded = lines.own(explanation.row.iter().filter_map(|key| key.value).sum(), true);
    let sums = [None, None, Some(row.sum), Some(all)];
    rows.push(lines.line(tr!("sum").to_owned(), sums, recorded, String::new()));
    let header = lines.header();
    let wraps = header.len() - usize::from(lines.is_blocked);
    let said =
        lines.is_recorded.then(|| tr!("≠: the recorded number is not that share").to_owned());
    let said = said.into_iter().chain(rules(&explanation.row));
    let said = said.chain(notes(explanation, row, weights, view));
    let table = Block::Table(Table { header, rows, wraps, is_inner: true });
    std::iter::once(table).chain(said.map(|text| Block::Prose(1, text))).collect()
}

/// The lines of a table of exponentials, and which columns it has.
struct Lines<'a> {
    explanation: &'a Explanation<'a>,
    row: &'a Exponentials,
    decimals: usize,
    /// What weights are shares of; nothing where all are 0, as the run has it of an empty row.
    sum: Option<f64>,
    has_weights: bool,
    is_blocked: bool,
    is_recorded: bool,
}

impl<'a> Lines<'a> {
    fn of(explanation: &'a Explanation<'a>, row: &'a Exponentials, view: &View) -> Self {
        let has_weights = explanation.row.iter().any(|key| key.value.is_some());
        let is_blocked = explanation.row.iter().any(|key| !key.reasons.is_empty());
        let is_zero = row.is_empty() && explanation.terms.iter().all(|term| term.value() == 0.0);
        let sum = Some(row.sum).filter(|_| !is_zero);
        let decimals = view.decimals;
        let lines =
            Self { explanation, row, decimals, sum, has_weights, is_blocked, is_recorded: false };
        let is_recorded = !lines.both().all(|(key, own)| lines.follows(key, own));
        Self { is_recorded, ..lines }
    }

    /// The keys as they were worked out, and as they stand in the row.
    fn both(&self) -> impl Iterator<Item = (&Exponential, &RowCell)> {
        self.row.keys.iter().zip(&self.explanation.row)
    }

    fn share(&self, key: &Exponential) -> f64 {
        self.sum.map_or(0.0, |sum| key.exp / sum)
    }

    fn follows(&self, key: &Exponential, own: &RowCell) -> bool {
        own.value.is_none_or(|own| !is_apart(own, self.share(key), 0.0))
    }

    /// A recorded weight, where these have a column.
    fn own(&self, value: f64, follows: bool) -> Option<String> {
        let sign = if follows { "" } else { "≠ " };
        self.is_recorded.then(|| format!("{sign}{}", brief(value, self.decimals)))
    }

    fn numbers(&self, key: &Exponential) -> [Option<f64>; 4] {
        [Some(key.score.value), Some(key.less), Some(key.exp), Some(self.share(key))]
    }

    fn line(
        &self,
        name: String,
        numbers: [Option<f64>; 4],
        own: Option<String>,
        masks: String,
    ) -> Vec<Text> {
        let numbers = numbers.into_iter().take(if self.has_weights { 4 } else { 3 });
        let n = |value: f64| brief(value, self.decimals);
        let numbers = numbers.map(|value| value.map(n).unwrap_or_default());
        let own = self.is_recorded.then(|| own.unwrap_or_default());
        let numbers = numbers.chain(own).map(Text::number);
        let masks = self.is_blocked.then(|| Text::from(masks));
        std::iter::once(Text::from(name)).chain(numbers).chain(masks).collect()
    }

    /// The line for keys that are not shown, if there are any.
    fn gap(&self, gap: Range<usize>) -> Option<Vec<Text>> {
        let keys = || self.both().skip(gap.start).take(gap.len());
        let exps = keys().map(|(key, _)| key.exp).sum();
        let shares = keys().map(|(key, _)| self.share(key)).sum();
        let weights = keys().map(|(_, own)| own.value.unwrap_or_default()).sum();
        let weight = self.own(weights, keys().all(|(key, own)| self.follows(key, own)));
        let name = tr!("… {gap} more", gap = gap.len());
        let sums = [None, None, Some(exps), Some(shares)];
        (!gap.is_empty()).then(|| self.line(name, sums, weight, String::new()))
    }

    fn header(&self) -> Vec<String> {
        let n = |value: f64| brief(value, self.decimals);
        let less = match self.row.largest {
            largest if largest < 0.0 => tr!("score − ({largest})", largest = n(largest)),
            largest => tr!("score − {largest}", largest = n(largest)),
        };
        let shares = format!("exp / {}", n(self.row.sum));
        let mut header =
            vec![tr!("key").to_owned(), tr!("score").to_owned(), less, "exp".to_owned()];
        header.extend(self.has_weights.then_some(shares));
        header.extend(self.is_recorded.then(|| tr!("recorded").to_owned()));
        header.extend(self.is_blocked.then(|| tr!("blocked by").to_owned()));
        header
    }
}

/// The keys that are shown: all, or those at the edges and the one that is asked for.
fn shown(count: usize, asked: Option<usize>, view: &View) -> BTreeSet<usize> {
    let is_whole = view.full || count <= MOST;
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
        notes.push(tr!("the sink {score} is a learned score that belongs to no key: it takes a share of the weight and has no value, so the weights of the keys sum to {weights}", score = sink.score.name, weights = n(weights)));
    }
    notes
}

/// Where a NaN comes from.
pub fn nan_source(source: &NanSource, is_here: bool) -> String {
    let NanSource { cell, cause } = source;
    let place = if is_here { tr!("it").to_owned() } else { cell.to_string() };
    let from = if is_here { String::new() } else { tr!("it comes from {cell}: ", cell) };
    match (cause, cell.index.as_slice()) {
        (NanCause::Given, _) => tr!("NaN: {from}{place} is NaN in the input", from, place),
        (NanCause::Recorded, _) => {
            tr!(
                "NaN: {from}{place} is recorded as NaN, which does not follow from the numbers that it is computed from",
                from,
                place
            )
        }
        (NanCause::EmptyRow, [item, head, query, ..]) => tr!(
            "NaN: {from}every key is blocked for query {query} of item {item} in head {head}, and softmax of a row of −∞ is NaN; `mask_fill=-1e9` or `empty_rows=zero` gives numbers",
            from,
            query,
            item,
            head
        ),
        (NanCause::EmptyRow, _) => tr!("NaN: {from}every score of the row is −∞", from),
        (NanCause::Infinite, _) => {
            tr!(
                "NaN: {from}∞ − ∞ or 0 · ∞; none of the numbers that it is computed from is NaN",
                from
            )
        }
    }
}
