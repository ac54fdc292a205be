//! Which keys does each query see, by what it gives? What heads give is the mean of the values of the keys that are seen, each by
//! its weight: where a query's numbers are more than its keys, they tell of each key whether it has a part in them.

use candle_core::{DType, Tensor};

use super::blocked::in_words;
use crate::candidate::{Candidate, cost};
use crate::cells::{cells, solved};
use crate::grammar::{masked, scores_and_values};
use crate::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::Name;

/// A query has so many numbers more than keys, or says nothing for sure.
const SPARE: usize = 4;
/// Of so many keys with the most weight, those that should be seen first, one is.
const ANCHORS: usize = 16;
/// So much work is done for all queries: the products of their keys, and what is solved for each anchor.
const MOST_WORK: usize = 1 << 30;
/// A row is wrong where it is off by so much of its largest number,
const OFF: f64 = 1e-3;
/// and a key has its part, or none, where what is solved for is as near to 1 or to 0.
const NEAR: f64 = 0.15;
/// Keys of less weight than that, of the largest, are taken as the mask has them.
const LEAST: f64 = 1e-4;

/// The mask by which the recorded outputs of heads come about, the same in all heads.
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
        && values.dims() == [items, heads, keys, width]
        && heads * width >= keys + SPARE;
    let of_query = (heads * width).saturating_add(ANCHORS.saturating_mul(keys));
    let work = keys.saturating_mul(keys).saturating_mul(of_query);
    if !fits || work.saturating_mul(items * queries) > MOST_WORK {
        return Ok(None);
    }
    let blocked = match trace.mask_of_scores() {
        Some(mask) => mask.value.broadcast_as(scores.shape())?.contiguous()?,
        None => scores.zeros_like()?.to_dtype(DType::U8)?,
    };
    let mut blocked = blocked.flatten_all()?.to_vec1::<u8>()?;
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
        let Some(seen) = seen(&heads_of, hidden) else { continue };
        for head in 0..heads {
            for (key, seen) in seen.iter().enumerate() {
                if let Some(seen) = seen {
                    blocked[row(head) * keys + key] = u8::from(!seen);
                }
            }
        }
    }
    let blocked = Tensor::from_vec(blocked, scores.shape(), scores.device())?;
    let told = in_words(trace, &blocked)?;
    Ok(masked(trace, sizes, blocked, told, cost::FITTED))
}

/// Whether numbers are further from the right ones than rounding is.
fn is_off(found: &[f64], expected: &[f64]) -> bool {
    let size = expected.iter().fold(0.0, |most: f64, right| most.max(right.abs()));
    !found.iter().zip(expected).all(|(own, right)| (own - right).abs() <= OFF * size)
}

/// What a head has of a query: its scores, what it gives, and the values of all keys.
struct Head<'v> {
    scores: &'v [f64],
    found: &'v [f64],
    values: &'v [f64],
}

/// Of each key whether a query sees it, by what all heads give; nothing of keys with too little weight to tell. Nothing at all
/// where no choice of keys gives it. Some should be hidden.
fn seen(heads: &[Head], hidden: &[u8]) -> Option<Vec<Option<bool>>> {
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
    let size = |column: &Vec<f64>| column.iter().map(|own| own * own).sum::<f64>().sqrt();
    let sizes: Vec<f64> = columns.iter().map(size).collect();
    let most = sizes.iter().copied().fold(0.0, f64::max);
    if !(most > 0.0 && most.is_finite()) {
        return None;
    }
    let mut told: Vec<usize> = (0..keys).filter(|key| sizes[*key] > LEAST * most).collect();
    // Where what heads give is one key's value, that key alone is seen.
    let is_given = |key: &usize| {
        let own = values_of[*key].sqrt();
        own > LEAST * most && sizes[*key] < LEAST * own
    };
    if let Some(only) = (0..keys).find(is_given) {
        let mut seen = vec![None; keys];
        for key in told {
            seen[key] = Some(false);
        }
        seen[only] = Some(true);
        return Some(seen);
    }
    told.sort_by(|one, other| {
        hidden[*one].cmp(&hidden[*other]).then(sizes[*other].total_cmp(&sizes[*one]))
    });
    let dot = |one: usize, other: usize| -> f64 {
        let products = columns[one].iter().zip(&columns[other]).map(|(one, other)| one * other);
        products.sum::<f64>() / (sizes[one] * sizes[other])
    };
    let products: Vec<Vec<f64>> =
        told.iter().map(|one| told.iter().map(|other| dot(*one, *other)).collect()).collect();
    (0..told.len().min(ANCHORS)).find_map(|anchor| {
        let others = || (0..told.len()).filter(|at| *at != anchor);
        let row = |at: usize| {
            let row = others().map(|other| products[at][other]);
            row.chain([-products[at][anchor]]).collect::<Vec<f64>>()
        };
        let parts = solved(others().map(row).collect())?;
        let mut seen = vec![None; keys];
        seen[told[anchor]] = Some(true);
        for (at, part) in others().zip(parts) {
            let key = told[at];
            let part = part * sizes[told[anchor]] / sizes[key];
            let is_seen = part > 0.5;
            if (part - f64::from(u8::from(is_seen))).abs() > NEAR {
                return None;
            }
            seen[key] = Some(is_seen);
        }
        Some(seen)
    })
}
