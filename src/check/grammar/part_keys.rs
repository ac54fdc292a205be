//! Which other keys may parts have?

use super::kernels::BLOCKS;
use program::{Axis, Parts};

/// The keys of each part.
pub type Keys = Vec<Vec<(usize, usize)>>;

/// Parts that begin closer together, or further apart, than they are long.
pub(super) fn apart_by_others(parts: &Parts, keys: usize) -> Vec<(Keys, String)> {
    let Some(&(0, size)) = parts.keys.first().and_then(|spans| spans.first()) else {
        return Vec::new();
    };
    let of = |stride: usize| -> (Keys, String) {
        let spans = (0..keys).step_by(stride).map(|start| (start, (start + size).min(keys)));
        let mut all: Keys = spans.map(|own| vec![own]).collect();
        // What comes behind the last part is counted in it.
        let behind = all.split_off(parts.keys.len().min(all.len()));
        if let Some(last) = all.last_mut() {
            last.extend(behind.into_iter().flatten());
        }
        all.resize(parts.keys.len(), Vec::new());
        let told = tr!(
            "each {name} begins {stride} keys behind the one before, and has {size}",
            name = parts.axis.told(),
            stride,
            size
        );
        (all, told)
    };
    let strides = [size.saturating_sub(1), size + 1, size / 2];
    let strides =
        strides.into_iter().filter(|stride| (1..keys).contains(stride) && *stride != size);
    strides.map(of).collect()
}

/// Parts that begin or end with a whole page.
pub(super) fn rounded(parts: &Parts) -> Vec<(Keys, String)> {
    let mut all = rounded_starts(parts);
    if parts.axis == Axis::Split {
        all.extend(rounded_ends(parts));
        all.extend(of_whole_size(parts));
    }
    all
}

/// Splits of the same size, rounded down, whose last one ends before the last keys.
fn of_whole_size(parts: &Parts) -> Option<(Keys, String)> {
    let count = parts.keys.len();
    let ends = parts.keys.iter().flat_map(|spans| spans.iter().enumerate());
    let mut sequences: Vec<(usize, usize)> = Vec::new();
    for (at, (first, end)) in ends {
        match sequences.get_mut(at) {
            Some(own) => own.1 = own.1.max(*end),
            None => sequences.push((*first, *end)),
        }
    }
    let cut = |split: usize| {
        let own = |(first, end): &(usize, usize)| {
            let size = end.saturating_sub(*first) / count;
            (first + split * size, first + (split + 1) * size)
        };
        sequences.iter().map(own).collect()
    };
    let has_rest = sequences.iter().any(|(first, end)| end.saturating_sub(*first) % count > 0);
    let told = tr!(
        "each split has ⌊keys / {count}⌋ keys: the rest behind the last one is in no split",
        count
    );
    (count > 1 && has_rest).then(|| ((0..count).map(cut).collect(), told))
}

/// Parts that begin some keys early, as where a start is rounded down to a page and an end up.
fn rounded_starts(parts: &Parts) -> Vec<(Keys, String)> {
    let size = |(first, end): &(usize, usize)| end.saturating_sub(*first);
    let least = parts.keys.iter().flatten().map(size).min().unwrap_or_default();
    let of = |page: usize| -> (Keys, String) {
        let early = |(first, end): &(usize, usize)| {
            (if first < end { first.saturating_sub(page) } else { *first }, *end)
        };
        let rest = parts.keys.iter().skip(1).map(|spans| spans.iter().map(early).collect());
        let told = tr!(
            "every {name} but the first starts {page} keys early, as where its start is rounded down to a page and its end up: keys at the edges are counted twice",
            name = parts.axis.told(),
            page
        );
        (parts.keys.first().cloned().into_iter().chain(rest).collect(), told)
    };
    BLOCKS.into_iter().filter(|page| *page > 1 && *page <= least).map(of).collect()
}

/// Parts that end with their last whole page, of which the next one begins where it should.
fn rounded_ends(parts: &Parts) -> Vec<(Keys, String)> {
    let mut all: Vec<(Keys, String)> = Vec::new();
    for page in BLOCKS.into_iter().filter(|page| *page > 1 && page.is_power_of_two()) {
        for (at, spans) in parts.keys.iter().enumerate() {
            let whole =
                |(first, end): &(usize, usize)| (*first, first + (end - first) / page * page);
            let ends: Vec<_> = spans.iter().map(whole).collect();
            let mut keys = parts.keys.clone();
            if ends == *spans || at + 1 == keys.len() {
                continue;
            }
            keys[at] = ends;
            let told = tr!(
                "{name} {at} ends with its last whole page of {page} keys: those between it and the next one are never seen",
                name = parts.axis.told(),
                at,
                page
            );
            if all.iter().all(|(known, _)| *known != keys) {
                all.push((keys, told));
            }
        }
    }
    all
}

/// Parts that count the keys of the first, or all before their own, as well.
pub(super) fn with_first(parts: &Parts) -> Vec<(Keys, String)> {
    let name = parts.axis.told();
    let starts = parts.keys.first().map(Vec::as_slice).unwrap_or_default();
    let with = |is_all: bool| -> Keys {
        let part = |spans: &Vec<(usize, usize)>| {
            let own = spans.iter().zip(starts).flat_map(|((first, end), (start, own))| {
                if is_all { vec![(*start, *end)] } else { vec![(*start, *own), (*first, *end)] }
            });
            own.collect()
        };
        let first = parts.keys.first().cloned();
        first.into_iter().chain(parts.keys.iter().skip(1).map(part)).collect()
    };
    vec![
        (
            with(false),
            tr!(
                "the keys of the first {name}, the prefix, are counted in every other as well",
                name
            ),
        ),
        (
            with(true),
            tr!("every {name} begins at the first key: all before it are counted again", name),
        ),
    ]
}
