//! Keys or values that were read in place of the right ones, in words.

use super::tell_some;
use crate::candidate::ranges;
use crate::grammar::numbers::short;
use program::Parts;

/// What was read in place of an operand; rows are counted through items, heads and tokens.
pub enum Other {
    /// Each row is that one, or zeros.
    Rows(Vec<Option<usize>>),
    /// Each feature is that one.
    Features(Vec<usize>),
    /// Each row is multiplied by a number.
    Times(Vec<f64>),
    /// The same is added to runs of rows.
    Plus {
        /// From the first to before the last.
        runs: Vec<(usize, usize)>,
        /// Whether that is less their mean.
        is_less_mean: bool,
    },
}

/// Which items, heads, tokens and features an operand has, and which tiles or splits.
pub struct Layout<'a> {
    pub dims: [usize; 4],
    pub parts: Option<&'a Parts>,
}

/// What was read, in one sentence; nothing where it is too much to tell.
pub fn told(other: &Other, layout: &Layout, what: &str) -> Option<String> {
    match other {
        Other::Rows(from) => layout.rows(from, what),
        Other::Features(from) => {
            let moved = from.iter().enumerate().filter(|(own, from)| own != *from);
            let moved: Vec<String> = moved
                .map(|(own, from)| tr!("feature {own} is feature {from}", own, from))
                .collect();
            let moved = tell_some(&moved, "; ");
            Some(tr!(
                "the {what} that it reads have their features in another order: {moved}",
                what,
                moved
            ))
        }
        Other::Times(factors) => {
            let same: Vec<(usize, usize)> = layout.runs(|at| Some(factors[at].to_bits()));
            let tell = |(first, end): &(usize, usize)| {
                tr!(
                    "those of {places} by {factor}",
                    places = layout.place(*first, *end),
                    factor = short(factors[*first])
                )
            };
            let other =
                same.iter().filter(|(first, _)| factors[*first].to_bits() != 1_f64.to_bits());
            let each: Vec<String> = other.map(tell).collect();
            let each = tell_some(&each, "; ");
            Some(tr!("the {what} that it reads are multiplied: {each}", what, each))
        }
        Other::Plus { runs, is_less_mean } => {
            let each: Vec<String> =
                runs.iter().map(|(first, end)| layout.place(*first, *end)).collect();
            let each = tell_some(&each, "; ");
            Some(if *is_less_mean {
                tr!(
                    "from the {what} that it reads their mean is subtracted, of each of these by itself: {each}",
                    what,
                    each
                )
            } else {
                tr!(
                    "to the {what} that it reads something is added, the same throughout each of these: {each}",
                    what,
                    each
                )
            })
        }
    }
}

impl Layout<'_> {
    /// Rows in runs of which something is the same, within a head.
    fn runs<T: PartialEq>(&self, of: impl Fn(usize) -> T) -> Vec<(usize, usize)> {
        let [items, heads, tokens, _] = self.dims;
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in 0..items * heads * tokens {
            match runs.last_mut() {
                Some((first, end)) if at % tokens > 0 && of(*first) == of(at) => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        runs
    }

    /// Keys of one head, and their tile or split.
    fn keys(&self, first: usize, end: usize) -> String {
        let keys: Vec<usize> = (first..end).collect();
        let told = match keys.len() {
            1 => tr!("key {first}", first),
            _ => tr!("keys {keys}", keys = ranges(&keys)),
        };
        let is_it = |spans: &Vec<(usize, usize)>| spans[..] == [(first, end)];
        let part = self.parts.and_then(|own| Some((own, own.keys.iter().position(is_it)?)));
        match part {
            Some((parts, at)) => tr!("{told} ({part} {at})", told, part = parts.axis.told(), at),
            None => told,
        }
    }

    /// Rows of one head.
    fn place(&self, first: usize, end: usize) -> String {
        let [items, heads, tokens, _] = self.dims;
        let (head, item) = (first / tokens % heads, first / tokens / heads);
        let keys = self.keys(first % tokens, first % tokens + (end - first));
        match (items > 1, heads > 1) {
            (false, false) => keys,
            (true, false) => tr!("{keys} of item {item}", keys, item),
            (false, true) => tr!("{keys} of head {head}", keys, head),
            (true, true) => tr!("{keys} of head {head} of item {item}", keys, head, item),
        }
    }

    /// Rows that are others: of all heads alike where they are, else head by head.
    fn rows(&self, from: &[Option<usize>], what: &str) -> Option<String> {
        let [items, heads, tokens, _] = self.dims;
        let of_head = |at: usize| -> Option<Vec<Option<usize>>> {
            let own = from[at * tokens..(at + 1) * tokens].iter();
            own.map(|from| match from {
                Some(from) if from / tokens == at => Some(Some(from % tokens)),
                Some(_) => None,
                None => Some(None),
            })
            .collect()
        };
        let within: Option<Vec<Vec<Option<usize>>>> = (0..items * heads).map(of_head).collect();
        let Some(within) = within else { return Some(self.of_others(from, what)) };
        let is_alike = |own: &[Vec<Option<usize>>]| own.windows(2).all(|pair| pair[0] == pair[1]);
        if is_alike(&within) {
            return self.within_head(&within[0], what);
        }
        let mut each = Vec::new();
        let by_item: Vec<&[Vec<Option<usize>>]> = within.chunks(heads).collect();
        let is_by_item = by_item.iter().all(|own| is_alike(own));
        let groups: Vec<(String, &Vec<Option<usize>>)> = if is_by_item {
            let all = by_item.iter().enumerate();
            all.map(|(item, own)| (tr!("in item {item}", item), &own[0])).collect()
        } else {
            let name = |at: usize| match items {
                1 => tr!("in head {head}", head = at),
                _ => tr!("in head {head} of item {item}", head = at % heads, item = at / heads),
            };
            within.iter().enumerate().map(|(at, own)| (name(at), own)).collect()
        };
        for (place, own) in groups {
            if let Some(told) = self.within_head(own, what) {
                each.push(format!("{place} {told}"));
            }
        }
        Some(tell_some(&each, "; "))
    }

    /// Rows of a head that are others of it.
    fn within_head(&self, from: &[Option<usize>], what: &str) -> Option<String> {
        let first = from.iter().enumerate().position(|(at, from)| *from != Some(at))?;
        if let Some(order) = block_order(from) {
            let size = order.len();
            let order: Vec<String> = order.iter().map(ToString::to_string).collect();
            return Some(tr!(
                "the {what} of every {size} keys are read in the order {order}: key {first} is the first that is another",
                what,
                size,
                order = order.join(" "),
                first
            ));
        }
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in 0..from.len() {
            let goes_on = |first: usize| match (from[first], from[at]) {
                (Some(before), Some(own)) => own + first == before + at,
                (before, own) => before == own,
            };
            match runs.last_mut() {
                Some((first, end)) if goes_on(*first) => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        Some(moves(runs, from, what, |first, end| self.keys(first, end)))
    }

    /// Rows of other heads or items.
    fn of_others(&self, from: &[Option<usize>], what: &str) -> String {
        let size = from.len();
        let runs = self.runs(|at| from[at].map(|from| from + size - at));
        moves(runs, from, what, |first, end| self.place(first, end))
    }
}

/// Which rows stand where others should, run by run, each called by a name.
fn moves(
    runs: Vec<(usize, usize)>,
    from: &[Option<usize>],
    what: &str,
    name: impl Fn(usize, usize) -> String,
) -> String {
    let moved = runs.into_iter().filter(|(first, _)| from[*first] != Some(*first));
    let told = moved.map(|(first, end)| {
        let keys = name(first, end);
        match from[first] {
            Some(other) => {
                let others = name(other, other + end - first);
                tr!("the {what} of {keys} are those of {others}", what, keys, others)
            }
            None => tr!("the {what} of {keys} are zeros", what, keys),
        }
    });
    tell_some(&told.collect::<Vec<_>>(), "; ")
}

/// The order in which the rows of every block stand, where it is the same in several of them.
fn block_order(from: &[Option<usize>]) -> Option<Vec<usize>> {
    let from: Vec<usize> = from.iter().copied().collect::<Option<_>>()?;
    let fits = |size: &usize| {
        let is_there = |(at, other): (usize, &usize)| {
            from.get(at % size).is_some_and(|own| at / size * size + own == *other)
        };
        let mut order = from[..*size].to_vec();
        order.sort_unstable();
        order.into_iter().eq(0..*size) && from.iter().enumerate().all(is_there)
    };
    let size = (2..=from.len() / 2).find(fits)?;
    Some(from[..size].to_vec())
}
