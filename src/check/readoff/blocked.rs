//! How do the cells that are blocked differ from those that should be?

use candle_core::Tensor;

use base::error::Result;
use base::lang;
use program::{Trace, signed, unravel};

/// How the cells that are blocked differ from those that should be: by a rule if they follow one, and else how many.
///
/// # Errors
/// If candle fails.
pub fn in_words(trace: &Trace, blocked: &Tensor) -> Result<String> {
    let meant = match trace.mask_of_scores() {
        Some(mask) => mask.value.broadcast_as(blocked.shape())?,
        None => blocked.zeros_like()?,
    };
    let (found, meant) =
        (blocked.flatten_all()?.to_vec1::<u8>()?, meant.flatten_all()?.to_vec1::<u8>()?);
    if let Some(rule) = rule(&found, blocked.dims()) {
        return Ok(rule);
    }
    let pairs = || found.iter().zip(&meant).enumerate();
    let more = pairs().filter(|(_, (found, meant))| **found != 0 && **meant == 0).count();
    let fewer = pairs().filter(|(_, (found, meant))| **found == 0 && **meant != 0).count();
    let first = pairs().find(|(_, (found, meant))| (**found != 0) != (**meant != 0));
    let first = first.map(|(at, _)| unravel(at, blocked.dims()));
    let place = match first.as_deref() {
        Some([item, head, query, key]) => {
            tr!(
                ", first at batch {item}, head {head}, query {query}, key {key}",
                item,
                head,
                query,
                key
            )
        }
        _ => String::new(),
    };
    Ok(match (more, fewer) {
        (more, 0) => tr!("{more} cells too many are blocked{place}", more, place),
        (0, fewer) => tr!("{fewer} cells that should be blocked are not{place}", fewer, place),
        (more, fewer) => {
            tr!(
                "other cells are blocked: {more} that should not be, and {fewer} are not that should{place}",
                more,
                fewer,
                place
            )
        }
    })
}

/// What is visible, if it is the same for all heads and follows from the distance of query and key, or from the length
/// of the item.
fn rule(blocked: &[u8], dims: &[usize]) -> Option<String> {
    let [items, heads, queries, keys] = *dims else { return None };
    let is_seen = |item: usize, head: usize, query: usize, key: usize| {
        blocked.get(((item * heads + head) * queries + query) * keys + key) == Some(&0)
    };
    let all = || (0..items).flat_map(move |item| (0..heads).map(move |head| (item, head)));
    // The last query stands at the last key.
    let distance = |query: usize, key: usize| {
        let place = |at: usize| signed(at);
        place(query) + place(keys) - place(queries) - place(key)
    };
    let cells = || (0..queries).flat_map(move |query| (0..keys).map(move |key| (query, key)));
    let seen = || cells().filter(|(query, key)| is_seen(0, 0, *query, *key));
    let least = seen().map(|(query, key)| distance(query, key)).min()?;
    let most = seen().map(|(query, key)| distance(query, key)).max()?;
    let is_band = |(item, head): (usize, usize)| {
        cells().all(|(query, key)| {
            let is_within = (least..=most).contains(&distance(query, key));
            is_within == is_seen(item, head, query, key)
        })
    };
    if all().all(is_band) {
        let place = |by: i64| match by {
            0 => "itself".to_owned(),
            by if by > 0 => tr!("{by} before it", by),
            by => tr!("{by} after it", by = -by),
        };
        let (from, to) = (place(most), place(least));
        // No key is further before a query than the first is before the last, and none further behind.
        let (is_all_before, is_all_after) =
            (most >= distance(queries - 1, 0), least <= distance(0, keys - 1));
        let seen = match (is_all_before, is_all_after) {
            (true, true) => tr!("all keys").to_owned(),
            (true, false) => tr!("the keys up to {to}", to),
            (false, true) => tr!("the keys from {from} on", from),
            (false, false) => tr!("the keys from {from} to {to}", from, to),
        };
        return Some(tr!("every query sees {seen}", seen));
    }
    let length = |item: usize| {
        let count = (0..keys).take_while(|key| is_seen(item, 0, 0, *key)).count();
        let is_so = |head: usize| {
            cells().all(|(query, key)| is_seen(item, head, query, key) == (key < count))
        };
        (0..heads).all(is_so).then(|| count.to_string())
    };
    let lengths: Vec<String> = (0..items).map(length).collect::<Option<_>>()?;
    Some(tr!("the items have {lengths} keys", lengths = lang::list(&lengths)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a mask that lets a query see a key where `is_seen` says so.
    fn told(is_seen: impl Fn(usize, usize, usize) -> bool) -> Option<String> {
        let mut blocked = Vec::new();
        for (item, query) in (0..2).flat_map(|item| (0..4).map(move |query| (item, query))) {
            blocked.extend((0..5).map(|key| u8::from(!is_seen(item, query, key))));
        }
        rule(&blocked, &[2, 1, 4, 5])
    }

    #[test]
    fn masks_that_follow_a_rule_are_told_by_it() {
        let causal = told(|_, query, key| key <= query + 1).expect("a rule");
        assert_eq!(causal, "every query sees the keys up to itself");
        let past = told(|_, query, key| key > query + 1).expect("a rule");
        assert_eq!(past, "every query sees the keys from 1 after it on");
        let window = told(|_, query, key| (query..=query + 2).contains(&key)).expect("a rule");
        assert_eq!(window, "every query sees the keys from 1 before it to 1 after it");
        let lengths = told(|item, _, key| key < 3 + item).expect("a rule");
        assert_eq!(lengths, "the items have 3, 4 keys");
        assert_eq!(told(|item, query, key| (item + query + key) % 3 == 0), None);
    }
}
