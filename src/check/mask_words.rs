//! What is a mask, in words?

use candle_core::Tensor;

use super::candidate::ranges;
use base::error::Result;

/// So many groups of queries are told, and no more.
const MOST_GROUPS: usize = 4;

/// Of each item the rows of its queries.
pub type Rows<'m> = Vec<Vec<&'m [u8]>>;

/// What a mask is, in words, true where it blocks: (batch, head, query, key), each 1 or whole. Keys that it hides from every
/// query are padding beside that. Heads are told apart where they see other keys.
///
/// # Errors
/// If candle fails.
pub fn told_mask(mask: &Tensor) -> Result<String> {
    let [queries, keys] = *mask.dims().last_chunk::<2>().unwrap_or(&[1, 1]);
    let heads = mask.dims().iter().rev().nth(2).copied().unwrap_or(1).max(1);
    let cells: Vec<bool> =
        mask.flatten_all()?.to_vec1::<u8>()?.into_iter().map(|cell| cell != 0).collect();
    let of_head = |head: usize| -> Vec<bool> {
        let planes = cells.chunks((queries * keys).max(1));
        planes.skip(head).step_by(heads).flatten().copied().collect()
    };
    let mut kinds: Vec<(Vec<bool>, Vec<usize>)> = Vec::new();
    for head in 0..heads {
        let own = of_head(head);
        match kinds.iter_mut().find(|(known, _)| *known == own) {
            Some((_, heads)) => heads.push(head),
            None => kinds.push((own, vec![head])),
        }
    }
    let told = |cells: &[bool]| told_cells(cells, queries, keys);
    if let [(only, _)] = kinds.as_slice() {
        return Ok(told(only));
    }
    let more = kinds.len().saturating_sub(MOST_GROUPS);
    let of_kind = |(cells, heads): &(Vec<bool>, Vec<usize>)| {
        tr!("in heads {heads} {told}", heads = ranges(heads), told = told(cells))
    };
    let told: Vec<String> = kinds.iter().take(MOST_GROUPS).map(of_kind).collect();
    Ok(told.join("; ") + if more > 0 { "; …" } else { "" })
}

/// What a mask of one head is, in words: the cells of its items.
fn told_cells(cells: &[bool], queries: usize, keys: usize) -> String {
    if let Some(told) = usual(cells, queries, keys) {
        return told;
    }
    let by_rows = cells
        .chunks(keys * queries)
        .all(|item| item.chunks(keys).all(|row| Some(row) == item.chunks(keys).next()));
    let blocked = cells.iter().filter(|cell| **cell).count();
    if by_rows {
        let of_keys = || {
            let item = |(at, item): (usize, &[bool])| {
                let hidden: Vec<usize> = (0..keys).filter(|key| item[*key]).collect();
                let told = if hidden.is_empty() { tr!("none").to_owned() } else { ranges(&hidden) };
                (at, told)
            };
            let planes = cells.chunks((queries * keys).max(1));
            let count = planes.len();
            let told: Vec<(usize, String)> = planes.enumerate().map(item).collect();
            let hidden = by_item(&told, count).unwrap_or_default();
            tr!("one of keys alone, with the keys hidden: {hidden}", hidden)
        };
        let lengths = || {
            counts(cells, queries, keys, false)
                .map(|all| tr!("lengths {lengths}", lengths = all.join(",")))
        };
        let left = || {
            let count = counts(cells, queries, keys, true)?.join(", ");
            Some(tr!("one of keys alone, with {count} keys of padding on the left", count))
        };
        return lengths().or_else(left).unwrap_or_else(of_keys);
    }
    if let Some(told) = beside_padding(cells, queries, keys) {
        return told;
    }
    let numbers: Vec<u8> = cells.iter().map(|cell| u8::from(*cell)).collect();
    let items = numbers.chunks((queries * keys).max(1));
    let rows: Rows = items.map(|item| item.chunks(keys.max(1)).collect()).collect();
    let told = tr!(
        "none of the usual ones: it blocks {blocked} of {cells} cells",
        blocked,
        cells = cells.len()
    );
    match rows_in_words(&rows, &|_, _, _| true) {
        Some(rows) => format!("{told} ({rows})"),
        None => told,
    }
}

/// A mask of the usual forms beside keys that no query sees, in words.
fn beside_padding(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    let (shown, hidden) = without_padding(cells, queries, keys);
    if hidden.is_empty() {
        return None;
    }
    let told = usual(&shown, queries, keys)?;
    let of = |plane| hidden.iter().filter(|(own, _)| *own == plane).count();
    let mut counts: Vec<String> =
        (0..cells.len() / (queries * keys)).map(|plane| of(plane).to_string()).collect();
    // What all items have alike is told once.
    if counts.iter().all(|count| Some(count) == counts.first()) {
        counts.truncate(1);
    }
    let count = counts.join(", ");
    // Of each item, the keys that come first or last.
    let at_an_end = |is_it: fn(usize, usize) -> bool| {
        hidden.iter().all(|(plane, key)| {
            hidden.iter().filter(|(other, own)| other == plane && is_it(*own, *key)).count()
                == (0..keys).filter(|own| is_it(*own, *key)).count()
        })
    };
    Some(match () {
        () if at_an_end(|own, key| own < key) => {
            tr!("{told}, with {count} keys of padding on the left", told, count)
        }
        () if at_an_end(|own, key| own > key) => {
            tr!("{told}, with {count} keys of padding on the right", told, count)
        }
        () => tr!("{told}, with {count} keys of padding", told, count),
    })
}

/// How many keys come first in each item that are blocked alike, and the others are not; or with the two exchanged.
fn counts(cells: &[bool], queries: usize, keys: usize, are_blocked: bool) -> Option<Vec<String>> {
    let count = |item: &[bool]| {
        let row = item.get(..keys)?;
        let count = row.iter().take_while(|cell| **cell == are_blocked).count();
        row.iter().skip(count).all(|cell| *cell != are_blocked).then(|| count.to_string())
    };
    cells.chunks((queries * keys).max(1)).map(count).collect()
}

/// Which keys a query may not see.
type Blocks<'b> = &'b dyn Fn(usize, usize) -> bool;

/// A mask of the usual forms, in words.
fn usual(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    // Behind a cache the last query sees the last key.
    let seen = |query: usize| query + keys.saturating_sub(queries);
    let all = |is_blocked: &dyn Fn(usize, usize) -> bool| {
        let expected = |at: usize| is_blocked(at / keys % queries, at % keys);
        cells.iter().enumerate().all(|(at, cell)| *cell == expected(at))
    };
    let known: [(&str, Blocks); 7] = [
        (tr!("none: it blocks nothing"), &|_, _| false),
        ("causal", &|query, key| key > seen(query)),
        (tr!("causal and strict: no token sees itself"), &|query, key| key >= seen(query)),
        (tr!("causal, but for the next key, which is seen"), &|query, key| key > seen(query) + 1),
        (tr!("an inverted causal one: it blocks the past and the token itself"), &|query, key| {
            key <= seen(query)
        }),
        (tr!("a reversed causal one: it blocks the past"), &|query, key| key < seen(query)),
        (tr!("causal, aligned to the first query and key"), &|query, key| key > query),
    ];
    if let Some((told, _)) = known.iter().find(|(_, is_blocked)| all(*is_blocked)) {
        return Some((*told).to_owned());
    }
    // The numbers of the others are read off the first row and the last one.
    let row = |query: usize| cells.get(query * keys..(query + 1) * keys);
    let visible = |query: usize| row(query).map(|row| row.iter().filter(|cell| !**cell).count());
    let (first, last) = (visible(0)?, visible(queries.checked_sub(1)?)?);
    if all(&|query, key| key > seen(query) || key + last <= seen(query)) {
        return Some(tr!("causal with a window of {last}", last));
    }
    if all(&|query, key| key > seen(query) + first.saturating_sub(1) || key + first <= seen(query))
    {
        return Some(tr!("a window of {first} to both sides", first));
    }
    if all(&|query, key| key > seen(query) && key >= first) {
        return Some(tr!("causal behind a prefix of {first} keys, which all see", first));
    }
    let shift = first.checked_sub(1 + seen(0));
    if let Some(shift) = shift.filter(|shift| all(&|query, key| key > seen(query) + shift)) {
        return Some(tr!("causal, but for the next {shift} keys, which are seen", shift));
    }
    by_rows(cells, queries, keys)
}

/// A mask in which what a query sees follows from its row by a plain rule, in words: documents or chunks that do not see each
/// other, or several keys more for each query.
pub fn by_rows(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    if queries == 0 || keys == 0 {
        return None;
    }
    let of_documents = [true, false].into_iter().find_map(|is_causal| {
        (queries == keys).then(|| documents(cells, keys, is_causal)).flatten()
    });
    of_documents.or_else(|| steep(cells, queries, keys))
}

/// Several keys more for each query, in words.
fn steep(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    let seen = |row: &[bool]| row.iter().position(|cell| *cell).unwrap_or(keys);
    let mut rows = cells.chunks(keys);
    let first = seen(rows.next()?);
    let step = seen(rows.next()?).checked_sub(first).filter(|step| *step > 1)?;
    let is_it =
        |(at, cell): (usize, &bool)| *cell == (at % keys >= first + step * (at / keys % queries));
    let is_told = first > 0 && cells.iter().enumerate().all(is_it);
    is_told.then(|| tr!("query i sees the first {step} · i + {first} keys", step, first))
}

/// How long the documents of an item are that do not see each other, each causal or seen from both sides.
fn lengths(item: &[bool], keys: usize, is_causal: bool) -> Option<Vec<usize>> {
    let mut starts: Vec<usize> = Vec::new();
    let mut seen = Vec::new();
    for (query, row) in item.chunks(keys).enumerate() {
        let start = row.iter().position(|cell| !cell)?;
        let end = 1 + row.iter().rposition(|cell| !cell)?;
        if query == start {
            starts.push(query);
        }
        if starts.last() != Some(&start) || row.get(start..end)?.contains(&true) {
            return None;
        }
        seen.push((start, end));
    }
    starts.push(keys);
    let end_of = |query: usize, start: usize| {
        let behind = || starts.iter().find(|other| **other > start).copied();
        if is_causal { Some(query + 1) } else { behind() }
    };
    let is_whole =
        |(query, (start, end)): (usize, &(usize, usize))| end_of(query, *start) == Some(*end);
    seen.iter()
        .enumerate()
        .all(is_whole)
        .then(|| starts.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// A mask of documents or chunks that do not see each other, of as many queries as keys, in words.
fn documents(cells: &[bool], keys: usize, is_causal: bool) -> Option<String> {
    const TOLD: usize = 8;
    let of_item = |item| lengths(item, keys, is_causal);
    let mut all: Vec<Vec<usize>> = cells.chunks(keys * keys).map(of_item).collect::<Option<_>>()?;
    if all.windows(2).all(|pair| pair[0] == pair[1]) {
        all.truncate(1);
    }
    let told = match all.as_slice() {
        // Two parts of unequal length are documents.
        [lengths]
            if let [chunk, others @ .., last] = lengths.as_slice()
                && others.iter().all(|length| length == chunk)
                && (last == chunk || last < chunk && !others.is_empty()) =>
        {
            tr!("chunks of {chunk}", chunk)
        }
        all if all.len() > TOLD => return None,
        all => {
            let listed = |lengths: &Vec<usize>| {
                lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            let queries = all.iter().map(listed).collect::<Vec<_>>().join("/");
            tr!("documents {queries}{of_keys}", queries, of_keys = "")
        }
    };
    Some(if is_causal {
        [tr!("causal"), &told].join(tr!(" and "))
    } else {
        tr!("{told}, in which every token sees all", told)
    })
}

/// The cells with the keys shown that no query of an item sees, and how many those are. Queries that are such keys are shown
/// what the others of their row are.
fn without_padding(
    cells: &[bool],
    queries: usize,
    keys: usize,
) -> (Vec<bool>, Vec<(usize, usize)>) {
    let (mut shown, mut hidden) = (cells.to_vec(), Vec::new());
    let seen = |query: usize| query + keys.saturating_sub(queries);
    for (at, plane) in shown.chunks_mut((queries * keys).max(1)).enumerate() {
        for key in 0..keys {
            if plane.iter().skip(key).step_by(keys).all(|cell| *cell) {
                hidden.push((at, key));
                for (query, cell) in plane.iter_mut().skip(key).step_by(keys).enumerate() {
                    *cell = key > seen(query);
                }
            }
        }
    }
    (shown, hidden)
}

/// Which keys queries see, of those of an item that are told by their row: a few groups of such.
pub fn rows_in_words(rows: &Rows, is_told: &dyn Fn(usize, usize, &[u8]) -> bool) -> Option<String> {
    let mut told = Vec::new();
    for (item, rows) in rows.iter().enumerate() {
        let mut groups: Vec<(&[u8], Vec<usize>)> = Vec::new();
        let others = rows.iter().enumerate().filter(|(query, own)| is_told(item, *query, own));
        for (query, own) in others {
            match groups.iter_mut().find(|(known, _)| known == own) {
                Some((_, queries)) => queries.push(query),
                None => groups.push((own, vec![query])),
            }
        }
        let seen = |own: &[u8]| (0..own.len()).filter(|key| own[*key] == 0).collect::<Vec<_>>();
        let groups: Vec<_> =
            groups.into_iter().map(|(own, queries)| (queries, seen(own))).collect();
        told.extend(steps(&groups).into_iter().map(|told| (item, told)));
    }
    by_item(&told, rows.len())
}

/// Which keys groups of queries see: those of which each query sees one more than the one before are told together.
fn steps(groups: &[(Vec<usize>, Vec<usize>)]) -> Vec<String> {
    let is_next = |(queries, seen): &(Vec<usize>, Vec<usize>),
                   (others, more): &(Vec<usize>, Vec<usize>)| {
        let is_behind = |own: &[usize], other: &[usize]| match (own, other) {
            ([.., last], [.., next]) => *next == last + 1,
            _ => false,
        };
        let is_longer = more.len() == seen.len() + 1 && more.starts_with(seen);
        let is_one = queries.len() == 1 && others.len() == 1;
        is_one && is_longer && is_behind(queries, others) && is_behind(seen, more)
    };
    let runs = groups.chunk_by(is_next);
    let told = |run: &[(Vec<usize>, Vec<usize>)]| {
        let queries: Vec<usize> = run.iter().flat_map(|(queries, _)| queries.clone()).collect();
        let queries = ranges(&queries);
        match run {
            [(_, seen), _, ..] => {
                tr!(
                    "query rows {queries} see the keys {keys}, and each row one more than the one before",
                    queries,
                    keys = ranges(seen)
                )
            }
            [(_, seen)] if !seen.is_empty() => {
                tr!("query rows {queries} see the keys {keys}", queries, keys = ranges(seen))
            }
            _ => tr!("no key is seen in query rows {queries}", queries),
        }
    };
    runs.map(told).collect()
}

/// What is told of each item, if anything is; once if it is the same of all.
pub fn by_item(told: &[(usize, String)], items: usize) -> Option<String> {
    let of_item = |item: usize| {
        told.iter().filter(move |(own, _)| *own == item).map(|(_, told)| told.as_str())
    };
    let are_alike = (1..items).all(|item| of_item(item).eq(of_item(0)));
    let of = |(item, told): &(usize, String)| {
        if are_alike {
            (*item == 0).then(|| told.clone())
        } else {
            Some(tr!("item {item}: {told}", item, told))
        }
    };
    let mut all: Vec<String> = told.iter().filter_map(of).collect();
    let is_more = all.len() > MOST_GROUPS;
    all.truncate(MOST_GROUPS);
    let told = all.join("; ") + if is_more { "; …" } else { "" };
    (!told.is_empty()).then_some(told)
}
