//! How do the cells that are blocked differ from those that should be?

use candle_core::Tensor;

use crate::candidate::{cost, ranges};
use crate::mask_words::{Rows, by_item, by_rows, rows_in_words};
use base::error::Result;
use base::lang;
use program::{Trace, signed, unravel};

/// How the cells that are blocked differ from those that should be: by a rule if they follow one, and else how many. And what it
/// costs to suppose so: lengths and documents are likelier than a mistake that happens to block the same cells.
///
/// # Errors
/// If candle fails.
pub fn in_words(trace: &Trace, blocked: &Tensor) -> Result<(String, u32)> {
    let meant = match trace.mask_of_scores() {
        Some(mask) => mask.value.broadcast_as(blocked.shape())?,
        None => blocked.zeros_like()?,
    };
    let (found, meant) =
        (blocked.flatten_all()?.to_vec1::<u8>()?, meant.flatten_all()?.to_vec1::<u8>()?);
    if let Some(told) = band(&found, blocked.dims()) {
        return Ok((told, cost::FITTED));
    }
    let dims = blocked.dims();
    let of_lengths =
        lengths(&found, dims).map(|own| told_lengths(&own, lengths(&meant, dims), dims[3]));
    if let Some(told) = of_lengths.or_else(|| rule_of_rows(&found, dims)) {
        // The right mask with another fill is told as such.
        return Ok((told, if found == meant { cost::FITTED } else { cost::PLAIN }));
    }
    if let (Some(found), Some(meant)) =
        (of_one_head(&found, blocked.dims()), of_one_head(&meant, blocked.dims()))
        && let Some(told) = [false, true]
            .into_iter()
            .find_map(|are_seen| other_keys(&found, &meant, are_seen))
            .or_else(|| other_rows(&found, &meant))
    {
        return Ok((told, cost::FITTED));
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
    let told = match (more, fewer) {
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
    };
    Ok((told, cost::FITTED))
}

/// The cells of a mask that is the same for all heads: those of the first head of each item, query by query.
fn of_one_head<'m>(mask: &'m [u8], dims: &[usize]) -> Option<Rows<'m>> {
    let [_, heads, queries, keys] = *dims else { return None };
    let size = queries * keys;
    let items = mask.chunks((heads * size).max(1));
    let of_item = |item: &'m [u8]| {
        let first = item.get(..size)?;
        item.chunks(size.max(1))
            .all(|head| head == first)
            .then(|| first.chunks(keys.max(1)).collect())
    };
    items.map(of_item).collect()
}

/// What every query sees, if it is the same for all heads and follows from its row.
fn rule_of_rows(blocked: &[u8], dims: &[usize]) -> Option<String> {
    let [_, _, queries, keys] = *dims else { return None };
    let rows = of_one_head(blocked, dims)?;
    let cells: Vec<bool> =
        rows.iter().flatten().flat_map(|row| row.iter().map(|cell| *cell != 0)).collect();
    by_rows(&cells, queries, keys)
}

/// Those keys that no query sees, of such as should, if that is all; or those that every query behind them sees.
fn other_keys(found: &Rows, meant: &Rows, are_seen: bool) -> Option<String> {
    let mut told = Vec::new();
    for (item, (found, meant)) in found.iter().zip(meant).enumerate() {
        let rows = || found.iter().zip(meant);
        let mut is_other = vec![false; found.first().map_or(0, |row| row.len())];
        for (own, meant) in rows() {
            let cells = is_other.iter_mut().zip(own.iter().zip(*meant));
            cells.for_each(|(other, (own, meant))| {
                *other |= if are_seen { own < meant } else { own > meant };
            });
        }
        let is_row = |(own, meant): (&&[u8], &&[u8])| {
            let last = meant.iter().rposition(|cell| *cell == 0).unwrap_or_default();
            let cells = own.iter().zip(*meant).zip(&is_other).enumerate();
            cells.into_iter().all(|(key, ((own, meant), is_other))| {
                let is_other = *is_other && (!are_seen || key < last);
                *own == if is_other { u8::from(!are_seen) } else { *meant }
            })
        };
        if !rows().all(is_row) {
            return None;
        }
        let keys: Vec<usize> = (0..is_other.len()).filter(|key| is_other[*key]).collect();
        // Of many it is no window that is told better so.
        if are_seen && keys.len() * 2 > is_other.len() {
            return None;
        }
        if !keys.is_empty() {
            let keys = ranges(&keys);
            let own = if are_seen {
                tr!("every query behind them sees the keys {keys}, too", keys)
            } else {
                tr!("no query sees the keys {keys}", keys)
            };
            told.push((item, own));
        }
    }
    by_item(&told, found.len())
}

/// Which keys queries see, of those that see others than they should.
fn other_rows(found: &Rows, meant: &Rows) -> Option<String> {
    let is_other = |item: usize, query: usize, own: &[u8]| {
        meant.get(item).and_then(|rows| rows.get(query)) != Some(&own)
    };
    rows_in_words(found, &is_other)
}

/// What is visible, if it is the same for all heads and follows from the distance of query and key.
fn band(blocked: &[u8], dims: &[usize]) -> Option<String> {
    let [_, _, queries, keys] = *dims else { return None };
    // The last query stands at the last key.
    let distance = |query: usize, key: usize| {
        let place = |at: usize| signed(at);
        place(query) + place(keys) - place(queries) - place(key)
    };
    let cells = || (0..queries).flat_map(move |query| (0..keys).map(move |key| (query, key)));
    let first = blocked.get(..queries * keys)?;
    let seen = || cells().zip(first).filter(|(_, cell)| **cell == 0).map(|(at, _)| at);
    let least = seen().map(|(query, key)| distance(query, key)).min()?;
    let most = seen().map(|(query, key)| distance(query, key)).max()?;
    let is_within = |(query, key)| (least..=most).contains(&distance(query, key));
    let is_band = |plane: &[u8]| cells().zip(plane).all(|(at, cell)| is_within(at) == (*cell == 0));
    if !blocked.chunks((queries * keys).max(1)).all(is_band) {
        return None;
    }
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
    Some(tr!("every query sees {seen}", seen))
}

/// How many keys each item has, if all its queries in all heads see these alone.
fn lengths(blocked: &[u8], dims: &[usize]) -> Option<Vec<usize>> {
    let [_, heads, queries, keys] = *dims else { return None };
    let length = |item: &[u8]| {
        let count = item.iter().take(keys).take_while(|cell| **cell == 0).count();
        let is_it =
            |row: &[u8]| row.iter().enumerate().all(|(key, own)| (*own == 0) == (key < count));
        item.chunks(keys.max(1)).all(is_it).then_some(count)
    };
    blocked.chunks((heads * queries * keys).max(1)).map(length).collect()
}

/// How many keys each item has in place of those that it should have, and by which rule where one gives them.
fn told_lengths(found: &[usize], meant: Option<Vec<usize>>, keys: usize) -> String {
    let listed =
        |all: &[usize]| lang::list(&all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let lengths = listed(found);
    let Some(meant) = meant.filter(|own| own != found) else {
        return tr!("the items have {lengths} keys", lengths);
    };
    let told = tr!("the items have {lengths} keys, not {meant}", lengths, meant = listed(&meant));
    match rule_of_lengths(found, &meant, keys) {
        Some(rule) => format!("{told}: {rule}"),
        None => told,
    }
}

/// The rule by which several lengths become others, of no more than all keys, if one of these does it.
fn rule_of_lengths(found: &[usize], meant: &[usize], keys: usize) -> Option<String> {
    const MOST_BLOCK: usize = 256;
    if meant.len() < 2 || meant.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let is = |of: &dyn Fn(usize) -> usize| {
        found.iter().zip(meant).all(|(own, all)| *own == of(*all).min(keys))
    };
    let (most, least) = (meant.iter().max()?, meant.iter().min()?);
    let first = meant.first()?;
    let blocks = |is_down: bool| -> Vec<String> {
        let rounded = |all: usize, block: usize| {
            if is_down { all / block * block } else { all.next_multiple_of(block) }
        };
        let fits = |block: &usize| is(&|all| rounded(all, *block));
        (2..=MOST_BLOCK).filter(fits).take(3).map(|block| block.to_string()).collect()
    };
    if is(&|_| *most) {
        return Some(tr!("all have as many as the longest").to_owned());
    }
    if is(&|_| *least) {
        return Some(tr!("all have as many as the shortest").to_owned());
    }
    if is(&|_| *first) {
        return Some(tr!("all have as many as the first").to_owned());
    }
    if is(&|all| all.saturating_sub(1)) {
        return Some(tr!("each one too few").to_owned());
    }
    if is(&|all| all + 1) {
        return Some(tr!("each one too many").to_owned());
    }
    let highest = *found.iter().max()?;
    if highest < *most && is(&|all| all.min(highest)) {
        return Some(tr!("none has more than {highest}", highest));
    }
    let (down, up) = (blocks(true), blocks(false));
    let or = |all: &[String]| all.join(tr!(" or "));
    match (down.is_empty(), up.is_empty()) {
        (false, _) => Some(tr!("each is rounded down to a multiple of {block}", block = or(&down))),
        (_, false) => Some(tr!("each is rounded up to a multiple of {block}", block = or(&up))),
        _ => None,
    }
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
        let dims = [2, 1, 4, 5];
        band(&blocked, &dims)
            .or_else(|| lengths(&blocked, &dims).map(|own| told_lengths(&own, None, 5)))
    }

    #[test]
    fn masks_without_a_rule_are_told_by_keys_or_by_queries() {
        let dims = [1, 2, 3, 4];
        let both = |of: &dyn Fn(usize, usize) -> bool| -> Vec<u8> {
            let cells =
                (0..2).flat_map(|_| (0..3).flat_map(|query| (0..4).map(move |key| (query, key))));
            cells.map(|(query, key)| u8::from(of(query, key))).collect()
        };
        let causal = both(&|query, key| key > query + 1);
        let without = both(&|query, key| key > query + 1 || key == 1);
        let rows = |mask| of_one_head(mask, &dims).expect("of all heads");
        let causal = rows(&causal);
        let hidden_keys = |found: &Rows, meant: &Rows| other_keys(found, meant, false);
        let told = hidden_keys(&rows(&without), &causal);
        assert_eq!(told.as_deref(), Some("no query sees the keys 1"));
        let other = both(&|query, key| key > query + 1 || query == 1 && key == 0);
        let other = rows(&other);
        assert_eq!(hidden_keys(&other, &causal), None);
        assert_eq!(other_rows(&other, &causal).as_deref(), Some("query rows 1 see the keys 1, 2"));
        let window = both(&|query, key| key > query + 1 || key < query);
        let with_first = both(&|query, key| key > query + 1 || (1..query).contains(&key));
        let told = other_keys(&rows(&with_first), &rows(&window), true);
        assert_eq!(told.as_deref(), Some("every query behind them sees the keys 0, too"));
        let steps = "query rows 0, 1 see the keys 0, 1, and each row one more than the one before";
        let none = both(&|_, _| false);
        assert_eq!(other_rows(&causal, &rows(&none)).as_deref(), Some(steps));
    }

    #[test]
    fn lengths_are_told_by_the_rule_that_gives_them() {
        let told = |found: &[usize], meant: &[usize]| told_lengths(found, Some(meant.to_vec()), 64);
        let told_down =
            "the items have 48, 40 keys, not 50, 43: each is rounded down to a multiple of 4 or 8";
        assert_eq!(told(&[48, 40], &[50, 43]), told_down);
        let told_up =
            "the items have 52, 44 keys, not 50, 43: each is rounded up to a multiple of 4";
        assert_eq!(told(&[52, 44], &[50, 43]), told_up);
        let told_longest = "the items have 9, 9 keys, not 7, 9: all have as many as the longest";
        assert_eq!(told(&[9, 9], &[7, 9]), told_longest);
        assert_eq!(told(&[9, 3], &[7, 4]), "the items have 9, 3 keys, not 7, 4");
        assert_eq!(told(&[4], &[5]), "the items have 4 keys, not 5");
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
