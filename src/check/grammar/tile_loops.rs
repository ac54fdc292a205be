//! What goes wrong in the loop over tiles of keys for one tile of queries: what it begins with, what it loads last, what it
//! fills blocked scores with, and whose maximum decides that it rescales.

use candle_core::Tensor;

use super::cells::Cells;
use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use base::error::Result;
use program::{Along, Block, Change, Edit, Kind, Name, Parts, Slip, Stale, signed};

/// Beyond so many parts only the first and the last two are tried, and have no other keys and values than those beside them.
pub(super) const MOST_PARTS: usize = 8;
/// What masked scores become that are not low enough to have no weight.
const FILLS: [f64; 4] = [0.0, -1.0, -10.0, 1.0];
/// What the maximum must grow by before kernels rescale: at all, or by 8 in base 2 or e.
const GROWTHS: [(f64, &str); 3] =
    [(0.0, "0"), (8.0 * std::f64::consts::LN_2, "8 ln 2"), (8.0, "8")];

/// What a whole tile of rows goes by, of a number that each row has.
type OfTile = fn(&Tensor) -> candle_core::Result<Tensor>;

impl Grammar<'_> {
    /// One part that has the keys, or the values, of another, and else its own.
    pub(super) fn one_part_of_others(&mut self, parts: &Parts, acc: Name) {
        let name = parts.axis.told();
        let count = parts.keys.len();
        let all = self.sizes.keys();
        let of_values =
            self.right.step(acc).and_then(|step| self.right.read_by(step).get(2).copied());
        let is_tried = |at: &usize| count <= MOST_PARTS || *at < 2 || *at + 2 >= count;
        for at in (0..count).filter(is_tried) {
            let beside = |other: &usize| count <= MOST_PARTS || other.abs_diff(at) == 1;
            for other in (0..count).filter(|other| *other != at).filter(beside) {
                let which = match signed(other) - signed(at) {
                    -1 => tr!("the one before it").to_owned(),
                    1 => tr!("the one behind it").to_owned(),
                    _ => format!("{name} {other}"),
                };
                let (&[(from, _)], [(first, end)]) =
                    (parts.keys[other].as_slice(), parts.keys[at].as_slice())
                else {
                    continue;
                };
                let within = *first..*end;
                let place = |key: usize| {
                    let is_own = within.contains(&key);
                    if is_own { (from + key - within.start).min(all - 1) } else { key }
                };
                let take = Along::Take((0..all).map(place).collect());
                let told = tr!(
                    "{name} {at} has the scores of the keys of {which}, and its own values: its keys are not loaded",
                    name,
                    at,
                    which
                );
                let stale = Slip::Along(3, take.clone());
                self.add(Kind::Axes, cost::COMMON, Name::ScoresRaw, after(stale, &[]), told);
                if of_values.is_some() {
                    let told = tr!(
                        "{name} {at} has its own scores, and the values of {which}: its values are not loaded",
                        name,
                        at,
                        which
                    );
                    let change = Change::before(2, Slip::Along(2, take));
                    self.add(Kind::Axes, cost::COMMON, acc, change, told);
                }
            }
        }
    }

    /// The last tile that each tile of queries reaches, with the keys of the one before.
    pub(super) fn keys_of_last(&mut self, parts: &Parts, rows: usize) {
        let Some(own) = self.own_mask() else { return };
        let (mut edits, all) = (Edits::new(), self.sizes.keys());
        for first in (0..own.queries).step_by(rows.max(1)) {
            let of_tile = first..(first + rows).min(own.queries);
            let is_seen =
                |key: &usize| (0..own.items).any(|b| of_tile.clone().any(|q| !own.at(b, q, *key)));
            let Some(last) = (0..own.keys).rev().find(is_seen) else { continue };
            let has = |spans: &Vec<(usize, usize)>| {
                spans.iter().any(|own| (own.0..own.1).contains(&last))
            };
            let Some(at) = parts.keys.iter().position(has).filter(|at| *at > 0) else { continue };
            let ([(start, end)], [(before, _)]) =
                (parts.keys[at].as_slice(), parts.keys[at - 1].as_slice())
            else {
                return;
            };
            let place =
                |key: usize| if (*start..*end).contains(&key) { before + key - start } else { key };
            let along = Box::new(Along::Take((0..all).map(place).collect()));
            let within = Along::Within { axis: 2, places: of_tile.collect(), along };
            edits.push(Edit::new(Name::ScoresRaw, after(Slip::Along(3, within), &[])));
        }
        let told = tr!(
            "in the last tile that a tile of queries reaches, the keys are still those of the tile before"
        );
        // Of one tile of queries it is told of that tile of keys.
        if edits.len() > 1 {
            self.add_all(Kind::Axes, cost::COMMON, edits, Name::ScoresRaw, told);
        }
    }

    /// ℓ or acc that is not cleared for the next tile of queries.
    pub(super) fn not_cleared(&mut self, [of_sum, of_acc]: [Name; 2], rows: usize) {
        let edit = |at: Name, stale: Stale| {
            let mut read = vec![Name::TileMax];
            read.extend(stale.is_output.then_some(of_sum));
            Edit::new(at, after(Slip::Stale(stale), &read))
        };
        for is_across in [false, true] {
            let raw = Stale { rows, is_across, is_output: false };
            let output = Stale { is_output: true, ..raw };
            for (edits, told) in [
                (
                    vec![edit(of_acc, raw)],
                    tr!(
                        "what is added up of the values is not cleared for the next tile of queries: it begins with what the tile before left"
                    ),
                ),
                (
                    vec![edit(of_acc, output)],
                    tr!(
                        "what is added up of the values is not cleared for the next tile of queries: it begins with the output of the tile before"
                    ),
                ),
                (
                    vec![edit(of_sum, raw)],
                    tr!(
                        "the sum is not cleared for the next tile of queries: it begins with what the tile before left"
                    ),
                ),
                (
                    vec![edit(of_sum, raw), edit(of_acc, raw)],
                    tr!(
                        "the sum and what is added up of the values are not cleared for the next tile of queries: they begin with what the tile before left"
                    ),
                ),
            ] {
                let told = if is_across {
                    tr!(
                        "{told}, and the first tile of a head with the last of the head before",
                        told
                    )
                } else {
                    told.to_owned()
                };
                let at = edits[0].at;
                self.add_all(Kind::Replaced, cost::COMMON, edits, at, told);
            }
        }
    }

    /// Where a whole tile of queries is not rescaled, as one of its rows decides for all, or all must agree.
    pub(super) fn decided_by_others(&self, rows: usize) -> Result<Vec<(Tensor, String)>> {
        let Some(step) = self.right.step(Name::TileFactor) else { return Ok(Vec::new()) };
        let queries = step.value.dim(3)?;
        let mut all = Vec::new();
        for (growth, name) in GROWTHS {
            let deciders: [(OfTile, String); 4] = [
                (
                    |own| own.narrow(3, 0, 1),
                    tr!(
                        "where the maximum of a tile's first query grows by no more than {name}: it decides for all rows",
                        name
                    ),
                ),
                (
                    |own| own.narrow(3, own.dim(3)? - 1, 1),
                    tr!(
                        "where the maximum of a tile's last query grows by no more than {name}: it decides for all rows",
                        name
                    ),
                ),
                (
                    |own| own.max_keepdim(3),
                    tr!(
                        "where the maximum of any query of a tile grows by no more than {name}: only if all grow is it rescaled",
                        name
                    ),
                ),
                (
                    |own| own.min_keepdim(3),
                    tr!("where no maximum of a tile of queries grows by more than {name}", name),
                ),
            ];
            for (decider, told) in deciders {
                let mut tiles = Vec::new();
                for first in (0..queries).step_by(rows.max(1)) {
                    let own = step.value.narrow(3, first, rows.max(1).min(queries - first))?;
                    tiles.push(decider(&own)?.ge((-growth).exp())?.broadcast_as(own.shape())?);
                }
                all.push((Tensor::cat(&tiles, 3)?, told));
            }
        }
        Ok(all)
    }

    /// Blocked scores of tiles that the mask blocks a part of, which are filled with a number that has weight.
    pub(super) fn filled_at_the_edge(
        &mut self,
        own: &Cells,
        in_part: &Cells,
        (m, n): (usize, usize),
        is_stated: bool,
    ) {
        let edge = own.of(|b, q, k| own.at(b, q, k) && in_part.at(b, q, k));
        // Where all tiles are such, it is the fill of the mask.
        if edge.blocked == own.blocked || !edge.blocked.contains(&true) {
            return;
        }
        let Ok(cells) = edge.tensor() else { return };
        for fill in FILLS {
            let told = tr!(
                "masked scores become {fill} in tiles that the mask blocks in part, and later tiles are skipped (tiles of {m} queries and {n} keys)",
                fill,
                m,
                n
            );
            let change = after(Slip::Block(Block { cells: cells.clone(), fill }), &[]);
            let cost = if is_stated { cost::COMMON } else { cost::RARE };
            self.add(Kind::Mask, cost, Name::MaskedScores, change, told);
        }
    }
}
