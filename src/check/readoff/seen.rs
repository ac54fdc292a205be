//! How often does each key count for a query, by what it gives? What heads give is the mean of the values of the keys that are
//! seen, each by its weight: where a query's numbers are more than its keys, they tell of each key whether it has a part in them,
//! or counts more than once.

use candle_core::DType;

use super::counted::{Counts, candidate as counted};
use crate::candidate::Candidate;
use crate::cells::{cells, solved};
use crate::grammar::scores_and_values;
use crate::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::Name;

/// A query has so many numbers more than keys, or says nothing for sure.
const SPARE: usize = 4;
/// So much work is done for all queries: the products of their keys, and what is solved.
const MOST_WORK: usize = 1 << 30;
/// A row is wrong where it is off by so much of its largest number,
const OFF: f64 = 1e-3;
/// and a key counts as often as it is so near to a whole number of times,
const NEAR: f64 = 0.15;
/// which are no more than that.
const MOST_TIMES: u8 = 3;
/// What is added to products of columns of length 1, so that they can be solved for: less than rounding leaves of them.
const RIDGE: f64 = 1e-12;
/// So often is solved again, each time with what came out.
const AGAIN: usize = 3;
/// Keys of less weight than that, of the largest, are taken as the mask has them.
const LEAST: f64 = 1e-4;

/// The keys by which the recorded outputs of heads come about, the same in all heads.
///
/// # Errors
/// If candle fails.
pub fn candidate(scope: &Scope, at: Name, sizes: &Sizes) -> Result<Option<Candidate>> {
    let trace = scope.trace();
    let Some((found, expected)) = scope.pair(at).filter(|_| at == Name::HeadOutputs) else {
        return Ok(None);
    };
    let read = scores_and_values(trace, sizes);
    let known = read.map(|[scores, values]| (scope.known(scores), scope.known(values)));
    let Some((Some(scores), Some(values))) = known else { return Ok(None) };
    let (&[items, heads, queries, keys], width) = (scores.dims(), found.dim(3)?) else {
        return Ok(None);
    };
    let fits = found.dims() == [items, heads, queries, width]
        && values.dims() == [items, heads, keys, width];
    let of_query = (heads * width).saturating_add(AGAIN.saturating_mul(keys));
    let work = keys.saturating_mul(keys).saturating_mul(of_query);
    if !fits || work.saturating_mul(items * queries) > MOST_WORK {
        return Ok(None);
    }
    let blocked = match trace.mask_of_scores() {
        Some(mask) => mask.value.broadcast_as(scores.shape())?.contiguous()?,
        None => scores.zeros_like()?.to_dtype(DType::U8)?,
    };
    let blocked = blocked.flatten_all()?.to_vec1::<u8>()?;
    let mut counts = Counts::of(&blocked, [items, heads, queries, keys]);
    let [found, expected, scores_of, values] = [found, expected, scores, values].map(cells);
    let (found, expected, scores_of, values) = (found?, expected?, scores_of?, values?);
    for (item, query) in (0..items).flat_map(|item| (0..queries).map(move |query| (item, query))) {
        let row = |head: usize| (item * heads + head) * queries + query;
        let of = |head: usize, size: usize| row(head) * size..(row(head) + 1) * size;
        let is_off = |head: usize| is_off(&found[of(head, width)], &expected[of(head, width)]);
        if !(0..heads).any(is_off) {
            continue;
        }
        let head = |head: usize| Head {
            scores: &scores_of[of(head, keys)],
            found: &found[of(head, width)],
            values: &values[(item * heads + head) * keys * width..][..keys * width],
        };
        let heads_of: Vec<Head> = (0..heads).map(head).collect();
        let hidden = &blocked[row(0) * keys..][..keys];
        // Where a query does not tell, others may, and what they tell is tried.
        for (key, times) in seen(&heads_of, hidden).into_iter().flatten().enumerate() {
            if let Some(times) = times {
                counts.set([item, query, key], times);
            }
        }
    }
    counted(scope, sizes, &counts)
}

/// Whether numbers are further from the right ones than rounding is.
pub fn is_off(found: &[f64], expected: &[f64]) -> bool {
    let size = expected.iter().fold(0.0, |most: f64, right| most.max(right.abs()));
    !found.iter().zip(expected).all(|(own, right)| (own - right).abs() <= OFF * size)
}

/// What a head has of a query: its scores, what it gives, and the values of all keys.
struct Head<'v> {
    scores: &'v [f64],
    found: &'v [f64],
    values: &'v [f64],
}

/// Of each key how often it counts for a query, by what all heads give; nothing of keys with too little weight to tell. Nothing at
/// all where no choice of keys gives it. Some should be hidden: where there are too many to tell, they are.
fn seen(heads: &[Head], hidden: &[u8]) -> Option<Vec<Option<u8>>> {
    let keys = hidden.len();
    // Each number of a head is a mean: the weights of what is seen, times what the values are off from it, come to 0.
    let (mut columns, mut values_of) = (vec![Vec::new(); keys], vec![0.0_f64; keys]);
    for head in heads {
        let most = head.scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let of_keys = head.values.chunks(head.found.len()).zip(&mut columns).zip(&mut values_of);
        for (key, ((values, column), size)) in of_keys.enumerate() {
            let weight = (head.scores[key] - most).exp();
            column.extend(values.iter().zip(head.found).map(|(value, own)| weight * (value - own)));
            *size += values.iter().map(|value| (weight * value).powi(2)).sum::<f64>();
        }
    }
    let numbers = columns.first().map_or(0, Vec::len);
    let is_tried = |key: &usize| numbers >= keys + SPARE || hidden[*key] == 0;
    let tried: Vec<usize> = (0..keys).filter(is_tried).collect();
    if numbers < tried.len() + SPARE {
        return None;
    }
    let size = |column: &Vec<f64>| column.iter().map(|own| own * own).sum::<f64>().sqrt();
    let sizes: Vec<f64> = columns.iter().map(size).collect();
    let most = tried.iter().map(|key| sizes[*key]).fold(0.0, f64::max);
    if !(most > 0.0 && most.is_finite()) {
        return None;
    }
    let told: Vec<usize> = tried.into_iter().filter(|key| sizes[*key] > LEAST * most).collect();
    // Where what heads give is one key's value, that key alone is seen.
    let is_given = |key: &usize| {
        let own = values_of[*key].sqrt();
        own > LEAST * most && sizes[*key] < LEAST * own
    };
    let mut seen = vec![None; keys];
    if let Some(only) = (0..keys).find(is_given) {
        for key in told {
            seen[key] = Some(0);
        }
        seen[only] = Some(1);
        return Some(seen);
    }
    let dot = |one: usize, other: usize| -> f64 {
        let products = columns[one].iter().zip(&columns[other]).map(|(one, other)| one * other);
        products.sum::<f64>() / (sizes[one] * sizes[other])
    };
    let products: Vec<Vec<f64>> =
        told.iter().map(|one| told.iter().map(|other| dot(*one, *other)).collect()).collect();
    let first = told.iter().map(|key| if hidden[*key] == 0 { sizes[*key] } else { 0.0 });
    let parts = vanishing(&products, first.collect())?;
    let parts: Vec<f64> = told.iter().zip(parts).map(|(key, part)| part / sizes[*key]).collect();
    let (largest, _) = told
        .iter()
        .enumerate()
        .map(|(at, key)| (at, parts[at] * sizes[*key]))
        .max_by(|(_, one), (_, other)| one.abs().total_cmp(&other.abs()))?;
    let times = (1..=MOST_TIMES).find_map(|times| {
        let whole = |part: &f64| {
            let part = part * f64::from(times) / parts[largest];
            (0..=MOST_TIMES).find(|whole| (part - f64::from(*whole)).abs() <= NEAR)
        };
        parts.iter().map(whole).collect::<Option<Vec<u8>>>()
    })?;
    for (key, times) in told.into_iter().zip(times) {
        seen[key] = Some(times);
    }
    Some(seen)
}

/// So much of each column as gives the least, by the products of columns of length 1.
fn vanishing(products: &[Vec<f64>], first: Vec<f64>) -> Option<Vec<f64>> {
    let is_none = first.iter().all(|own| *own == 0.0);
    let mut own = if is_none { vec![1.0; first.len()] } else { first };
    for _ in 0..AGAIN {
        let size = own.iter().map(|own| own * own).sum::<f64>().sqrt();
        let row = |(at, (row, own)): (usize, (&Vec<f64>, &f64))| {
            let mut row = row.clone();
            row[at] += RIDGE;
            row.push(own / size);
            row
        };
        own = solved(products.iter().zip(&own).enumerate().map(row).collect())?;
    }
    Some(own)
}
