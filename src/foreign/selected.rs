//! Which keys does a file say that each query sees, by indices, by blocks or by a tree of tokens?

use candle_core::{Device, Tensor};

use super::chosen::{File, Found, Sizes, dims_of, whole_numbers};
use super::evidence::Evidence;
use super::matched::Match;
use super::names::is_called;
use super::numbers::{are_booleans, numbers};
use base::error::{Error, Result, quoted, refuse_too_large};
use config::{QkvFormat, Settings};
use file::{Entry, Record};
use program::{Lists, Name, Selection, comes_from};

const PARENTS: &[&str] = &[
    "parents",
    "parent",
    "parent_ids",
    "parent_indices",
    "parent_idx",
    "tree_parents",
    "parent_list",
];
const TREE_MASKS: &[&str] =
    &["tree_mask", "tree_attn_mask", "tree_attention_mask", "draft_mask", "medusa_attn_mask"];
const CUSTOM: &[&str] = &["custom_mask", "packed_custom_mask"];

/// The orders of axes that are tried where none is stated.
const UNSTATED: [QkvFormat; 3] = [QkvFormat::Bhsd, QkvFormat::Bshd, QkvFormat::Thd];

/// Takes what says which keys each query sees out of a file, and sets it; where other keys are stated, it is evidence.
///
/// # Errors
/// If it does not fit the file's queries and keys.
pub fn take_selection(
    record: &mut Record,
    settings: &mut Settings,
) -> Result<(Vec<Match>, Option<Evidence>)> {
    // Where nothing says in which order axes stand, what fits the queries does.
    let mut formats = settings.qkv_format.map_or_else(|| UNSTATED.to_vec(), |own| vec![own]);
    if formats.iter().any(|format| goes_with_rows(record, *format)) {
        formats.retain(|format| goes_with_rows(record, *format));
    }
    let mut refused = None;
    for format in formats {
        let Some(sizes) = Sizes::of(record, format) else { continue };
        let file = File { record, sizes };
        match file.selection().and_then(|found| Ok((found, file.custom_mask()?))) {
            Ok((None, None)) => {}
            Ok((found, custom)) => {
                if format != QkvFormat::Bhsd {
                    settings.qkv_format.get_or_insert(format);
                }
                return Ok(taken(record, settings, found, custom));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or_else(|| Ok((Vec::new(), None)), Err)
}

/// Whether log-sum-exps or weights, whose heads stand before their queries, have the heads and tokens that queries have in this
/// format.
fn goes_with_rows(record: &Record, format: QkvFormat) -> bool {
    let of_queries = match (dims_of(record, [Name::Q, Name::QHeads]), format) {
        (Some(&[_, heads, tokens, _]), QkvFormat::Bhsd)
        | (Some(&[_, tokens, heads, _]), QkvFormat::Bshd) => [heads, tokens],
        _ => return false,
    };
    dims_of(record, [Name::Lse, Name::Weights])
        .is_some_and(|rows| rows.get(1..3) == Some(&of_queries))
}

/// Takes what was found out of the file.
fn taken(
    record: &mut Record,
    settings: &mut Settings,
    found: Option<Found>,
    custom: Option<(String, Tensor)>,
) -> (Vec<Match>, Option<Evidence>) {
    let (mut matches, mut evidence) = (Vec::new(), None);
    if let Some(Found { selection, names, how }) = found {
        record.entries.retain(|entry| !names.contains(&entry.name));
        if *settings.selected.get_or_insert_with(|| selection.clone()) == selection {
            matches.extend(names.iter().map(|name| Match::as_it_is("selected", name)));
            if let Some(first) = matches.first_mut() {
                *first = first.clone().read(how);
            }
        } else {
            let (tensor, text) = (names.join(", "), selection.to_string());
            let (key, step, precision) = ("selected", Name::MaskedScores, 0.0);
            evidence = Some(Evidence { key, step, tensor, text, or: None, precision });
        }
    }
    if let Some((name, mask)) = custom
        && let Some(entry) = record.entries.iter_mut().find(|entry| entry.name == name)
    {
        entry.tensor = mask;
        // It keeps the sequences apart itself.
        let starts = |entry: &Entry| is_called(&entry.name, &["qo_indptr", "kv_indptr"]);
        let starts: Vec<Entry> = record.entries.extract_if(.., |entry| starts(entry)).collect();
        matches.extend(starts.iter().map(|own| Match::as_it_is("attn_mask", &own.name)));
    }
    (matches, evidence)
}

impl File<'_> {
    /// What selects keys, by the first of the ways that finds something.
    fn selection(&self) -> Result<Option<Found>> {
        let ways = [
            Self::tree,
            Self::tree_mask,
            Self::of_counts,
            Self::of_rows,
            Self::block_mask,
            Self::lists,
        ];
        ways.iter().find_map(|way| way(self).transpose()).transpose()
    }

    /// The parents of a tree's tokens: (token) or (batch, token).
    fn tree(&self) -> Result<Option<Found>> {
        let Some((entry, parents)) = self.whole(PARENTS)? else { return Ok(None) };
        let rows: Vec<Vec<i64>> = match *entry.tensor.dims() {
            [_] => vec![parents],
            [_, tokens] if tokens > 0 => parents.chunks(tokens).map(<[i64]>::to_vec).collect(),
            _ => return Ok(None),
        };
        let tokens = rows.first().map_or(0, Vec::len);
        if tokens != self.sizes.queries {
            let what = tr!(
                "has {tokens} parents, and there are {queries} queries",
                tokens,
                queries = self.sizes.queries
            );
            let fix = tr!("give the queries of the tree's tokens, and a parent for each");
            return Err(Error::tensor(quoted(&entry.name), what, fix));
        }
        let how = tr!("the parents of a tree of {tokens} tokens, the last keys", tokens);
        Ok(Some(Found { selection: Selection::Tree(rows), names: vec![entry.name.clone()], how }))
    }

    /// A mask of a tree's tokens alone; true where a token sees another.
    fn tree_mask(&self) -> Result<Option<Found>> {
        let Some(entry) = self.called(TREE_MASKS) else { return Ok(None) };
        let &[.., tokens, others] = entry.tensor.dims() else { return Ok(None) };
        let cells = numbers(&entry.tensor)?;
        let is_one = tokens == others && cells.len() == tokens * others;
        if !is_one || tokens != self.sizes.queries || tokens > self.sizes.keys {
            return Ok(None);
        }
        // Floats are added to the scores.
        let are_added = !are_booleans(&cells);
        let sees = |row: usize, at: usize| {
            let cell = cells.get(row * tokens + at).copied().unwrap_or_default();
            if are_added { cell == 0.0 } else { cell != 0.0 }
        };
        let names = vec![entry.name.clone()];
        let place = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
        let parents: Vec<i64> = (0..tokens)
            .map(|row| (0..row).rev().find(|at| sees(row, *at)).map_or(-1, place))
            .collect();
        let mut pairs = (0..tokens).flat_map(|row| (0..tokens).map(move |at| (row, at)));
        if pairs.all(|(row, at)| sees(row, at) == comes_from(&parents, row, at)) {
            let how = tr!("a tree of {tokens} tokens, the last keys", tokens);
            return Ok(Some(Found { selection: Selection::Tree(vec![parents]), names, how }));
        }
        let before = self.sizes.keys - tokens;
        let list = |row: usize| {
            let own = (0..tokens).filter(|at| sees(row, *at)).map(|at| before + at);
            (0..before).chain(own).map(place).collect()
        };
        let chosen = vec![vec![(0..tokens).map(list).collect()]];
        let how = tr!("of the last {tokens} keys; those before are seen", tokens);
        let selection = Selection::Lists(Lists { chosen, tile: 1, block: 1 });
        Ok(Some(Found { selection, names, how }))
    }

    /// A mask of queries and keys in one row, or its bits in bytes, as `FlashInfer` has it; as (1, 1, query, key). Of several
    /// sequences each has its own, one behind the other.
    fn custom_mask(&self) -> Result<Option<(String, Tensor)>> {
        let Some((entry, all)) = self.whole(CUSTOM)? else { return Ok(None) };
        let Sizes { queries, keys, .. } = self.sizes;
        let whole = vec![(queries, keys)];
        let spans = match (self.counts(&["qo_indptr"])?, self.counts(&["kv_indptr"])?) {
            (Some(own), Some(others)) if own.len() == others.len() => {
                own.into_iter().zip(others).collect()
            }
            _ => whole.clone(),
        };
        let is_whole = |spans: &&Vec<(usize, usize)>| total(spans) == (queries, keys);
        for spans in [spans, whole].iter().filter(is_whole) {
            if let Some(mask) = unrolled(&all, spans)? {
                return Ok(Some((entry.name.clone(), mask)));
            }
        }
        Ok(None)
    }

    /// How many tokens each sequence has, by where it begins.
    fn counts(&self, names: &[&str]) -> Result<Option<Vec<usize>>> {
        let Some((_, starts)) = self.whole(names)? else { return Ok(None) };
        let count = |pair: &[i64]| usize::try_from(pair[1].checked_sub(pair[0])?).ok();
        Ok(starts.windows(2).map(count).collect())
    }
}

/// The mask of the queries and keys of sequences of so many each, which a file has in one row, as (1, 1, query, key) in its place;
/// whether there is one.
///
/// # Errors
/// If candle fails.
pub fn unroll_mask(record: &mut Record, spans: &[(usize, usize)]) -> Result<bool> {
    let mut is_unrolled = false;
    for entry in record.entries.iter_mut().filter(|entry| is_called(&entry.name, CUSTOM)) {
        let all = whole_numbers(&entry.tensor)?.unwrap_or_default();
        if let Some(mask) = unrolled(&all, spans)? {
            (entry.tensor, is_unrolled) = (mask, true);
        }
    }
    Ok(is_unrolled)
}

/// How many queries and keys all sequences have.
fn total(spans: &[(usize, usize)]) -> (usize, usize) {
    spans.iter().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
}

/// The cells of sequences of so many queries and keys each, one behind the other, or their bits in bytes, as (1, 1, query, key);
/// nothing of other counts.
fn unrolled(all: &[i64], spans: &[(usize, usize)]) -> Result<Option<Tensor>> {
    let cells = |(queries, keys): &(usize, usize)| queries.saturating_mul(*keys);
    let bytes = |span: &(usize, usize)| cells(span).div_ceil(8);
    let has = |count: &dyn Fn(&(usize, usize)) -> usize| {
        spans.iter().map(count).sum::<usize>() == all.len()
    };
    let is_in_bits = has(&bytes);
    if !is_in_bits && !has(&cells) {
        return Ok(None);
    }
    let (queries, keys) = total(spans);
    refuse_too_large(queries as u128 * keys as u128)?;
    let mut mask = vec![0_u8; queries * keys];
    let (mut row, mut first, mut start) = (0, 0, 0);
    for span in spans {
        for cell in 0..cells(span) {
            let is_seen = if is_in_bits {
                all[start + cell / 8] >> (cell % 8) & 1 == 1
            } else {
                all[start + cell] != 0
            };
            let place = (row + cell / span.1) * keys + first + cell % span.1;
            if let Some(own) = mask.get_mut(place) {
                *own = u8::from(is_seen);
            }
        }
        start += if is_in_bits { bytes(span) } else { cells(span) };
        (row, first) = (row + span.0, first + span.1);
    }
    Ok(Some(Tensor::from_vec(mask, (1, 1, queries, keys), &Device::Cpu)?))
}
