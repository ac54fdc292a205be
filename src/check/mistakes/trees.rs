//! What do people get wrong in the keys that are chosen for queries, by lists or by a tree of guessed tokens?

use super::Sibling;
use super::lists::Told;
use super::selected::{by_key, of_lists};
use program::{Kind, Selected, Selection, comes_from as come, parent};

pub fn siblings(own: &Selected) -> Vec<Sibling> {
    let all = match &own.by {
        Selection::Lists(lists) => of_lists(own, lists),
        Selection::Tree(rows) => of_tree(own, rows),
    };
    let others = all.into_iter().filter(|(by, _)| *by != own.by);
    let sibling = |(by, told)| Sibling::new(Selected { by, ..own.clone() }, Kind::Mask, told);
    others.map(sibling).collect()
}

/// What a query sees of a tree: by the parents, the query's place and the other token's.
type Sees<'a> = &'a dyn Fn(&[i64], usize, usize) -> bool;

/// The tokens from the root to one.
fn depth(parents: &[i64], token: usize) -> usize {
    (0..parents.len()).filter(|other| come(parents, token, *other)).count()
}

fn of_tree(own: &Selected, rows: &[Vec<i64>]) -> Vec<Told> {
    let mut all = branches(own, rows);
    all.extend(levels(own, rows));
    all.extend(places(own, rows));
    let counted = [
        (1, tr!("parents are counted one too high")),
        (-1, tr!("parents are counted one too low")),
    ];
    for (by, told) in counted {
        let other = |own: &i64| if *own < 0 { *own } else { own + by };
        let other = rows.iter().map(|row| row.iter().map(other).collect()).collect();
        all.push((Selection::Tree(other), told.to_owned()));
    }
    for by in 1..rows.len() {
        let mut turned = rows.to_vec();
        turned.rotate_left(by);
        all.push((Selection::Tree(turned), tr!("items have each other's trees").to_owned()));
    }
    if let Some(first) = rows.first() {
        let told = tr!("every item has the tree of the first").to_owned();
        all.push((Selection::Tree(vec![first.clone(); rows.len()]), told));
    }
    all
}

/// What each query sees where its tree is another, and every key before it is seen.
fn tree(own: &Selected, rows: &[Vec<i64>], sees: Sees) -> Selection {
    by_key(own, 1, |_, [item, _, row]| {
        let parents = rows.get(item).or_else(|| rows.first()).map_or(&[][..], Vec::as_slice);
        let before = own.keys.saturating_sub(parents.len());
        let is_seen = |key: usize| key.checked_sub(before).is_none_or(|at| sees(parents, row, at));
        (0..own.keys).map(is_seen).collect()
    })
}

/// Other relatives.
fn branches(own: &Selected, rows: &[Vec<i64>]) -> Vec<Told> {
    let with = |told: &str, sees: Sees| (tree(own, rows, sees), told.to_owned());
    vec![
        with(
            tr!(
                "the tree is read as a chain: a token sees all before it, those of other branches too"
            ),
            &|_, row, at| at <= row,
        ),
        with(
            tr!("a token of the tree sees its parent alone, and not what that comes from"),
            &|all, row, at| at == row || parent(all, row) == Some(at),
        ),
        with(tr!("a token of the tree does not see itself"), &|all, row, at| {
            at != row && come(all, row, at)
        }),
        with(
            tr!("a token of the tree sees what comes from it, and not what it comes from"),
            &|all, row, at| come(all, at, row),
        ),
        with(tr!("a token of the tree sees what comes from it as well"), &|all, row, at| {
            come(all, row, at) || come(all, at, row)
        }),
        with(tr!("a token of the tree sees its siblings as well"), &|all, row, at| {
            come(all, row, at) || parent(all, row) == parent(all, at)
        }),
        with(tr!("a token of the tree sees its earlier siblings as well"), &|all, row, at| {
            come(all, row, at) || at < row && parent(all, row) == parent(all, at)
        }),
        with(tr!("a token of the tree sees its parent's siblings as well"), &|all, row, at| {
            let own = parent(all, row).map(|own| parent(all, own));
            come(all, row, at) || own == Some(parent(all, at))
        }),
        with(tr!("a token of the tree does not see the root"), &|all, row, at| {
            at == row || come(all, row, at) && parent(all, at).is_some()
        }),
        with(
            tr!("a token of the tree sees itself alone, and nothing that it comes from"),
            &|_, row, at| at == row,
        ),
        with(tr!("no token of the tree is seen"), &|_, _, _| false),
    ]
}

/// A token's depth in the place of what it comes from.
fn levels(own: &Selected, rows: &[Vec<i64>]) -> Vec<Told> {
    let with = |told: &str, sees: Sees| (tree(own, rows, sees), told.to_owned());
    let mut all = vec![
        with(tr!("a token of the tree sees every token of a smaller depth"), &|all, row, at| {
            come(all, row, at) || depth(all, at) < depth(all, row)
        }),
        with(tr!("a token of the tree sees every token up to its own depth"), &|all, row, at| {
            depth(all, at) <= depth(all, row)
        }),
        with(
            tr!(
                "a token's depth in the tree is taken for its place: it sees as many of the tree's tokens, from the first on"
            ),
            &|all, row, at| at < depth(all, row),
        ),
    ];
    for levels in 2..8 {
        let told =
            tr!("a token of the tree sees only {levels} of the tokens that it comes from", levels);
        all.push(with(&told, &|all, row, at| {
            come(all, row, at) && depth(all, row) <= depth(all, at) + levels
        }));
    }
    all
}

/// A tree that stands at other keys than the last, and keys before it that are hidden.
fn places(own: &Selected, rows: &[Vec<i64>]) -> Vec<Told> {
    let count = rows.first().map_or(0, Vec::len);
    let before = own.keys.saturating_sub(count);
    // The place in the tree that a key is taken for, if it is taken for one; whether others are seen.
    let with = |told: &str, place: &dyn Fn(usize) -> Option<usize>, are_seen: bool| {
        let other = by_key(own, 1, |_, [item, _, row]| {
            let parents = rows.get(item).or_else(|| rows.first()).map_or(&[][..], Vec::as_slice);
            let is_seen = |key| place(key).map_or(are_seen, |at| come(parents, row, at));
            (0..own.keys).map(is_seen).collect()
        });
        (other, told.to_owned())
    };
    vec![
        with(
            tr!("the tree's mask lies on the first keys, the prefix, and not on the tree"),
            &|key| (key < count).then_some(key),
            true,
        ),
        with(
            tr!("the keys before the tree, the prefix, are hidden"),
            &|key| key.checked_sub(before),
            false,
        ),
        with(
            tr!("the tree's mask lies one key too far left"),
            &|key| (key + 1).checked_sub(before),
            true,
        ),
        with(
            tr!("the tree's mask lies one key too far right"),
            &|key| key.checked_sub(before + 1),
            true,
        ),
    ]
}
