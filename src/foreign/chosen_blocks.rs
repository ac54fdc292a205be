//! Which keys does a file say that each query sees, by lists of keys or of blocks of them, or by a mask of blocks?

use candle_core::Tensor;

use super::chosen::{File, Found, Sizes, size, whole_numbers};
use super::numbers::{are_booleans, numbers};
use base::error::{Error, Result, quoted};
use program::{Lists, Selection};

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
const BLOCK_MASKS: &[&str] =
    &["block_mask", "blockmask", "block_sparse_mask", "sparse_block_mask", "base_blockmask"];
const COUNTS: &[&str] = &["kv_num_blocks"];
const FULL_COUNTS: &[&str] = &["full_kv_num_blocks"];
const FULL: &[&str] = &["full_kv_indices"];

impl File<'_> {
    /// Blocks as `FlexAttention` has them: how many each tile of queries sees, and which.
    pub fn of_counts(&self) -> Result<Option<Found>> {
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
    pub fn of_rows(&self) -> Result<Option<Found>> {
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
    pub fn block_mask(&self) -> Result<Option<Found>> {
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
    pub fn lists(&self) -> Result<Option<Found>> {
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
