//! The inverse of I + A, where A is below the diagonal, and what code makes in its place; all matrices row by row.

use super::delta_slots::ChunkMerge;
use super::delta_walk::read;

/// A matrix times another, whose rows have so many columns.
pub(super) fn product(left: &[f64], right: &[f64], columns: usize) -> Vec<f64> {
    let inner = right.len() / columns.max(1);
    left.chunks(inner.max(1)).flat_map(|row| read(row, right, columns)).collect()
}

/// Numbers less others that are multiplied by a factor.
pub(super) fn less(left: &[f64], right: &[f64], factor: f64) -> Vec<f64> {
    left.iter().zip(right).map(|(left, right)| left - factor * right).collect()
}

/// I.
pub(super) fn identity(count: usize) -> Vec<f64> {
    let cell = |at: usize| if at / count == at % count { 1.0 } else { 0.0 };
    (0..count * count).map(cell).collect()
}

/// The transpose of a matrix with so many columns.
pub(super) fn transposed(matrix: &[f64], columns: usize) -> Vec<f64> {
    let rows = matrix.len() / columns.max(1);
    let cell = |at: usize| matrix.get(at % rows * columns + at / rows).copied().unwrap_or_default();
    (0..matrix.len()).map(cell).collect()
}

/// X of (I + A) X = B, of A what is below the diagonal, row by row; at one that is left out nothing is subtracted.
pub(super) fn substituted(a: &[f64], b: &[f64], count: usize, left_out: Option<usize>) -> Vec<f64> {
    let columns = b.len() / count.max(1);
    let mut solved = b.to_vec();
    for row in (1..count).filter(|row| Some(*row) != left_out) {
        let (above, below) = solved.split_at_mut(row * columns);
        let factors = a.get(row * count..row * count + row).unwrap_or_default();
        for (factor, other) in factors.iter().zip(above.chunks(columns)) {
            let own = below.iter_mut().zip(other);
            own.for_each(|(number, other)| *number -= factor * other);
        }
    }
    solved
}

/// X of (I + A) X = B, of all of A.
pub(super) fn eliminated(a: &[f64], b: &[f64], count: usize) -> Vec<f64> {
    let columns = b.len() / count.max(1);
    let mut left = less(&identity(count), a, -1.0);
    let mut right = b.to_vec();
    for pivot in 0..count {
        let own = left[pivot * count..(pivot + 1) * count].to_vec();
        let own_right = right[pivot * columns..(pivot + 1) * columns].to_vec();
        for row in (0..count).filter(|row| *row != pivot) {
            let factor = left[row * count + pivot] / own[pivot];
            let cells = left[row * count..(row + 1) * count].iter_mut().zip(&own);
            cells.for_each(|(cell, own)| *cell -= factor * own);
            let cells = right[row * columns..(row + 1) * columns].iter_mut().zip(&own_right);
            cells.for_each(|(cell, own)| *cell -= factor * own);
        }
    }
    let scaled = right.iter().enumerate();
    scaled.map(|(at, cell)| cell / left[at / columns * (count + 1)]).collect()
}

/// I and what the forward substitution makes, row by row, of −A, of which what is above the diagonal stays where it was not
/// cleared.
pub(super) fn uncleared(a: &[f64], count: usize, is_above: bool) -> Vec<f64> {
    let is_kept = |at: usize| is_above || at % count <= at / count;
    let kept = a.iter().enumerate();
    let mut made: Vec<f64> = kept.map(|(at, cell)| if is_kept(at) { -cell } else { 0.0 }).collect();
    for row in 1..count {
        let own = made[row * count..row * count + row].to_vec();
        for (at, factor) in own.iter().enumerate() {
            for column in 0..row {
                made[row * count + column] += factor * made[at * count + column];
            }
        }
    }
    less(&made, &identity(count), -1.0)
}

/// (I + A)⁻¹, put together from ever larger blocks, with a mistake where it is from blocks of this size.
pub(super) fn merged(a: &[f64], count: usize, (block, merge): (usize, ChunkMerge)) -> Vec<f64> {
    let mut whole = identity(count);
    let sizes = std::iter::successors(Some(1), |size: &usize| Some(2 * size));
    for size in sizes.take_while(|size| *size < count) {
        for from in (0..count.saturating_sub(size)).step_by(2 * size) {
            let (middle, end) = (from + size, (from + 2 * size).min(count));
            let is_nothing = merge == ChunkMerge::Nothing && size >= block;
            let merge = Some(merge).filter(|_| size == block);
            let has = |others: &[ChunkMerge]| merge.is_some_and(|own| others.contains(&own));
            let is_first = !has(&[ChunkMerge::WithoutFirst, ChunkMerge::Plain]);
            let is_second = !has(&[ChunkMerge::WithoutSecond, ChunkMerge::Plain]);
            let sign = if has(&[ChunkMerge::Added]) { 1.0 } else { -1.0 };
            let mut below = Vec::new();
            for row in middle..end {
                for column in from..middle {
                    let first = |at: usize| a[row * count + at] * whole[at * count + column];
                    let own = a[row * count + column];
                    below.push(if is_first { (from..middle).map(first).sum() } else { own });
                }
            }
            for row in middle..end {
                for column in from..middle {
                    let at = |row: usize| below[(row - middle) * size + column - from];
                    let second = |other: usize| whole[row * count + other] * at(other);
                    let all = if is_second { (middle..end).map(second).sum() } else { at(row) };
                    whole[row * count + column] = if is_nothing { 0.0 } else { sign * all };
                }
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where nothing is wrong, every way to the inverse comes to the same.
    #[test]
    fn every_way_gives_the_inverse() {
        for count in [1, 2, 5, 8, 12] {
            let cell = |at: usize| if at % count < at / count { (at as f64).sin() } else { 0.0 };
            let a: Vec<f64> = (0..count * count).map(cell).collect();
            let inverse = substituted(&a, &identity(count), count, None);
            let plus = less(&identity(count), &a, -1.0);
            let all = [
                (product(&plus, &inverse, count), identity(count)),
                (eliminated(&a, &identity(count), count), inverse.clone()),
                (uncleared(&a, count, true), inverse.clone()),
                // No block has no tokens.
                (merged(&a, count, (0, ChunkMerge::Plain)), inverse.clone()),
                (transposed(&transposed(&inverse, count), count), inverse),
            ];
            for (at, (own, meant)) in all.iter().enumerate() {
                let apart = own.iter().zip(meant).map(|(own, meant)| (own - meant).abs());
                // Of numbers below 100, a dozen roundings.
                assert!(apart.fold(0.0, f64::max) < 1e-10, "{count} tokens, way {at}");
            }
        }
    }
}
