//! Which rows and columns of a tile are read in another layout than they were written in, as registers and shared memory have
//! them?

use super::Grammar;
use crate::candidate::{Edits, cost};
use program::{Along, Axis, Change, Edit, Fragment, Kind, Name, Slip};

/// An order of so many rows or columns, as the place that is read in place of each, and how it is told.
type Order = (usize, fn(usize) -> usize, &'static str);

/// What reads something: the step, the slot, what it reads, the axis of that, and what stands on it.
type Read = (Name, usize, Name, usize, &'static str);

/// The orders of rows and columns that tensor cores and the code around them have.
const ORDERS: [Order; 10] = [
    (2, |at| at ^ 1, "i ^ 1"),
    (8, |at| at ^ 4, "i ^ 4"),
    (16, |at| at ^ 8, "i ^ 8"),
    // Of accumulators, as a thread has them: two of the first eight, two of the next.
    (16, |at| at / 4 * 2 + at % 2 + at % 4 / 2 * 8, "0 1 8 9 2 3 10 11 …"),
    (16, |at| at % 8 / 2 * 4 + at / 8 * 2 + at % 2, "0 1 4 5 8 9 12 13 2 3 …"),
    // The same of operands in 8 bits.
    (32, |at| at / 8 * 2 + at % 2 + at % 8 / 2 * 8, "0 1 8 9 16 17 24 25 2 3 …"),
    (32, |at| at % 8 / 2 * 8 + at / 8 * 2 + at % 2, "0 1 8 9 16 17 24 25 … (back)"),
    (32, |at| at / 8 * 4 + at % 4 + at % 8 / 4 * 16, "0 1 2 3 16 17 18 19 4 5 …"),
    // Halves between each other.
    (16, |at| at / 2 + at % 2 * 8, "0 8 1 9 2 10 …"),
    (16, |at| at % 8 * 2 + at / 8, "0 2 4 … 14 1 3 …"),
];

/// Layouts of rows and columns together.
const FRAGMENTS: [Fragment; 10] = [
    Fragment::Transposed(8),
    Fragment::Transposed(4),
    Fragment::Transposed(16),
    swizzled(8, 1, 2),
    swizzled(8, 1, 4),
    swizzled(8, 1, 8),
    swizzled(8, 2, 4),
    swizzled(4, 1, 4),
    swizzled(4, 1, 8),
    swizzled(16, 1, 4),
];

const fn swizzled(chunk: usize, rows: usize, count: usize) -> Fragment {
    Fragment::Swizzled { chunk, rows, count }
}

impl Grammar<'_> {
    /// What is read in the layout of another fragment.
    pub(super) fn fragments(&mut self) {
        let is_stated = self.right.parts().is_some();
        let cost = if is_stated { cost::PLAIN } else { cost::RARE };
        let products = self.products();
        let rows =
            products.iter().map(|(reader, slot, input)| (*reader, *slot, *input, 2, tr!("rows")));
        // An order of the features of both is one of neither.
        let features =
            products.iter().filter(|(reader, slot, _)| *reader != Name::ScoresRaw || *slot == 0);
        let features =
            features.map(|(reader, slot, input)| (*reader, *slot, *input, 3, tr!("features")));
        let of_factors = self.factors_of_rows();
        let mut all: Vec<_> = rows.chain(features).map(|own| vec![own]).collect();
        all.extend(of_factors);
        for places in all {
            let Some((at, _, input, _, what)) = places.first().copied() else { continue };
            for (size, from, order) in ORDERS {
                let edits = places.iter().map(|(reader, slot, input, axis, _)| {
                    let count = self.right.step(*input)?.axes.shape().get(*axis).copied()?;
                    Some(taken(*reader, *slot, *axis, (count, size, from)))
                });
                let Some(edits) = edits.collect::<Option<Vec<Edits>>>() else { continue };
                let told = tr!(
                    "the {what} of {input} are read in another order within each {size}: {order}",
                    what,
                    input,
                    size,
                    order
                );
                self.add_all(Kind::Axes, cost, edits.concat(), at, told);
            }
        }
        for (reader, slot, input) in products {
            for fragment in FRAGMENTS {
                let told = match fragment {
                    Fragment::Transposed(size) => tr!(
                        "blocks of {size} × {size} of {input} are transposed, as by ldmatrix without .trans, or with it",
                        size,
                        input
                    ),
                    Fragment::Swizzled { chunk, rows, count } => tr!(
                        "{input} is swizzled where it is written to shared memory and not where it is read, or the other way round: row r has chunk c ^ (r / {rows} % {count}) of {chunk} features for its chunk c",
                        input,
                        rows,
                        count,
                        chunk
                    ),
                };
                let change = Change::before(slot, Slip::Fragment(fragment));
                self.add(Kind::Axes, cost, reader, change, told);
            }
        }
    }

    /// What reads the factors, or the sums, of rows.
    fn factors_of_rows(&self) -> Vec<Vec<Read>> {
        let slot = |reader: Name, input: Name| {
            let read = self.right.step(reader).map(|step| self.read(step))?;
            let slot = read.iter().position(|read| *read == input)?;
            let mut dims = self.right.step(input)?.axes.iter();
            let axis = dims.position(|(axis, _)| axis == Axis::Query)?;
            Some((reader, slot, input, axis, tr!("rows")))
        };
        let factor = |reader| slot(reader, Name::TileFactor);
        let both = [Name::TileSum, Name::TileAcc].map(factor);
        let mut all: Vec<Vec<_>> = both.iter().copied().flatten().map(|own| vec![own]).collect();
        all.extend(both.into_iter().collect::<Option<Vec<_>>>());
        all.extend(slot(Name::HeadOutputs, Name::TileSum).map(|own| vec![own]));
        all
    }
}

/// The edits by which a step reads the places of an axis in another order within tiles; behind the last one are zeros.
fn taken(
    reader: Name,
    slot: usize,
    axis: usize,
    (count, size, from): (usize, usize, fn(usize) -> usize),
) -> Edits {
    let place = |at: usize| at / size * size + from(at % size);
    let take = Along::Take((0..count).map(|at| place(at).min(count.saturating_sub(1))).collect());
    let behind: Vec<usize> = (0..count).filter(|at| place(*at) >= count).collect();
    let mut all = vec![take];
    if !behind.is_empty() {
        all.push(Along::Zero(behind));
    }
    // The later edit is made closer to the step.
    let edit = |along| Edit::new(reader, Change::before(slot, Slip::Along(axis, along)));
    all.into_iter().map(edit).collect()
}
