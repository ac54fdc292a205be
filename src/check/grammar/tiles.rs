//! Which tiles of queries and keys do the loops of kernels leave out, or forget to mask?

use std::collections::HashSet;

use super::Grammar;
use super::cells::Cells;
use super::kernels::BLOCKS;
use crate::candidate::cost;
use program::{Hides, Masking, Name, Op, signed};

/// Beyond so many cells only tiles are looked at that kernels have there.
const MANY_CELLS: usize = 1 << 12;

impl Grammar<'_> {
    /// What loops over tiles may see in place of what a mask lets them see.
    pub(super) fn tiles(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for tile in pairs(own) {
            self.tile(own, tile, &mut |is_blocked, told| {
                let (m, n) = tile;
                let told = tr!("{told} (tiles of {m} queries and {n} keys)", told, m, n);
                let cells = own.of(is_blocked);
                if known.insert(cells.blocked.clone()) {
                    all.push((cells, told, cost::RARE));
                }
            });
        }
        all
    }

    /// The same where no tiles are stated, of masks that nothing else makes; the masks of stated tiles are tried with these.
    pub(super) fn unstated_tiles(&self, own: &Cells, all: &mut Vec<(Cells, String, u32)>) {
        if self.right.parts().is_some() {
            return;
        }
        let known: HashSet<_> = all.iter().map(|(cells, ..)| cells.blocked.clone()).collect();
        let tiles = self.tiles(own).into_iter();
        all.extend(tiles.filter(|(cells, ..)| !known.contains(&cells.blocked)));
    }

    pub(super) fn tile(&self, own: &Cells, (m, n): (usize, usize), add: &mut Add) {
        let counts = own.in_tiles((m, n));
        add(
            &|b, q, k| counts(b, q, k)[0] == 0,
            tr!("the mask is left out within tiles that it does not block whole"),
        );
        add(
            &|b, q, k| counts(b, q, k)[1] > 0,
            tr!("tiles of which the mask blocks a part are skipped"),
        );
        add(
            &|b, q, k| own.at(b, q, k) && counts(b, q, k)[0] > 0,
            tr!(
                "tiles that the mask blocks whole, those of later keys, are not skipped, and not masked"
            ),
        );
        if own.queries == own.keys {
            add(
                &|b, q, k| own.at(b, k, q) || counts(b, q, k)[0] == 0,
                tr!("the mask is transposed within tiles that it does not block whole"),
            );
        }
        add(
            &|b, q, k| {
                let is_seen = k > 0 && !own.at(b, q, k - 1);
                own.at(b, q, k) && !is_seen || counts(b, q, k)[0] == 0
            },
            tr!("one key more is visible within tiles that the mask does not block whole"),
        );
        add(
            &|b, q, k| own.at(b, q % m, k),
            tr!("the mask takes the query's place in its tile for its place among all"),
        );
        add(
            &|b, q, k| own.at(b, q, k % n),
            tr!("the mask takes the key's place in its tile for its place among all"),
        );
        if m == n && own.queries == own.keys {
            of_ring(own, m, add);
        }
        if let Some((first, window)) = self.causal() {
            loops(own, (signed(m), signed(n)), first, add);
            if let Some(window) = window {
                windows(own, (signed(m), signed(n)), (first, window), add);
            }
        }
    }

    /// The last key that the first query sees, and how many keys a window has, of a mask that hides later keys.
    pub(super) fn causal(&self) -> Option<(i64, Option<i64>)> {
        let mask = |name: Name| match self.right.step(name).map(|step| &step.op) {
            Some(Op::Masking(Masking::ByPosition(mask))) => Some(mask.clone()),
            _ => None,
        };
        let window = mask(Name::WindowMask).and_then(|mask| match mask.hides {
            Hides::BeforeWindow(size) => i64::try_from(size).ok(),
            _ => None,
        });
        mask(Name::CausalMask).map(|causal| (causal.first, window))
    }
}

/// What loops over keys or queries leave out or forget to mask under a causal mask, in tiles of m queries and n keys; `first` is
/// the last key that the first query sees.
fn loops(own: &Cells, (m, n): (i64, i64), first: i64, add: &mut Add) {
    // The first query that sees the first key of a tile.
    let start = |k: usize, first: i64| (signed(k) / n * n - first).max(0);
    add(
        &|b, q, k| own.at(b, q, k) || signed(k) >= signed(q) / m * m + first,
        tr!("the loop over keys ends before the query's own tile"),
    );
    add(
        &|b, q, k| own.at(b, q, k) || signed(k) / n > (signed(q) / m * m + first).div_euclid(n),
        tr!(
            "the loop over keys ends with the tile that a query tile's first row sees last: later tiles are skipped"
        ),
    );
    add(
        &|b, q, k| own.at(b, q, k) || signed(k) >= ((signed(q) / m * m + m + first) / n * n).max(n),
        tr!("the end of the loop over keys is rounded down to whole tiles"),
    );
    // The last tile that a tile of queries reaches.
    let last =
        |q: usize| ((signed(q) / m * m + m).min(signed(own.queries)) - 1 + first).div_euclid(n) * n;
    add(
        &|b, q, k| own.at(b, q, k) && signed(k) >= last(q),
        tr!("the mask is applied in the last tile of the loop over keys alone"),
    );
    let (queries, rest) = (signed(own.queries), signed(own.queries) % m);
    let is_of_last = |q: usize| rest != 0 && queries > m && signed(q) >= queries - m;
    add(
        &|b, q, k| {
            let late = signed(q) + m - rest + first;
            if is_of_last(q) { signed(k) > late } else { own.at(b, q, k) }
        },
        tr!(
            "the last tile of queries is moved back to end with the last query, and its mask is that of the place it was moved from"
        ),
    );
    let whole = |q: usize| (signed(q) / m * m + first + n - 1).div_euclid(n) * n;
    add(
        &|b, q, k| own.at(b, q, k) && signed(k) >= whole(q),
        tr!(
            "the number of tiles without a mask is rounded up: the first tile that the mask crosses is not masked"
        ),
    );
    add(
        &|b, q, k| own.at(b, q, k) || signed(k) < n && signed(q) >= m,
        tr!("the loop over keys stops before the first tile for all but the first tile of queries"),
    );
    add(
        &|b, q, k| own.at(b, q, k) || signed(q) < start(k, first) / m * m + m,
        tr!("the loop over queries starts one tile late"),
    );
    add(
        &|b, q, k| own.at(b, q, k) || signed(q) < (start(k, first) + m - 1) / m * m,
        tr!("the start of the loop over queries is rounded up to the next tile"),
    );
    if first != 0 {
        add(
            &|b, q, k| own.at(b, q, k) || signed(q) < start(k, 0) / m * m,
            tr!("the loop over queries starts as if queries and keys were as many"),
        );
        let ends = |q: usize| (signed(q) / m * m + m - 1) / n * n + n;
        add(
            &|b, q, k| own.at(b, q, k) || signed(k) >= ends(q),
            tr!("the loop over keys ends as if queries and keys were as many"),
        );
    }
}

/// The same of a window of so many keys before the query.
fn windows(own: &Cells, (m, n): (i64, i64), (first, window): (i64, i64), add: &mut Add) {
    // The first query that sees the first key of a tile.
    let start = |k: usize, first: i64| (signed(k) / n * n - first).max(0);
    add(
        &|b, q, k| own.at(b, q, k) || signed(q) / m * m >= start(k, first) + window,
        tr!("the loop over queries ends with the window of a tile's first key"),
    );
    let tile = |q: usize| (signed(q) / m * m + first + 1 - window).max(0) / n;
    let is_open =
        |q: usize, k: usize| signed(k) + window <= signed(q) + first && signed(k) / n > tile(q);
    add(
        &|b, q, k| own.at(b, q, k) && !is_open(q, k),
        tr!("the start of the window is masked in the first tile of the loop over keys alone"),
    );
    // The last tile may end with the last query, or behind it.
    for last in [i64::MAX, signed(own.queries)] {
        let from = |q: usize| ((signed(q) / m * m + m).min(last) + first - window).max(0) / n * n;
        add(
            &|b, q, k| own.at(b, q, k) || signed(k) < from(q),
            tr!(
                "the loop over keys starts with the window of a tile's last query: keys that only earlier queries see are skipped"
            ),
        );
    }
}

/// Tiles that pass around a ring: each is masked as if it were another.
fn of_ring(own: &Cells, size: usize, add: &mut Add) {
    add(
        &|b, q, k| if q / size == k / size { own.at(b, q, k) } else { k < q },
        tr!(
            "tiles of later keys are seen, and those of earlier ones skipped: the ring turns the other way"
        ),
    );
    let local = |b: usize, q: usize, k: usize| own.at(b, q % size, k % size);
    add(&local, tr!("every tile is masked like the first, on the diagonal"));
    add(
        &|b, q, k| own.at(b, q, k) || local(b, q, k),
        tr!("every tile is masked like the first, on the diagonal, and later ones are skipped"),
    );
}

/// The sizes that tiles of a mask may have.
pub fn sizes(own: &Cells) -> Vec<usize> {
    let is_large = own.queries * own.keys > MANY_CELLS;
    let longest = own.queries.max(own.keys);
    let sizes = BLOCKS.into_iter().filter(|size| (2..longest).contains(size));
    sizes.filter(|size| !is_large || *size >= 16).collect()
}

/// How many queries and keys tiles of a mask may have: of those that leave out the same, square ones are told.
pub fn pairs(own: &Cells) -> Vec<(usize, usize)> {
    let is_large = own.queries * own.keys > MANY_CELLS;
    let mut sizes = sizes(own);
    // Where one query has many keys, no kernel cuts these into tiles of 2 and 4.
    sizes.retain(|size| *size >= 8 || own.queries > 1 || own.keys <= 16);
    let pairs = sizes.iter().flat_map(|rows| sizes.iter().map(move |keys| (*rows, *keys)));
    let mut tiles: Vec<_> = pairs.filter(|(rows, keys)| !is_large || rows == keys).collect();
    tiles.sort_by_key(|(rows, keys)| rows != keys);
    tiles
}

/// Takes which cells are blocked, and what is said of it.
type Add<'a> = dyn FnMut(&dyn Fn(usize, usize, usize) -> bool, &str) + 'a;
