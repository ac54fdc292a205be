//! What do people get wrong in masks?

use super::{Knob, Range, Sibling, trees};
use foreign::listed;
use program::{Blocked, BlockedKeys, ByPosition, Documents, Fill, Kind, Masking, signed, whole};

pub fn knobs(own: &Masking) -> Vec<Knob> {
    match own {
        Masking::ByPosition(mask) => of_positions(mask),
        Masking::Fill { fill } => {
            let common = [0.0, -1.0, -10.0, -100.0, -1e3, -1e4, 1e9, f64::INFINITY];
            vec![Knob::new(own, ("fill", fill.0), Range::Cell, &common, |own, fill| {
                *own = Masking::Fill { fill: Fill(fill) };
                true
            })]
        }
        Masking::Keys(_)
        | Masking::Documents(_)
        | Masking::Selected(_)
        | Masking::AnyOf
        | Masking::Not => Vec::new(),
    }
}

fn of_positions(own: &ByPosition) -> Vec<Knob> {
    let bound = signed(own.keys.max(own.queries));
    let first = own.first as f64;
    let (name, common) = ((tr!("mask offset"), first), [first + 1.0, first - 1.0, 0.0]);
    let offset = Knob::new(own, name, Range::Whole(-bound, bound), &common, |own, first| {
        #[allow(clippy::cast_possible_truncation, reason = "a whole number")]
        let first = first as i64;
        own.first = first;
        true
    });
    let Some((name, number, with)) = own.hides.number() else { return vec![offset] };
    let number = number as f64;
    let common = [number - 1.0, number + 1.0, number * 2.0, number / 2.0];
    let range = Range::Whole(1, bound + 1);
    let number = Knob::new(own, (name, number), range, &common, move |own, number| {
        let number = whole(number).filter(|number| *number > 0);
        number.map(|number| own.hides = with(number)).is_some()
    });
    vec![number, offset]
}

pub fn siblings(own: &Masking) -> Vec<Sibling> {
    match own {
        Masking::Keys(own) => other_keys(own)
            .into_iter()
            .map(|(by, told)| Sibling::new(BlockedKeys { by, ..own.clone() }, Kind::Mask, told))
            .collect(),
        Masking::Documents(own) => other_documents(own),
        Masking::Selected(own) => trees::siblings(own),
        Masking::ByPosition(_) | Masking::AnyOf | Masking::Not | Masking::Fill { .. } => Vec::new(),
    }
}

/// Other keys that people block, and what their code does then.
fn other_keys(own: &BlockedKeys) -> Vec<(Blocked, &'static str)> {
    let inverted = tr!("the padding mask is inverted: it blocks the tokens");
    match &own.by {
        Blocked::Lengths(lengths) => {
            let with = |of: &dyn Fn(usize) -> usize| {
                Blocked::Lengths(lengths.iter().map(|length| of(*length)).collect())
            };
            let rows = |of: &dyn Fn(usize, usize) -> bool| {
                let cell = |length, key| if of(length, key) { '1' } else { '0' };
                let row = |length: &usize| (0..own.keys).map(|key| cell(*length, key)).collect();
                Blocked::Rows(lengths.iter().map(row).collect())
            };
            let on_left = rows(&|length, key| key >= own.keys.saturating_sub(length));
            let mut all = vec![
                (with(&|length| length + 1), tr!("every item has one key too many")),
                (with(&|length| length.saturating_sub(1)), tr!("every item has one key too few")),
                (on_left, tr!("padding is blocked on the left, and it is on the right")),
                (rows(&|length, key| key >= length), inverted),
            ];
            let told = tr!("items have each other's lengths");
            all.extend(turned(lengths).map(|other| (Blocked::Lengths(other), told)));
            let first = lengths.first().copied().unwrap_or_default();
            let most = lengths.iter().copied().max().unwrap_or_default();
            all.push((with(&|_| first), tr!("all items have the length of the first")));
            all.push((with(&|_| most), tr!("all items have the longest item's length")));
            all
        }
        Blocked::Rows(rows) => {
            let each = |of: fn(Vec<char>) -> Vec<char>| {
                let row = |row: &String| of(row.chars().collect()).into_iter().collect();
                Blocked::Rows(rows.iter().map(row).collect())
            };
            let flipped = each(|row| {
                row.into_iter().map(|cell| if cell == '0' { '1' } else { '0' }).collect()
            });
            let shifted = each(|mut row| {
                row.rotate_right(1);
                row
            });
            let mut all = vec![
                (flipped, inverted),
                (
                    each(|row| row.into_iter().rev().collect()),
                    tr!("the padding mask is the wrong way round"),
                ),
                (shifted, tr!("the padding mask is one key too far")),
            ];
            let told = tr!("items have each other's padding");
            all.extend(turned(rows).map(|other| (Blocked::Rows(other), told)));
            all
        }
    }
}

/// What there is of each item, given to another.
fn turned<T: Clone>(all: &[T]) -> impl Iterator<Item = Vec<T>> {
    let reversed = || all.iter().rev().cloned().collect();
    let turned = (1..all.len()).map(|by| {
        let mut turned = all.to_vec();
        turned.rotate_left(by);
        turned
    });
    turned.chain((all.len() > 2).then(reversed))
}

/// Documents that are packed otherwise.
fn other_documents(own: &Documents) -> Vec<Sibling> {
    let with = |of: &dyn Fn(&[usize]) -> Option<Vec<usize>>| {
        let all = |rows: &[Vec<usize>]| rows.iter().map(|row| of(row)).collect::<Option<Vec<_>>>();
        Some(Documents { queries: all(&own.queries)?, keys: all(&own.keys)?, rows: own.rows })
    };
    let mut all = Vec::new();
    for by in [1, 2, 3, 4] {
        let late = tr!("the documents begin {by} tokens late", by);
        let early = tr!("the documents begin {by} tokens early", by);
        all.push((with(&shifted(true, by)), late));
        all.push((with(&shifted(false, by)), early));
    }
    let last = |row: &[usize]| joined(row, row.len().checked_sub(2)?);
    let first_two = tr!("the first two documents are one").to_owned();
    all.push((with(&|row| joined(row, 0)), first_two));
    all.push((with(&last), tr!("the last two documents are one").to_owned()));
    for cut in cuts(own) {
        let told = tr!("the documents have {lengths} tokens", lengths = listed(&cut));
        let other = with(&|_| Some(cut.clone()));
        if all.iter().all(|(known, _)| *known != other) {
            all.push((other, told));
        }
    }
    let in_pairs = |row: &[usize]| {
        (row.len() > 2).then(|| row.chunks(2).map(|pair| pair.iter().sum()).collect())
    };
    let told = tr!("documents are one in pairs: every second boundary is not kept");
    all.push((with(&in_pairs), told.to_owned()));
    if own.queries.len() == own.keys.len() {
        let told = tr!("items have each other's documents");
        for (queries, keys) in turned(&own.queries).zip(turned(&own.keys)) {
            all.push((Some(Documents { queries, keys, rows: own.rows }), told.to_owned()));
        }
    }
    let sibling = |(documents, told): (Option<Documents>, String)| {
        Some(Sibling::new(Masking::Documents(documents?), Kind::Mask, told))
    };
    all.into_iter().filter_map(sibling).collect()
}

/// All lengths that as many documents of a few tokens can have.
fn cuts(own: &Documents) -> Vec<Vec<usize>> {
    let [row] = own.queries.as_slice() else { return Vec::new() };
    let (count, tokens) = (row.len(), row.iter().sum::<usize>());
    if own.keys != own.queries || !(2..=MOST_DOCUMENTS).contains(&count) || tokens > MOST_TOKENS {
        return Vec::new();
    }
    let mut all = vec![Vec::new()];
    for left in (0..count).rev() {
        let longer = |cut: Vec<usize>| {
            let rest = tokens - cut.iter().sum::<usize>();
            let lengths = if left == 0 { rest..rest + 1 } else { 1..rest - left + 1 };
            lengths.map(move |length| [cut.as_slice(), &[length]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// Of more documents, or tokens, not every cut is tried.
const MOST_DOCUMENTS: usize = 3;
const MOST_TOKENS: usize = 24;

/// Lengths of documents of which all but the first begin so many tokens late, or early; nothing where one has too few.
fn shifted(is_late: bool, by: usize) -> impl Fn(&[usize]) -> Option<Vec<usize>> {
    move |row| {
        let [first, middle @ .., last] = row else { return None };
        let (more, less) = if is_late { (first, last) } else { (last, first) };
        let (more, less) = (more + by, less.checked_sub(by)?);
        let (first, last) = if is_late { (more, less) } else { (less, more) };
        Some([&[first], middle, &[last]].concat())
    }
}

/// Lengths of documents of which the one at a place and the next are one.
fn joined(row: &[usize], at: usize) -> Option<Vec<usize>> {
    let next = row.get(at + 1)?;
    let mut joined = row.to_vec();
    joined[at] += next;
    joined.remove(at + 1);
    Some(joined)
}
