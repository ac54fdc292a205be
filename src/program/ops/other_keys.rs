//! Padding masks that people make in the place of the right one.

use super::mask::{Blocked, BlockedKeys};

impl BlockedKeys {
    /// Other keys that people block, and what their code does then.
    pub(super) fn siblings(&self) -> Vec<(Blocked, String)> {
        match &self.by {
            Blocked::Lengths(lengths) => {
                let with = |of: &dyn Fn(usize) -> usize, told: &str| {
                    let lengths = lengths.iter().map(|length| of(*length)).collect();
                    (Blocked::Lengths(lengths), told.to_owned())
                };
                let rows = |of: &dyn Fn(usize, usize) -> bool| {
                    let row = |length: &usize| {
                        let cell = |key| if of(*length, key) { '1' } else { '0' };
                        (0..self.keys).map(cell).collect::<String>()
                    };
                    Blocked::Rows(lengths.iter().map(row).collect())
                };
                let mut all = vec![
                    with(&|length| length + 1, tr!("every item has one key too many")),
                    with(&|length| length.saturating_sub(1), tr!("every item has one key too few")),
                    (
                        rows(&|length, key| key >= self.keys.saturating_sub(length)),
                        tr!("padding is blocked on the left, and it is on the right").to_owned(),
                    ),
                    (
                        rows(&|length, key| key >= length),
                        tr!("the padding mask is inverted: it blocks the tokens").to_owned(),
                    ),
                ];
                for by in 1..lengths.len() {
                    let mut turned = lengths.clone();
                    turned.rotate_left(by);
                    let told = tr!("items have each other's lengths").to_owned();
                    all.push((Blocked::Lengths(turned), told));
                }
                let first = lengths.first().copied().unwrap_or_default();
                let most = lengths.iter().copied().max().unwrap_or_default();
                all.push(with(&|_| first, tr!("all items have the length of the first")));
                all.push(with(&|_| most, tr!("all items have the longest item's length")));
                all
            }
            Blocked::Rows(rows) => {
                let flip = |row: &String| {
                    row.chars().map(|cell| if cell == '0' { '1' } else { '0' }).collect()
                };
                let reversed = |row: &String| row.chars().rev().collect();
                let shifted = |row: &String| {
                    let mut cells: Vec<char> = row.chars().collect();
                    cells.rotate_right(1);
                    cells.into_iter().collect()
                };
                let each =
                    |of: &dyn Fn(&String) -> String| Blocked::Rows(rows.iter().map(of).collect());
                let mut all = vec![
                    (
                        each(&flip),
                        tr!("the padding mask is inverted: it blocks the tokens").to_owned(),
                    ),
                    (each(&reversed), tr!("the padding mask is the wrong way round").to_owned()),
                    (each(&shifted), tr!("the padding mask is one key too far").to_owned()),
                ];
                for by in 1..rows.len() {
                    let mut turned = rows.clone();
                    turned.rotate_left(by);
                    all.push((
                        Blocked::Rows(turned),
                        tr!("items have each other's padding").to_owned(),
                    ));
                }
                all
            }
        }
    }
}
