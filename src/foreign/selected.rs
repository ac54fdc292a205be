//! Which keys does a file say that each query sees, by indices, by blocks or by a tree of tokens?

use candle_core::Tensor;

use super::evidence::Evidence;
use super::matched::Match;
use super::names::{is_called, meanings};
use super::numbers::{are_booleans, numbers};
use base::error::{Error, Result, quoted};
use config::{QkvFormat, Settings};
use file::{Entry, Record};
use program::{Lists, Name, Selection, comes_from, whole};

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
const INDICES: &[&str] = &[
    "topk_indices",
    "topk_idx",
    "topk_ids",
    "top_k_indices",
    "selected_indices",
    "selected_keys",
    "sparse_indices",
    "index_topk",
];
const BLOCKS: &[&str] = &[
    "block_indices",
    "block_idx",
    "selected_blocks",
    "selected_block_indices",
    "topk_block_indices",
    "topk_blocks",
];
const BLOCK_SIZES: &[&str] = &[
    "block_size",
    "sparse_block_size",
    "kv_block_size",
    "sel_block_size",
    "selected_block_size",
    "selection_block_size",
];
const BLOCK_MASKS: &[&str] =
    &["block_mask", "blockmask", "block_sparse_mask", "sparse_block_mask", "base_blockmask"];
const COUNTS: &[&str] = &["kv_num_blocks"];
const FULL_COUNTS: &[&str] = &["full_kv_num_blocks"];
const FULL: &[&str] = &["full_kv_indices"];
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
    let dims = |names: &[Name]| {
        let is_it =
            |entry: &&Entry| meanings(&entry.name).first().is_some_and(|own| names.contains(own));
        record.entries.iter().find(is_it).map(|entry| entry.tensor.dims())
    };
    let of_queries = match (dims(&[Name::Q, Name::QHeads]), format) {
        (Some(&[_, heads, tokens, _]), QkvFormat::Bhsd)
        | (Some(&[_, tokens, heads, _]), QkvFormat::Bshd) => [heads, tokens],
        _ => return false,
    };
    dims(&[Name::Lse, Name::Weights]).is_some_and(|rows| rows.get(1..3) == Some(&of_queries))
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

/// A selection, the tensors that say it, and how they were read.
struct Found {
    selection: Selection,
    names: Vec<String>,
    how: String,
}

/// How many queries and keys a file has, and in which order their axes stand.
struct Sizes {
    queries: usize,
    keys: usize,
    heads_first: bool,
}

impl Sizes {
    fn of(record: &Record, format: QkvFormat) -> Option<Self> {
        let dims = |names: [Name; 2]| {
            let is_it = |entry: &&Entry| {
                meanings(&entry.name).first().is_some_and(|name| names.contains(name))
            };
            record.entries.iter().find(is_it).map(|entry| entry.tensor.dims())
        };
        let (queries, keys) = (dims([Name::Q, Name::QHeads])?, dims([Name::K, Name::KHeads])?);
        let heads_first = format == QkvFormat::Bhsd;
        let tokens = |dims: &[usize]| match *dims {
            [_, _, tokens, _] if heads_first => Some(tokens),
            [tokens, _, _, _] if format == QkvFormat::Sbhd => Some(tokens),
            [tokens, _, _] if format == QkvFormat::Thd => Some(tokens),
            [_, tokens, _, _] | [_, tokens] | [_, tokens, _] => Some(tokens),
            _ => None,
        };
        Some(Self { queries: tokens(queries)?, keys: tokens(keys)?, heads_first })
    }
}

struct File<'r> {
    record: &'r Record,
    sizes: Sizes,
}

impl<'r> File<'r> {
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

    fn called(&self, names: &[&str]) -> Option<&'r Entry> {
        self.record.entries.iter().find(|entry| is_called(&entry.name, names))
    }

    /// Whole numbers of a tensor of one of these names.
    fn whole(&self, names: &[&str]) -> Result<Option<(&'r Entry, Vec<i64>)>> {
        let Some(entry) = self.called(names) else { return Ok(None) };
        Ok(whole_numbers(&entry.tensor)?.map(|numbers| (entry, numbers)))
    }

    /// How many keys, or queries and keys, a block has.
    fn block_size(&self) -> Result<Option<(&'r Entry, [usize; 2])>> {
        let Some((entry, sizes)) = self.whole(BLOCK_SIZES)? else { return Ok(None) };
        Ok(match sizes.as_slice() {
            [keys] => size(*keys).map(|size| (entry, [size, size])),
            [queries, keys] => {
                size(*queries).zip(size(*keys)).map(|(queries, keys)| (entry, [queries, keys]))
            }
            _ => None,
        })
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

    /// Blocks as `FlexAttention` has them: how many each tile of queries sees, and which.
    fn of_counts(&self) -> Result<Option<Found>> {
        let (Some((counts, some)), Some((indices, _))) =
            (self.whole(COUNTS)?, self.whole(&["kv_indices"])?)
        else {
            return Ok(None);
        };
        let size = self.block_size()?;
        let [tile, block] = size.map_or([128, 128], |(_, size)| size);
        let mut names = vec![indices.name.clone(), counts.name.clone()];
        names.extend(size.map(|(entry, _)| entry.name.clone()));
        let mut chosen = counted(&indices.tensor, &some)?;
        if let (Some((full, counts)), Some(indices)) = (self.whole(FULL_COUNTS)?, self.called(FULL))
        {
            names.extend([full.name.clone(), indices.name.clone()]);
            let more = counted(&indices.tensor, &counts)?;
            let own = chosen.iter_mut().flatten().flatten();
            own.zip(more.into_iter().flatten().flatten()).for_each(|(own, more)| own.extend(more));
        }
        Ok(Some(found(Lists { chosen, tile, block }, names)))
    }

    /// Blocks as `FlashInfer` has them: rows of blocks one behind the other.
    fn of_rows(&self) -> Result<Option<Found>> {
        let (
            Some((starts, ends)),
            Some((indices, all)),
            Some((rows, tile)),
            Some((columns, block)),
        ) = (
            self.whole(&["indptr"])?,
            self.whole(&["indices"])?,
            self.whole(&["R"])?,
            self.whole(&["C"])?,
        )
        else {
            return Ok(None);
        };
        let only = |sizes: &[i64]| match sizes {
            [own] => size(*own),
            _ => None,
        };
        let (Some(tile), Some(block)) = (only(&tile), only(&block)) else { return Ok(None) };
        let of = |pair: &[i64]| {
            let [first, end] = [pair[0], pair[1]].map(|at| usize::try_from(at).unwrap_or_default());
            all.get(first..end).map(<[i64]>::to_vec).unwrap_or_default()
        };
        let chosen = vec![vec![ends.windows(2).map(of).collect()]];
        let names = [indices, starts, rows, columns].map(|entry| entry.name.clone()).to_vec();
        Ok(Some(found(Lists { chosen, tile, block }, names)))
    }

    /// Booleans of tiles of queries and blocks of keys, of all items and heads or of each.
    fn block_mask(&self) -> Result<Option<Found>> {
        let Some(entry) = self.called(BLOCK_MASKS) else { return Ok(None) };
        let &[.., tiles, blocks] = entry.tensor.dims() else { return Ok(None) };
        let Sizes { queries, keys, .. } = self.sizes;
        let numbers = numbers(&entry.tensor)?;
        if tiles == 0 || blocks == 0 || !are_booleans(&numbers) {
            return Ok(None);
        }
        let size = self.block_size()?;
        let [tile, block] = match (size, length(queries, tiles), length(keys, blocks)) {
            (Some((_, size)), ..) => size,
            (None, Some(tile), Some(block)) => [tile, block],
            _ => {
                let what = tr!(
                    "has {tiles} x {blocks} blocks, and {queries} queries and {keys} keys do not say how long these are",
                    tiles,
                    blocks,
                    queries,
                    keys
                );
                let fix = tr!("record it as `block_size`, such as 64");
                return Err(Error::tensor(quoted(&entry.name), what, fix));
            }
        };
        let list = |row: &[f64]| {
            let seen = row.iter().zip(0..).filter(|(cell, _)| **cell != 0.0);
            seen.map(|(_, at)| at).collect::<Vec<i64>>()
        };
        let lists: Vec<Vec<i64>> = numbers.chunks(blocks).map(list).collect();
        let heads = entry.tensor.dims().len().checked_sub(3).map(|at| entry.tensor.dims()[at]);
        let chosen = nested(&lists, tiles, heads.unwrap_or(1));
        let mut names = vec![entry.name.clone()];
        names.extend(size.map(|(entry, _)| entry.name.clone()));
        Ok(Some(found(Lists { chosen, tile, block }, names)))
    }

    /// A list of keys, or of blocks of keys, for each query.
    fn lists(&self) -> Result<Option<Found>> {
        let size = self.block_size()?;
        let of_blocks = self.whole(BLOCKS)?.zip(size);
        let (entry, numbers, block, size) = match of_blocks {
            Some(((entry, numbers), (size, [_, block]))) => (entry, numbers, block, Some(size)),
            None => match self.whole(INDICES)? {
                Some((entry, numbers)) => (entry, numbers, 1, None),
                None => return Ok(None),
            },
        };
        let queries = self.sizes.queries;
        let (tensor, heads) = match *entry.tensor.dims() {
            [rows, _] if rows == queries => (entry.tensor.clone(), 1),
            [_, rows, _] if rows == queries => (entry.tensor.clone(), 1),
            [rows, heads, _] if rows == queries => (entry.tensor.transpose(0, 1)?, heads),
            [_, heads, rows, _]
                if rows == queries
                    && (self.sizes.heads_first || entry.tensor.dim(1)? != queries) =>
            {
                (entry.tensor.clone(), heads)
            }
            [_, rows, heads, _] if rows == queries => (entry.tensor.transpose(1, 2)?, heads),
            _ => {
                let what = tr!(
                    "is {dims}, which has no axis of the {queries} queries",
                    dims = format!("{:?}", entry.tensor.dims()),
                    queries
                );
                let fix = tr!(
                    "give the indices of each query: (batch, query, index), or one list more for each head"
                );
                return Err(Error::tensor(quoted(&entry.name), what, fix));
            }
        };
        let each = entry.tensor.dims().last().copied().unwrap_or_default().max(1);
        let numbers = whole_numbers(&tensor)?.unwrap_or(numbers);
        let lists: Vec<Vec<i64>> = numbers.chunks(each).map(<[i64]>::to_vec).collect();
        let chosen = nested(&lists, queries, heads);
        let mut names = vec![entry.name.clone()];
        names.extend(size.map(|entry| entry.name.clone()));
        Ok(Some(found(Lists { chosen, tile: 1, block }, names)))
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
        let cells = |(queries, keys): &(usize, usize)| queries.saturating_mul(*keys);
        let bytes = |span: &(usize, usize)| cells(span).div_ceil(8);
        let has = |count: &dyn Fn(&(usize, usize)) -> usize, spans: &[(usize, usize)]| {
            spans.iter().map(count).sum::<usize>() == all.len()
        };
        let fits = |spans: &Vec<(usize, usize)>| {
            let sum = spans.iter().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
            sum == (queries, keys) && (has(&bytes, spans) || has(&cells, spans))
        };
        let Some(spans) = [spans, whole].into_iter().find(fits) else { return Ok(None) };
        let is_in_bits = has(&bytes, &spans);
        let mut mask = vec![0_u8; queries * keys];
        let (mut row, mut first, mut start) = (0, 0, 0);
        for span in &spans {
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
        let mask = Tensor::from_vec(mask, (1, 1, queries, keys), entry.tensor.device())?;
        Ok(Some((entry.name.clone(), mask)))
    }

    /// How many tokens each sequence has, by where it begins.
    fn counts(&self, names: &[&str]) -> Result<Option<Vec<usize>>> {
        let Some((_, starts)) = self.whole(names)? else { return Ok(None) };
        let count = |pair: &[i64]| usize::try_from(pair[1].checked_sub(pair[0])?).ok();
        Ok(starts.windows(2).map(count).collect())
    }
}

/// A number of keys or queries, of which there is one at least.
fn size(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|size| *size > 0)
}

/// How long each of so many blocks is: a part of the whole, or the power of two of which the last block has a rest.
fn length(whole: usize, blocks: usize) -> Option<usize> {
    if whole.is_multiple_of(blocks) {
        return Some(whole / blocks);
    }
    (0..usize::BITS - 1).map(|power| 1 << power).find(|size| whole.div_ceil(*size) == blocks)
}

/// Lists that were found in tensors of these names.
fn found(lists: Lists, names: Vec<String>) -> Found {
    let how = match (lists.tile, lists.block) {
        (1, 1) => tr!("the keys of each query").to_owned(),
        (1, block) => tr!("blocks of {block} keys of each query", block),
        (tile, block) => {
            tr!("blocks of {block} keys of each tile of {tile} queries", block, tile)
        }
    };
    Found { selection: Selection::Lists(lists), names, how }
}

/// Whole numbers, −1 and less too.
fn whole_numbers(tensor: &Tensor) -> Result<Option<Vec<i64>>> {
    let number = |number: f64| {
        let size = i64::try_from(whole(number.abs())?).ok()?;
        Some(if number < 0.0 { -size } else { size })
    };
    Ok(numbers(tensor)?.into_iter().map(number).collect())
}

/// The first so many numbers of each row of (…, tile, block), by item and head.
fn counted(indices: &Tensor, counts: &[i64]) -> Result<Vec<Vec<Vec<Vec<i64>>>>> {
    let dims = indices.dims();
    let (Some(each), Some(tiles)) = (dims.last(), dims.len().checked_sub(2).map(|at| dims[at]))
    else {
        return Ok(Vec::new());
    };
    let all = whole_numbers(indices)?.unwrap_or_default();
    let rows = all.chunks((*each).max(1)).zip(counts).map(|(row, count)| {
        let count = usize::try_from(*count).unwrap_or_default();
        row.get(..count).unwrap_or(row).to_vec()
    });
    let heads = dims.len().checked_sub(3).map_or(1, |at| dims[at]);
    Ok(nested(&rows.collect::<Vec<_>>(), tiles, heads))
}

/// Lists by item, head and tile.
fn nested(lists: &[Vec<i64>], tiles: usize, heads: usize) -> Vec<Vec<Vec<Vec<i64>>>> {
    let heads_of = |item: &[Vec<i64>]| item.chunks(tiles.max(1)).map(<[_]>::to_vec).collect();
    lists.chunks(tiles.saturating_mul(heads).max(1)).map(heads_of).collect()
}
