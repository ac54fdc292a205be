//! What do people get wrong in the keys that are chosen for queries?

use program::{Lists, QueryRows, Selected, Selection};

use super::lists::{Told, of_ends, of_numbers, of_runs};

/// So many lists that lack one number, or have one more, are tried at most.
const MOST: usize = 2048;

/// Beyond so many cells no key is chosen by itself.
const MOST_CELLS: usize = 1 << 18;

/// Lists of which each is that of another tile of as many.
fn of_tile(own: &Lists, from: impl Fn(usize, usize) -> usize) -> Selection {
    let tiles = |tiles: &Vec<Vec<i64>>| {
        let from = |at| tiles.get(from(at, tiles.len())).cloned().unwrap_or_default();
        (0..tiles.len()).map(from).collect()
    };
    let chosen = own.chosen.iter().map(|heads| heads.iter().map(tiles).collect()).collect();
    Selection::Lists(Lists { chosen, ..own.clone() })
}

/// Every key that each query sees by itself: which those are of item, head and row, is told by a function that is given the
/// right selection of all rows. That itself where there are too many.
pub(super) fn by_key(
    own: &Selected,
    heads: usize,
    sees: impl Fn(&Selected, [usize; 3]) -> Vec<bool>,
) -> Selection {
    let rows = own.rows.first + own.rows.count;
    let whole = Selected { rows: QueryRows { first: 0, count: rows }, ..own.clone() };
    let cells = own.by.items().saturating_mul(heads).saturating_mul(rows);
    if cells.saturating_mul(own.keys) > MOST_CELLS {
        return own.by.clone();
    }
    let list = |item, head, row| {
        let own = sees(&whole, [item, head, row]).into_iter().zip(0..);
        own.filter(|(is_seen, _)| *is_seen).map(|(_, key)| key).collect()
    };
    let tiles = |item, head| (0..rows).map(|row| list(item, head, row)).collect();
    let of_heads = |item| (0..heads).map(|head| tiles(item, head)).collect();
    let chosen = (0..own.by.items()).map(of_heads).collect();
    Selection::Lists(Lists { chosen, tile: 1, block: 1 })
}

pub(super) fn of_lists(own: &Selected, lists: &Lists) -> Vec<Told> {
    let mut all = of_numbers(own, lists);
    all.extend(of_ends(own, lists));
    all.extend(of_runs(own, lists));
    all.extend(of_others(own, lists));
    all.extend(of_sizes(own, lists));
    all.extend(of_single(own, lists));
    all
}

/// Lists of other queries, heads and items.
fn of_others(own: &Selected, lists: &Lists) -> Vec<Told> {
    let mut all = vec![
        (
            of_tile(lists, |at, _| at.saturating_sub(1)),
            tr!("each query has the list of the one before").to_owned(),
        ),
        (
            of_tile(lists, |at, count| (at + count - 1) % count),
            tr!("each query has the list of the one before, and the first that of the last")
                .to_owned(),
        ),
        (
            of_tile(lists, |at, count| (at + 1).min(count - 1)),
            tr!("each query has the list of the next").to_owned(),
        ),
        (of_tile(lists, |_, _| 0), tr!("every query has the list of the first").to_owned()),
        (
            of_tile(lists, |_, count| count - 1),
            tr!("every query has the list of the last").to_owned(),
        ),
        (
            of_tile(lists, |at, count| count - 1 - at),
            tr!("queries have the lists in reverse order").to_owned(),
        ),
    ];
    all.extend(of_query_tiles(own, lists));
    let with = |chosen| Selection::Lists(Lists { chosen, ..lists.clone() });
    let items = lists.chosen.len();
    for by in 1..items {
        let mut turned = lists.chosen.clone();
        turned.rotate_left(by);
        all.push((with(turned), tr!("items have each other's lists").to_owned()));
    }
    if let Some(first) = lists.chosen.first() {
        let told = tr!("every item has the lists of the first").to_owned();
        all.push((with(vec![first.clone(); items]), told));
    }
    let heads = lists.heads();
    for by in 1..heads {
        let mut turned = lists.chosen.clone();
        for own in &mut turned {
            own.rotate_left(by);
        }
        let told = tr!("heads have each other's lists, that of the head {by} further on", by);
        all.push((with(turned), told));
    }
    if heads > 1 {
        let of = |from: fn(usize, usize) -> usize| {
            let heads = |all: &Vec<Vec<Vec<i64>>>| {
                (0..own.heads)
                    .map(|at| all.get(from(at, heads)).cloned().unwrap_or_default())
                    .collect()
            };
            with(lists.chosen.iter().map(heads).collect())
        };
        let first = of(|_, _| 0);
        all.push((first, tr!("every head has the lists of the first").to_owned()));
        all.extend(of_groups(own, lists));
        let told = tr!("lists of heads are tiled (0 1 0 1), and not repeated (0 0 1 1)");
        all.push((of(|at, heads| at % heads), told.to_owned()));
        let any = by_key(own, 1, |right, [item, _, row]| {
            let mut seen = vec![false; own.keys];
            for head in 0..own.heads {
                let more = right.sees(item, head, row);
                seen.iter_mut().zip(more).for_each(|(seen, more)| *seen |= more);
            }
            seen
        });
        let told = tr!("every head sees what was chosen for any of them");
        all.push((any, told.to_owned()));
    }
    all
}

/// So many queries have kernels in one tile.
const TILES: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Lists that the queries of a tile share.
fn of_query_tiles(own: &Selected, lists: &Lists) -> Vec<Told> {
    let mut all = Vec::new();
    let rows = own.rows.first + own.rows.count;
    for size in TILES.into_iter().filter(|size| lists.tile == 1 && *size < 2 * rows) {
        let any = by_key(own, own.own_heads(), |right, [item, head, row]| {
            let mut seen = vec![false; own.keys];
            let first = row / size * size;
            for row in first..(first + size).min(rows) {
                let more = right.sees(item, head, row);
                seen.iter_mut().zip(more).for_each(|(seen, more)| *seen |= more);
            }
            seen
        });
        let told = tr!("each tile of {size} queries sees what was chosen for any of them", size);
        all.push((any, told));
        let first = of_tile(lists, |at, _| at / size * size);
        let told = tr!("each tile of {size} queries has the list of its first", size);
        all.push((first, told));
    }
    all
}

/// Lists that neighbouring heads share.
fn of_groups(own: &Selected, lists: &Lists) -> Vec<Told> {
    let heads = lists.heads();
    let mut all = Vec::new();
    for group in (2..own.heads).filter(|group| own.heads.is_multiple_of(*group)) {
        let with = |from: &dyn Fn(usize) -> usize| {
            let of_item = |all: &Vec<Vec<Vec<i64>>>| {
                let list = |at| all.get(from(at) * heads / own.heads).cloned();
                (0..own.heads).map(|at| list(at).unwrap_or_default()).collect()
            };
            let chosen = lists.chosen.iter().map(of_item).collect();
            Selection::Lists(Lists { chosen, ..lists.clone() })
        };
        let shared = tr!("each {group} heads share the lists of the first of them", group);
        all.push((with(&|at| at / group * group), shared));
        let told =
            tr!("each {group} heads share lists: head h has those of head h / {group}", group);
        all.push((with(&|at| at / group), told));
    }
    all
}

/// Blocks and tiles of another size.
fn of_sizes(own: &Selected, lists: &Lists) -> Vec<Told> {
    let mut all = Vec::new();
    let (tile, block) = (lists.tile, lists.block);
    let sizes = |size: usize| [1, size / 2, size * 2, size + 1, size.saturating_sub(1)];
    for other in sizes(block).into_iter().filter(|other| *other > 0 && block > 1) {
        let told = tr!("blocks are taken to have {other} keys, and have {block}", other, block);
        all.push((Selection::Lists(Lists { block: other, ..lists.clone() }), told));
    }
    for other in sizes(tile).into_iter().filter(|other| *other > 0 && tile > 1) {
        let told = tr!("tiles are taken to have {other} queries, and have {tile}", other, tile);
        all.push((Selection::Lists(Lists { tile: other, ..lists.clone() }), told));
    }
    let part = |is_in: &dyn Fn(usize) -> bool| {
        by_key(own, own.own_heads(), |right, [item, head, row]| {
            let seen = right.sees(item, head, row).into_iter().enumerate();
            seen.map(|(key, seen)| seen && is_in(key % block)).collect()
        })
    };
    for count in 1..block.min(129) {
        let first = part(&|at| at < count);
        let told = if count * 2 == block {
            tr!("only the first half of each block is read").to_owned()
        } else {
            tr!("only the first {count} keys of each block are read", count)
        };
        all.push((first, told));
        let told = if count * 2 == block {
            tr!("only the last half of each block is read").to_owned()
        } else {
            tr!("only the last {count} keys of each block are read", count)
        };
        all.push((part(&|at| at + count >= block), told));
    }
    all
}

/// Lists that lack one number, or have one more.
fn of_single(own: &Selected, lists: &Lists) -> Vec<Told> {
    let mut all = Vec::new();
    let blocks = own.keys.div_ceil(lists.block.max(1));
    let tiles = lists.chosen.iter().flatten().flatten().count();
    if tiles.saturating_mul(blocks) > MOST {
        return all;
    }
    let noun = if lists.block > 1 { tr!("block") } else { tr!("key") };
    for (item, heads) in lists.chosen.iter().enumerate() {
        for (head, tiles) in heads.iter().enumerate() {
            for (tile, list) in tiles.iter().enumerate() {
                for number in 0..i64::try_from(blocks).unwrap_or_default() {
                    let has = list.contains(&number);
                    let mut chosen = lists.chosen.clone();
                    let place = &mut chosen[item][head][tile];
                    if has {
                        place.retain(|own| *own != number);
                    } else {
                        place.push(number);
                    }
                    let of = if lists.tile > 1 {
                        tr!("tile {tile} of queries", tile)
                    } else {
                        tr!("query {tile}", tile)
                    };
                    let told = if has {
                        tr!(
                            "{noun} {number} is left out for {of}, though it was chosen",
                            noun,
                            number,
                            of
                        )
                    } else {
                        tr!(
                            "{noun} {number} is read for {of}, though it was not chosen",
                            noun,
                            number,
                            of
                        )
                    };
                    all.push((Selection::Lists(Lists { chosen, ..lists.clone() }), told));
                }
            }
        }
    }
    all
}
