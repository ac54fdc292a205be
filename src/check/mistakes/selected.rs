//! What do people get wrong in the keys that are chosen for queries?

use program::{Lists, QueryRows, Selected, Selection, signed};

/// So many lists that lack one number, or have one more, are tried at most.
const MOST: usize = 2048;

/// Beyond so many cells no key is chosen by itself.
const MOST_CELLS: usize = 1 << 18;

/// What faulty code chooses, and what it does then.
pub(super) type Told = (Selection, String);

/// Lists of which each is made of the one that it was.
fn each(own: &Lists, of: impl Fn(&[i64]) -> Vec<i64>) -> Selection {
    let tiles = |tiles: &Vec<Vec<i64>>| tiles.iter().map(|list| of(list)).collect();
    let chosen = own.chosen.iter().map(|heads| heads.iter().map(tiles).collect()).collect();
    Selection::Lists(Lists { chosen, ..own.clone() })
}

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
    all.extend(of_others(own, lists));
    all.extend(of_sizes(own, lists));
    all.extend(of_single(own, lists));
    all
}

/// Numbers that are read wrongly, or left out.
fn of_numbers(own: &Selected, lists: &Lists) -> Vec<Told> {
    let blocks = i64::try_from(own.keys.div_ceil(lists.block.max(1))).unwrap_or(i64::MAX);
    let numbers = |of: fn(i64, i64) -> i64| {
        each(lists, |list| list.iter().map(|number| of(*number, blocks)).collect())
    };
    let longest = lists.chosen.iter().flatten().flatten().map(Vec::len).max().unwrap_or_default();
    let mut all = vec![
        (
            numbers(|number, all| if number < 0 { all + number } else { number }),
            tr!("the padding of a list (−1) is read as the last key").to_owned(),
        ),
        (
            numbers(|number, all| if number >= all { all - 1 } else { number }),
            tr!("the padding of a list, beyond the keys, is read as the last key").to_owned(),
        ),
        (
            numbers(|number, all| if (0..all).contains(&number) { number } else { 0 }),
            tr!("the padding of a list (−1) is read as the first key").to_owned(),
        ),
        (
            numbers(|number, _| if number < 0 { number } else { number | 1 }),
            tr!("every even index is read as the odd one behind it").to_owned(),
        ),
        (numbers(|number, _| number + 1), tr!("every index is read one too high").to_owned()),
        (numbers(|number, _| number - 1), tr!("every index is read one too low").to_owned()),
    ];
    if lists.block > 1 {
        let keys = |list: &[i64]| {
            let own = list.iter().filter(|number| (0..blocks).contains(number));
            let size = signed(lists.block);
            own.flat_map(|first| *first..first + size).collect::<Vec<_>>()
        };
        if let Selection::Lists(chosen) = each(lists, keys) {
            let told =
                tr!("the number of a block is taken for its first key, not multiplied by its size");
            all.push((Selection::Lists(Lists { block: 1, ..chosen }), told.to_owned()));
        }
    }
    for by in [2, 4, 8, 16].into_iter().filter(|by| *by < blocks) {
        let down = |number: &i64| if *number < 0 { *number } else { number / by * by };
        let told = tr!("indices are rounded down to a multiple of {by}", by);
        all.push((each(lists, |list| list.iter().map(down).collect()), told));
    }
    let noun = if lists.block > 1 { tr!("block") } else { tr!("index") };
    for (by, told) in [
        (-1, tr!("with each {noun} the one before it is seen too", noun)),
        (1, tr!("with each {noun} the one behind it is seen too", noun)),
    ] {
        let both = |number: &i64| {
            let is_real = (0..blocks).contains(number);
            let beside = Some(number + by).filter(|other| is_real && (0..blocks).contains(other));
            std::iter::once(*number).chain(beside).collect::<Vec<_>>()
        };
        all.push((each(lists, |list| list.iter().flat_map(both).collect()), told));
    }
    for place in 0..longest.min(9) {
        let without = |from_end: bool| {
            each(lists, |list| {
                let real = list.iter().filter(|number| (0..blocks).contains(*number));
                let mut kept: Vec<i64> = real.copied().collect();
                let at = if from_end { kept.len().checked_sub(place + 1) } else { Some(place) };
                if let Some(at) = at.filter(|at| *at < kept.len()) {
                    kept.remove(at);
                }
                kept
            })
        };
        let told = match place {
            0 => tr!("the last {noun} of each list is left out", noun),
            1 => tr!("the last but one {noun} of each list is left out", noun),
            place => tr!(
                "the {noun} at place {place} from the end of each list is left out",
                noun,
                place
            ),
        };
        all.push((without(true), told));
        all.push((
            without(false),
            tr!("the {noun} at place {place} of each list is left out", noun, place),
        ));
    }
    all
}

/// Lists of each query by itself.
fn each_row(own: &Selected, lists: &Lists, change: impl Fn(&[i64], i64) -> Vec<i64>) -> Selection {
    let rows = own.rows.first + own.rows.count;
    let before = own.keys.saturating_sub(rows);
    let of_head = |item: usize, head: usize| {
        (0..rows).map(|row| change(lists.of(item, head, row), signed(before + row))).collect()
    };
    let of_item = |(item, heads): (usize, &Vec<Vec<Vec<i64>>>)| {
        (0..heads.len()).map(|head| of_head(item, head)).collect()
    };
    let chosen = lists.chosen.iter().enumerate().map(of_item).collect();
    Selection::Lists(Lists { chosen, tile: 1, block: lists.block })
}

/// Lists whose rows are taken to be closer together than they are, of which each names what it chose and then the rest.
fn of_other_strides(lists: &Lists, blocks: i64) -> Vec<Told> {
    let real = |list: &[i64]| -> Vec<i64> {
        list.iter().copied().filter(|own| (0..blocks).contains(own)).collect()
    };
    let counts = lists.chosen.iter().flatten().flatten().map(|list| real(list).len());
    let most = counts.max().unwrap_or_default();
    let width = usize::try_from(blocks).unwrap_or_default();
    if lists.block < 2 || width > MOST_BLOCKS {
        return Vec::new();
    }
    let row = |list: &Vec<i64>| -> Vec<i64> {
        let rest = (0..blocks).filter(|number| !list.contains(number));
        real(list).into_iter().chain(rest).collect()
    };
    let of = |stride: usize| {
        let of_head = |tiles: &Vec<Vec<i64>>| {
            let flat: Vec<i64> = tiles.iter().flat_map(row).collect();
            let taken = |(at, list): (usize, &Vec<i64>)| {
                flat.iter().copied().skip(at * stride).take(real(list).len()).collect()
            };
            tiles.iter().enumerate().map(taken).collect::<Vec<Vec<i64>>>()
        };
        let of_item = |heads: &Vec<Vec<Vec<i64>>>| heads.iter().map(of_head).collect();
        let chosen = lists.chosen.iter().map(of_item).collect();
        let told = tr!(
            "the rows of the table of blocks are taken to be {stride} entries apart, and are {width}",
            stride,
            width
        );
        (Selection::Lists(Lists { chosen, ..lists.clone() }), told)
    };
    let mut strides = vec![most, width - 1];
    strides.retain(|stride| (1..width).contains(stride));
    strides.dedup();
    strides.into_iter().map(of).collect()
}

/// Tables of more blocks are not read by other strides.
const MOST_BLOCKS: usize = 64;

/// Lists that end too early.
fn of_ends(own: &Selected, lists: &Lists) -> Vec<Told> {
    let blocks = i64::try_from(own.keys.div_ceil(lists.block.max(1))).unwrap_or(i64::MAX);
    let longest = lists.chosen.iter().flatten().flatten().map(Vec::len).max().unwrap_or_default();
    let noun = if lists.block > 1 { tr!("block") } else { tr!("index") };
    let mut all = Vec::new();
    for by in [2, 4, 8].into_iter().filter(|by| *by <= longest) {
        let whole = each(lists, |list| {
            let real = list.iter().filter(|number| (0..blocks).contains(*number));
            let real: Vec<i64> = real.copied().collect();
            real[..real.len() / by * by].to_vec()
        });
        let told = tr!(
            "the loop over each list takes {by} places at once, and what is left over is not read",
            by
        );
        all.push((whole, told));
    }
    let stopped = |stops: &dyn Fn(i64, i64) -> bool, is_seen: bool| {
        each_row(own, lists, |list, row| {
            let at = list.iter().position(|number| stops(*number, row));
            let end = at.map_or(list.len(), |at| at + usize::from(is_seen));
            list.get(..end).unwrap_or(list).to_vec()
        })
    };
    let size = signed(lists.block);
    all.push((
        stopped(&|number, row| (number + 1) * size > row + 1, true),
        tr!("the loop over each list stops behind the first {noun} that reaches beyond the query, as if the list were sorted", noun),
    ));
    all.push((
        stopped(&|number, row| number * size > row, false),
        tr!("the loop over each list stops at the first {noun} behind the query, as if the list were sorted", noun),
    ));
    all.push((
        stopped(&|number, _| number < 0, false),
        tr!("the loop over each list stops at its first −1, and more stands behind it").to_owned(),
    ));
    all.extend(of_other_strides(lists, blocks));
    for count in 1..longest.min(65) {
        let first = each(lists, |list| list.get(..count).unwrap_or(list).to_vec());
        let told = tr!(
            "only the first {count} of the {longest} places of each list are used",
            count,
            longest
        );
        all.push((first, told));
    }
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
