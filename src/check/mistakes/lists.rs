//! What do people get wrong in reading the lists of keys that are chosen for queries?

use program::{Lists, Selected, Selection, signed};

/// Tables of more blocks are not read by other strides.
const MOST_BLOCKS: usize = 64;

/// What faulty code chooses, and what it does then.
pub(super) type Told = (Selection, String);

/// Lists of which each is made of the one that it was.
fn each(own: &Lists, of: impl Fn(&[i64]) -> Vec<i64>) -> Selection {
    let tiles = |tiles: &Vec<Vec<i64>>| tiles.iter().map(|list| of(list)).collect();
    let chosen = own.chosen.iter().map(|heads| heads.iter().map(tiles).collect()).collect();
    Selection::Lists(Lists { chosen, ..own.clone() })
}

/// Numbers that are read wrongly, or left out.
pub(super) fn of_numbers(own: &Selected, lists: &Lists) -> Vec<Told> {
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

/// Lists of which the numbers are not read, or the first alone.
pub(super) fn of_runs(own: &Selected, lists: &Lists) -> Vec<Told> {
    let blocks = i64::try_from(own.keys.div_ceil(lists.block.max(1))).unwrap_or(i64::MAX);
    let from = |first: fn(&[i64]) -> i64| {
        each(lists, |list| {
            let real = list.iter().copied().filter(|number| (0..blocks).contains(number));
            let real: Vec<i64> = real.collect();
            (first(&real)..blocks).take(real.len()).collect()
        })
    };
    vec![
        (
            from(|_| 0),
            tr!(
                "the numbers of a list are not read: as many are taken as it has, from the first on"
            )
            .to_owned(),
        ),
        (
            from(|list| list.first().copied().unwrap_or_default()),
            tr!("only the first number of a list is read: the others are taken to follow it")
                .to_owned(),
        ),
    ]
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

/// Lists that end too early.
pub(super) fn of_ends(own: &Selected, lists: &Lists) -> Vec<Told> {
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
